//! New space for ranges of a file: an unnamed file beside it, allocated at once and compared
//! before a byte is written to it.
//!
//! The donor has no name, so whatever happens to this process it goes with its last descriptor,
//! and after a crash with the file system's own recovery of orphans.

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

/// How many places are compared before the best of them is taken.
pub(super) const DONORS: usize = 3;
/// How much more than is needed is asked for, to choose from, in bytes.
const SLACK: u64 = 8 << 20;

/// How a donor's space is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// All at once, and some more to choose from where there is plenty.
    Choice,
    /// Range by range and no more, for file systems that cannot free a part of an extent.
    Exact,
}

/// A donor and what lies where in it.
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
    /// Finds new space for `ranges`; also gives the pieces in which each would lie there.
    /// `prepare` sees each donor while it is empty, to give it attributes.
    ///
    /// # Errors
    /// No space, or whatever the system says.
    pub fn new(
        file: &OpenFile,
        ranges: &[ByteRange],
        space: Space,
        prepare: impl FnMut(&OwnedFd) -> Result<(), Skip>,
    ) -> Result<(Self, Vec<u64>), Skip> {
        let Place { donor, start, pieces, .. } = best_place(file, ranges, space, prepare)?;
        let slot = |(range, place): (&ByteRange, ByteRange)| {
            let warm = Warm::of(file, *range);
            Slot { range: *range, donor_start: place.start, warm, moved: false }
        };
        let slots = ranges.iter().zip(places(ranges, start)).map(slot).collect();
        Ok((Self { donor, slots }, pieces))
    }

    /// The donor and the offset in it where `part` of range `index` is to lie.
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
    /// Whatever the system says.
    pub fn release(&self, index: usize) -> std::io::Result<()> {
        let Some(slot) = self.slots.get(index) else { return Ok(()) };
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.donor, how, slot.donor_start, slot.range.len())?;
        Ok(rustix::fs::fsync(&self.donor)?)
    }

    /// Frees all that the donor still has, best place or not; whether there was any.
    pub fn release_all(&self) -> bool {
        let holds = rustix::fs::fstat(&self.donor).is_ok_and(|stat| stat.st_blocks > 0);
        holds && rustix::fs::ftruncate(&self.donor, 0).is_ok()
    }

    /// Notes that some of range `index` has moved.
    pub fn moved(stage: &mut Option<Self>, index: usize) {
        if let Some(slot) = stage.as_mut().and_then(|s| s.slots.get_mut(index)) {
            slot.moved = true;
        }
    }

    /// Gives the donor back; what was moved is left to be made durable, if there is any.
    pub fn close(self) -> Option<Closed> {
        self.end().map(|(_, moved)| moved)
    }

    /// The donor, which goes when it is dropped, and what was moved, if there is any.
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

/// A donor, where in it the ranges begin, and in how many pieces each would lie.
struct Place {
    donor: OwnedFd,
    start: u64,
    pieces: Vec<u64>,
    /// Pieces of all runs of neighbouring ranges: a reader does not stop where a range ends.
    in_all: u64,
}

/// Allocates space for all ranges at once, back to back: the allocator sees the whole need,
/// and ranges that follow each other in the file lie so on the device. ext4 may fill a small
/// need from scattered holes although there is room in one piece, so more is asked for where
/// there is plenty, and the best stretch of it is used; and while an attempt lies in more
/// pieces than it must, it is held, so that the next one has to go elsewhere.
fn best_place(
    file: &OpenFile,
    ranges: &[ByteRange],
    space: Space,
    mut prepare: impl FnMut(&OwnedFd) -> Result<(), Skip>,
) -> Result<Place, Skip> {
    let total = places(ranges, 0).last().map_or(0, |place| place.end);
    let free = file.free_bytes()?;
    let more = total + SLACK;
    let plenty = space == Space::Choice && free / 4 > more && free >= more + file.floor;
    let mut want = if plenty { more } else { total };
    let runs: Vec<ByteRange> = ByteRange::joined(ranges.iter().copied()).collect();
    let mut maps = Fiemap::default();
    let mut tried: Vec<Place> = Vec::new();
    while tried.len() < DONORS {
        // What is held already counts.
        if !tried.is_empty() && file.free_bytes()? < want + file.floor {
            break;
        }
        let donor = unnamed(file)?;
        prepare(&donor)?;
        let allocate =
            |at, length| rustix::fs::fallocate(&donor, FallocateFlags::empty(), at, length);
        let allocated = match space {
            Space::Choice => allocate(0, want),
            Space::Exact => places(ranges, 0).try_for_each(|p| allocate(p.start, p.len())),
        };
        match allocated {
            Ok(()) => {}
            // Held attempts may be what fills the disk: the best of them must do.
            Err(Errno::NOSPC | Errno::DQUOT) if !tried.is_empty() => break,
            // A quota, or a limit of file sizes, may have room for what is needed, and no more.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) if want > total => {
                want = total;
                continue;
            }
            Err(e) => return Err(no_room(file, e)),
        }
        let all = ByteRange { start: 0, end: want };
        let lies = fiemap::layout_within(&mut maps, &donor, all, false).map_err(skip_of)?;
        let start = best_start(&lies, &runs, want - total);
        let in_all = pieces(&lies, &runs, start).iter().sum();
        tried.push(Place { donor, start, pieces: pieces(&lies, ranges, start), in_all });
        if in_all <= runs.len() as u64 {
            break;
        }
    }
    let best = tried.into_iter().min_by_key(|place| place.in_all);
    best.ok_or_else(|| Skip::new(SkipReason::NoSpace, ""))
}

/// Why space for a donor was refused. Where a directory belongs to a project with a limit, which
/// `statfs` shows as its size, XFS speaks of a full disk when that is reached.
pub(super) fn no_room(file: &OpenFile, error: Errno) -> Skip {
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

/// An empty unnamed file on the same file system, beside the file if that can be: most file
/// systems allocate near the directory.
pub(super) fn unnamed(file: &OpenFile) -> Result<OwnedFd, Skip> {
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = near(file, how).map_err(|e| match rustix::fs::fstatvfs(&file.root) {
        Ok(stat) if e == Errno::NOSPC && stat.f_files > 0 && stat.f_ffree == 0 => {
            Skip::new(SkipReason::NoSpace, "no inode is free")
        }
        _ => skip_of(e.into()),
    })?;
    // A directory may hand down how much is allocated at least: far more than was asked for.
    let _ = xfs::clear_extent_size_hint(&made);
    // Both directories were looked at. What is synced for the sake of the file must not be elsewhere.
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

/// Opens the file's directory so, or else that of its file system.
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

/// Where in a donor `ranges` are laid from `start` on, which is on a page: back to back, but each
/// at the same place in its page as in the file. Where blocks are smaller than pages, ext4
/// exchanges nothing else (EINVAL).
fn places(ranges: &[ByteRange], start: u64) -> impl Iterator<Item = ByteRange> {
    let page = rustix::param::page_size() as u64;
    let mut at = start;
    ranges.iter().map(move |range| {
        let place = ByteRange::at(at + range.start.wrapping_sub(at) % page, range.len());
        at = place.end;
        place
    })
}

/// In how many pieces each of `ranges` lies in a donor, when they are laid from `start` on.
fn pieces(donor: &Layout, ranges: &[ByteRange], start: u64) -> Vec<u64> {
    places(ranges, start).map(|place| donor.within(place).count() as u64).collect()
}

/// Where in a donor the runs lie in the fewest pieces, no later than `latest`. Only the starts of
/// its longer extents, those on a page, can be better than its beginning.
fn best_start(donor: &Layout, runs: &[ByteRange], latest: u64) -> u64 {
    const STARTS: usize = 16;
    let page = rustix::param::page_size() as u64;
    let may_start = |at: u64| at <= latest && at.is_multiple_of(page);
    let mut starts: Vec<_> = donor.extents().iter().filter(|e| may_start(e.logical)).collect();
    starts.sort_by_key(|e| std::cmp::Reverse(e.length));
    let longest = starts.iter().take(STARTS).map(|e| e.logical);
    let in_all = |start: &u64| pieces(donor, runs, *start).iter().sum::<u64>();
    std::iter::once(0).chain(longest).min_by_key(in_all).unwrap_or(0)
}
