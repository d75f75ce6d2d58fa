//! Compressed data of Btrfs: `BTRFS_IOC_DEFRAG_RANGE`, which writes a range anew through the page cache,
//! compressed as it is.
//!
//! The kernel marks the pages of 256 KiB at a time as to be written. For that it holds the inode's lock, and
//! waits for writes in flight; a program that writes or stores through a mapping meanwhile does so before or
//! after, and writes to the same pages. Pages that are missing in the page cache the kernel would read under
//! the lock, page by page, with readahead: so all of them are brought in right before, and known to be there.
//! Then the pages are compressed, in chunks of at most 128 KiB, and each chunk is written to one new extent.
//!
//! Only the extents themselves name their compression, and only root can read that: it need be neither the
//! mount's nor the inode's. So a range is moved in runs of one compression each (`CompressedRun`), and the result is
//! checked. The level is recorded nowhere; the mount's level is used where the mount names the same
//! compression, else the kernel's default.
//!
//! Crash argument. If power fails
//!
//! - before the new extents are on the device: the file's tree names the old ones, which are not allocated
//!   again before a commit that is without them. The kernel changes the tree only when an extent's data has
//!   been written.
//! - after that, before the transaction commits: the same; the new extents are in what counts as free space.
//! - after the commit, whether this process or another one caused it: the file has the new extents. Their bytes
//!   were on the device, behind a flush, before the super block was.
//! - in the middle of a range: each chunk is in one of its two places, with the same bytes.
//!
//! What others write to a compressed file block by block is stored plain, because compressing one block saves
//! nothing. It is compressed together with its neighbours, as it would be if all were written anew; but not
//! where new writes to the file are no longer compressed.
//!
//! There is no donor whose place could be compared, and no way back. But a compressed extent is never split, so
//! a run that shrinks again is afterwards in at most as many extents as it has chunks: a range is moved only if
//! that is fewer than now, and its receipt reports the layout that results. An extent that the range cuts stays
//! as it is: all of it would stay occupied for the rest.

mod run;

use super::btrfs::commit;
use super::copying::TICK;
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::pages::{self, Pages};
use super::turns::allocate_delayed;
use super::{Mover, primitive};
use crate::point::{Point, reached};
use fragmend_apply::drive::{ByPart, File, Job, Step, by_part};
use fragmend_layout::{ByteRange, Extent, LONGEST_ENCODED, Layout, Pace, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::btrfs::{self, Compression};
use fragmend_sys::cache;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::write_quietly;
use run::{CompressedRun, extents, runs};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes that one call writes anew: what one compressed extent holds. The kernel processes at most twice that
/// under one lock; but the longer the call, the more it may read ahead of it.
const STEP: u64 = LONGEST_ENCODED;

/// The longest wait for the writes of the step before.
const BEFORE: Duration = Duration::from_millis(200);

/// How often other programs' writes to a step are written out before it is compressed.
const WRITES: u32 = 4;

/// How far Btrfs reads ahead by default, and how long at most this engine reads first, so that it need not.
const READ_AHEAD: u64 = 4 << 20;
const FORESTALLING: Duration = Duration::from_millis(200);
/// How often that is tried for one step: what is read first may be evicted again.
const TRIES: u32 = 25;

/// Compresses ranges of one file anew.
pub(super) struct Compressing {
    /// Compression and level of the mount.
    level: Option<(String, i8)>,
    /// Why the compression of the file cannot be read.
    untold: Option<Skip>,
    /// Whether new writes to the file are compressed.
    goes_on: bool,
    /// The file's attributes, and when it was last changed before they were read.
    attributes: u32,
    changed: Option<Changed>,
    /// Whether it was reported that a mark of the kernel's could not be removed.
    told: bool,
    staged: Vec<Staged>,
    /// The range that was sent to the device last and has not been waited for.
    sent: ByteRange,
    /// How often the next step could not be brought in.
    tries: u32,
    pages: Pages,
}

/// When an inode was last changed.
type Changed = (i64, u64);

struct Staged {
    range: ByteRange,
    runs: Vec<CompressedRun>,
    moved: bool,
    /// Whether the result of its move was checked.
    seen: bool,
}

impl Staged {
    /// Checks that it is compressed as it was.
    fn is_kept(&self, file: &OpenFile, layout: &Layout) -> Result<(), Skip> {
        let now = runs(layout, self.range, &extents(file, self.range)?);
        let kept = |s: &CompressedRun| -> u64 {
            let alike = now.iter().filter(|n| n.compression == s.compression);
            let inside = alike.filter(|n| n.range.overlaps(s.range));
            inside.map(|n| n.encoded).sum()
        };
        // Data that others have written meanwhile is compressed as their settings demand.
        let Some(other) = self.runs.iter().find(|s| kept(s) < s.encoded / 2) else {
            return Ok(());
        };
        let detail = format!("most of it is not compressed by {} now", other.compression.name());
        Err(Skip::new(SkipReason::LayoutChanged, detail))
    }

    /// Checks that all of it has blocks, and that it is compressed as it was, where that was not checked yet.
    fn has_settled(&self, file: &OpenFile) -> Result<(), Skip> {
        layout(file, self.range)
            .and_then(|layout| if self.seen { Ok(()) } else { self.is_kept(file, &layout) })
    }
}

impl Compressing {
    /// The mover of a file on a file system that is mounted with these options.
    pub fn new(file: &OpenFile, options: &[String]) -> Self {
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        let changed = settled_time(file);
        let attributes = inode::attributes(&file.fd).unwrap_or_default();
        let has = |flag: u32| attributes & flag != 0;
        let mounted = |name: &str| options.iter().any(|o| o.starts_with(name));
        let asked_for = has(flags::COMPRESSED) || mounted("compress=");
        Self {
            level: level(options),
            untold: extents(file, ByteRange::at(0, 1)).err(),
            goes_on: asked_for && !has(flags::NO_COMPRESSION) || mounted("compress-force="),
            attributes,
            changed,
            told: false,
            staged: Vec::new(),
            sent: ByteRange::default(),
            tries: 0,
            pages: Pages::default(),
        }
    }

    /// Whether new writes to the file are compressed.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// One call to the kernel, and a second one without a level where the kernel is too old for levels.
    fn compress(&self, file: &OpenFile, step: ByteRange, how: Compression) -> Result<(), Skip> {
        let level = self.level.as_ref().filter(|(name, _)| name == how.name()).map(|(_, l)| *l);
        let call = |level| btrfs::compress_anew(&file.fd, step.start..step.end, how, level);
        // Safe to crash before, in and after this line: see the head of this file.
        let done = match call(level) {
            Err(e)
                if level.is_some() && e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) =>
            {
                call(None)
            }
            done => done,
        };
        done.map_err(skip_of)
    }

    /// Compresses the next step of a range anew, in the runs that would be in fewer extents. Does nothing if the
    /// kernel would read ahead of it: it is to be called again.
    fn compress_next(
        &mut self,
        file: &OpenFile,
        index: usize,
        from: u64,
        stop: &AtomicBool,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let Staged { range, runs, .. } = &self.staged[index];
        let last = runs.last().map_or(0, |last| last.range.end);
        let Some(run) = runs.iter().find(|s| s.range.end > from).copied() else {
            done.passed = range.end - from;
            return Ok(());
        };
        let start = run.range.start.max(from);
        let step = ByteRange::at(start, STEP).intersect(run.range);
        self.bring_in(file, step, stop)?;
        file.may_unshare(&file.layout(step)?, step)?;
        reached(Point::Checked);
        if !is_forestalled(file, step)? {
            self.tries += 1;
            if self.tries < TRIES {
                return Ok(());
            }
            self.tries = 0;
            return Err(pages::away());
        }
        self.tries = 0;
        reached(Point::Filled);
        let prompt = Prompt::begin();
        let started = Instant::now();
        self.compress(file, step, run.compression)?;
        done.held = started.elapsed();
        drop(prompt);
        reached(Point::Moved);
        // Noted now, because what follows may fail.
        (done.moved, done.passed) = (step.len(), start - from);
        done.by = Some(primitive::BTRFS_DEFRAG);
        self.staged[index].moved = true;
        // Written out now, and not with all of its range at once; no more than two steps are in flight.
        let sent = std::mem::replace(&mut self.sent, step);
        cache::start_writeback(&file.fd, step.start..step.end).map_err(skip_of)?;
        // Best effort: others may write there again and again.
        let _ = write_quietly(&file.fd, sent.start..sent.end, BEFORE);
        if step.end == last { self.look_at(file, index, done) } else { Ok(()) }
    }

    /// Brings all of a step into the page cache, and what the kernel would read ahead of it, as far as time
    /// allows.
    ///
    /// Missing pages the kernel would read page by page, with the file locked. And as many bytes as the cache
    /// holds before a part that is requested, it reads behind the part, in one go (`page_cache_sync_ra`,
    /// mm/readahead.c); on a slow device, all other requests would queue behind that. So those bytes are
    /// brought in before, in small reads. And dirty data is written out until the tree has it, which is later
    /// than its pages are clean, because the kernel would read on both sides of it. Nothing is dropped: see
    /// [`Compressing::settle`].
    fn bring_in(
        &mut self,
        file: &OpenFile,
        step: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
        let before = ByteRange { start: step.start.saturating_sub(STEP), end: step.start };
        // Kernels before 6.5 do not count dirty pages.
        let dirty = |range| cache::dirty_pages(&file.fd, range).map_or(true, |pages| pages > 0);
        for _ in 0..WRITES {
            if dirty(before.start..step.end) {
                layout(file, step)?;
            }
            let until = Instant::now() + FORESTALLING;
            for ahead in read_ahead(file, step)?.steps(STEP) {
                if Instant::now() < until && !stop.load(Ordering::Relaxed) {
                    // Best effort: it is no part of the range.
                    let _ = self.pages.bring_in(&file.fd, ahead);
                }
            }
            self.pages.hold(&[(&file.fd, step)])?;
            if !dirty(step.start..step.end) {
                break;
            }
        }
        Ok(())
    }

    /// Checks the result of moving a range.
    fn look_at(&mut self, file: &OpenFile, index: usize, done: &mut Step) -> Result<(), Skip> {
        // Data in flight gets its blocks, and the tree names them.
        let layout = layout(file, self.staged[index].range)?;
        self.staged[index].seen = true;
        let kept = self.staged[index].is_kept(file, &layout);
        done.note = self.keep_attributes(file)?;
        kept
    }

    /// The kernel marks a file as not to be compressed when some of it does not shrink, unless the file is
    /// marked as to be compressed. Its owner did not ask for that mark, so it is removed again. Removing it
    /// sets the time of the inode's last change, which the kernel's marking does not.
    ///
    /// Another program may have set the mark (`chattr +m`), or may be about to change another attribute, which
    /// this call would undo, because it sets all attributes at once. So it is made only while no other program
    /// has the file open, which a write lease proves and ensures, and only if the inode has not been changed
    /// since it was opened. Otherwise the mark stays, and the returned note names it.
    fn keep_attributes(&mut self, file: &OpenFile) -> Result<Option<String>, Skip> {
        let marked = |now: u32| now & !self.attributes & flags::NO_COMPRESSION != 0;
        if !marked(inode::attributes(&file.fd).map_err(skip_of)?) || self.told {
            return Ok(None);
        }
        reached(Point::Marked);
        let why = match Lease::take(&file.fd) {
            Err(_) => "others have the file open",
            Ok(_alone) => {
                let now = inode::attributes(&file.fd).map_err(skip_of)?;
                if !marked(now) {
                    return Ok(None);
                }
                if self.changed.is_some() && time_of(file) == self.changed {
                    let wanted = now & !flags::NO_COMPRESSION;
                    inode::set_attributes(&file.fd, wanted).map_err(skip_of)?;
                    self.changed = time_of(file);
                    return Ok(None);
                }
                "the file was changed meanwhile"
            }
        };
        self.told = true;
        Ok(Some(format!(
            "it is marked as not to be compressed (chattr +m) now, perhaps by the kernel, and the mark stays, because {why}"
        )))
    }
}

/// Whether the kernel finds everything in the page cache that it would read ahead of a step.
fn is_forestalled(file: &OpenFile, step: ByteRange) -> Result<bool, Skip> {
    let ahead = read_ahead(file, step)?;
    cache::is_resident(&file.fd, ahead.start..ahead.end).map_err(skip_of)
}

/// What the kernel reads behind a step if the step is requested: as many bytes as the cache holds before it, if
/// those are more than the step; twice as many if they reach to the file's start; at the start itself, up to
/// four times the step, rounded up (`get_init_ra_size`). Kernels before 6.11 may read 1 MiB behind a file's
/// second step, too.
fn read_ahead(file: &OpenFile, step: ByteRange) -> Result<ByteRange, Skip> {
    let before = step.start.saturating_sub(READ_AHEAD)..step.start;
    let page = rustix::param::page_size() as u64;
    // Kernels before 6.5 do not count cached pages.
    let cached = cache::cached_pages(&file.fd, before).map_or(READ_AHEAD, |pages| pages * page);
    let behind = if step.start == 0 {
        4 * step.len().next_power_of_two() - step.len()
    } else if cached <= step.len() {
        0
    } else if cached == step.start {
        2 * cached
    } else {
        cached
    };
    let end = step.start + (step.len() + behind).min(READ_AHEAD);
    Ok(ByteRange { start: step.end, end: end.min(file.size()?).max(step.end) })
}

/// When the inode was last changed.
fn time_of(file: &OpenFile) -> Option<Changed> {
    let stat = rustix::fs::fstat(&file.fd).ok()?;
    Some((stat.st_ctime, stat.st_ctime_nsec))
}

/// The same, read at a time when any later change leaves another time.
fn settled_time(file: &OpenFile) -> Option<Changed> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let (seconds, nanoseconds) = time_of(file)?;
    let tick = TICK.as_nanos() as i64;
    let since = (now.tv_sec - seconds)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec - nanoseconds.cast_signed());
    if since < tick {
        std::thread::sleep(TICK);
    }
    time_of(file)
}

/// The layout of a range once all delayed writes are done. Compressed data gets into the tree later than its
/// pages are clean, and only `FIEMAP_FLAG_SYNC` waits for that. The kernel then writes out all of the file,
/// twice, and keeps writers out the second time; so what is dirty is written out before.
///
/// # Errors
/// Busy where others have left so much dirty data that writing it would last long.
fn layout(file: &OpenFile, range: ByteRange) -> Result<Layout, Skip> {
    allocate_delayed(file, &[ByteRange { start: 0, end: file.size()? }]).map_err(skip_of)?;
    file.has_settled()?;
    fiemap::layout_within(&mut Fiemap::default(), &file.fd, range, true).map_err(skip_of)
}

/// Compression and level of the mount, from `compress=zstd:7` or `compress-force=zstd:7`.
fn level(options: &[String]) -> Option<(String, i8)> {
    let value = options
        .iter()
        .find_map(|o| o.strip_prefix("compress=").or_else(|| o.strip_prefix("compress-force=")))?;
    let (name, level) = value.split_once(':')?;
    Some((name.to_owned(), level.parse().ok()?))
}

impl Mover for Compressing {
    type File = OpenFile;

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        if !self.goes_on && parts.iter().any(|e| !e.kind.is_encoded()) {
            let why = "compressed in part, and what is written now is not";
            return Err(Skip::new(SkipReason::Encoded, why));
        }
        self.untold.clone().map_or(Ok(()), Err)
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.staged.clear();
        let mut fragments = Vec::new();
        for range in ranges {
            let layout = layout(file, *range)?;
            let chunks = |s: &CompressedRun| s.range.len().div_ceil(LONGEST_ENCODED);
            let mut runs = runs(&layout, *range, &extents(file, *range)?);
            runs.retain(|s| {
                !matches!(s.compression, Compression::Other(_))
                    && chunks(s) < layout.fragments(s.range)
            });
            let gained: u64 = runs.iter().map(|s| layout.fragments(s.range) - chunks(s)).sum();
            fragments.push(layout.fragments(*range) - gained);
            self.staged.push(Staged { range: *range, runs, moved: false, seen: false });
        }
        reached(Point::Staged);
        Ok(fragments)
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    /// The pages stay valid when their data moves, and all stay in the cache, also those that this engine
    /// brought in: the data is compressed on the device, so pages cannot be compared with it, and a page that
    /// the device has refused is the only copy of that write. The kernel has reported the error to the program
    /// that wrote, and no longer reports it to others.
    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let mut staged = std::mem::take(&mut self.staged);
        staged.retain(|s| s.moved);
        if staged.is_empty() {
            return Ok(());
        }
        // Needed where the move was stopped in the middle of a range. What others write all the time may get
        // its blocks later.
        let settled: Vec<_> = staged.iter().map(|staged| staged.has_settled(file)).collect();
        // Reported with the range already, unless the move was stopped in the middle of it.
        drop(self.keep_attributes(file)?);
        let _prompt = Prompt::begin();
        commit(file).map_err(skip_of)?;
        reached(Point::Settled);
        settled.into_iter().collect()
    }
}

impl ByPart for Compressing {
    fn shortest(&self) -> u64 {
        STEP
    }

    /// Moves one step.
    fn relocate(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step {
        let mut done = Step::default();
        done.skip = if index < self.staged.len() {
            self.compress_next(file, index, part.start, stop, &mut done).err()
        } else {
            Some(Skip::new(SkipReason::Failed, "nothing is staged"))
        };
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn the_level_is_the_mounts() {
        let level = |option: &str| level(&["rw".to_owned(), option.to_owned()]);
        assert_eq!(level("compress=zstd:15"), Some(("zstd".into(), 15)));
        assert_eq!(level("compress-force=zstd:-3"), Some(("zstd".into(), -3)));
        assert_eq!(level("compress=lzo"), None);
        assert_eq!(level("space_cache=v2"), None);
    }
}
