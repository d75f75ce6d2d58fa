//! Compressed data of Btrfs: `BTRFS_IOC_DEFRAG_RANGE`, which writes a range anew through the page
//! cache, compressed as it is.
//!
//! The kernel holds the inode's lock while it marks the pages of 256 KiB at a time as to be
//! written, and waits there for what is on its way; who writes or stores through a mapping
//! meanwhile comes before or after, and writes the same pages. It would read under the lock what is missing in the
//! page cache, page by page, and ahead of that: so all of it is brought there right before, and known to be there. Then the pages are
//! compressed, in chunks of at most 128 KiB, and each chunk is written to one new extent.
//!
//! Which compression that is, only the extents themselves tell, and they tell root alone: it need
//! be neither the mount's nor the inode's. So a range is moved in stretches of one compression
//! each, and the result is looked at. The level is written nowhere; that of the mount is taken
//! where it names the same compression, else the kernel's own.
//!
//! Crash argument. If power fails
//!
//! - before the new extents are on the device: the file's tree names the old ones, which are not
//!   given out again before a commit that is without them. The kernel changes the tree only when
//!   an extent's data has been written.
//! - after that, before the transaction commits: the same; what the new extents hold is free space.
//! - after the commit, ours or anybody's: the file has the new extents. Their bytes were on the device,
//!   behind a flush, before the super block was.
//! - in the middle of a range: each chunk is in one of its two places, with the same bytes.
//!
//! What others write to a compressed file block by block is stored plain, for there is nothing to
//! gain. It is compressed together with what is around it, as it would be if all were written anew;
//! but not where nothing is compressed any more that is written now.
//!
//! There is no donor whose place could be compared, and no way back. But a compressed extent is
//! never split, so a stretch that shrinks again comes to lie in as many pieces as it has chunks at
//! the very most: a range is moved only if that is fewer than now, and its receipt says how it lies
//! afterwards. An extent that the range cuts stays as it is: all of it would stay occupied for the
//! rest.

mod stretch;

use super::btrfs::commit;
use super::copying::TICK;
use super::drive::{ByPart, Job, Step, by_part};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::turns::give_places;
use super::{Mover, primitive};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Extent, LONGEST_ENCODED, Layout, Pace, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::btrfs::{self, Compression};
use fragmend_sys::cache;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::write_quietly;
use rustix::fs::Advice;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use stretch::{Stretch, extents, stretches};

/// Bytes that are written anew in one call: what one compressed extent holds. The kernel does at most
/// twice that under one lock; but the more it is, the more it may read ahead of it.
const STEP: u64 = LONGEST_ENCODED;

/// How long the step before is waited for at most.
const BEFORE: Duration = Duration::from_millis(200);

/// How often what others write into a step is written out before it is compressed.
const WRITES: u32 = 4;

/// As far as Btrfs reads ahead unless it is told otherwise, and how long it is forestalled.
const READ_AHEAD: u64 = 4 << 20;
const FORESTALLING: Duration = Duration::from_millis(200);

/// Compresses ranges of one file anew.
pub(super) struct Compressing {
    /// How hard the mount compresses, and in which way.
    level: Option<(String, i8)>,
    /// Why nobody tells how the file is compressed.
    untold: Option<Skip>,
    /// Whether what is written to the file now is compressed.
    goes_on: bool,
    /// The file's attributes, and when it was last changed before they were looked at.
    attributes: u32,
    changed: Option<Changed>,
    /// A mark of the kernel's that could not be taken away was told.
    told: bool,
    staged: Vec<Staged>,
    /// What was sent to the device last, and not waited for.
    sent: ByteRange,
    pages: Pages,
}

/// When an inode was last changed.
type Changed = (i64, u64);

struct Staged {
    range: ByteRange,
    stretches: Vec<Stretch>,
    moved: bool,
    /// What has become of it was looked at.
    seen: bool,
}

impl Staged {
    /// That it is compressed as it was.
    fn is_kept(&self, file: &OpenFile, lies: &Layout) -> Result<(), Skip> {
        let now = stretches(lies, self.range, &extents(file, self.range)?);
        let kept = |s: &Stretch| -> u64 {
            let alike = now.iter().filter(|n| n.compression == s.compression);
            let inside = alike.filter(|n| n.range.overlaps(s.range));
            inside.map(|n| n.encoded).sum()
        };
        // What somebody has written meanwhile is compressed as they would have it.
        let Some(other) = self.stretches.iter().find(|s| kept(s) < s.encoded / 2) else {
            return Ok(());
        };
        let detail = format!("most of it is not compressed by {} now", other.compression.name());
        Err(Skip::new(SkipReason::LayoutChanged, detail))
    }

    /// That all of it has its place, and is compressed as it was where nobody has looked at that yet.
    fn has_settled(&self, file: &OpenFile) -> Result<(), Skip> {
        layout(file, self.range)
            .and_then(|lies| if self.seen { Ok(()) } else { self.is_kept(file, &lies) })
    }
}

impl Compressing {
    /// One for a file on a file system that is mounted with these options.
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
            pages: Pages::default(),
        }
    }

    /// Whether what is written to the file now is compressed.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// One call to the kernel, and one more where it is too old to take a level.
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

    /// Compresses the next step of a range anew, of the stretches that would lie in fewer pieces.
    fn compress_next(
        &mut self,
        file: &OpenFile,
        index: usize,
        from: u64,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let Staged { range, stretches, .. } = &self.staged[index];
        let last = stretches.last().map_or(0, |last| last.range.end);
        let Some(stretch) = stretches.iter().find(|s| s.range.end > from).copied() else {
            done.passed = range.end - from;
            return Ok(());
        };
        let start = stretch.range.start.max(from);
        let step = ByteRange::at(start, STEP).intersect(stretch.range);
        self.bring_in(file, step)?;
        let lies = fiemap::layout_within(&mut Fiemap::default(), &file.fd, step, false);
        file.may_unshare(&lies.map_err(skip_of)?, step)?;
        reached(Point::Filled);
        let prompt = Prompt::begin();
        let started = Instant::now();
        self.compress(file, step, stretch.compression)?;
        done.held = started.elapsed();
        drop(prompt);
        reached(Point::Moved);
        // What follows may fail.
        (done.moved, done.passed) = (step.len(), start - from);
        done.by = Some(primitive::BTRFS_DEFRAG);
        self.staged[index].moved = true;
        // On its way now, not with all of its range at once; no more than two steps are.
        let sent = std::mem::replace(&mut self.sent, step);
        cache::start_writeback(&file.fd, step.start..step.end).map_err(skip_of)?;
        // Best effort: others may write there again and again.
        let _ = write_quietly(&file.fd, sent.start..sent.end, BEFORE);
        if step.end == last { self.look_at(file, index, done) } else { Ok(()) }
    }

    /// Sees that all of a step is in the page cache, and that the kernel reads nothing ahead of it.
    ///
    /// What is missing it would read page by page, with the file locked. And as much as lies in the cache before a
    /// part that it is asked for, it reads behind it, in one go, which on a slow device all others stand behind
    /// (`page_cache_sync_ra`, mm/readahead.c): so that is brought in before, in small reads. And what is dirty is
    /// written out until the tree has it, which is later than its pages are clean, for it would read on both sides of
    /// that. Nothing is dropped: see [`Compressing::settle`].
    fn bring_in(&mut self, file: &OpenFile, step: ByteRange) -> Result<(), Skip> {
        let before = ByteRange { start: step.start.saturating_sub(STEP), end: step.start };
        // An old kernel does not tell.
        let dirty = |range| cache::dirty_pages(&file.fd, range).map_or(true, |pages| pages > 0);
        for _ in 0..WRITES {
            if dirty(before.start..step.end) {
                layout(file, step)?;
            }
            let end = (step.start + read_ahead(file, step)).min(file.size()?);
            let until = Instant::now() + FORESTALLING;
            for ahead in (ByteRange { start: step.end, end: end.max(step.end) }).steps(STEP) {
                if Instant::now() < until {
                    self.pages.bring_in(&file.fd, ahead).map_err(skip_of)?;
                }
            }
            self.pages.hold(&[(&file.fd, step)])?;
            if !dirty(step.start..step.end) {
                break;
            }
        }
        Ok(())
    }

    /// Looks at what has become of a range.
    fn look_at(&mut self, file: &OpenFile, index: usize, done: &mut Step) -> Result<(), Skip> {
        // What is on its way gets its place, and the tree says so.
        let lies = layout(file, self.staged[index].range)?;
        self.staged[index].seen = true;
        done.note = self.keep_attributes(file)?;
        self.staged[index].is_kept(file, &lies)
    }

    /// The kernel marks a file as not to be compressed when some of it does not shrink, unless it
    /// is marked as to be compressed: its owner did not ask for that, and it goes again. That sets the
    /// time of the inode's last change, which the kernel's mark does not.
    ///
    /// Somebody else may have set the mark (`chattr +m`), or may be about to change another one, which the
    /// call would undo: it takes all attributes at once. So it is made only while nobody else has
    /// the file open, which a write lease tells and keeps so, and only if the inode has not been changed since it was opened.
    /// Else the mark stays, and what is given back says so.
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

/// Bytes from the start of a step on that the kernel reads if it is asked for the step: as much more as lies in the
/// cache before it, twice as much from the file's start on; at the start itself, up to four times the step
/// (`get_init_ra_size`).
fn read_ahead(file: &OpenFile, step: ByteRange) -> u64 {
    let before = step.start.saturating_sub(READ_AHEAD)..step.start;
    let page = rustix::param::page_size() as u64;
    // An old kernel does not tell.
    let cached = cache::cached_pages(&file.fd, before).map_or(READ_AHEAD, |pages| pages * page);
    let behind = if step.start == 0 {
        3 * step.len()
    } else if cached <= step.len() {
        0
    } else if cached == step.start {
        2 * cached
    } else {
        cached
    };
    (step.len() + behind).min(READ_AHEAD)
}

/// When the inode was last changed.
fn time_of(file: &OpenFile) -> Option<Changed> {
    let stat = rustix::fs::fstat(&file.fd).ok()?;
    Some((stat.st_ctime, stat.st_ctime_nsec))
}

/// The same, once any later change will have another time.
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

/// Where a range lies, all delayed writes done: what is compressed gets into the tree later than its pages are clean,
/// which only this waits for (`FIEMAP_FLAG_SYNC`). The kernel writes out all of the file, twice, and keeps writers
/// out the second time; so what is dirty is written out before.
///
/// # Errors
/// Busy where others have left so much that it would take long.
fn layout(file: &OpenFile, range: ByteRange) -> Result<Layout, Skip> {
    give_places(file, &[ByteRange { start: 0, end: file.size()? }]).map_err(skip_of)?;
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
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip> {
        if !self.goes_on && parts.iter().any(|e| !e.kind.is_encoded()) {
            let why = "compressed in part, and what is written now is not";
            return Err(Skip::new(SkipReason::Encoded, why));
        }
        self.untold.clone().map_or(Ok(()), Err)
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.staged.clear();
        let mut pieces = Vec::new();
        for range in ranges {
            let lies = layout(file, *range)?;
            let chunks = |s: &Stretch| s.range.len().div_ceil(LONGEST_ENCODED);
            let mut stretches = stretches(&lies, *range, &extents(file, *range)?);
            stretches.retain(|s| {
                !matches!(s.compression, Compression::Other(_)) && chunks(s) < lies.pieces(s.range)
            });
            let gained: u64 = stretches.iter().map(|s| lies.pieces(s.range) - chunks(s)).sum();
            pieces.push(lies.pieces(*range) - gained);
            self.staged.push(Staged { range: *range, stretches, moved: false, seen: false });
        }
        reached(Point::Staged);
        Ok(pieces)
    }

    fn drive(&mut self, job: &Job<'_>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    /// Its pages stay good when it moves, and all stay in the cache, what we have brought in as well: being compressed
    /// on the device, they cannot be compared with it, and one that the device has refused is the only copy of what
    /// somebody wrote. That somebody was told of it, others can no longer be told.
    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let mut staged = std::mem::take(&mut self.staged);
        staged.retain(|s| s.moved);
        if staged.is_empty() {
            return Ok(());
        }
        // Where it was stopped in the middle of a range. What others write all the time may come to lie later.
        let settled: Vec<_> = staged.iter().map(|staged| staged.has_settled(file)).collect();
        // Told with the range, unless it was stopped in the middle.
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

    /// One step.
    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange, _: &AtomicBool) -> Step {
        let mut done = Step::default();
        done.skip = if index < self.staged.len() {
            self.compress_next(file, index, part.start, &mut done).err()
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
