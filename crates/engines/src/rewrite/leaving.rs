//! A file that was not touched and is left alone, after its record was made: its time of modification is put back,
//! which the trial of the allocation may have changed, and the record is removed.

use super::draft::Sealed;
use super::joined;
use super::leased::Leased;
use super::unchanged::ends_as_recorded;
use crate::point::{Point, reached};
use fragmend_layout::{Skip, SkipReason};
use std::os::fd::OwnedFd;

/// Sets the time of modification back, if that is not another program's; returns what the user is told of it. With
/// `here`, the record is in the file system of the file.
pub(super) fn set_time_back(
    file: &OwnedFd,
    sealed: &Sealed,
    leased: Leased<'_>,
    back: &mut [u8],
    here: bool,
) -> Option<String> {
    let ends = || ends_as_recorded(file, &sealed.record, &sealed.data, back).is_ok();
    let told = leased.set_time_back(ends);
    if !here {
        // On one file system the time is durable when the removal of the record is.
        let _ = rustix::fs::fsync(file);
    }
    told
}

/// Removes the record, and returns why the file is left alone, with what the user is told besides.
pub(super) fn leave(sealed: Sealed, skip: Skip, told: Option<String>) -> Result<(), Skip> {
    let detail = joined([skip.detail].into_iter().chain(told)).unwrap_or_default();
    reached(Point::Leaving);
    match sealed.remove() {
        Ok(()) => Err(Skip::new(skip.reason, detail)),
        Err(e) => Err(Skip::new(SkipReason::Failed, format!("a needless record stays: {e}"))),
    }
}
