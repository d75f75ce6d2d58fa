//! An overlay over directories of an image, as a container's root is.

use crate::image::Image;
use crate::mount::MountGuard;
use std::path::PathBuf;

/// A mounted overlay; unmounted when dropped, or when a signal ends the process.
pub struct Overlay {
    /// Its read-only layer, an ordinary directory.
    pub lower: PathBuf,
    /// Where it is mounted.
    pub merged: PathBuf,
    _guard: MountGuard,
}

impl Overlay {
    /// Mounts one whose layers are new directories at the top of `image`.
    pub fn over(image: &Image) -> Self {
        let at = |name: &str| image.path().join(name);
        for dir in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(at(dir)).expect("a directory");
        }
        let (lower, merged) = (at("lower"), at("merged"));
        let (upper, work) = (at("upper"), at("work"));
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let guard = MountGuard::mount(&["-t", "overlay", "overlay", "-o", &options], &merged);
        Self { lower, merged, _guard: guard }
    }
}
