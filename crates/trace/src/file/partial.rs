//! The temporary file that a trace grows in, beside its later name.
//!
//! A writer that ends in any orderly way removes it; one that is killed cannot, so the next
//! writer of the same trace does. Each holds an exclusive `flock` on its file for as long as it
//! lives. The kernel drops the lock with the process, so a file that can be locked is nobody's:
//! unlike a process number this neither comes back nor depends on the PID namespace.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

const SUFFIX: &str = ".partial";

/// Makes the temporary file for `target`, after removing what killed writers of it left.
///
/// # Errors
/// When the directory does not take a new file.
pub(super) fn create(target: &Path) -> io::Result<NamedTempFile> {
    let parent = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let prefix = prefix(target.file_name().unwrap_or_default());
    remove_stale(parent, &prefix);
    let file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(SUFFIX)
        .permissions(Permissions::from_mode(0o666)) // less the umask, like any file
        .tempfile_in(parent)?;
    // Where there are no locks nothing is ever found stale either.
    let _ = flock(file.as_file(), FlockOperation::NonBlockingLockExclusive);
    Ok(file)
}

/// The same for each writer of one trace. A sum stands for the name, which may fill its limit.
fn prefix(name: &OsStr) -> String {
    format!(".fragmend-record-{:08x}-", crc32c::crc32c(name.as_bytes()))
}

/// Removes what it can; what it cannot does no harm to the trace to come.
fn remove_stale(parent: &Path, prefix: &str) {
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let ours = name.as_bytes().starts_with(prefix.as_bytes())
            && name.as_bytes().ends_with(SUFFIX.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        if ours && is_unlocked(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn is_unlocked(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
        .is_ok_and(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok())
}
