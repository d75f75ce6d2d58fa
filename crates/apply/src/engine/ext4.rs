//! ext4: `EXT4_IOC_MOVE_EXT` with a donor that was looked at first.
//!
//! Crash argument, for `data=ordered` with a journal. A step exchanges the blocks under a range
//! of the file (F) with those of an unnamed donor (D) in one journal transaction T per few
//! blocks, after copying the contents into the page cache pages of F that now belong to the new
//! blocks. If power fails
//!
//! - before T commits: F still has its old blocks, untouched. D was never linked, so recovery
//!   frees whatever it held.
//! - after T commits: ordered mode has written the copied pages to the new blocks before the
//!   commit, so F has the new blocks with the same bytes. The old ones belong to D, which is on
//!   the orphan list, and are freed by recovery.
//! - in the middle of a range: each block is in one of the two states above.
//! - after D is closed: its blocks are freed in T or in a later transaction. Freed blocks are not
//!   handed out before the transaction that freed them has committed, so not while F could
//!   still come back to them.
//!
//! Without a journal, or with `data=writeback`, nothing orders the copied pages before the new
//! mapping: such a file system is refused unless forced. `data=journal` the kernel refuses.
//!
//! The kernel holds both inodes' locks for a step, and reads what it copies while it does. So
//! the pages are read *before*, without locks. They must be single pages: on 6.16 to 6.19 an
//! exchange under a large folio dirties all of it, and each further block of it waits for a
//! flush. `POSIX_FADV_WILLNEED` fills the cache with single pages; what was cached before is
//! dropped first, see `Ext4File::make_room`. Measured for 128 KiB in 32 pieces: 0.3 ms under the
//! locks instead of 4 ms.

use fragmend_layout::{ByteRange, FileId, Layout, Movable, Relocated, Skip, SkipReason, Volume};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::mounts::Mount;
use fragmend_sys::move_ext::{Blocks, move_extents};
use fragmend_sys::{block::BlockDevice, cache, handle};
use rustix::fs::{Advice, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a step that met a busy page is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// How many places are compared before the best of them is taken.
const DONORS: usize = 3;
/// How much more than is needed is asked for, to choose from, in bytes.
const SLACK: u64 = 8 << 20;
/// No page-cache folio of a file is larger (a PMD's worth, mm/huge_memory.c).
const LARGEST_FOLIO: u64 = 2 << 20;

/// A mounted ext4.
pub struct Ext4 {
    mount: PathBuf,
    block: u64,
    total: u64,
}

impl Ext4 {
    /// Looks at the mount's journal mode; `force` takes it whatever it is.
    pub fn new(mount: &Mount, force: bool) -> Result<Self, String> {
        let stat = rustix::fs::statvfs(&mount.point).map_err(|e| e.to_string())?;
        let mode = data_mode(mount.dev)?;
        let safe = mode == "ordered";
        if mode == "journal" {
            return Err("mounted with data=journal, where the kernel cannot move extents; mount it with data=ordered".into());
        }
        if !safe && !force {
            let what =
                if mode.is_empty() { "it has no journal" } else { "mounted with data=writeback" };
            return Err(format!(
                "{what}, so a power cut could leave moved ranges without their data; use data=ordered, or --force to accept that"
            ));
        }
        Ok(Self {
            mount: mount.point.clone(),
            block: stat.f_bsize,
            total: stat.f_blocks * stat.f_frsize,
        })
    }

    /// A descriptor that only names the file, found by its path or else by its inode number:
    /// renamed, perhaps.
    fn find(&self, file: FileId, hint: &Path) -> Result<OwnedFd, Skip> {
        let FileId { device, inode, generation } = file;
        let identity = handle::Identity { device, inode, generation };
        handle::find(&self.mount, hint, identity).map_err(|missing| match missing.at_path {
            None => Skip::new(SkipReason::IdentityChanged, "another file is at this path"),
            Some(e) if e.kind() == io::ErrorKind::NotADirectory => {
                Skip::new(SkipReason::Vanished, "")
            }
            Some(e) => skip_of(e),
        })
    }
}

/// The journal's data mode of a mounted ext4: "ordered", "writeback", "journal", or "" without
/// a journal. mountinfo leaves it out where the super block sets it; this list never does.
fn data_mode(dev: u64) -> Result<String, String> {
    let name = BlockDevice::from_dev(dev).map_err(|e| format!("its device: {e}"))?.name();
    let path = format!("/proc/fs/ext4/{name}/options");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot tell its journal mode ({path}: {e})"))?;
    Ok(text.lines().find_map(|l| l.strip_prefix("data=")).unwrap_or_default().to_owned())
}

impl Volume for Ext4 {
    fn root(&self) -> &Path {
        &self.mount
    }

    fn free_bytes(&self) -> Result<u64, Skip> {
        let stat = rustix::fs::statvfs(&self.mount).map_err(|e| skip_of(e.into()))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn block_bytes(&self) -> u64 {
        self.block
    }

    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
        let found = self.find(file, hint)?;
        let stat = rustix::fs::fstat(&found).map_err(|e| skip_of(e.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Skip::new(SkipReason::NotRegular, ""));
        }
        // The very inode just looked at. Never waits: not for a lease holder.
        let open = |how: OFlags| {
            let how = how | OFlags::NONBLOCK;
            // Only the owner may ask for that; if it is something else, the second try tells.
            let opened = handle::reopen(&found, how | OFlags::NOATIME)
                .or_else(|_| handle::reopen(&found, how));
            opened.map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::TXTBSY) => Skip::new(SkipReason::Executing, ""),
                Some(Errno::AGAIN) => Skip::new(SkipReason::Leased, ""),
                _ => skip_of(e),
            })
        };
        let reader = open(OFlags::RDONLY)?;
        may_move(&reader)?;
        if inode::generation(&reader).map_err(skip_of)? != file.generation {
            return Err(Skip::new(SkipReason::IdentityChanged, "the inode was reused"));
        }
        let fd = open(OFlags::RDWR)?;
        // No readahead beyond what is asked for: it would come in large folios.
        let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        let beside = hint.parent().filter(|_| stat.st_nlink > 0).map(Path::to_owned);
        Ok(Box::new(Ext4File {
            volume: self,
            fd,
            beside,
            space: Fiemap::default(),
            stage: None,
            scratch: Vec::new(),
        }))
    }
}

/// See [`super::may_move`].
pub(super) fn may_move(file: impl AsFd) -> Result<(), Skip> {
    let set = inode::attributes(file).map_err(skip_of)?;
    let reasons = [
        (flags::IMMUTABLE, SkipReason::Immutable),
        (flags::APPEND, SkipReason::AppendOnly),
        (flags::ENCRYPTED, SkipReason::Encrypted),
        (flags::VERITY, SkipReason::Verity),
        (flags::JOURNAL_DATA, SkipReason::JournalledData),
        (flags::DAX, SkipReason::Dax),
        (flags::INLINE_DATA, SkipReason::InlineData),
    ];
    if let Some((_, reason)) = reasons.iter().find(|(flag, _)| set & flag != 0) {
        return Err(Skip::new(*reason, ""));
    }
    if set & flags::EXTENTS == 0 {
        return Err(Skip::new(SkipReason::NoExtents, ""));
    }
    Ok(())
}

/// One file, open for relocation.
struct Ext4File<'a> {
    volume: &'a Ext4,
    fd: OwnedFd,
    /// Its directory: a donor made there gets space near it.
    beside: Option<PathBuf>,
    space: Fiemap,
    stage: Option<Stage>,
    scratch: Vec<u8>,
}

/// A donor and what lies where in it.
struct Stage {
    donor: OwnedFd,
    slots: Vec<Slot>,
}

struct Slot {
    range: ByteRange,
    /// Where in the donor the range's new space begins.
    donor_start: u64,
    /// What the service had in the page cache here and close by: it comes back afterwards.
    warm: Vec<ByteRange>,
    moved: bool,
}

impl Ext4File<'_> {
    /// An unnamed file on the same file system: gone with its last descriptor, whatever happens.
    fn donor(&self) -> Result<OwnedFd, Skip> {
        let unnamed = |dir: &Path| {
            let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            rustix::fs::open(dir, how, Mode::RUSR | Mode::WUSR)
        };
        let same = |fd: &OwnedFd| match (rustix::fs::fstat(fd), rustix::fs::fstat(&self.fd)) {
            (Ok(a), Ok(b)) => a.st_dev == b.st_dev,
            _ => false,
        };
        if let Some(fd) = self.beside.as_deref().and_then(|d| unnamed(d).ok()).filter(same) {
            return Ok(fd);
        }
        unnamed(&self.volume.mount).map_err(|e| skip_of(e.into()))
    }

    /// Allocates space for all ranges at once, back to back: the allocator sees the whole need,
    /// and ranges that follow each other in the file lie so on the device. ext4 may fill a small
    /// need from scattered holes although there is room in one piece, so more is asked for where
    /// there is plenty, and the best stretch of it is used; and while an attempt lies in more
    /// pieces than it must, it is held, so that the next one has to go elsewhere.
    fn best_donor(&mut self, ranges: &[ByteRange]) -> Result<Place, Skip> {
        let total: u64 = ranges.iter().map(|r| r.len()).sum();
        let plenty = self.volume.free_bytes()? / 4 > total + SLACK;
        let want = if plenty { total + SLACK } else { total };
        let mut tried: Vec<Place> = Vec::new();
        while tried.len() < DONORS {
            let donor = self.donor()?;
            let how = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&donor, how, 0, want) {
                Ok(()) => {}
                // Held attempts may be what fills the disk: the best of them must do.
                Err(Errno::NOSPC | Errno::DQUOT) if !tried.is_empty() => break,
                Err(e) => return Err(skip_of(e.into())),
            }
            let all = ByteRange { start: 0, end: want };
            let lies =
                fiemap::layout_within(&mut self.space, &donor, all, false).map_err(skip_of)?;
            let (start, pieces) = best_start(&lies, ranges, want - total);
            let total: u64 = pieces.iter().sum();
            tried.push(Place { donor, start, pieces, total });
            if total <= ranges.len() as u64 {
                break;
            }
        }
        let best = tried.into_iter().min_by_key(|place| place.total);
        best.ok_or_else(|| Skip::new(SkipReason::NoSpace, ""))
    }

    /// Whether at least half of a range is in the page cache.
    fn is_cached(&self, range: ByteRange) -> bool {
        let page = rustix::param::page_size() as u64;
        let pages = cache::cached_pages(&self.fd, range.start..range.end);
        !range.is_empty() && pages.is_ok_and(|n| n * 2 >= range.len() / page)
    }

    /// Drops what the page cache holds of `part`. A folio that reaches beyond the part stays on
    /// the first try; then everything in its way goes.
    fn make_room(&mut self, part: ByteRange) {
        let cached = |range: ByteRange| cache::cached_pages(&self.fd, range.start..range.end);
        let drop = |range: ByteRange| {
            let _ = cache::drop_clean(&self.fd, range.start..range.end);
        };
        // An old kernel that cannot tell has no large folios either.
        if cached(part).unwrap_or(0) > 0 {
            drop(part);
            if cached(part).unwrap_or(0) > 0 {
                drop(part.align_outward(LARGEST_FOLIO));
            }
        }
    }

    /// Reads a part into the page cache, and waits for it.
    fn prefetch(&mut self, part: ByteRange) {
        self.make_room(part);
        // Best effort: if it fails, the exchange reads for itself.
        self.will_need(part);
        self.scratch.resize(part.len() as usize, 0);
        let mut at = 0;
        while let Ok(n @ 1..) =
            rustix::io::pread(&self.fd, &mut self.scratch[at..], part.start + at as u64)
        {
            at += n;
        }
    }

    /// One call to the kernel; adds what it did to `done`.
    fn exchange(
        &mut self,
        index: usize,
        rest: ByteRange,
        done: &mut Relocated,
    ) -> Result<(), Skip> {
        let block = self.volume.block;
        let nothing_staged = || Skip::new(SkipReason::Failed, "nothing is staged");
        let stage = self.stage.as_mut().ok_or_else(nothing_staged)?;
        let slot = stage.slots.get_mut(index).ok_or_else(nothing_staged)?;
        slot.moved = true;
        let blocks = Blocks {
            orig: rest.start / block,
            donor: (slot.donor_start + rest.start - slot.range.start) / block,
            len: rest.len() / block,
        };
        let started = Instant::now();
        // Safe to crash before, in and after this line: see the head of this file.
        let outcome = move_extents(&self.fd, &stage.donor, blocks);
        done.held = done.held.max(started.elapsed());
        done.moved += (outcome.blocks * block).min(rest.len());
        match outcome.error {
            Some(e) => Err(skip_of(e)),
            None if outcome.blocks < blocks.len => {
                Err(Skip::new(SkipReason::SizeChanged, "the kernel moved less than the range"))
            }
            None => Ok(()),
        }
    }

    fn will_need(&self, range: ByteRange) {
        let len = std::num::NonZeroU64::new(range.len());
        let _ = rustix::fs::fadvise(&self.fd, range.start, len, Advice::WillNeed);
    }
}

impl Movable for Ext4File<'_> {
    fn path(&self) -> Option<PathBuf> {
        handle::path_of(&self.fd)
    }

    fn size(&self) -> Result<u64, Skip> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|e| skip_of(e.into()))?;
        Ok(stat.st_size.try_into().unwrap_or(0))
    }

    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        fiemap::layout_within(&mut self.space, &self.fd, range, false).map_err(skip_of)
    }

    fn stage(&mut self, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.stage = None;
        // Data that is still on its way must be on the disk before its blocks are exchanged, or
        // the exchange meets dirty pages. And the commit makes freed space free.
        rustix::fs::fsync(&self.fd).map_err(|e| skip_of(e.into()))?;
        let Place { donor, start, pieces, .. } = self.best_donor(ranges)?;
        let mut donor_start = start;
        let slot = |range: &ByteRange| {
            let wide = range.align_outward(LARGEST_FOLIO);
            let warm = [
                ByteRange { start: wide.start, end: range.start },
                *range,
                ByteRange { start: range.end, end: wide.end },
            ];
            let warm = warm.into_iter().filter(|w| self.is_cached(*w)).collect();
            let slot = Slot { range: *range, donor_start, warm, moved: false };
            donor_start += range.len();
            slot
        };
        let slots = ranges.iter().map(slot).collect();
        ranges.iter().for_each(|range| self.make_room(*range));
        self.stage = Some(Stage { donor, slots });
        Ok(pieces)
    }

    fn relocate(&mut self, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated { moved: 0, held: Duration::ZERO, skip: None };
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            let rest = ByteRange { start: part.start + done.moved, end: part.end };
            self.prefetch(rest);
            let exchanged = self.exchange(index, rest, &mut done);
            let Err(skip) = exchanged else { break };
            if skip.reason != SkipReason::Busy || attempt == TRIES {
                done.skip = Some(skip);
                break;
            }
            // Somebody dirtied a page or holds it: write back, and try what is left.
            let _ = cache::write_and_wait(&self.fd, rest.start..rest.end);
            std::thread::sleep(wait);
            wait *= 2;
        }
        // The sooner the copies are on their way, the shorter the journal's next commit.
        let _ = cache::start_writeback(&self.fd, part.start..part.end);
        done
    }

    fn settle(&mut self) -> Result<(), Skip> {
        let Some(Stage { donor, slots }) = self.stage.take() else { return Ok(()) };
        // Before the commit, so that the donor's own mapping of the old blocks, which nobody
        // will ever read, mostly never reaches the journal.
        drop(donor);
        if slots.iter().all(|s| !s.moved) {
            return Ok(());
        }
        // Not fdatasync: to ext4 a file whose blocks were exchanged has no data to commit.
        rustix::fs::fsync(&self.fd).map_err(|e| skip_of(e.into()))?;
        for slot in slots.iter().filter(|s| s.moved) {
            let _ = cache::drop_clean(&self.fd, slot.range.start..slot.range.end);
            slot.warm.iter().for_each(|w| self.will_need(*w));
        }
        Ok(())
    }
}

/// A donor, where in it the ranges begin, and in how many pieces each would lie.
struct Place {
    donor: OwnedFd,
    start: u64,
    pieces: Vec<u64>,
    total: u64,
}

/// Where in a donor the ranges lie in the fewest pieces when they are laid back to back, no
/// later than `latest`. Only the starts of its longer extents can be better than its beginning.
fn best_start(donor: &Layout, ranges: &[ByteRange], latest: u64) -> (u64, Vec<u64>) {
    const STARTS: usize = 16;
    let mut starts: Vec<_> = donor.extents().iter().filter(|e| e.logical <= latest).collect();
    starts.sort_by_key(|e| std::cmp::Reverse(e.length));
    let pieces_from = |start: u64| -> Vec<u64> {
        let mut at = start;
        let count = |range: &ByteRange| {
            let place = ByteRange::at(at, range.len());
            at = place.end;
            donor.within(place).count() as u64
        };
        ranges.iter().map(count).collect()
    };
    let longest = starts.iter().take(STARTS).map(|e| e.logical);
    std::iter::once(0)
        .chain(longest)
        .map(|start| (start, pieces_from(start)))
        .min_by_key(|(_, pieces)| pieces.iter().sum::<u64>())
        .unwrap_or_default()
}

/// What an error of the system means for a file.
fn skip_of(error: io::Error) -> Skip {
    let reason = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::BUSY | Errno::AGAIN) => SkipReason::Busy,
        Some(Errno::TXTBSY) => SkipReason::SwapFile,
        Some(Errno::NOSPC) => SkipReason::NoSpace,
        Some(Errno::DQUOT) => SkipReason::Quota,
        Some(Errno::ROFS) => SkipReason::ReadOnly,
        Some(Errno::ACCESS | Errno::PERM) => SkipReason::PermissionDenied,
        Some(Errno::NOENT | Errno::STALE) => SkipReason::Vanished,
        Some(Errno::OPNOTSUPP) => SkipReason::Unsupported,
        _ => SkipReason::Failed,
    };
    Skip::new(reason, error.to_string())
}
