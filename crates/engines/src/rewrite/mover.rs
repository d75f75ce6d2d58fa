//! The steps of a rewrite, as the head of `engine.rs` numbers them.

use super::draft::{Draft, Sealed};
use super::engine::Shared;
use super::leased::{Leased, Phase, Seen, State, is_others};
use super::leaving::{leave, set_time_back};
use super::limits::{self, Buffers};
use super::note::{Doubt, Noted, Noting, Session};
use super::place::{Fill, is_on_device, lease, mtime, put, set_mtime};
use super::privileges::{self, Lost};
use super::record::{LONGEST_RANGE, Record, VERSION};
use super::rewriter::{Patience, Rewriter};
use super::unchanged::{ends_as_recorded, holds, looks_unwritten, unchanged, unwanted};
use super::{joined, overlay, refused};
use crate::donor::{Space, Stage, allocation_failed, unnamed};
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::pages::Pages;
use crate::point::{Point, reached};
use crate::turns::vacate;
use crate::unpinned::Unpinned;
use crate::{Mover, primitive};
use fragmend_apply::drive::{ByRange, Job, Step, by_range};
use fragmend_layout::{ByteRange, FsKind, Pace, Skip, SkipReason};
use fragmend_sys::backoff::Backoff;
use fragmend_sys::handle::{self, Handle};
use fragmend_sys::inode;
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::{self, Compare};
use fragmend_sys::session::Disk;
use fragmend_sys::signals::Undisturbed;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What new space may need besides the data: blocks of the extent tree.
const METADATA: u64 = 256 << 10;

/// Rewrites ranges of one file.
pub(super) struct Rewriting {
    shared: Rc<Shared>,
    stage: Option<Stage>,
    /// The copy of the current range, and the range's index among the staged ones.
    draft: Option<(usize, Draft)>,
    reserve: Option<OwnedFd>,
    /// Another program wanted to open the file.
    given_up: bool,
    lost: Lost,
    /// What the user is told of the range that was written last: why a second try was needed; that its time is
    /// another.
    told: Vec<String>,
    compare: Compare,
    pages: Pages,
    /// What no device writes to while the file is unchanged.
    unpinned: Unpinned,
}

impl Rewriting {
    /// A mover for which nothing is staged yet.
    pub fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            stage: None,
            draft: None,
            reserve: None,
            given_up: false,
            lost: Lost::default(),
            told: Vec::new(),
            compare: Compare::default(),
            pages: Pages::default(),
            unpinned: Unpinned::default(),
        }
    }

    /// Bytes that rewriting these ranges needs besides their new places: the reserve, and the record, unless the
    /// journal is elsewhere.
    fn beside(&self, ranges: &[ByteRange]) -> u64 {
        let each = longest(ranges).saturating_add(METADATA);
        if self.shared.keeps_records_here() { each.saturating_mul(2) } else { each }
    }

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
        if range.len() > LONGEST_RANGE {
            let (bytes, most) = (range.len(), LONGEST_RANGE);
            let why = format!("a range of {bytes} bytes, at most {most} are rewritten");
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
        let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
        // Not known if the file was opened by another mount of the file system.
        let (top, path) = (handle::path_of(&self.shared.root), handle::path_of(&file.fd));
        let below = top.zip(path).and_then(|(top, path)| Some(path.strip_prefix(top).ok()?.into()));
        let record = Record {
            version: VERSION,
            fs: self.shared.fs,
            disk: Disk::of(stat.st_dev),
            inode: stat.st_ino,
            generation: inode::generation_or_zero(&file.fd).map_err(skip_of)?,
            // The file system has no handles: the path must do.
            handle: Handle::of(&file.fd).unwrap_or(Handle { kind: 0, bytes: Vec::new() }),
            path: below.unwrap_or_default(),
            size: stat.st_size as u64,
            mtime: mtime(&file.fd).map_err(skip_of)?,
            block: file.block as u32,
            range,
            data_checksum: 0,
        };
        if record.data_len() == 0 {
            return Err(Skip::new(SkipReason::SizeChanged, ""));
        }
        // Without a record that `recover` accepts, nothing is punched.
        record.check(self.shared.block).map_err(|what| {
            Skip::new(SkipReason::Unsupported, format!("recover would refuse its record: {what}"))
        })?;
        if record.handle.bytes.is_empty() && record.path.as_os_str().is_empty() {
            let why = "its path is not known, and its file system has no handles";
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
        self.shared.journal()?.begin(record).map_err(skip_of)
    }

    /// Steps 2 to 10. Returns whether they were done; `false` if `stop` ended them before the file was touched.
    fn rewrite(
        &mut self,
        file: &OpenFile,
        index: usize,
        range: ByteRange,
        stop: &AtomicBool,
        held: &mut Duration,
    ) -> Result<bool, Skip> {
        let copied = self.draft.take().filter(|(is_kind, draft)| {
            *is_kind == index && draft.record().range == range && draft.rest() == 0
        });
        let Some((_, mut draft)) = copied else {
            return Err(Skip::new(SkipReason::Failed, "the range was not copied"));
        };
        draft.finish().map_err(skip_of)?;
        reached(Point::Copied);
        // The copy was made while the donor held the best place, which is freed now.
        if let Some(stage) = &self.stage {
            stage.release(index).map_err(skip_of)?;
        }
        let mut buffers = Buffers::allocate(draft.data().len()).map_err(skip_of)?;
        let session = draft.session(&self.shared.root).map_err(skip_of)?;
        // Dropping the pages of the range may drop adjacent ones as well.
        let goes_on = || !stop.load(Ordering::Relaxed);
        refused::none_beside(&mut self.compare, &file.fd, range, goes_on)?;
        if !self.unpinned.covers(file, range)? {
            // So that little is read for that under the lease.
            let _ = vacate(&mut self.compare, file, range, goes_on);
        }
        if !goes_on() {
            return Ok(false);
        }
        // Signals that would end or stop this process between the punch and the write are deferred until the
        // lease is released.
        let undisturbed = Undisturbed::begin();
        let _prompt = Prompt::begin();
        let started = Instant::now();
        let lease = take(&file.fd)?;
        looks_unwritten(file, draft.record())?;
        // Before the time is set, which is a change as well.
        let is_unpinned = self.unpinned.covers(file, range)?;
        keeps_its_time(file, draft.record())?;
        // What others change from here on shows in these.
        let seen = Seen::now(&file.fd).map_err(skip_of)?;
        let done = match unchanged(file, &draft, &mut buffers, &lease, is_unpinned, goes_on) {
            // The slow parts of `unchanged` end early when `stop` is set.
            _ if !goes_on() => Ok(false),
            Ok(()) => {
                let leased = (&lease, seen);
                self.under_lease(file, draft, session, &mut buffers, leased).map(|()| true)
            }
            Err(skip) => Err(skip),
        };
        self.given_up |= lease.is_wanted();
        drop(lease);
        drop(undisturbed);
        *held = (*held).max(started.elapsed());
        done
    }

    /// Steps 2 to 10, on an unchanged file that no other program can open.
    fn under_lease(
        &mut self,
        file: &OpenFile,
        draft: Draft,
        session: Session,
        buffers: &mut Buffers,
        (lease, seen): (&Lease, Seen),
    ) -> Result<(), Skip> {
        reached(Point::Leased);
        let range = draft.record().range;
        limits::allow(range.start + draft.data().len() as u64).map_err(skip_of)?;
        let sealed = draft.seal(&file.fd, session).map_err(skip_of)?;
        reached(Point::Sealed);
        let noting = Noting::of((&sealed.file, &sealed.record), &file.fd, session);
        let (mtime, size) = (sealed.record.mtime, Some(sealed.record.size));
        let state = State::of((range, Phase::Whole), seen, Some(mtime));
        let in_place = matches!(self.shared.kind, FsKind::Ext4 | FsKind::Xfs);
        let leased = Leased { lease, noting, lost: &self.lost, size, state: &state, in_place };
        let mut holder = Rewriter {
            reserve: &mut self.reserve,
            stage: &self.stage,
            patience: Patience::default(),
        };
        let here = self.shared.keeps_records_here();
        if let Err(skip) = ready(file, &sealed, leased, &mut buffers.back) {
            let told = set_time_back(&file.fd, &sealed, leased, &mut buffers.back, here);
            return leave(sealed, skip, told);
        }
        let (block, data) = (file.block as usize, &sealed.data);
        buffers.release_spare();
        let punch = || {
            state.is_in(Phase::Empty);
            allocate(file, range, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        };
        if let Err(e) = leased.change(Point::Changing, punch).and_then(|done| Ok(done?)) {
            if state.phase() == Phase::Whole || is_whole(file, &sealed, &mut buffers.back) {
                let told = set_time_back(&file.fd, &sealed, leased, &mut buffers.back, here);
                return leave(sealed, skip_of_change(e), told);
            }
            // What others have changed is not written to, whatever it looks like by now.
            if is_others(&e) {
                return Err(self.shared.needs_recovery(not_back(&e)));
            }
        }
        reached(Point::Punched);
        let whole = 0..data.len();
        let fill = Fill { range, data, block, missing: std::slice::from_ref(&whole) };
        let mut put = || put(leased, fill, &mut buffers.back, &mut holder);
        // A second try, where the device refused the write or returned other bytes; not where others may have
        // changed them.
        let done = match put() {
            Err(e) if !is_others(&e) && state.doubt() == Doubt::Nothing => {
                self.told.push(format!("written back at the second try ({e})"));
                put()
            }
            done => done,
        };
        if let Err(e) = done {
            self.told.clear();
            return Err(self.shared.needs_recovery(not_back(&e)));
        }
        self.told.extend(state.message());
        match sealed.remove() {
            Ok(()) => {
                reached(Point::Removed);
                Ok(())
            }
            Err(e) => Err(self.shared.needs_recovery(format!("its record stays: {e}"))),
        }
    }
}

/// Whether a file still has all bytes of its record, in memory and on the device.
fn is_whole(file: &OpenFile, sealed: &Sealed, back: &mut [u8]) -> bool {
    let (record, data) = (&sealed.record, &sealed.data);
    holds(file, record, data, back, || Ok(())).is_ok()
        && rustix::fs::fsync(&file.fd).is_ok()
        && is_on_device(&file.fd, record.range, data, back).is_ok_and(|is| is)
}

/// The length of the longest range.
fn longest(ranges: &[ByteRange]) -> u64 {
    ranges.iter().map(|range| range.len()).max().unwrap_or(0)
}

/// Why a file is left alone after a change that failed.
fn skip_of_change(error: io::Error) -> Skip {
    if is_others(&error) { Skip::new(SkipReason::Busy, error.to_string()) } else { skip_of(error) }
}

/// What the user is told of a range that stays a hole.
fn not_back(error: &io::Error) -> String {
    format!("it could not be written back: {error}")
}

/// Steps 2 to 4 up to the punch: nothing of the content has changed when this fails.
fn ready(
    file: &OpenFile,
    sealed: &Sealed,
    leased: Leased<'_>,
    back: &mut [u8],
) -> Result<(), Skip> {
    let (range, state) = (sealed.record.range, leased.state);
    // Nothing has to be allocated yet: this shows whether the file can be allocated at all.
    let able = leased
        .change(Point::Changing, || allocate(file, range, FallocateFlags::KEEP_SIZE))
        .and_then(|done| Ok(done?))
        .map_err(skip_of_change);
    let timed = leased.set_time().map_err(skip_of_change);
    let timed = timed.and_then(|()| state.failure().map_or(Ok(()), |e| Err(keeps_no_time(e))));
    // If no program waits yet, others are kept out from here on for the whole `lease-break-time`, however
    // slow the steps before this one were.
    let alone = unwanted(leased.lease);
    let noted = leased.note(Noted::AtIt).map_err(skip_of);
    // What it has become by now is the better reason.
    is_plain(file).and(able).and(timed).and(noted).and(alone)?;
    has_space(file, range)?;
    ends_as_recorded(&file.fd, &sealed.record, &sealed.data, back)
}

fn allocate(file: &OpenFile, range: ByteRange, how: FallocateFlags) -> rustix::io::Result<()> {
    rustix::fs::fallocate(&file.fd, how, range.start, range.len())
}

/// A lease on a file that no other program has open.
pub(crate) fn take(file: &OwnedFd) -> Result<Lease<'_>, Skip> {
    lease(file).map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Skip::new(SkipReason::Busy, "another program has it open"),
        Some(Errno::INVAL) => Skip::new(SkipReason::Unsupported, "it cannot be leased"),
        _ => skip_of(e),
    })
}

/// Checks that others have left as much space as the donor had for the range, but for metadata: what they
/// allocate after this may be the blocks that the punch frees.
fn has_space(file: &OpenFile, range: ByteRange) -> Result<(), Skip> {
    // XFS frees the space of a deleted file some milliseconds later.
    let mut backoff = Backoff::new(Duration::from_millis(2), 6);
    while file.free_bytes()?.saturating_add(METADATA) < range.len() {
        if backoff.is_last() {
            let why = "others have allocated the space that it was to have";
            return Err(Skip::new(SkipReason::NoSpace, why));
        }
        backoff.wait();
    }
    Ok(())
}

/// Checks that the file has no privileges that a write would clear.
pub(super) fn is_plain(file: &OpenFile) -> Result<(), Skip> {
    if privileges::has_any(&file.fd).map_err(skip_of)? {
        let why = "set-user-ID, set-group-ID or file capabilities, which writing takes away";
        Err(Skip::new(SkipReason::Unsupported, why))
    } else {
        Ok(())
    }
}

/// Checks that the time of modification can be put back, by setting it to its present value.
fn keeps_its_time(file: &OpenFile, record: &Record) -> Result<(), Skip> {
    set_mtime(&file.fd, record.mtime).map_err(keeps_no_time)
}

fn keeps_no_time(error: io::Error) -> Skip {
    let Skip { reason, detail } = skip_of(error);
    let why = format!(
        "its time of modification could not be kept ({detail}): that takes its owner, or CAP_FOWNER"
    );
    Skip::new(reason, why)
}

impl Mover for Rewriting {
    type File = OpenFile;

    fn need(&mut self, _: &OpenFile, ranges: &[ByteRange]) -> Result<u64, Skip> {
        let places: u64 = ranges.iter().map(|range| range.len()).sum();
        Ok(places.saturating_add(self.beside(ranges)))
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        (self.stage, self.draft, self.reserve) = (None, None, None);
        self.go_on()?;
        // Whether it can be leased is tried before the copy is made in vain.
        drop(take(&file.fd)?);
        // Reads only what is asked for: readahead would fill the device's queue.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        // `fsync` would consume the error of a refused write, which the next program that opens the file should
        // get.
        same::settled(&file.fd).map_err(refused::told)?;
        overlay::none_writes(file)?;
        refused::none_seen(&mut self.compare, &file.fd)?;
        rustix::fs::fsync(&file.fd).map_err(|e| refused::told(e.into()))?;
        let space = Space::Choice { beside: self.beside(ranges) };
        let (stage, fragments) = Stage::new(file, ranges, space, |_| Ok(()))?;
        let reserve = unnamed(file)?;
        rustix::fs::fallocate(&reserve, FallocateFlags::empty(), 0, longest(ranges) + METADATA)
            .map_err(|e| allocation_failed(file, e))?;
        (self.stage, self.reserve) = (Some(stage), Some(reserve));
        Ok(fragments)
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_range(self, job, pace)
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        (self.draft, self.reserve) = (None, None);
        // Each range has already been made durable by itself.
        if let Some(moved) = self.stage.take().and_then(Stage::close) {
            moved.restore_cache(file);
        }
        Ok(())
    }
}

impl ByRange for Rewriting {
    fn prepare(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
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
        let goes_on = || !stop.load(Ordering::Relaxed);
        // Of other file systems it is not known how they set times.
        if self.shared.kind == FsKind::Ext4 {
            // What stays is dropped under the lease.
            refused::drop_all(&mut self.compare, &file.fd, part, goes_on)?;
            self.unpinned.note(file, part)?;
        } else {
            refused::none_in(&mut self.compare, &file.fd, part, goes_on)?;
        }
        if !goes_on() {
            return Ok(());
        }
        // The rest would be copied in vain.
        looks_unwritten(file, draft.record())?;
        let mut bytes = vec![0; part.len().min(draft.rest()) as usize];
        let read = self.pages.read(&file.fd, part, &mut bytes).map_err(skip_of)?;
        if read < bytes.len() {
            return Err(Skip::new(SkipReason::SizeChanged, "it was cut while it was copied"));
        }
        draft.append(&bytes).map_err(skip_of)
    }

    fn relocate(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step {
        let mut done = Step { skip: self.go_on().err(), ..Step::default() };
        if done.skip.is_none() {
            match self.rewrite(file, index, part, stop, &mut done.held) {
                Ok(false) => done.goes_on = true,
                Ok(true) => {
                    Stage::moved(&mut self.stage, index);
                    done.moved = part.len();
                    done.by = Some(primitive::REWRITE);
                    done.note = joined(self.told.drain(..).chain(self.lost.message()));
                }
                Err(skip) => done.skip = Some(skip),
            }
        }
        done
    }
}
