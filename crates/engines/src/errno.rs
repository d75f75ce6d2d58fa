//! What a system error means for a file that was to be moved.

use fragmend_layout::{Skip, SkipReason};
use rustix::io::Errno;
use std::io;

/// The reason, with the system's message.
pub(super) fn skip_of(error: io::Error) -> Skip {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY | Errno::AGAIN) => SkipReason::Busy,
        Some(Errno::TXTBSY) => SkipReason::SwapFile,
        Some(Errno::NOSPC) => SkipReason::NoSpace,
        Some(Errno::DQUOT) => SkipReason::Quota,
        Some(Errno::ROFS) => SkipReason::ReadOnly,
        Some(Errno::ACCESS | Errno::PERM) => SkipReason::PermissionDenied,
        Some(Errno::NOENT | Errno::STALE) => SkipReason::Vanished,
        Some(Errno::OPNOTSUPP) => SkipReason::Unsupported,
        // A program would wait for this process: see `fragmend_sys::listeners`.
        None if error.kind() == io::ErrorKind::ResourceBusy => SkipReason::Busy,
        _ => SkipReason::Failed,
    };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::FBIG) => Skip::new(reason, format!("{error}; raise the limit (ulimit -f)")),
        _ => Skip::new(reason, error.to_string()),
    }
}

/// The same for an error of [`fragmend_sys::cache::part`].
pub(super) fn in_use(error: io::Error) -> Skip {
    match error.kind() {
        io::ErrorKind::ResourceBusy => Skip::new(SkipReason::Busy, error.to_string()),
        _ => skip_of(error),
    }
}
