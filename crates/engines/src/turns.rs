//! Checks right before a copied turn is taken over, and right after: see [`super::copying`].

use super::errno::{in_use, skip_of};
use super::hold::alone;
use super::mounted::OpenFile;
use super::sample::OTHERS;
use super::warm::is_cold;
use fragmend_apply::drive::File;
use fragmend_layout::{ByteRange, Extent, ExtentKind, Skip, SkipReason};
use fragmend_sys::cache;
use fragmend_sys::dedupe::Shared;
use fragmend_sys::same::{Compare, Same, Vacated, write_quietly};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Checks that all of a turn is data still, and the file's own.
pub(super) fn all_data(file: &OpenFile, turn: ByteRange) -> Result<(), Skip> {
    let layout = file.layout(turn)?;
    file.may_unshare(&layout, turn)?;
    let bytes = |counts: fn(&Extent) -> bool| -> u64 {
        layout.within(turn).filter(counts).map(|e| e.length).sum()
    };
    match bytes(|e| e.kind.is_addressed()) {
        data if data == turn.len() => Ok(()),
        // It is copied again, once it has blocks.
        data if data + bytes(|e| e.kind == ExtentKind::Delayed) == turn.len() => Err(changed()),
        _ => Err(no_data()),
    }
}

/// The error that a range has got a hole.
pub(super) fn no_data() -> Skip {
    Skip::new(SkipReason::LayoutChanged, "part of the range holds no data now")
}

/// Ensures that the kernel cuts no folio that another program may still read: XFS drops a turn's pages by whole
/// folios, and writes zeroes into its part of a folio that continues beyond the turn. Pages that are read into
/// the turn afterwards, for the comparison, are single ones. Ends once `go_on` returns false.
pub(super) fn uncut(
    file: &OpenFile,
    turn: ByteRange,
    go_on: impl Fn() -> bool,
) -> Result<(), Skip> {
    let page = rustix::param::page_size() as u64;
    let (start, end) = (turn.start / page * page, turn.end.next_multiple_of(page));
    let parted =
        cache::part(&file.fd, end, &go_on).and_then(|()| cache::part(&file.fd, start, &go_on));
    parted.map_err(|e| if go_on() { in_use(e) } else { Skip::new(SkipReason::Busy, OTHERS) })
}

pub(super) fn changed() -> Skip {
    Skip::new(SkipReason::Busy, "written to under the copy")
}

pub(super) fn nothing_staged() -> Skip {
    Skip::new(SkipReason::Failed, "nothing is staged")
}

pub(super) fn all_of(shared: Shared, length: u64) -> Result<(), Skip> {
    match shared {
        Shared::Bytes(bytes) if bytes == length => Ok(()),
        Shared::Bytes(bytes) => {
            // It stopped half way, or another program has written since: the turn is copied and tried again.
            let detail = format!("{bytes} of {length} bytes were taken over");
            Err(Skip::new(SkipReason::Busy, detail))
        }
        Shared::Differs => Err(changed()),
    }
}

/// State of a file that shows whether it was truncated, also if it has grown again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    bytes: u64,
    changed: (i64, u64),
}

impl State {
    pub fn of(file: &OpenFile) -> Result<Self, Skip> {
        let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
        Ok(Self { bytes: stat.st_size as u64, changed: (stat.st_ctime, stat.st_ctime_nsec) })
    }

    /// Whether the last change is older than this, by the clock that file times are from; false where a file
    /// system of 32-bit times has come to their end (2038), and all later ones are the same.
    pub fn is_older_than(&self, time: Duration) -> bool {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let (seconds, nanoseconds) = self.changed;
        if seconds == i64::from(i32::MAX) {
            return false;
        }
        let age = i128::from(now.tv_sec - seconds) * 1_000_000_000 + i128::from(now.tv_nsec)
            - i128::from(nanoseconds);
        age > time.as_nanos() as i128
    }
}

/// How long one try waits for other programs' writes, before its caller checks again for Ctrl-C and for
/// openers.
const PATIENCE: Duration = Duration::from_millis(200);

/// Writes out the dirty pages of a part, with no program locked out, and waits for that, not long.
///
/// # Errors
/// Busy where pages are dirty still, or again.
pub(super) fn clean(file: impl AsFd, part: ByteRange) -> Result<(), Skip> {
    if write_quietly(file, part.start..part.end, PATIENCE).map_err(skip_of)? {
        Ok(())
    } else {
        Err(Skip::new(SkipReason::Busy, "others write to it"))
    }
}

/// Whether the device has what the page cache has of a part: data that it refused is in memory alone, and the
/// calls that take a copy over drop that, also when they fail. A part that is not cached is not read. Returns
/// false if others write to it, or once `go_on` returns false.
///
/// # Errors
/// The device has other data, or cannot be read.
pub(super) fn is_on_disk(
    compare: &mut Compare,
    file: &OpenFile,
    part: ByteRange,
    go_on: impl FnMut() -> bool,
) -> Result<bool, Skip> {
    if is_cold(file, part) {
        return Ok(true);
    }
    if !write_quietly(&file.fd, part.start..part.end, PATIENCE).map_err(skip_of)? {
        return Ok(false);
    }
    match compare.range(&file.fd, part.start..part.end, go_on).map_err(skip_of)? {
        Same::No(at, _) => refused(at),
        Same::Stopped | Same::Changing(_) => Ok(false),
        Same::Yes | Same::ButRefused(_) | Same::Unknown => Ok(true),
    }
}

/// Checks that nothing besides the page cache refers to pages of a part, by dropping all of them: see
/// [`Compare::vacate`]. While a lease is held, no page is pinned afterwards. Returns false if others write to it,
/// or once `go_on` returns false.
///
/// # Errors
/// Those of [`vacated`].
pub(super) fn vacate(
    compare: &mut Compare,
    file: &OpenFile,
    part: ByteRange,
    go_on: impl FnMut() -> bool,
) -> Result<bool, Skip> {
    vacated(compare.vacate(&file.fd, part.start..part.end, go_on).map_err(skip_of)?)
}

/// Whether no page of a part is left, where its pages were dropped.
///
/// # Errors
/// Busy where pages stay; failed where the device has other data; unsupported where it cannot be asked.
fn vacated(found: Vacated) -> Result<bool, Skip> {
    match found {
        Vacated::Yes => Ok(true),
        Vacated::Held => Err(held()),
        Vacated::No(Same::No(at, _)) => refused(at),
        Vacated::No(Same::Unknown) => Err(unknown()),
        Vacated::No(_) => Ok(false),
    }
}

/// The same as [`vacate`], without a lease, if no program has the file open: pages that a program has mapped stay
/// as well, and what refers to those is not known. Data that cannot be compared with the device is not dropped,
/// and not checked. Returns false if others write to it.
///
/// # Errors
/// As [`vacate`].
pub(super) fn vacate_if_alone(
    compare: &mut Compare,
    file: &OpenFile,
    part: ByteRange,
) -> Result<bool, Skip> {
    if !write_quietly(&file.fd, part.start..part.end, PATIENCE).map_err(skip_of)? {
        return Ok(false);
    }
    // One try needs no lease, which would keep others out for an instant.
    if let Same::No(at, _) =
        compare.drop(&file.fd, part.start..part.end, || true).map_err(skip_of)?
    {
        return refused(at);
    }
    if is_cold(file, part) || alone(file, 1).is_err() {
        return Ok(true);
    }
    match compare.vacate(&file.fd, part.start..part.end, || true).map_err(skip_of)? {
        Vacated::No(Same::Unknown) => Ok(true),
        found => vacated(found),
    }
}

/// The result of a comparison where the device has refused a write.
fn refused(at: u64) -> Result<bool, Skip> {
    let why = format!("the disk has refused what was written at byte {at}");
    Err(Skip::new(SkipReason::Failed, why))
}

/// The error that pages stay in the page cache although no program has the file open.
pub(super) fn held() -> Skip {
    let why =
        "its pages are in use elsewhere: a device may be writing to them, or a pipe hold them";
    Skip::new(SkipReason::Busy, why)
}

/// The error that it is not known what the device has.
pub(super) fn unknown() -> Skip {
    let why = "the disk cannot be asked what it has of it, so its pages may not be dropped";
    Skip::new(SkipReason::Unsupported, why)
}

/// The error that the file was truncated below a place that it reached at the first look.
pub(super) fn cut_off() -> Skip {
    Skip::new(SkipReason::SizeChanged, "the file ends before it now")
}

/// Writes out what is still delayed of some ranges, so that it gets blocks: that is data alone, not the log.
/// Where it lasts long, the rest is not waited for.
///
/// # Errors
/// A system error.
pub(super) fn allocate_delayed(file: &OpenFile, ranges: &[ByteRange]) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    ranges.iter().try_for_each(|r| cache::start_writeback(&file.fd, r.start..r.end))?;
    ranges.iter().try_for_each(|range| {
        let left = until.saturating_duration_since(Instant::now());
        write_quietly(&file.fd, range.start..range.end, left).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_as_old_as_the_clock_of_file_times_says() {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let changed = |seconds| State { bytes: 0, changed: (now.tv_sec + seconds, 999_999_999) };
        assert!(changed(-5).is_older_than(Duration::from_secs(3)));
        assert!(!changed(-3).is_older_than(Duration::from_secs(3)));
        // The clock was set back meanwhile.
        assert!(!changed(5).is_older_than(Duration::from_secs(3)));
    }
}
