//! Rewriting in place, with a durable copy first: for file systems that have FIEMAP and can punch
//! holes, but have no way of their own to move data. Only where it is asked for.
//!
//! A range of the file (F) is copied into a record (R) in the journal; then F is leased, compared
//! with R, punched, allocated anew, written, read back; then R goes. What is on the disk if power
//! fails or the process is killed after step
//!
//! 1. *copied*: F as it was; an unfinished `.part`. `recover` removes it.
//! 2. *sealed* (R written, synced, read back, renamed, directory synced): F as it was, and R.
//!    `recover` finds F whole and removes R. So it does after
//! 3. *leased*: nobody else has F open, and F still is what R says.
//! 4. *punched*, 5. *allocated*, 6. *half written*, 7. *written*: each block of the range holds
//!    its old bytes where it was, or is a hole, or unwritten, or holds the same bytes in its new
//!    place, whatever of that has reached the disk. `recover` writes the holes and the unwritten
//!    blocks from R, makes them durable, compares, and removes R. Anything else in the range was
//!    put there by somebody else, and is not touched.
//! 8. *synced*, 9. *compared*: F has every byte for good, and R. `recover` removes R.
//! 10. *removed*: F alone.
//!
//! R outlives every instant at which F may lack a byte: it is durable before the punch, and its
//! removal begins after F was synced and read back.
//!
//! Space. Between punch and allocation others may take what was freed. Therefore the donor's space
//! for the range is freed just before, so that at least twice what is needed is free, and a
//! reserve of the same size, and then all that the donor has left, are given up only when that was
//! not enough. If others take all of it, the record stays, and `recover` can do its work as soon
//! as there is space again.
//!
//! Who is kept out. The write lease is granted only while nobody else has F open: no reader, no
//! writer, no mapping, no swap file, no running program. Who opens or truncates F during steps 3
//! to 10, also as root, waits until they are done; who opens it with `O_NONBLOCK` is turned away.
//! The kernel ends such waiting after `lease-break-time`; a system where that is short is refused,
//! but a device that hangs for so long would let a waiting program see zeroes. If this process is
//! killed, its lease goes: until `recover` has run, the range may read as zeroes.
//!
//! The time of modification is put back if it lies between the first step and now: somebody who
//! sets it by path in just that moment, without opening the file, is not noticed.

use super::donor::{Space, Stage, unnamed};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::{Engine, Mover};
use crate::bytes::read_at;
use crate::rewrite::journal::{DIRECTORY, Draft, Journal, Sealed};
use crate::rewrite::place::{mtime, put, set_mtime};
use crate::rewrite::point::{Point, reached};
use crate::rewrite::record::Record;
use fragmend_layout::{ByteRange, ExtentKind, Relocated, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::{self, Handle};
use fragmend_sys::inode;
use fragmend_sys::lease::{self, Lease};
use fragmend_sys::mounts::Mount;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest range that is rewritten at once: its copy is held in memory, too.
const LONGEST: u64 = 64 << 20;
/// What new space may need besides the data: blocks of the extent tree.
const METADATA: u64 = 256 << 10;
/// A lease that the kernel takes away sooner would not outlast a slow device.
const SHORTEST_BREAK: Duration = Duration::from_secs(10);

/// The engine of any local file system that passes the probe.
pub(super) struct Rewrite {
    shared: Rc<Shared>,
}

/// What all files of one file system have in common.
struct Shared {
    root: PathBuf,
    fs: FsId,
    journal_path: PathBuf,
    journal: RefCell<Option<Rc<Journal>>>,
    /// A range could not be put back: nothing more is punched until it was.
    broken: Cell<bool>,
}

impl Rewrite {
    /// Tries on an unnamed file what rewriting needs, and looks for records that were left.
    ///
    /// # Errors
    /// What is missing, or what to do first.
    pub fn new(mount: &Mount, journal: Option<&Path>) -> Result<Self, String> {
        super::local(mount)?;
        probe(&mount.point)?;
        let root = std::fs::File::open(&mount.point).map_err(|e| e.to_string())?;
        let fs = FsId::of(&root).map_err(|e| e.to_string())?;
        let journal_path = match journal {
            Some(dir) => dir.join(format!("fragmend-rewrite-{}", fs.name())),
            None => mount.point.join(DIRECTORY),
        };
        let journal = Journal::open(&journal_path).map_err(|e| e.to_string())?;
        let open = journal.as_ref().map(Journal::records).transpose();
        let open = open.map_err(|e| format!("{}: {e}", journal_path.display()))?;
        if let Some(open) = open.filter(|records| !records.is_empty()) {
            let elsewhere = journal_path.parent().filter(|p| *p != mount.point);
            let where_to = match elsewhere {
                Some(dir) => format!("--journal {}", dir.display()),
                None => mount.point.display().to_string(),
            };
            return Err(format!(
                "{} ranges of an interrupted rewrite are not recovered yet; run: fragmend recover {where_to}",
                open.len()
            ));
        }
        let shared = Shared {
            root: mount.point.clone(),
            fs,
            journal_path,
            journal: RefCell::new(journal.map(Rc::new)),
            broken: Cell::new(false),
        };
        Ok(Self { shared: Rc::new(shared) })
    }
}

/// Whether an unnamed file at `root` can be mapped, punched, allocated and leased.
fn probe(root: &Path) -> Result<(), String> {
    let lacks = |what: &str, e: io::Error| {
        format!("cannot be rewritten: {what} ({e}); `fragmend scan` works on it")
    };
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::open(root, how, Mode::RUSR | Mode::WUSR);
    let file = file.map_err(|e| lacks("no unnamed file can be made at its top", e.into()))?;
    let length = rustix::fs::fstatvfs(&file).map_or(4096, |s| s.f_bsize);
    let allocate = |how| rustix::fs::fallocate(&file, how, 0, length).map_err(io::Error::from);
    allocate(FallocateFlags::empty()).map_err(|e| lacks("no space can be allocated", e))?;
    fiemap::layout_of(&file).map_err(|e| lacks("it does not tell where files lie", e))?;
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        .map_err(|e| lacks("it cannot punch holes", e))?;
    drop(Lease::take(&file).map_err(|e| lacks("it has no leases, to keep others out", e))?);
    match lease::break_time() {
        Ok(None) => Ok(()),
        Ok(Some(time)) if time >= SHORTEST_BREAK => Ok(()),
        Ok(Some(time)) => Err(format!(
            "/proc/sys/fs/lease-break-time is {} s, too short to keep others out; set it to {} or more",
            time.as_secs(),
            SHORTEST_BREAK.as_secs()
        )),
        Err(e) => Err(lacks("lease-break-time cannot be read", e)),
    }
}

impl Shared {
    fn journal(&self) -> Result<Rc<Journal>, Skip> {
        let mut journal = self.journal.borrow_mut();
        if journal.is_none() {
            let made = Journal::create(&self.journal_path);
            let made = made.map_err(|e| Skip::new(SkipReason::Failed, format!("journal: {e}")))?;
            *journal = Some(Rc::new(made));
        }
        let journal = Rc::clone(journal.as_ref().expect("made above"));
        // Nobody else is at work here, so these were left by a process that died.
        for name in journal.drafts().map_err(skip_of)? {
            journal.remove(&name).map_err(skip_of)?;
        }
        Ok(journal)
    }

    /// What to say once a range could not be put back.
    fn needs_recovery(&self, why: impl std::fmt::Display) -> Skip {
        self.broken.set(true);
        let detail = format!("{why}; its bytes are safe in {}", self.journal_path.display());
        Skip::new(SkipReason::NeedsRecovery, detail)
    }
}

impl Engine for Rewrite {
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        if self.shared.broken.get() {
            return Err(Skip::new(SkipReason::NeedsRecovery, "first run: fragmend recover"));
        }
        let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
        let capability = rustix::fs::fgetxattr(&file.fd, "security.capability", &mut [0; 64]);
        if stat.st_mode & 0o6000 != 0 || capability.is_ok() {
            let why = "set-user-ID, set-group-ID or file capabilities, which writing takes away";
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
        let shared = Rc::clone(&self.shared);
        Ok(Box::new(Rewriting { shared, stage: None, draft: None, reserve: None, given_up: false }))
    }
}

/// Rewrites ranges of one file.
struct Rewriting {
    shared: Rc<Shared>,
    stage: Option<Stage>,
    /// The copy of the range in hand, and its place among the staged ones.
    draft: Option<(usize, Draft)>,
    reserve: Option<OwnedFd>,
    /// Somebody else wanted the file.
    given_up: bool,
}

impl Rewriting {
    /// # Errors
    /// Why this file may not be touched any more.
    fn go_on(&self) -> Result<(), Skip> {
        match () {
            () if self.shared.broken.get() => {
                Err(Skip::new(SkipReason::NeedsRecovery, "first run: fragmend recover"))
            }
            () if self.given_up => Err(Skip::new(SkipReason::Busy, "another program opened it")),
            () => Ok(()),
        }
    }

    fn draft(&self, file: &OpenFile, range: ByteRange) -> Result<Draft, Skip> {
        if range.len() > LONGEST {
            let why = format!("a range of {} bytes, at most {LONGEST} are rewritten", range.len());
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
        let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
        let path = handle::path_of(&file.fd).unwrap_or_default();
        let record = Record {
            fs: self.shared.fs,
            inode: stat.st_ino,
            generation: inode::generation(&file.fd).unwrap_or(0),
            // A file system without handles: the path must do.
            handle: Handle::of(&file.fd).unwrap_or(Handle { kind: 0, bytes: Vec::new() }),
            path: path.strip_prefix(&self.shared.root).unwrap_or(&path).to_owned(),
            size: stat.st_size as u64,
            mtime: mtime(&file.fd).map_err(skip_of)?,
            block: file.block as u32,
            range,
            data_checksum: 0,
        };
        if record.data_len() == 0 {
            return Err(Skip::new(SkipReason::SizeChanged, ""));
        }
        self.shared.journal()?.begin(record).map_err(skip_of)
    }

    /// Steps 2 to 10.
    fn rewrite(
        &mut self,
        file: &OpenFile,
        index: usize,
        range: ByteRange,
        held: &mut Duration,
    ) -> Result<(), Skip> {
        let copied = self.draft.take().filter(|(of, draft)| {
            *of == index && draft.record().range == range && draft.rest() == 0
        });
        let Some((_, draft)) = copied else {
            return Err(Skip::new(SkipReason::Failed, "the range was not copied"));
        };
        reached(Point::Copied);
        // The copy was made while the donor held the best place, which goes free now.
        if let Some(stage) = &self.stage {
            stage.release(index).map_err(skip_of)?;
        }
        let sealed = draft.seal().map_err(skip_of)?;
        reached(Point::Sealed);
        let started = Instant::now();
        let lease = match take(&file.fd) {
            Ok(lease) => lease,
            Err(skip) => return discard(sealed, skip),
        };
        let done = self.under_lease(file, sealed, &lease);
        self.given_up |= lease.is_wanted();
        drop(lease);
        *held = (*held).max(started.elapsed());
        done
    }

    /// Steps 3 to 10.
    fn under_lease(&mut self, file: &OpenFile, sealed: Sealed, lease: &Lease) -> Result<(), Skip> {
        let record = &sealed.record;
        let range = record.range;
        let untouched = unchanged(file, &sealed).and_then(|()| match lease.is_wanted() {
            true => Err(Skip::new(SkipReason::Busy, "another program opened it")),
            false => Ok(()),
        });
        let began = clock_gettime(ClockId::RealtimeCoarse);
        let began = (began.tv_sec, began.tv_nsec as u32);
        let settle_mtime = || -> io::Result<()> {
            let now = clock_gettime(ClockId::Realtime);
            let ours = began..=(now.tv_sec, now.tv_nsec as u32);
            if ours.contains(&mtime(&file.fd)?) {
                set_mtime(&file.fd, record.mtime)
            } else {
                Ok(())
            }
        };
        let fallocate =
            |how| rustix::fs::fallocate(&file.fd, how, range.start, range.end - range.start);
        // Nothing to allocate yet: whether the file can be allocated at all.
        let able = untouched.and_then(|()| {
            let can = fallocate(FallocateFlags::KEEP_SIZE).map_err(|e| skip_of(e.into()));
            let _ = settle_mtime();
            can
        });
        if let Err(skip) = able {
            return discard(sealed, skip);
        }
        reached(Point::Leased);
        if let Err(e) = fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
            && unchanged(file, &sealed).is_ok()
        {
            return discard(sealed, skip_of(e.into()));
        }
        reached(Point::Punched);
        let (reserve, stage) = (&mut self.reserve, &self.stage);
        let mut make_room =
            || reserve.take().is_some() || stage.as_ref().is_some_and(Stage::release_all);
        let mut put = || put(&file.fd, range, &sealed.data, &settle_mtime, &mut make_room);
        // Once more where the device refused or answered wrongly.
        if let Err(e) = put().or_else(|_| put()) {
            return Err(self.shared.needs_recovery(format!("it could not be written back: {e}")));
        }
        match sealed.remove() {
            Ok(()) => {
                reached(Point::Removed);
                Ok(())
            }
            Err(e) => Err(self.shared.needs_recovery(format!("its record stays: {e}"))),
        }
    }
}

/// Leaves a file that was not touched alone, and removes the record.
fn discard(sealed: Sealed, skip: Skip) -> Result<(), Skip> {
    match sealed.remove() {
        Ok(()) => Err(skip),
        Err(e) => Err(Skip::new(SkipReason::Failed, format!("a needless record stays: {e}"))),
    }
}

fn take(file: &OwnedFd) -> Result<Lease<'_>, Skip> {
    Lease::take(file).map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Skip::new(SkipReason::Busy, "another program has it open"),
        Some(Errno::INVAL) => Skip::new(SkipReason::Unsupported, "it cannot be leased"),
        _ => skip_of(e),
    })
}

/// Whether the range is data of this file alone, and the file what its record says.
fn unchanged(file: &OpenFile, sealed: &Sealed) -> Result<(), Skip> {
    let Sealed { record, data, .. } = sealed;
    let changed = |what: &str| Err(Skip::new(SkipReason::Busy, what));
    let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
    if stat.st_size as u64 != record.size || mtime(&file.fd).map_err(skip_of)? != record.mtime {
        return changed("it was written to while it was copied");
    }
    let mut now = vec![0; data.len()];
    let read = read_at(&file.fd, &mut now, record.range.start).map_err(skip_of)?;
    if read < data.len() || now != *data {
        return changed("it was written to while it was copied");
    }
    // A punch may reach to the end of the page that the file ends in.
    let page = rustix::param::page_size() as u64;
    let wide = ByteRange { end: record.range.end.next_multiple_of(page), ..record.range };
    let layout = fiemap::layout_within(&mut Fiemap::default(), &file.fd, wide, true);
    let layout = layout.map_err(skip_of)?;
    let kinds = |range: ByteRange, of: fn(ExtentKind) -> bool| -> u64 {
        layout.within(range).filter(|e| of(e.kind)).map(|e| e.length).sum()
    };
    let behind = ByteRange { start: record.range.end, end: wide.end };
    if record.range.end > record.size && kinds(behind, |_| true) > 0 {
        return Err(Skip::new(SkipReason::Unsupported, "space is preallocated behind its end"));
    }
    match kinds(record.range, |kind| kind == ExtentKind::Data) == record.range.len() {
        true => Ok(()),
        false => Err(Skip::new(SkipReason::LayoutChanged, "not all of it is data of its own")),
    }
}

impl Mover for Rewriting {
    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        (self.stage, self.draft, self.reserve) = (None, None, None);
        self.go_on()?;
        // Before anything is copied in vain.
        drop(take(&file.fd)?);
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        let (stage, pieces) = Stage::new(file, ranges, Space::Choice, |_| Ok(()))?;
        let longest = ranges.iter().map(|r| r.len()).max().unwrap_or(0);
        let reserve = unnamed(file)?;
        rustix::fs::fallocate(&reserve, FallocateFlags::empty(), 0, longest + METADATA)
            .map_err(|e| skip_of(e.into()))?;
        (self.stage, self.reserve) = (Some(stage), Some(reserve));
        Ok(pieces)
    }

    fn moves_whole_ranges(&self) -> bool {
        true
    }

    fn prepare(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Result<(), Skip> {
        self.go_on()?;
        let whole = Stage::range(&self.stage, index)?;
        let (_, draft) = match &mut self.draft {
            Some(copy) if copy.0 == index => copy,
            _ => {
                self.draft = None;
                let draft = self.draft(file, whole)?;
                self.draft.insert((index, draft))
            }
        };
        let mut bytes = vec![0; part.len().min(draft.rest()) as usize];
        let read = read_at(&file.fd, &mut bytes, part.start).map_err(skip_of)?;
        if read < bytes.len() {
            return Err(Skip::new(SkipReason::SizeChanged, "it was cut while it was copied"));
        }
        draft.append(&bytes).map_err(skip_of)
    }

    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated { moved: 0, held: Duration::ZERO, skip: self.go_on().err() };
        if done.skip.is_none() {
            match self.rewrite(file, index, part, &mut done.held) {
                Ok(()) => {
                    Stage::moved(&mut self.stage, index);
                    done.moved = part.len();
                }
                Err(skip) => done.skip = Some(skip),
            }
        }
        done
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        (self.draft, self.reserve) = (None, None);
        // Each range was made durable for itself.
        if let Some(moved) = self.stage.take().and_then(Stage::close) {
            moved.restore_cache(file);
        }
        Ok(())
    }
}
