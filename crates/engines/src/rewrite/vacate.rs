//! No page that a device writes to is punched: see `fragmend_sys::same::Vacated`.

use super::mover::COMPARED;
use super::place::{mtime, set_mtime};
use super::record::Record;
use super::refused;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::turns::{unknown, vacated};
use fragmend_layout::{ByteRange, Skip};
use fragmend_sys::cache;
use fragmend_sys::same::{Compare, Same, Vacated, vacate_unasked};

/// Ensures that nothing besides the page cache refers to pages of a record's range, under a lease on its file. Returns false if the range is written to, or once `go_on` returns false.
///
/// # Errors
/// Those of [`vacated`], and those of the system calls.
pub(super) fn vacate(
    file: &OpenFile,
    record: &Record,
    go_on: impl Fn() -> bool,
) -> Result<bool, Skip> {
    let span = record.range.start..record.range.end;
    match Compare::default().vacate(&file.fd, span, &go_on).map_err(skip_of)? {
        Vacated::No(Same::Unknown) => by_writing(file, record, go_on),
        found => vacated(found),
    }
}

/// The same where the disk cannot be asked what it has, because there are no direct reads (ext4 with
/// `data=journal`). A write that it refused, and that was reported to another program, is not seen there: so the
/// pages are written once more as they are, and dropped once `fsync` has succeeded. No byte is changed, because a
/// device may be writing others just now.
fn by_writing(file: &OpenFile, record: &Record, go_on: impl Fn() -> bool) -> Result<bool, Skip> {
    let page = rustix::param::page_size() as u64;
    file.has_settled()?;
    // That the time can be put back is tried before it changes.
    let modified = mtime(&file.fd).map_err(skip_of)?;
    set_mtime(&file.fd, modified).map_err(skip_of)?;
    for part in ByteRange::at(record.range.start, record.data_len()).steps(COMPARED as u64) {
        if !go_on() {
            return Ok(false);
        }
        // Outwards to whole pages.
        let span = part.start / page * page..part.end.next_multiple_of(page);
        let dirtied = cache::dirty(&file.fd, span.clone());
        let written = rustix::fs::fsync(&file.fd);
        let _ = set_mtime(&file.fd, modified);
        dirtied.map_err(|_| unknown())?;
        written.map_err(|e| refused::told(e.into()))?;
        if !vacated(vacate_unasked(&file.fd, span, &go_on).map_err(skip_of)?)? {
            return Ok(false);
        }
    }
    Ok(true)
}
