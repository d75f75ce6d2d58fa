//! Files to which an overlay writes: `truncate(2)` through the overlay breaks leases on its own inode alone, and
//! truncates the file below without waiting for a lease on that one.
//!
//! Which files these are is not visible: the directory to which an overlay writes is known by the path that it was
//! mounted with, and may have been renamed since, or be reached by another name, a hard link or another mount. So
//! no file is rewritten on a file system to which an overlay writes, and none at all while it is not known to which
//! one it does.

use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::mounts;
use fragmend_sys::root::device_if_cached;
use std::path::Path;

/// Checks that no overlay that is mounted here writes to the file system of the file. Overlays of other mount
/// namespaces are not seen.
pub(super) fn none_writes(file: &OpenFile) -> Result<(), Skip> {
    let own = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?.st_dev;
    for mount in mounts::all().map_err(skip_of)? {
        let Some(upper) = &mount.upper else { continue };
        // Links are not followed, nor `/proc`: they may lead elsewhere by now. The overlay keeps the directory and
        // all above it in the kernel's cache, so nothing is asked of a program or a server on the way.
        let what = match device_if_cached(upper) {
            Ok(device) if device != own => continue,
            Ok(_) => "writes to this file system".to_owned(),
            Err(_) if mount.point == Path::new("/") && is_another(file)? => continue,
            Err(e) => format!("writes to a directory that is not found ({e})"),
        };
        let why = format!(
            "an overlay {what} ({}), and who truncates a file through it does not wait for the rewrite; unmount {}",
            upper.display(),
            mount.point.display()
        );
        return Err(Skip::new(SkipReason::Unsupported, why));
    }
    Ok(())
}

/// Whether the overlay at `/`, in a container, certainly writes to another file system: it returns the size and the
/// identifier of the one to which it writes (`ovl_statfs()` in fs/overlayfs/super.c).
fn is_another(file: &OpenFile) -> Result<bool, Skip> {
    let failed = |e: rustix::io::Errno| skip_of(e.into());
    let root = rustix::fs::statvfs(c"/").map_err(failed)?;
    let own = rustix::fs::fstatvfs(&file.fd).map_err(failed)?;
    Ok(root.f_fsid != own.f_fsid && root.f_blocks * root.f_frsize != own.f_blocks * own.f_frsize)
}
