//! Copies a range into a donor, then has the kernel take the copy over: for file systems that share or exchange
//! extents (XFS, Btrfs).
//!
//! A part of the file (F) is read, written into the donor's new space (D), and waited for until it is on the
//! device. Then both are passed to the kernel, which takes D's space for F only if F still holds what was
//! copied. No program is locked out while the copy is made.
//!
//! - [`TakeOver::Share`], `FIDEDUPERANGE`: the kernel locks both files against writers and mapped stores,
//!   writes back, compares byte for byte, and makes F share D's blocks; on a difference it does nothing. Then D
//!   gives up its part, and F is the only owner of the blocks.
//! - [`TakeOver::Exchange`], `XFS_IOC_COMMIT_RANGE`: the kernel exchanges both mappings, unless F has changed
//!   since it was sampled, while no other program has it open: see [`super::sample`]. What is not exchanged is
//!   shared where that is possible, and the receipt says why.
//!
//! A range is taken over in turns, because readers and writers of F wait for each call. The length of a turn
//! follows from how long the last call lasted. What is compared the kernel reads page by page under the locks
//! unless it is in the page cache: so all of it is brought in right before, and known to be there. A turn that
//! others have written to since the copy is copied once more, block by block where it differs.
//!
//! Where ranges are shared in turns (XFS) and no other program reads from the device, a step of the next range is
//! copied before the last turn of one, so that the device writes it while the kernel has the file. It is unnamed
//! space until its own turn has come, with all checks of that.
//!
//! Writes of other programs that the device has refused are in the page cache alone, and both calls drop its
//! pages: so the cached pages of a part are compared with the device right before it is copied
//! ([`super::turns::is_on_disk`]). No dirty page is left to the calls, which would write it out under the
//! locks.
//!
//! A range whose first extent is in it as a whole, and is no longer than [`LONGEST_FIRST_EXTENT`], is never in more
//! extents than before, wherever the move ends: the first turn is at least as long as that extent, so the new
//! extent replaces a whole one. A range that begins inside a longer extent is in one more until its first turns
//! are over.
//!
//! Btrfs writes a copy into an extent elsewhere once a part of the donor's extent is shared. So there all of a
//! range is copied before its first turn.
//!
//! Crash argument. If power fails
//!
//! - before the remapping is durable: F has its old blocks, untouched and still its own. D was never linked,
//!   and recovery frees what it held.
//! - after: F has D's blocks. Their bytes were written before the remapping began, and the commit that makes it
//!   durable (XFS: the log write, preceded by a flush; Btrfs: the super block, preceded by a flush) makes them
//!   durable first.
//! - in the middle of a range: an exchange is one logged operation, so each turn is in one of the two states as
//!   a whole; sharing goes extent by extent, so each extent is.
//! - right after the commit: what has moved is durable. XFS forces its log up to a change of D's inode, which
//!   is made later than all that was done to F; F itself is not synced.
//! - after D is closed: the old blocks are free, and reused only once that is durable.

mod copy;
mod read_ahead;
mod take_over;

use super::Mover;
use super::donor::{Space, Stage};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::pages::Pages;
use super::sample::NoSample;
use super::sample::{Sampled, sample};
use super::turns::{State, changed, nothing_staged};
use super::unpinned::Unpinned;
use super::warm::{RESTORING, drop_until};
use crate::point::{Point, reached};
use fragmend_apply::drive::{ByPart, Job, Step, by_part};
use fragmend_layout::{ByteRange, Extent, Pace, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::Compare;
use fragmend_sys::signals::Unstopped;
use read_ahead::ReadAhead;
use rustix::fs::Advice;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a turn whose data changed under its copy is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);
/// How often an exchange is tried at most, where sharing can stand in.
const EXCHANGES: u32 = 3;

/// Bytes of the first turn, and the bounds of later ones.
const FIRST_TURN: u64 = 128 << 10;
const SHORTEST_TURN: u64 = 16 << 10;
const LONGEST_TURN: u64 = 1 << 20;
/// The longest first extent that the first turn takes over as a whole, and the shortest part, however busy the
/// device is.
const LONGEST_FIRST_EXTENT: u64 = 8 << 20;
const SHORTEST_PART: u64 = 64 << 10;
/// Bytes that are copied between two checks for Ctrl-C; at most as many more are in flight.
const STEP: u64 = 256 << 10;
/// Bytes that are read between two checks whether a program waits for the file.
const LOOK: u64 = 64 << 10;
/// A call that lasts longer is followed by a shorter turn, a quicker one by a longer turn.
const LONG: Duration = Duration::from_millis(10);
const QUICK: Duration = Duration::from_millis(2);

/// File times may be as coarse as the slowest kernel's tick (100 Hz): a change in the tick of the sample would
/// not show.
pub(super) const TICK: Duration = Duration::from_millis(11);

/// How the donor's space becomes the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// `FIDEDUPERANGE`: fails only if the turn itself is written to.
    Share {
        /// All of a range is copied before any of it is shared.
        whole: bool,
        /// Why the ranges are not exchanged, where the file system could.
        instead: Option<String>,
    },
    /// `XFS_IOC_COMMIT_RANGE`: fails if the file is written to anywhere.
    Exchange {
        /// Whether a range that cannot be exchanged is shared, where the file system can do that.
        or_share: bool,
    },
}

/// Writes ranges of a file out to the device.
pub(super) type Flush = fn(&OpenFile, &[ByteRange]) -> io::Result<()>;

/// Makes what was done to a file durable, and closes its donor.
pub(super) type Commit = fn(&OpenFile, OwnedFd) -> io::Result<()>;

/// Makes an empty donor equal to the file where the kernel requires that.
pub(super) type Prepare = fn(&OpenFile, &OwnedFd) -> Result<(), Skip>;

/// What a file system needs for a copy.
#[derive(Clone, Copy)]
pub(super) struct Wants {
    /// How space is allocated.
    pub space: Space,
    /// What is done to an empty donor.
    pub prepare: Prepare,
    /// Writes out what is still delayed of some ranges, so that it has blocks, if that does not last long.
    pub flush: Flush,
    /// Makes what has moved durable.
    pub commit: Commit,
    /// Whether the kernel drops the pages of what it takes a copy over for. Then no device may be writing to
    /// them.
    pub drops_pages: bool,
}

/// Copies ranges of one file.
pub(super) struct Copying {
    how: TakeOver,
    wants: Wants,
    stage: Option<Stage>,
    sampled: Option<Sampled>,
    /// How long a sample has locked the file, as far as no receipt has reported it yet.
    held: Duration,
    /// Why the current range is no longer exchanged.
    given_up: Option<String>,
    /// Per staged range.
    copies: Vec<Copy>,
    /// Bytes of the next turn, and of a block: a turn consists of whole blocks.
    turn: u64,
    block: u64,
    /// Whether other programs read from the device, as far as is known.
    others_read: bool,
    /// How often the current turn has failed.
    failed: u32,
    /// How far in the file this attempt at the turn has copied again.
    recopied: u64,
    /// Bytes that were copied more than once, because others have written to their ranges: of all together no more than the
    /// ranges have, so that no move writes more than twice its bytes.
    repeated: u64,
    /// The part of the donor that was sent to the device last and has not been waited for.
    sent: ByteRange,
    /// Why the donor could not be written. The kernel reports that once, and the page cache still shows the
    /// copy that is not on the device: nothing of this donor may be taken over any more.
    unwritable: Option<Skip>,
    pages: Pages,
    compare: Compare,
    unpinned: Unpinned,
    read_ahead: ReadAhead,
    buffer: Vec<u8>,
    other: Vec<u8>,
}

/// How far a range has been copied.
struct Copy {
    range: ByteRange,
    /// Whether its new place is better, so that it is to move.
    moves: bool,
    /// The fewest bytes of its first turn: those of its first extent, or of all of it.
    first_extent: u64,
    /// Where in the file the copy ends.
    end: u64,
    /// Size of the file when its last copy began, in bytes, and the time of the last change then.
    state: State,
    /// The parts of it that were in the page cache before.
    warm: Vec<ByteRange>,
    /// Those of which nothing was, and that have not moved yet.
    cold: Vec<ByteRange>,
}

impl Copy {
    /// Nothing of the range is copied yet.
    fn none(range: ByteRange, first_extent: u64) -> Self {
        let (state, warm, cold) = (State::default(), Vec::new(), Vec::new());
        Self { range, moves: false, first_extent, end: range.start, state, warm, cold }
    }
}

impl Copying {
    /// A mover that takes space over in this way.
    pub fn new(file: &OpenFile, how: TakeOver, wants: Wants) -> Self {
        // Only requested bytes are read: readahead would fill the device's queue.
        let _ = rustix::fs::fadvise(&file.fd, 0, None, Advice::Random);
        Self {
            how,
            wants,
            stage: None,
            sampled: None,
            held: Duration::ZERO,
            given_up: None,
            copies: Vec::new(),
            turn: FIRST_TURN,
            block: file.block,
            others_read: true,
            failed: 0,
            recopied: 0,
            repeated: 0,
            sent: ByteRange::default(),
            unwritable: None,
            pages: Pages::default(),
            compare: Compare::default(),
            unpinned: Unpinned::default(),
            read_ahead: ReadAhead::default(),
            buffer: Vec::new(),
            other: Vec::new(),
        }
    }

    /// Whether the current range is exchanged.
    fn exchanges(&self) -> bool {
        matches!(self.how, TakeOver::Exchange { .. }) && self.given_up.is_none()
    }

    /// Whether a range is copied as a whole before any of it is taken over.
    fn copies_ahead(&self) -> bool {
        !matches!(self.how, TakeOver::Share { whole: false, .. })
    }

    /// Samples the file, so that every later change shows; or gives up exchanging the range, where sharing can
    /// stand in.
    fn sample(
        &mut self,
        file: &OpenFile,
        index: usize,
        from: u64,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
        self.sampled = None;
        let first = self.copies.get(index).ok_or_else(nothing_staged)?.range.start;
        let (donor, at) = Stage::place(&self.stage, index, ByteRange::at(from, file.block))?;
        let go_on = || !stop.load(Ordering::Relaxed);
        match sample(file, index, (first, from), (donor, at), &mut self.held, go_on) {
            Ok(sampled) => {
                self.sampled = Some(sampled);
                Ok(())
            }
            // Sampling writes the donor's pages out, and this may be the error of that.
            Err(NoSample::OfDonor(skip)) => Err(self.spoil(skip)),
            // It was stopped: no other program is the reason.
            Err(NoSample::OfFile(skip)) if !go_on() => Err(skip),
            Err(NoSample::OfFile(skip))
                if matches!(skip.reason, SkipReason::Busy | SkipReason::Unsupported) =>
            {
                self.give_up(skip)
            }
            Err(NoSample::OfFile(skip)) => Err(skip),
        }
    }

    /// Releases the lease if a program waits for the file, or this process is to stop; what was copied so far
    /// may then be old.
    fn release_if_wanted(&mut self) {
        self.sampled =
            self.sampled.take().filter(|s| !s.lease.is_wanted() && !Unstopped::is_wanted());
    }

    /// Drops what was read in vain: ahead, or of what has not moved.
    fn drop_read(&mut self, file: &OpenFile) {
        let until = Instant::now() + RESTORING;
        self.read_ahead.end(file, &self.copies, &mut self.pages, until);
        let cold = self.copies.iter_mut().flat_map(|copy| std::mem::take(&mut copy.cold));
        cold.for_each(|part| drop_until(file, part, until));
    }

    /// How many bytes may still be copied once more.
    fn repeatable(&self) -> u64 {
        let staged: u64 = self.copies.iter().map(|copy| copy.range.len()).sum();
        staged.saturating_sub(self.repeated)
    }

    /// Notes that the donor could not be written.
    fn spoil(&mut self, skip: Skip) -> Skip {
        self.unwritable.get_or_insert(skip).clone()
    }

    /// # Errors
    /// The donor could not be written.
    fn is_sound(&self) -> Result<(), Skip> {
        self.unwritable.clone().map_or(Ok(()), Err)
    }

    fn give_up(&mut self, skip: Skip) -> Result<(), Skip> {
        match (&self.how, skip.reason) {
            (TakeOver::Exchange { or_share: false }, SkipReason::Unsupported) => {
                let why = format!("{}, and this XFS cannot share blocks", skip.detail);
                return Err(Skip::new(skip.reason, why));
            }
            (TakeOver::Exchange { or_share: false }, _) => return Err(skip),
            _ => self.given_up = Some(skip.detail),
        }
        Ok(())
    }
}

impl Mover for Copying {
    type File = OpenFile;

    /// Shared data is moved, too: the other files keep the old blocks.
    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        if parts.iter().any(|e| e.kind.is_encoded()) {
            Err(Skip::new(SkipReason::Encoded, ""))
        } else {
            Ok(())
        }
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.drop_read(file);
        (self.stage, self.sampled, self.failed, self.unwritable) = (None, None, 0, None);
        (self.recopied, self.sent, self.block) = (0, ByteRange::default(), file.block);
        self.repeated = 0;
        let Wants { space, prepare, flush, .. } = self.wants;
        flush(file, ranges).map_err(skip_of)?;
        let mut maps = Fiemap::default();
        let mut copy_of = |range: &ByteRange| -> Result<Copy, Skip> {
            let layout = fiemap::layout_within(&mut maps, &file.fd, *range, false);
            let layout = layout.map_err(skip_of)?;
            // Space of an extent stays occupied until all of the extent is free: if the process is killed
            // between two turns, what was not yet taken of the new extent would stay occupied.
            let first = match self.how {
                TakeOver::Share { whole: true, .. } => range.len(),
                _ => layout.within(*range).next().map_or(0, |fragment| fragment.length),
            };
            let first_extent = first.min(LONGEST_FIRST_EXTENT);
            Ok(Copy::none(*range, first_extent))
        };
        self.copies = ranges.iter().map(&mut copy_of).collect::<Result<_, _>>()?;
        let (stage, fragments) = Stage::new(file, ranges, space, |donor| {
            let _ = rustix::fs::fadvise(donor, 0, None, Advice::Random);
            prepare(file, donor)
        })?;
        self.stage = Some(stage);
        reached(Point::Staged);
        Ok(fragments)
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        for (copy, (target, staged)) in
            self.copies.iter_mut().zip(job.targets.iter().zip(job.staged))
        {
            copy.moves = target.is_better_in(*staged);
        }
        by_part(self, job, pace)
    }

    /// Beside programs that read nothing is copied ahead, and little is read at a time; the steps are too long to go
    /// without pauses there.
    fn gently(&mut self, others_read: bool) -> bool {
        self.others_read = others_read;
        false
    }

    fn let_others_in(&mut self, _: &OpenFile) -> Result<(), Skip> {
        self.release_if_wanted();
        Ok(())
    }

    fn release(&mut self, _: &OpenFile) -> Result<(), Skip> {
        self.sampled = None;
        Ok(())
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.sampled = None;
        self.drop_read(file);
        let Some((donor, moved)) = self.stage.take().and_then(Stage::end) else { return Ok(()) };
        let _prompt = Prompt::begin();
        (self.wants.commit)(file, donor).map_err(skip_of)?;
        reached(Point::Settled);
        moved.restore_cache(file);
        Ok(())
    }
}

/// There is no way back: the old space of what was shared is gone.
impl ByPart for Copying {
    fn prepares(&self, _index: usize) -> bool {
        self.copies_ahead()
    }

    fn shortest(&self) -> u64 {
        SHORTEST_PART
    }

    fn prepare(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
        let range = self.copies.get(index).ok_or_else(nothing_staged)?.range;
        if part.start == range.start {
            (self.given_up, self.failed, self.recopied) = (None, 0, 0);
            if self.exchanges() {
                self.sample(file, index, part.start, stop)?;
            }
        }
        self.release_if_wanted();
        match self.copy(file, index, part, false) {
            Ok(true) => {}
            // Nothing of it is taken over before it has been copied once more.
            Ok(false) => self.failed = 1,
            Err(skip) => {
                self.sampled = None;
                return Err(skip);
            }
        }
        Ok(())
    }

    /// One attempt at one turn, or one step of its copy; the caller keeps the pace and checks for Ctrl-C in
    /// between.
    fn relocate(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step {
        let mut done = Step::default();
        let turn = match self.turn(index, part) {
            Ok(turn) => turn,
            Err(skip) => return Step::none(skip),
        };
        let taken = match self.fill(file, index, turn, stop) {
            Ok(true) => self.take_over(file, index, turn, stop, &mut done).map(|()| true),
            other => other,
        };
        match taken {
            Ok(false) => {}
            Ok(true) => {
                self.failed = 0;
                self.restore(file, index, turn);
                if self.copies.get(index).is_some_and(|copy| turn.end >= copy.range.end) {
                    (self.sampled, self.recopied) = (None, 0);
                }
            }
            Err(skip) => {
                // A call is invalid to the kernel where a program has just truncated the file in the range.
                let is_kernels =
                    matches!(skip.reason, SkipReason::Failed | SkipReason::Unsupported);
                let then = self.copies.get(index).map(|copy| copy.state);
                let has_changed = || State::of(file).is_ok_and(|now| Some(now) != then);
                let skip = if is_kernels && has_changed() { changed() } else { skip };
                done.skip = self.may_pass(skip).err();
                if done.skip.is_some() {
                    (self.failed, self.sampled, self.recopied) = (0, None, 0);
                }
            }
        }
        done.held = done.held.max(std::mem::take(&mut self.held));
        done
    }
}
