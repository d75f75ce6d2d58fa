//! Whether a file is as its record says: nothing has been written to it since it was copied, and the range is
//! data of its own to which no device writes.

use super::draft::Draft;
use super::limits::Buffers;
use super::place::mtime;
use super::record::Record;
use crate::bytes::read_at;
use crate::errno::{in_use, skip_of};
use crate::mounted::OpenFile;
use crate::turns::vacate;
use fragmend_layout::{ByteRange, ExtentKind, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::cache;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::lease::Lease;
use fragmend_sys::same::Compare;
use std::os::fd::OwnedFd;

/// Bytes of the file that are compared between two checks for waiting programs: sixteen requests if each block
/// of 4 KiB is an extent of its own and none is cached.
const COMPARED: usize = 64 << 10;

/// Checks that the file is as its record says, as far as its size, its time and the range's bytes show; `go_on`
/// is asked between reads.
pub(super) fn holds(
    file: &OpenFile,
    record: &Record,
    data: &[u8],
    back: &mut [u8],
    go_on: impl Fn() -> Result<(), Skip>,
) -> Result<(), Skip> {
    looks_unwritten(file, record)?;
    for (index, then) in data.chunks(COMPARED).enumerate() {
        go_on()?;
        let now = &mut back[..then.len()];
        let at = record.range.start + (index * COMPARED) as u64;
        if !reads_as(&file.fd, at, then, now)? {
            return Err(written_to());
        }
    }
    Ok(())
}

/// Whether the file has these bytes at an offset; they are read into `now`.
fn reads_as(file: &OwnedFd, at: u64, then: &[u8], now: &mut [u8]) -> Result<bool, Skip> {
    Ok(read_at(file, now, at).map_err(skip_of)? == then.len() && now == then)
}

/// Checks that the file has the size and the time of its record.
pub(super) fn looks_unwritten(file: &OpenFile, record: &Record) -> Result<(), Skip> {
    let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
    let same =
        stat.st_size as u64 == record.size && mtime(&file.fd).map_err(skip_of)? == record.mtime;
    if same { Ok(()) } else { Err(written_to()) }
}

fn written_to() -> Skip {
    Skip::new(SkipReason::Busy, "it was written to while it was copied")
}

/// Checks that no program waits for the file.
pub(super) fn unwanted(lease: &Lease) -> Result<(), Skip> {
    if lease.is_wanted() {
        Err(Skip::new(SkipReason::Busy, "another program opened it"))
    } else {
        Ok(())
    }
}

/// Checks that the range is data of this file alone, and that the file is what was copied, for as long as
/// `go_on` returns true. `is_unpinned` is whether no device is known to write to its pages.
pub(super) fn unchanged(
    file: &OpenFile,
    draft: &Draft,
    buffers: &mut Buffers,
    lease: &Lease,
    is_unpinned: bool,
    go_on: impl Fn() -> bool,
) -> Result<(), Skip> {
    let record = draft.record();
    // A punch writes zeroes into the part of a folio that reaches into the hole. With the lease no other
    // program has the file open, but a pipe or a socket may still hold pages of it that were spliced into it.
    let goes_on = || !lease.is_wanted() && go_on();
    cache::part(&file.fd, record.range.start, goes_on).map_err(in_use)?;
    cache::part(&file.fd, record.range.end, goes_on).map_err(in_use)?;
    // Nor may a device be writing to a page of it. From here on none is pinned.
    if !is_unpinned && !vacate(&mut Compare::default(), file, record.range, goes_on)? {
        unwanted(lease)?;
        return Err(Skip::new(SkipReason::Busy, "it is being written to"));
    }
    let ended = || Skip::new(SkipReason::Busy, "asked to end");
    let waits = || unwanted(lease).and_then(|()| go_on().then_some(()).ok_or_else(ended));
    holds(file, record, draft.data(), &mut buffers.back, waits)?;
    // A punch may extend to the end of the page in which the file ends.
    let page = rustix::param::page_size() as u64;
    let wide = ByteRange { end: record.range.end.next_multiple_of(page), ..record.range };
    // All of the file is written back under the lease, here and again after the punch: so little of it may be
    // dirty.
    file.has_settled()?;
    let layout = fiemap::layout_within(&mut Fiemap::default(), &file.fd, wide, true);
    let layout = layout.map_err(skip_of)?;
    let kinds = |range: ByteRange, is_kind: fn(ExtentKind) -> bool| -> u64 {
        layout.within(range).filter(|e| is_kind(e.kind)).map(|e| e.length).sum()
    };
    let behind = ByteRange { start: record.range.end, end: wide.end };
    if record.range.end > record.size && kinds(behind, |_| true) > 0 {
        return Err(Skip::new(SkipReason::Unsupported, "space is preallocated behind its end"));
    }
    if kinds(record.range, |kind| kind == ExtentKind::Data) == record.range.len() {
        Ok(())
    } else {
        Err(Skip::new(SkipReason::LayoutChanged, "not all of it is data of its own"))
    }
}

/// Checks that the last block of a range is as it was recorded: a truncation within it frees no space, and does not show
/// in the file's time once that was set.
pub(super) fn ends_as_recorded(
    file: &OwnedFd,
    record: &Record,
    data: &[u8],
    back: &mut [u8],
) -> Result<(), Skip> {
    let block = record.block.max(1) as usize;
    let begin = data.len().saturating_sub(1) / block * block;
    let at = record.range.start + begin as u64;
    if reads_as(file, at, &data[begin..], &mut back[..data.len() - begin])? {
        Ok(())
    } else {
        Err(Skip::new(SkipReason::Busy, "others have truncated it"))
    }
}
