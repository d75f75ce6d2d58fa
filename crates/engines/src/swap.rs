//! Swaps whole files, for an XFS that can neither share nor exchange ranges.
//!
//! A donor (D) gets the file's (F) size, holes and unwritten extents, and new space for the rest, whose place
//! is compared before a byte is copied. Once it holds a copy of all data, the kernel swaps what the two map,
//! under both locks. So a plan must name all of a file's data, or nothing is moved.
//!
//! Writers. While F's times are read, and until the clock has advanced, F is leased: no other program has it
//! open, so no write is in flight. All later writes set later times, stores through mappings included, since
//! each part is written back before it is copied; and then the kernel refuses. Earlier writes show in F's
//! layout, which is read after that instant: the plan must name all of it. A file that was written to be left
//! as it is: to try again is to copy all of it again.
//!
//! A program that opened F by its handle (`XFS_IOC_OPEN_BY_HANDLE`) writes and sets no times. So right before
//! the swap F is leased once more, until the swap is over, and compared with D: a file that differs is left
//! alone. The comparison goes on in slices, with a check for Ctrl-C between them; the lease is kept over all of
//! them. A program that opens F meanwhile is let in at once, and F is left alone, too.
//!
//! Which files. Without a reverse mapping tree, a swap of extents that do not fit in the inode is replayed by
//! giving their blocks to another owner, and there Linux (5.8 to 6.18 at least) checks a checksum of the inode
//! that it has not computed yet (`xfs_recover_inode_owner_change()` in fs/xfs/xfs_inode_item_recover.c): a
//! power cut before the log has moved on leaves a file system that mounts only once `xfs_repair -L` has
//! discarded its log. Measured: 433 of 500 cuts. So files of more extents are left alone there, unless forced.
//!
//! Crash argument, for all others. If power fails
//!
//! - before the swap is durable: F has its old blocks, untouched. D was never linked, and recovery frees what
//!   it held.
//! - after: F has D's blocks. Their bytes, and that they are written, were durable (`fsync` of D) before the
//!   swap began.
//! - in between: the swap is one transaction; with a reverse mapping tree it is one for each extent, and each
//!   extent of F is in one of the two states.
//! - after D is closed: the old blocks are free, and reused only once that is durable.

mod donors;

use super::copying::TICK;
use super::errno::skip_of;
use super::hold::is_open_elsewhere;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::rewrite::mover::take as lease;
use super::turns::{allocate_delayed, clean, is_on_disk, nothing_staged, vacate};
use super::warm::{RESTORING, Warm};
use super::xfs::{commit, free_space};
use super::{Mover, primitive};
use crate::bytes::{read_at, write_at};
use crate::point::{Point, reached};
use fragmend_apply::drive::{ByRange, File as _, Job, Step, whole_file};
use fragmend_layout::{ByteRange, ExtentKind, Layout, Pace, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::bulkstat;
use fragmend_sys::cache;
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::Compare;
use fragmend_sys::signals::Unstopped;
use fragmend_sys::swapext::{Times, swap_extents};
use fragmend_sys::xfs;
use rustix::fs::Advice;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which files are swapped: see the head of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swapped {
    /// All files.
    All,
    /// Files whose extents surely fit in their inode, and in that of an unnamed file.
    Short,
}

/// So many extents fit in the inode of an unnamed file, however large the inode is
/// (`xfs_default_attroffset()`, libxfs/xfs_bmap.c).
const SHORT: u64 = 12;
/// Bytes that are compared between two checks whether another program waits.
const COMPARED: u64 = 256 << 10;
/// The same of ranges without data.
const GAP: u64 = 1 << 20;
/// How long the comparison goes on between two checks for Ctrl-C.
const COMPARING: Duration = Duration::from_millis(100);
/// Bytes of an extent in an inode (`struct xfs_bmbt_rec`).
const EXTENT: u64 = 16;
/// So many extents fit beside any extended attributes (`MINDBTPTRS`, libxfs/xfs_inode_fork.h).
const SHORTEST: u64 = 3;

/// Moves one file as a whole.
pub(super) struct WholeFile {
    which: Swapped,
    stage: Option<SwapStage>,
    /// Why the donor may not be used any more. The kernel reports once that it could not be written: the next
    /// `fsync` would succeed, with blocks that were never written.
    spoiled: Option<Skip>,
    pages: Pages,
    compare: Compare,
    buffer: Vec<u8>,
}

struct SwapStage {
    donor: OwnedFd,
    /// The file's state before any of it was copied.
    size: u64,
    times: Times,
    ranges: Vec<(ByteRange, Warm)>,
    /// Bytes of the ranges that the donor holds, and the part that was sent to the device last.
    copied: u64,
    sent: ByteRange,
    /// Set while the file is compared with the donor.
    alone: Option<Alone>,
    swapped: bool,
}

/// No other program has the file open while this lives.
struct Alone {
    lease: Lease<'static>,
    /// How far in the file the comparison has come.
    compared: u64,
    /// Ranges of the file without data that have not been checked yet.
    gaps: Vec<ByteRange>,
    /// Kept as long as the lease, and dropped after it.
    _unstopped: Unstopped,
    _prompt: Prompt,
}

impl SwapStage {
    /// Makes the donor's bytes durable, compares, and swaps; returns whether the files are swapped. If not, the
    /// caller goes on with it, or drops the stage, which releases all.
    fn swap(
        &mut self,
        file: &OpenFile,
        pages: &mut Pages,
        compare: &mut Compare,
        held: &mut Duration,
    ) -> Result<bool, Skip> {
        let all: u64 = self.ranges.iter().map(|(range, _)| range.len()).sum();
        if self.copied != all {
            return Err(Skip::new(SkipReason::Busy, "not all of the file could be copied"));
        }
        let mut alone = match self.alone.take() {
            Some(alone) => alone,
            None => self.begin(file)?,
        };
        if !gaps_are_on_disk(file, compare, &mut alone)?
            || !self.compare(file, pages, &mut alone)?
        {
            self.alone = Some(alone);
            return Ok(false);
        }
        let started = Instant::now();
        // Safe to crash before, in and after this line: see the head of this file.
        let done = swap_extents(&file.fd, &self.donor, self.size, self.times);
        *held = started.elapsed();
        drop(alone);
        reached(Point::Moved);
        self.swapped = done.is_ok();
        done.map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::BUSY | Errno::FAULT) => {
                Skip::new(SkipReason::Busy, "it was written to while it was copied")
            }
            Some(Errno::INVAL) => Skip::new(
                SkipReason::Unsupported,
                "the kernel cannot swap it: there is other room for extents in its inode than in a new one",
            ),
            _ => skip_of(e),
        })?;
        Ok(true)
    }

    /// Leases the file, once the donor's bytes are durable, and checks whether it has more data now.
    fn begin(&self, file: &OpenFile) -> Result<Alone, Skip> {
        rustix::fs::fsync(&self.donor).map_err(|e| skip_of(e.into()))?;
        reached(Point::Filled);
        let (unstopped, prompt) = (Unstopped::begin(), Prompt::begin());
        let lease = Lease::take_duplicate(&file.fd).map_err(not_leased)?;
        file.has_settled()?;
        // What went to a hole has its place then.
        clean(&file.fd, ByteRange { start: 0, end: file.size()?.max(self.size) })?;
        let ranges: Vec<ByteRange> = self.ranges.iter().map(|(range, _)| *range).collect();
        covered(&fiemap::layout_of(&file.fd).map_err(skip_of)?, &ranges)?;
        let all = ByteRange { start: 0, end: file.size()? };
        let gaps = between(&ranges, all);
        Ok(Alone { lease, compared: 0, gaps, _unstopped: unstopped, _prompt: prompt })
    }

    /// Compares the file with its copy, while no other program has it open, and not for long; returns whether
    /// all is compared.
    fn compare(&self, file: &OpenFile, pages: &mut Pages, alone: &mut Alone) -> Result<bool, Skip> {
        let until = Instant::now() + COMPARING;
        let (mut now, mut then) = (Vec::new(), Vec::new());
        let left = |(range, _): &(ByteRange, Warm)| {
            let left = ByteRange { start: range.start.max(alone.compared), ..*range };
            left.steps(COMPARED).collect::<Vec<_>>()
        };
        for part in self.ranges.iter().flat_map(left).collect::<Vec<_>>() {
            if alone.lease.is_wanted() || Unstopped::is_wanted() {
                return Err(Skip::new(SkipReason::Busy, "others open it"));
            }
            if Instant::now() > until {
                return Ok(false);
            }
            now.resize(part.len() as usize, 0);
            then.resize(part.len() as usize, 0);
            let read = pages.read(&file.fd, part, &mut now).map_err(skip_of)?;
            let copied = read_at(&self.donor, &mut then, part.start).map_err(skip_of)?;
            if now[..read] != then[..copied] {
                return Err(Skip::new(SkipReason::Busy, "it was written to while it was copied"));
            }
            alone.compared = part.end;
        }
        if alone.lease.is_wanted() || Unstopped::is_wanted() {
            Err(Skip::new(SkipReason::Busy, "others open it"))
        } else {
            Ok(true)
        }
    }
}

impl WholeFile {
    /// The mover of such files.
    pub fn new(which: Swapped) -> Self {
        Self {
            which,
            stage: None,
            spoiled: None,
            pages: Pages::default(),
            compare: Compare::default(),
            buffer: Vec::new(),
        }
    }

    /// # Errors
    /// A swap of this file could not be replayed.
    fn may_be_swapped(&self, file: &OpenFile) -> Result<(), Skip> {
        if self.which == Swapped::All {
            return Ok(());
        }
        let extents = u64::from(xfs::attributes(&file.fd).map_err(skip_of)?.extents);
        let number = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?.st_ino;
        let most = match bulkstat::inode(&file.fd, number) {
            Ok(bulkstat::Inode { extent_room: 0, .. }) => SHORT,
            Ok(inode) => SHORT.min(u64::from(inode.extent_room) / EXTENT),
            // Not root, or the file is deleted.
            Err(_) => SHORTEST,
        };
        if extents <= most {
            return Ok(());
        }
        let why = format!(
            "it has {extents} extents; of more than {most} the kernel could not replay the swap after a power cut, and the file system would not mount; --force to accept that"
        );
        Err(Skip::new(SkipReason::Unsupported, why))
    }
}

impl Mover for WholeFile {
    type File = OpenFile;

    fn all_or_nothing(&self) -> bool {
        true
    }

    fn writes_anew(&self) -> Result<(), Skip> {
        let why = "this XFS can only swap whole files, and nothing of this one would be in fewer extents; --engine rewrite writes single ranges anew";
        Err(Skip::new(SkipReason::Unsupported, why))
    }

    fn need(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<u64, Skip> {
        allocate_delayed(file, &[ByteRange { start: 0, end: file.size()? }]).map_err(skip_of)?;
        let layout = whole_layout(file)?;
        let runs = layout.runs().collect::<Vec<_>>();
        let asked =
            |run: ByteRange| -> u64 { ranges.iter().map(|range| range.intersect(run).len()).sum() };
        let left_out = |in_fragments: bool| -> u64 {
            let of_kind = runs.iter().filter(|run| (layout.fragments(**run) > 1) == in_fragments);
            of_kind.map(|run| run.len() - asked(*run)).sum()
        };
        let why = match (left_out(true), left_out(false)) {
            (0, 0) => {
                self.may_be_swapped(file)?;
                return Ok(layout.extents().iter().map(|e| e.length).sum());
            }
            (0, whole) => format!(
                "this XFS can only swap whole files, and {whole} bytes of this one, in one extent each, are not in the plan"
            ),
            _ => "this XFS can only swap whole files: plan with --policy whole-file".into(),
        };
        Err(Skip::new(SkipReason::Unsupported, why))
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        (self.stage, self.spoiled) = (None, None);
        // Only requested bytes are read: readahead would fill the device's queue.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        // Delayed data gets its blocks, and freed space becomes free.
        let all = ByteRange { start: 0, end: file.size()? };
        clean(&file.fd, all)?;
        free_space(file);
        let (size, times) = sample(file)?;
        // Once more: from here on, only a program that writes can give it more extents.
        clean(&file.fd, all)?;
        self.may_be_swapped(file)?;
        let layout = whole_layout(file)?;
        covered(&layout, ranges)?;
        let (donor, staged) = donors::best(file, &layout)?;
        let fragments = |staged: &Layout| -> Vec<u64> {
            ranges.iter().map(|range| staged.within(*range).count() as u64).collect()
        };
        let (now, then) = (fragments(&layout), fragments(&staged));
        let (in_all, at_best): (u64, u64) = (now.iter().sum(), then.iter().sum());
        if at_best >= in_all {
            let detail = format!("{in_all} fragments in all now, {at_best} at best");
            return Err(Skip::new(SkipReason::NoBetterPlace, detail));
        }
        let ranges = ranges.iter().map(|range| (*range, Warm::of(file, *range))).collect();
        self.stage = Some(SwapStage {
            donor,
            size,
            times,
            ranges,
            copied: 0,
            sent: ByteRange::default(),
            alone: None,
            swapped: false,
        });
        reached(Point::Staged);
        Ok(then)
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        whole_file(self, job, pace)
    }

    /// The comparison begins again.
    fn release(&mut self, _: &OpenFile) -> Result<(), Skip> {
        if let Some(stage) = &mut self.stage {
            stage.alone = None;
        }
        Ok(())
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let Some(SwapStage { donor, ranges, swapped: true, .. }) = self.stage.take() else {
            return Ok(());
        };
        let _prompt = Prompt::begin();
        commit(file, donor).map_err(skip_of)?;
        reached(Point::Settled);
        let (mut pages, until) = (Pages::default(), Instant::now() + RESTORING);
        for (range, warm) in &ranges {
            warm.restore(file, *range, &mut pages, until);
        }
        Ok(())
    }
}

impl ByRange for WholeFile {
    fn prepare(
        &mut self,
        file: &OpenFile,
        _: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
        let goes_on = || !stop.load(Ordering::Relaxed);
        let stage = self.stage.as_mut().ok_or_else(nothing_staged)?;
        // Clean from here on: a store to a mapped page causes a fault, and that sets the times. And no device
        // writes to pages since before the times were taken: a program that has one do so later writes through
        // a mapping as well.
        if !is_on_disk(&mut self.compare, file, part, goes_on)?
            || !vacate(&mut self.compare, file, part, goes_on)?
        {
            return Err(Skip::new(SkipReason::Busy, "others write to it"));
        }
        self.buffer.resize(part.len() as usize, 0);
        let read = self.pages.read(&file.fd, part, &mut self.buffer).map_err(skip_of)?;
        write_at(&stage.donor, &self.buffer[..read], part.start).map_err(skip_of)?;
        cache::start_writeback(&stage.donor, part.start..part.end).map_err(skip_of)?;
        // No more than two parts are in flight: a request to end waits for no more.
        let sent = std::mem::replace(&mut stage.sent, part);
        cache::write_and_wait(&stage.donor, sent.start..sent.end).map_err(skip_of)?;
        stage.copied += part.len();
        Ok(())
    }

    fn relocate(&mut self, file: &OpenFile, _: usize, part: ByteRange, _: &AtomicBool) -> Step {
        let mut held = Duration::ZERO;
        let done = match &mut self.stage {
            None => Err(self.spoiled.clone().unwrap_or_else(nothing_staged)),
            Some(stage) if stage.swapped => Ok(true),
            Some(stage) => stage.swap(file, &mut self.pages, &mut self.compare, &mut held),
        };
        if let Err(skip) = &done {
            // One attempt for all ranges.
            (self.stage, self.spoiled) = (None, Some(skip.clone()));
        }
        let swapped = done == Ok(true);
        let moved = if swapped { part.len() } else { 0 };
        let by = swapped.then_some(primitive::SWAPEXT);
        let goes_on = done == Ok(false);
        Step { moved, by, held, goes_on, skip: done.err(), ..Step::default() }
    }
}

/// Why there is no lease.
fn not_leased(error: io::Error) -> Skip {
    match error.kind() {
        _ if is_open_elsewhere(&error) => Skip::new(SkipReason::Busy, "others have it open"),
        // Another program is asked before the file is opened.
        io::ErrorKind::ResourceBusy => skip_of(error),
        _ => Skip::new(SkipReason::Unsupported, format!("no lease can be taken ({error})")),
    }
}

/// Checks, not for long, the ranges that have no data on the disk: what the disk refused of a hole or of
/// reserved space is in memory only, and the swap drops all of the file's pages. Returns whether all was
/// checked.
fn gaps_are_on_disk(
    file: &OpenFile,
    compare: &mut Compare,
    alone: &mut Alone,
) -> Result<bool, Skip> {
    let until = Instant::now() + COMPARING;
    while let Some(gap) = alone.gaps.last_mut() {
        let goes_on = || !alone.lease.is_wanted() && !Unstopped::is_wanted();
        // It may have any length.
        gap.start += cache::cold_from(&file.fd, gap.start..gap.end);
        let step = ByteRange::at(gap.start, GAP).intersect(*gap);
        if !goes_on() || !is_on_disk(compare, file, step, goes_on)? {
            return Err(Skip::new(SkipReason::Busy, "others open it"));
        }
        gap.start = step.end.max(gap.start);
        if gap.is_empty() {
            alone.gaps.pop();
        }
        if Instant::now() > until {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The parts of `all` that are in none of `ranges`, which are in order.
fn between(ranges: &[ByteRange], all: ByteRange) -> Vec<ByteRange> {
    let mut at = all.start;
    let mut gaps = Vec::new();
    for range in ranges {
        gaps.push(ByteRange { start: at, end: range.start.min(all.end) });
        at = at.max(range.end);
    }
    gaps.push(ByteRange { start: at, end: all.end });
    gaps.retain(|gap| gap.start < gap.end);
    gaps
}

/// Checks that all data of a file is in `ranges`, now that its times are known: data that was added between the
/// first look and that instant would not show in the times, and the donor has no copy of it.
fn covered(layout: &Layout, ranges: &[ByteRange]) -> Result<(), Skip> {
    let asked = |run: &ByteRange| ranges.iter().map(|r| r.intersect(*run).len()).sum::<u64>();
    if layout.runs().all(|run| asked(&run) == run.len()) {
        Ok(())
    } else {
        Err(Skip::new(SkipReason::Busy, "it has got more data since it was looked at"))
    }
}

/// Size and times of a file at an instant at which no other program has it open.
fn sample(file: &OpenFile) -> Result<(u64, Times), Skip> {
    let alone = lease(&file.fd)?;
    let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
    let times = Times {
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
    };
    // Later writes leave another time.
    std::thread::sleep(TICK);
    drop(alone);
    Ok((stat.st_size as u64, times))
}

/// The layout of all of a file, once all of it has blocks. The file is not written out for that, which XFS does
/// with writers kept out (`FIEMAP_FLAG_SYNC`).
fn whole_layout(file: &OpenFile) -> Result<Layout, Skip> {
    // Space that is reserved behind the end counts, too.
    let all = ByteRange { start: 0, end: u64::MAX };
    let layout = file.layout(all)?;
    if layout.extents().iter().any(|e| e.kind == ExtentKind::Delayed) {
        Err(Skip::new(SkipReason::Busy, "it is being written to"))
    } else {
        Ok(layout)
    }
}
