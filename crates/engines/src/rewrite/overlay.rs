//! Files to which an overlay writes: `truncate(2)` through the overlay breaks leases on its own inode alone, and
//! truncates the file below without waiting for a lease on that one.

use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::handle;
use fragmend_sys::mounts::{self, Mount};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Checks that no overlay that is mounted here has the file in the directory to which it writes. Overlays of other
/// mount namespaces are not seen.
pub(super) fn none_writes(file: &OpenFile) -> Result<(), Skip> {
    // Not known if the file was opened by another mount of the file system.
    let Some(path) = handle::path_of(&file.fd) else { return Ok(()) };
    let identity = |path: &Path| path.metadata().ok().map(|m| (m.dev(), m.ino()));
    let all = mounts::all().map_err(skip_of)?;
    for upper in all.iter().filter_map(Mount::upper) {
        let Some(known) = identity(&upper) else { continue };
        if path.ancestors().skip(1).any(|above| identity(above) == Some(known)) {
            let why = format!(
                "an overlay writes to {}, and who truncates a file there does not wait for the rewrite; unmount the overlay",
                upper.display()
            );
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
    }
    Ok(())
}
