//! An overlay over directories of an image, as a container's root is.

use crate::cleanup::{self, Ticket, Undo};
use crate::image::{Image, run};
use std::path::PathBuf;

/// A mounted overlay; unmounted when dropped, or when a signal ends the process.
pub struct Overlay {
    /// Its read-only layer, an ordinary directory.
    pub lower: PathBuf,
    /// Where it is mounted.
    pub merged: PathBuf,
    _ticket: Ticket,
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
        let args = ["-t", "overlay", "overlay", "-o", &options].map(AsRef::as_ref);
        run("mount", args.into_iter().chain([merged.as_os_str()]));
        Self { lower, _ticket: cleanup::register(Undo::Mount(merged.clone())), merged }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        Undo::Mount(self.merged.clone()).run();
    }
}
