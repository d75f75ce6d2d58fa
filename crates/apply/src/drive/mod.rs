//! How an engine is taken through the ranges of a file, by how much of it moves at once.
//!
//! | driver | what moves at once | used by |
//! |---|---|---|
//! | [`by_part`] | a part of a range, from its start on | ext4, sharing and exchanging copies, compressing |
//! | [`by_range`] | a range | rewriting |
//! | [`by_group`] | several ranges, up to so many bytes | F2FS |
//! | [`whole_file`] | all ranges | swapping |
//!
//! Between two steps each of them checks whether the move is to end, and waits as its [`Pace`] demands. Space
//! for all ranges is staged before the first of them is driven, and all is settled after the last one:
//! [`relocate`]. A volume, mounted or simulated, provides a [`Mover`], with the methods that its driver needs.

mod by_group;
mod by_part;
mod by_range;
mod groups;

pub use by_group::{ByGroup, by_group};
pub use by_part::{ByPart, by_part};
pub use by_range::{ByRange, by_range, whole_file};

use fragmend_layout::{
    ByteRange, Extent, ExtentKind, Fate, Layout, Moved, Pace, Settled, Skip, SkipReason, Target,
    Underway,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A file, open as its mover wants it.
pub trait File {
    /// Its file system's allocation block, in bytes.
    fn block_bytes(&self) -> u64;
    /// The present layout of `range`; data that has no place yet is not written out for that.
    fn layout(&self, range: ByteRange) -> Result<Layout, Skip>;
}

/// What moves the data of one file. How much of the file moves at once is known to the driver, which needs more of
/// it: [`ByPart`], [`ByRange`], or [`ByGroup`].
///
/// Order of calls: `stage`, `drive`, `settle`. A crash or a drop at any instant leaves every byte
/// readable as it was.
pub trait Mover {
    /// The files that it moves.
    type File: File;
    /// See [`fragmend_layout::Movable::all_or_nothing`].
    fn all_or_nothing(&self) -> bool {
        false
    }
    /// Bytes of new space that moving `ranges` together needs, or why they cannot be moved together.
    fn need(&mut self, _: &Self::File, ranges: &[ByteRange]) -> Result<u64, Skip> {
        Ok(ranges.iter().map(|r| r.len()).sum())
    }
    /// Whether data that is stored like this can be moved: plain data of this file alone, unless an engine
    /// supports more.
    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        match parts.iter().find_map(|e| refusal(e.kind)) {
            Some(reason) => Err(Skip::new(reason, "")),
            None => Ok(()),
        }
    }
    /// See [`fragmend_layout::Movable::writes_anew`].
    fn writes_anew(&self) -> Result<(), Skip> {
        Ok(())
    }
    /// Allocates new space for all of `ranges` at once, and returns in how many fragments each would be there.
    /// Nothing has moved yet; space that was staged before is released.
    fn stage(&mut self, file: &Self::File, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip>;
    /// Has a driver carry out the job, whose ranges are staged.
    ///
    /// # Errors
    /// Why something is not known to be durable.
    fn drive(&mut self, job: &Job<'_, Self::File>, pace: &mut dyn Pace) -> Result<(), Skip>;
    /// Called before each step with whether other programs read from the device. Returns whether the engine's requests are
    /// then so small and so few at a time, and its use of the processor so short, that no pauses are needed for others.
    fn gently(&mut self, _others_read: bool) -> bool {
        false
    }
    /// See [`fragmend_layout::Underway::let_others_in`].
    fn let_others_in(&mut self, _: &Self::File) -> Result<(), Skip> {
        Ok(())
    }
    /// See [`fragmend_layout::Underway::release`].
    fn release(&mut self, file: &Self::File) -> Result<(), Skip> {
        self.let_others_in(file)
    }
    /// Makes what was relocated durable and frees the space that it left, or that was not used.
    fn settle(&mut self, file: &Self::File) -> Result<(), Skip>;
    /// The longest time for which others were kept out of the file at once since the last call, apart from the
    /// times that are reported with its ranges.
    fn kept_out(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Why data that is stored like this cannot be moved, where an engine supports no more than plain data.
pub fn refusal(kind: ExtentKind) -> Option<SkipReason> {
    match kind {
        _ if kind.is_shared() => Some(SkipReason::Shared),
        _ if kind.is_encoded() => Some(SkipReason::Encoded),
        _ => None,
    }
}

/// Stages space for all targets, has them driven, and settles what has moved. `settling` is called before that
/// with whether the user waits for the end; what it returns is dropped afterwards.
///
/// # Errors
/// There is no space for all of them: nothing has changed, and no target was reported to `pace`.
pub fn relocate<M: Mover + ?Sized, G>(
    mover: &mut M,
    file: &M::File,
    targets: &[Target],
    pace: &mut dyn Pace,
    settling: impl FnOnce(bool) -> G,
) -> Result<Settled, Skip> {
    let ranges: Vec<ByteRange> = targets.iter().map(|target| target.range).collect();
    let staged = mover.stage(file, &ranges)?;
    let moved = mover.drive(&Job { file, targets, staged: &staged }, pace);
    let guard = settling(pace.stop().load(Ordering::Relaxed));
    let settled = mover.settle(file);
    drop(guard);
    Ok(Settled { durable: settled.and(moved), held: mover.kept_out() })
}

/// What is to be done with a file.
pub struct Job<'a, F> {
    /// The file, open as moving demands.
    pub file: &'a F,
    /// The ranges, all of which are staged, in the order in which they are to be moved.
    pub targets: &'a [Target],
    /// In how many fragments each would be at its new place.
    pub staged: &'a [u64],
}

/// The result of one call to an engine.
#[derive(Debug, Default)]
pub struct Step {
    /// Bytes that did move; by part, from the start of the part.
    pub moved: u64,
    /// Bytes, behind those or before them, that it left alone because their place is good enough.
    pub passed: u64,
    /// Nothing has moved yet, and nothing is wrong: a step of the preparation is done, and the engine is to be
    /// called again, unless the move is to end. By part it is called again in any case.
    pub goes_on: bool,
    /// The primitive that moved them: set whenever something moved.
    pub by: Option<&'static str>,
    /// Why the file system's first choice was not what moved them, if it was not.
    pub fallback: Option<String>,
    /// What else the file's owner should know.
    pub note: Option<String>,
    /// Longest time for which the file was locked against its writers.
    pub held: Duration,
    /// Why it ended early, if it did.
    pub skip: Option<Skip>,
}

impl Step {
    /// A step that did nothing, for that reason.
    pub fn none(skip: Skip) -> Self {
        Self { skip: Some(skip), ..Self::default() }
    }

    /// Adds it to the result of its range.
    fn add_to(self, moved: &mut Moved) {
        moved.held = moved.held.max(self.held);
        moved.note = moved.note.take().or(self.note);
        moved.skip = self.skip;
        let Some(by) = self.by.filter(|_| self.moved > 0) else { return };
        moved.bytes += self.moved;
        match moved.by.iter_mut().find(|(known, _)| *known == by) {
            Some((_, bytes)) => *bytes += self.moved,
            None => moved.by.push((by, self.moved)),
        }
        moved.fallback = moved.fallback.take().or(self.fallback);
    }
}

/// What all drivers have: an engine, its job, and its pace.
struct Drive<'a, M: Mover> {
    mover: &'a mut M,
    job: &'a Job<'a, M::File>,
    pace: &'a mut dyn Pace,
    /// The first reason why something is not known to be durable.
    undurable: Option<Skip>,
}

impl<'a, M: Mover> Drive<'a, M> {
    fn new(mover: &'a mut M, job: &'a Job<'a, M::File>, pace: &'a mut dyn Pace) -> Self {
        pace.set_gentle(false);
        Self { mover, job, pace, undurable: None }
    }

    /// Whether the move is to end.
    fn stopped(&self) -> bool {
        self.pace.stop().load(Ordering::Relaxed)
    }

    /// Whether something ended because the whole move is to end: no other program is the reason.
    fn was_stopped(&self, skip: &Skip) -> bool {
        skip.reason == SkipReason::Busy && self.stopped()
    }

    /// In how many fragments the target `index` is now.
    fn fragments(&mut self, index: usize) -> Result<u64, Skip> {
        let range = self.job.targets[index].range;
        Ok(self.job.file.layout(range)?.fragments(range))
    }

    /// Whether its new place is better than the one it had when it was looked at.
    fn is_better(&self, index: usize) -> bool {
        self.job.targets[index].is_better_in(self.job.staged[index])
    }

    /// Leaves a range alone whose new place is no better; returns whether it did.
    fn leave_well_alone(&mut self, index: usize) -> bool {
        if self.is_better(index) {
            return false;
        }
        let (fragments, staged) = (self.job.targets[index].fragments, self.job.staged[index]);
        self.leave(index, fragments, no_better(fragments, staged));
        true
    }

    /// The same where other programs have joined the range since the first look, so that its state is no result
    /// of this move.
    fn leave_joined(&mut self, index: usize) -> bool {
        if self.job.targets[index].anew {
            return false;
        }
        let staged = self.job.staged[index];
        match self.fragments(index) {
            Ok(1) => self.leave(index, 1, Skip::new(SkipReason::AlreadyContiguous, "")),
            Ok(now) if now <= staged => self.leave(index, now, no_better(now, staged)),
            _ => return false,
        }
        true
    }

    fn leave(&mut self, index: usize, fragments: u64, skip: Skip) {
        self.tell(index, Fate::Left { fragments, skip });
    }

    /// Reports the result of a range.
    fn tell(&mut self, index: usize, fate: Fate) {
        let mut beside = Beside { mover: &mut *self.mover, file: self.job.file };
        let told = self.pace.done(&mut beside, index, fate);
        if let Err(skip) = told {
            self.undurable.get_or_insert(skip);
        }
    }

    /// Waits as is due after a step that began at `began` and moved, or copied, so many bytes.
    fn pause(&mut self, bytes: u64, began: Duration) -> Result<(), Skip> {
        let took = self.pace.now() - began;
        self.pace.pause(&mut Beside { mover: &mut *self.mover, file: self.job.file }, bytes, took)
    }

    /// Prepares a range, step by step, until the move is to end.
    fn prepare(
        &mut self,
        index: usize,
        prepare: impl Fn(&mut M, &M::File, usize, ByteRange, &AtomicBool) -> Result<(), Skip>,
    ) -> Result<(), Skip> {
        let mut rest = self.job.targets[index].range;
        while !rest.is_empty() && !self.stopped() {
            let part = self.pace.step(rest, self.job.file.block_bytes());
            let began = self.pace.now();
            match prepare(self.mover, self.job.file, index, part, self.pace.stop()) {
                Err(skip) if self.was_stopped(&skip) => break,
                prepared => prepared?,
            }
            self.pause(part.len(), began)?;
            rest.start = part.end;
        }
        Ok(())
    }

    /// # Errors
    /// Why something is not known to be durable.
    fn end(self) -> Result<(), Skip> {
        self.undurable.map_or(Ok(()), Err)
    }
}

/// A file with the engine that moves it.
struct Beside<'a, M: Mover> {
    mover: &'a mut M,
    file: &'a M::File,
}

impl<M: Mover> Underway for Beside<'_, M> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        self.file.layout(range)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.mover.let_others_in(self.file)
    }

    fn release(&mut self) -> Result<(), Skip> {
        self.mover.release(self.file)
    }
}

fn no_better(now: u64, staged: u64) -> Skip {
    Skip::new(SkipReason::NoBetterPlace, format!("{now} fragments now, {staged} at best"))
}
