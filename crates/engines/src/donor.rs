//! New space for ranges of a file: an unnamed file beside it, allocated at once and compared with the present
//! place before a byte is written to it.
//!
//! The donor has no name, so whatever happens to this process, the kernel frees it with its last descriptor,
//! and after a crash the file system's own recovery of orphans does.

use super::errno::skip_of;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::warm::{RESTORING, Warm};
use fragmend_layout::{ByteRange, Layout, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::xfs;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// How many places are compared before the best of them is used.
pub(super) const DONORS: usize = 3;
/// How many bytes more than needed are allocated, to choose from.
const SLACK: u64 = 8 << 20;

/// How a donor's space is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// All at once, and some more to choose from where there is plenty.
    Choice {
        /// Bytes that the engine needs besides, which no donor uses unless it must.
        beside: u64,
    },
    /// Range by range and no more, for file systems that cannot free a part of an extent.
    Exact,
}

/// A donor and the places of the ranges in it.
pub(super) struct Stage {
    donor: OwnedFd,
    slots: Vec<Slot>,
}

struct Slot {
    range: ByteRange,
    /// Where in the donor the range's new space begins.
    donor_start: u64,
    warm: Warm,
    moved: bool,
}

impl Stage {
    /// Allocates new space for `ranges`; also returns in how many extents each would be there. `prepare` is
    /// called with each donor while that is empty, to set its attributes.
    ///
    /// # Errors
    /// No space, or a system error.
    pub fn new(
        file: &OpenFile,
        ranges: &[ByteRange],
        space: Space,
        prepare: impl FnMut(&OwnedFd) -> Result<(), Skip>,
    ) -> Result<(Self, Vec<u64>), Skip> {
        let Place { donor, start, fragments, .. } = best_place(file, ranges, space, prepare)?;
        let slot = |(range, place): (&ByteRange, ByteRange)| {
            let warm = Warm::of(file, *range);
            Slot { range: *range, donor_start: place.start, warm, moved: false }
        };
        let slots = ranges.iter().zip(places(ranges, start)).map(slot).collect();
        Ok((Self { donor, slots }, fragments))
    }

    /// The donor and the offset in it where `part` of range `index` is to be.
    ///
    /// # Errors
    /// When nothing is staged.
    pub fn place(
        stage: &Option<Self>,
        index: usize,
        part: ByteRange,
    ) -> Result<(&OwnedFd, u64), Skip> {
        let nothing_staged = || Skip::new(SkipReason::Failed, "nothing is staged");
        let Self { donor, slots } = stage.as_ref().ok_or_else(nothing_staged)?;
        let slot = slots.get(index).ok_or_else(nothing_staged)?;
        Ok((donor, slot.donor_start + part.start - slot.range.start))
    }

    /// The donor, if anything is staged.
    pub fn donor(stage: &Option<Self>) -> Option<&OwnedFd> {
        stage.as_ref().map(|stage| &stage.donor)
    }

    /// The staged range `index`.
    ///
    /// # Errors
    /// When nothing is staged.
    pub fn range(stage: &Option<Self>, index: usize) -> Result<ByteRange, Skip> {
        let slot = stage.as_ref().and_then(|s| s.slots.get(index));
        slot.map(|s| s.range).ok_or_else(|| Skip::new(SkipReason::Failed, "nothing is staged"))
    }

    /// Frees the space of range `index` for good, so that the file itself may have it.
    ///
    /// # Errors
    /// A system error.
    pub fn release(&self, index: usize) -> std::io::Result<()> {
        let Some(slot) = self.slots.get(index) else { return Ok(()) };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.donor, how, slot.donor_start, slot.range.len())?;
        Ok(rustix::fs::fsync(&self.donor)?)
    }

    /// Frees all space that the donor still has; returns whether there was any.
    pub fn release_all(&self) -> bool {
        let holds = rustix::fs::fstat(&self.donor).is_ok_and(|stat| stat.st_blocks > 0);
        holds && rustix::fs::ftruncate(&self.donor, 0).is_ok()
    }

    /// Whether little of range `index` was cached before, so that pages which moving brings in are to be dropped.
    pub fn was_cold(stage: &Option<Self>, index: usize) -> bool {
        let slot = stage.as_ref().and_then(|s| s.slots.get(index));
        slot.is_some_and(|slot| slot.warm.was_cold(slot.range))
    }

    /// Notes that some of range `index` has moved.
    pub fn moved(stage: &mut Option<Self>, index: usize) {
        if let Some(slot) = stage.as_mut().and_then(|s| s.slots.get_mut(index)) {
            slot.moved = true;
        }
    }

    /// Closes the donor; returns what was moved and is still to be made durable, if there is any.
    pub fn close(self) -> Option<Closed> {
        self.end().map(|(_, moved)| moved)
    }

    /// The donor, which is freed when it is dropped, and what was moved, if there is any.
    pub fn end(self) -> Option<(OwnedFd, Closed)> {
        let mut moved = self.slots;
        moved.retain(|slot| slot.moved);
        (!moved.is_empty()).then_some((self.donor, Closed(moved)))
    }
}

/// What was moved, after its donor is gone.
pub(super) struct Closed(Vec<Slot>);

impl Closed {
    /// Puts the page cache back as it was.
    pub fn restore_cache(&self, file: &OpenFile) {
        let (mut pages, until) = (Pages::default(), Instant::now() + RESTORING);
        self.0.iter().for_each(|slot| slot.warm.restore(file, slot.range, &mut pages, until));
    }
}

/// A donor, where in it the ranges begin, and in how many extents each would be.
struct Place {
    donor: OwnedFd,
    start: u64,
    fragments: Vec<u64>,
    /// Extents of all runs of neighbouring ranges: a reader does not stop where a range ends.
    in_all: u64,
}

/// Allocates space for all ranges at once, back to back: the allocator sees the whole need, and ranges that
/// follow each other in the file follow each other on the device. ext4 may fill a small need from scattered
/// holes although there is enough contiguous free space, so more is allocated where there is plenty, and the
/// best part of it is used. While an attempt is in more extents than necessary, its space is kept, so that the
/// next one is allocated elsewhere.
fn best_place(
    file: &OpenFile,
    ranges: &[ByteRange],
    space: Space,
    mut prepare: impl FnMut(&OwnedFd) -> Result<(), Skip>,
) -> Result<Place, Skip> {
    let total = places(ranges, 0).last().map_or(0, |place| place.end);
    let free = file.free_bytes()?;
    let more = total + SLACK;
    let (choice, floor) = match space {
        Space::Choice { beside } => (true, file.floor.saturating_add(beside)),
        Space::Exact => (false, file.floor),
    };
    let plenty = choice && free / 4 > more && free >= more.saturating_add(floor);
    let mut want = if plenty { more } else { total };
    let runs: Vec<ByteRange> = ByteRange::joined(ranges.iter().copied()).collect();
    let mut maps = Fiemap::default();
    let mut tried: Vec<Place> = Vec::new();
    while tried.len() < DONORS {
        // The space of earlier attempts counts as used.
        if !tried.is_empty() && file.free_bytes()? < want.saturating_add(floor) {
            break;
        }
        let donor = unnamed(file)?;
        prepare(&donor)?;
        let allocate =
            |at, length| rustix::fs::fallocate(&donor, FallocateFlags::empty(), at, length);
        let allocated = match space {
            Space::Choice { .. } => allocate(0, want),
            Space::Exact => places(ranges, 0).try_for_each(|p| allocate(p.start, p.len())),
        };
        match allocated {
            Ok(()) => {}
            // Earlier attempts may be what fills the disk: then the best of them is used.
            Err(Errno::NOSPC | Errno::DQUOT) if !tried.is_empty() => break,
            // A quota, or a limit of file sizes, may allow what is needed, and no more.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) if want > total => {
                want = total;
                continue;
            }
            Err(e) => return Err(allocation_failed(file, e)),
        }
        let all = ByteRange { start: 0, end: want };
        let layout = fiemap::layout_within(&mut maps, &donor, all, false).map_err(skip_of)?;
        let start = best_start(&layout, &runs, want - total);
        let in_all = fragments(&layout, &runs, start).iter().sum();
        tried.push(Place { donor, start, fragments: fragments(&layout, ranges, start), in_all });
        if in_all <= runs.len() as u64 {
            break;
        }
    }
    let best = tried.into_iter().min_by_key(|place| place.in_all);
    best.ok_or_else(|| Skip::new(SkipReason::NoSpace, ""))
}

/// Why space for a donor was refused. If a directory belongs to a project with a limit, which `statfs` shows as
/// its size, XFS reports a full disk when the limit is reached.
pub(super) fn allocation_failed(file: &OpenFile, error: Errno) -> Skip {
    let size =
        |dir: BorrowedFd| rustix::fs::fstatvfs(dir).map(|stat| stat.f_blocks * stat.f_frsize);
    let beside = file.beside.as_ref().map(|dir| size(dir.as_fd()));
    match (beside, size(file.root.as_fd())) {
        (Some(Ok(of_dir)), Ok(of_all)) if error == Errno::NOSPC && of_dir < of_all => {
            let why = "the directory's project may not hold as much more";
            Skip::new(SkipReason::Quota, why)
        }
        _ => skip_of(error.into()),
    }
}

/// An empty unnamed file on the same file system, in the file's directory if that is possible: most file
/// systems allocate near the directory.
pub(super) fn unnamed(file: &OpenFile) -> Result<OwnedFd, Skip> {
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = near(file, how).map_err(|e| match rustix::fs::fstatvfs(&file.root) {
        Ok(stat) if e == Errno::NOSPC && stat.f_files > 0 && stat.f_ffree == 0 => {
            Skip::new(SkipReason::NoSpace, "no inode is free")
        }
        _ => skip_of(e.into()),
    })?;
    // A file may inherit a least size of allocations from its directory, which is far more than is requested.
    let _ = xfs::clear_extent_size_hint(&made);
    // Nor does it count for the group that a directory passes on (set-group-id), whose quota others need.
    let _ = rustix::fs::fchown(&made, None, Some(rustix::process::getegid()));
    // Both directories have been checked. A sync for the sake of the file must not go to another file system.
    if same_file_system(&made, &file.fd) {
        Ok(made)
    } else {
        Err(Skip::new(SkipReason::Failed, "an unnamed file is on another file system"))
    }
}

/// The directory in which [`unnamed`] makes files.
pub(super) fn directory(file: &OpenFile) -> io::Result<OwnedFd> {
    Ok(near(file, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?)
}

/// Opens the file's directory with these flags, or else the root of its file system.
fn near(file: &OpenFile, how: OFlags) -> rustix::io::Result<OwnedFd> {
    let open = |dir: BorrowedFd| rustix::fs::openat(dir, ".", how, Mode::RUSR | Mode::WUSR);
    let beside = file.beside.as_ref().and_then(|dir| open(dir.as_fd()).ok());
    beside.map_or_else(|| open(file.root.as_fd()), Ok)
}

fn same_file_system(a: &OwnedFd, b: &OwnedFd) -> bool {
    match (rustix::fs::fstat(a), rustix::fs::fstat(b)) {
        (Ok(a), Ok(b)) => a.st_dev == b.st_dev,
        _ => false,
    }
}

/// Places of `ranges` in a donor from `start` on, which is a page boundary: back to back, but each at the same
/// offset in its page as in the file. Where blocks are smaller than pages, ext4 exchanges nothing else
/// (EINVAL).
fn places(ranges: &[ByteRange], start: u64) -> impl Iterator<Item = ByteRange> {
    let page = rustix::param::page_size() as u64;
    let mut at = start;
    ranges.iter().map(move |range| {
        let place = ByteRange::at(at + range.start.wrapping_sub(at) % page, range.len());
        at = place.end;
        place
    })
}

/// In how many extents each of `ranges` is in a donor if their places begin at `start`.
fn fragments(donor: &Layout, ranges: &[ByteRange], start: u64) -> Vec<u64> {
    places(ranges, start).map(|place| donor.within(place).count() as u64).collect()
}

/// The place in a donor from which on the runs are in the fewest extents, no later than `latest`. Only the
/// starts of its longer extents, those at page boundaries, can be better than its beginning.
fn best_start(donor: &Layout, runs: &[ByteRange], latest: u64) -> u64 {
    const STARTS: usize = 16;
    let page = rustix::param::page_size() as u64;
    let may_start = |at: u64| at <= latest && at.is_multiple_of(page);
    let mut starts: Vec<_> = donor.extents().iter().filter(|e| may_start(e.logical)).collect();
    starts.sort_by_key(|e| std::cmp::Reverse(e.length));
    let longest = starts.iter().take(STARTS).map(|e| e.logical);
    let in_all = |start: &u64| fragments(donor, runs, *start).iter().sum::<u64>();
    std::iter::once(0).chain(longest).min_by_key(in_all).unwrap_or(0)
}
