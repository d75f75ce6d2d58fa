//! What makes a program privileged and is cleared by a write to its file (`file_remove_privs()`, fs/inode.c):
//! set-user-ID, set-group-ID and file capabilities (`security.capability`).
//!
//! No lease prevents others from setting them by a path. So a file that has any of them right before its first
//! change is left alone. Capabilities that are set later are read before each change and set again after it,
//! unless the file has others by then. Capabilities that are set between such a read and the kernel's write are
//! lost, as beside any other program that writes. The kernel clears the bits of the mode only for a process
//! that may not set them on any file (`CAP_FSETID`): root's writes leave them.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

const NAME: &std::ffi::CStr = c"security.capability";
/// `XATTR_CAPS_SZ_3` (linux/capability.h) is 24.
const LONGEST: usize = 64;

/// Whether a write would clear what makes the file privileged, as far as that can be read.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn has_any(file: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    Ok(stat.st_mode & 0o6000 != 0 || capabilities(file)?.is_some())
}

/// Capabilities that could not be set again, and why.
#[derive(Debug, Default)]
pub(crate) struct Lost(RefCell<Option<io::Error>>);

impl Lost {
    /// Makes a change to a file, and keeps the capabilities that the file has right before it.
    pub fn keeping<T>(&self, file: &OwnedFd, change: impl FnOnce() -> T) -> T {
        let before = capabilities(file);
        let done = change();
        let kept = before.and_then(|before| match before {
            Some(value) => set_again(file, &value),
            None => Ok(()),
        });
        if let Err(e) = kept {
            self.0.replace(Some(e));
        }
        done
    }

    /// A sentence for the user about capabilities that were lost since the last call.
    pub fn message(&self) -> Option<String> {
        let e = self.0.take()?;
        Some(format!("capabilities that were set meanwhile may be gone ({e}); see getcap(8)"))
    }
}

fn capabilities(file: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LONGEST];
    match rustix::fs::fgetxattr(file, NAME, &mut value) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn set_again(file: &OwnedFd, value: &[u8]) -> io::Result<()> {
    match rustix::fs::fsetxattr(file, NAME, value, XattrFlags::CREATE) {
        // The file still has them, or newer ones.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
