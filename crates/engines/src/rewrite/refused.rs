//! Data that was written and that the disk has refused: it is in the page cache, where the kernel calls it
//! clean, and nowhere else (`fragmend_sys::same`). Dropping its pages would lose it, and a read from the disk
//! does not see it. `fsync` reports the error once, and would take it from the next program that opens the
//! file. So such data is looked for before.

use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::cache;
use fragmend_sys::same::{Compare, Same};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::bytes::read_at;

/// How long a whole file is checked outside of the ranges that move. An error that is found later is reported
/// by the kernel, once, and by this process.
const LOOKING: Duration = Duration::from_secs(1);

const WHAT: &str = "the disk has refused a write to it";

/// Checks that the disk has what the page cache has of a part of a file, only while `go_on` returns true.
///
/// # Errors
/// Failed where the disk has refused it, busy where another program is writing there.
pub(crate) fn none_in(
    compare: &mut Compare,
    file: &OwnedFd,
    part: ByteRange,
    go_on: impl FnMut() -> bool,
) -> Result<(), Skip> {
    let found = compare.range(file, part.start..part.end, go_on);
    judged(compare, found)
}

/// The same for a whole file, as far as [`LOOKING`] allows.
///
/// # Errors
/// As [`none_in`].
pub(crate) fn none_seen(compare: &mut Compare, file: &OwnedFd) -> Result<(), Skip> {
    let until = Instant::now() + LOOKING;
    let all = ByteRange { start: 0, end: i64::MAX as u64 };
    none_in(compare, file, all, || Instant::now() < until)
}

/// An offset outside of `range` at which the page cache has data that the disk has refused, as far as [`LOOKING`] allows.
/// `None` also where that is not known: another program is writing there, the disk cannot be read there, or, where blocks are
/// smaller than pages, it is in the page where the range ends, in which the disk has refused a part of the range as well.
pub(crate) fn elsewhere(file: &OwnedFd, range: ByteRange) -> Option<u64> {
    let until = Instant::now() + LOOKING;
    let page = rustix::param::page_size() as u64;
    let last = range.end / page * page;
    let behind = range.end.next_multiple_of(page);
    // Whole pages are compared, and the first byte that differs is found: a page of which only a part is in the range is looked at
    // by itself, so that what differs in the range hides no other page.
    let parts = [0..range.start, last..range.end, behind..i64::MAX as u64];
    parts.into_iter().find_map(|part| {
        match Compare::default().range(file, part, || Instant::now() < until) {
            Ok(Same::No(at, _)) => Some(at).filter(|at| !(range.start..range.end).contains(at)),
            _ => None,
        }
    })
}

/// As [`none_in`] around a range, as far as dropping its pages may drop others; only while `go_on` returns true.
///
/// # Errors
/// As [`none_in`].
pub(crate) fn none_beside(
    compare: &mut Compare,
    file: &OwnedFd,
    range: ByteRange,
    go_on: impl Fn() -> bool,
) -> Result<(), Skip> {
    let folio = cache::largest_folio();
    let before = ByteRange { start: range.start / folio * folio, end: range.start };
    let behind = ByteRange { start: range.end, end: range.end.next_multiple_of(folio) };
    [before, behind].into_iter().try_for_each(|part| none_in(compare, file, part, &go_on))
}

/// The skip for an error of refused writebacks, wherever in the file, as the kernel reports it.
pub(crate) fn told(error: io::Error) -> Skip {
    Skip::new(SkipReason::Failed, format!("{WHAT} ({error})"))
}

/// As [`none_in`], and drops the pages of the part that the disk has, as far as nothing refers to them.
///
/// # Errors
/// As [`none_in`].
pub(crate) fn drop_all(
    compare: &mut Compare,
    file: &OwnedFd,
    part: ByteRange,
    go_on: impl FnMut() -> bool,
) -> Result<(), Skip> {
    let found = compare.drop(file, part.start..part.end, go_on);
    judged(compare, found)
}

fn judged(compare: &Compare, found: io::Result<Same>) -> Result<(), Skip> {
    let failed = |why: String| Err(Skip::new(SkipReason::Failed, why));
    match found {
        Ok(Same::Yes | Same::Unknown | Same::Stopped) => Ok(()),
        Ok(Same::No(at, _)) => failed(format!(
            "{WHAT} at {at}: that is in memory only, and stays there; write it anew, or copy the file to another disk"
        )),
        Ok(Same::ButRefused(e)) => Err(told(e)),
        Ok(Same::Changing(_)) => {
            Err(Skip::new(SkipReason::Busy, compare.changing("it is being written to")))
        }
        Err(e) => failed(format!("what is in memory cannot be compared with the disk ({e})")),
    }
}

/// The first offset where the page cache has other bytes than `data`, which belong at `start`, and the disk
/// does not have them.
///
/// # Errors
/// When the file cannot be read, or is being written to.
pub(crate) fn other_than(file: &OwnedFd, start: u64, data: &[u8]) -> io::Result<Option<u64>> {
    const CHUNK: u64 = 64 << 10;
    let range = ByteRange::at(start, data.len() as u64);
    let mut compare = Compare::default();
    let mut now = Vec::new();
    for run in cache::resident(file, range.start..range.end)? {
        let run = ByteRange { start: run.start, end: run.end }.intersect(range);
        for chunk in run.steps(CHUNK) {
            let then = &data[(chunk.start - start) as usize..(chunk.end - start) as usize];
            now.resize(then.len(), 0);
            let read = read_at(file, &mut now, chunk.start)?;
            if now[..read] == then[..read] {
                continue;
            }
            match compare.range(file, chunk.start..chunk.end, || true)? {
                Same::No(at, _) => return Ok(Some(at)),
                Same::Changing(_) => {
                    return Err(io::Error::other(compare.changing("another program writes to it")));
                }
                // Data that the disk has as well is not lost.
                Same::Yes | Same::ButRefused(_) | Same::Unknown | Same::Stopped => {}
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_crash::refusing::{REFUSED, RefusingDisk};
    use fragmend_sys::mapping::Mapping;
    use fragmend_testbed::file_system::{EXT4, EXT4_1K};
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// Blocks are smaller than pages: one beside the range, in the page where it begins or ends, is outside of it.
    #[test]
    fn loop_what_the_disk_refused_in_a_page_of_the_range_is_elsewhere() {
        const KIB: u64 = 1 << 10;
        let range = ByteRange { start: 17 * KIB, end: 39 * KIB };
        for (at, found) in [(16, true), (17, false), (38, false), (39, true), (60, true)] {
            let disk = RefusingDisk::new(&EXT4_1K, 128 << 20, 64 * KIB, |_| ());
            disk.refuse_data();
            let file = File::options().read(true).write(true).open(disk.path()).unwrap();
            disk.write_first(&file, at * KIB, KIB as usize);
            let expected = found.then_some(at * KIB);
            assert_eq!(elsewhere(&OwnedFd::from(file), range), expected, "{at} KiB");
            if !found {
                // Nor does that hide what is refused behind it.
                let file = File::options().read(true).write(true).open(disk.path()).unwrap();
                disk.write_first(&file, 60 * KIB, KIB as usize);
                assert_eq!(elsewhere(&OwnedFd::from(file), range), Some(60 * KIB), "{at} KiB");
            }
        }
    }

    /// The disk refuses what is written, and more is written: a direct read fails, and there are dirty pages.
    #[test]
    fn loop_the_error_of_a_read_beside_dirty_pages_is_named() {
        let disk = RefusingDisk::new(&EXT4, 128 << 20, 64 << 10, |_| ());
        disk.refuse_data();
        let file = File::options().read(true).write(true).open(disk.path()).unwrap();
        let mut writer = Mapping::new(&file, 64 << 10).unwrap();
        let (file, ends) = (OwnedFd::from(file), AtomicBool::new(false));
        let until = Instant::now() + Duration::from_secs(30);
        let busy: Vec<String> = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Relaxed) && Instant::now() < until {
                    (0..16).for_each(|page| writer.write(page * REFUSED.len(), &REFUSED));
                }
            });
            let part = ByteRange { start: 0, end: 64 << 10 };
            let found =
                std::iter::repeat_with(|| none_in(&mut Compare::default(), &file, part, || true))
                    .take_while(|_| Instant::now() < until)
                    .filter_map(|found| found.err().filter(|skip| skip.reason == SkipReason::Busy))
                    .take(50)
                    .map(|skip| skip.detail);
            let found = found.collect();
            ends.store(true, Relaxed);
            found
        });
        let named =
            "it is being written to: a direct read failed beside dirty pages (Input/output error";
        assert!(busy.iter().any(|detail| detail.starts_with(named)), "{busy:?}");
    }
}
