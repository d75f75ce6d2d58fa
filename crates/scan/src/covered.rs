//! Files with another file mounted over them (containers do it to `/etc/hosts`): the directory still has the
//! number of the file below, but the path leads to the one above. A source that reads inodes by number must
//! know them.

use fragmend_sys::mounts;
use rustix::fs::{Mode, OFlags, RawDir};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Device and inode numbers of the files below `paths` that are covered in this way. A covered file that cannot
/// be found is missing here, and then counts as the file that its directory names.
pub(crate) fn files_below(paths: &[PathBuf]) -> BTreeSet<(u64, u64)> {
    let roots: Vec<PathBuf> = paths.iter().filter_map(|p| p.canonicalize().ok()).collect();
    let Ok(mounts) = mounts::all() else { return BTreeSet::new() };
    mounts
        .iter()
        // A single file can be mounted only by binding it, and then it is the mount's root.
        .filter(|m| m.root != Path::new("/"))
        .filter(|m| roots.iter().any(|root| m.point.starts_with(root)))
        .filter_map(|m| below(m.point.parent()?, m.point.file_name()?))
        .collect()
}

/// The device and inode number that the directory itself has for `name`.
fn below(parent: &Path, name: &OsStr) -> Option<(u64, u64)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir: OwnedFd = rustix::fs::open(parent, flags, Mode::empty()).ok()?;
    let dev = rustix::fs::fstat(&dir).ok()?.st_dev;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        if entry.file_name().to_bytes() == name.as_bytes() {
            return Some((dev, entry.ino()));
        }
    }
    None
}
