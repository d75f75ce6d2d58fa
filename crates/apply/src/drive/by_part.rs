//! Ranges that move part by part, so that each part is a short step.

use super::{Drive, File, Job, Mover, Step};
use fragmend_layout::{ByteRange, Fate, Moved, Pace, Skip, SkipReason};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a range may go on moving back once the move is to end: the rest stays at its new place, in one more
/// extent.
const GOING_BACK: Duration = Duration::from_millis(300);
/// After so many steps in which nothing has moved, a range is left alone.
const STEPS_IN_VAIN: u32 = 1000;

/// An engine that moves parts of a range.
pub trait ByPart: Mover {
    /// Whether all of the staged range `index` is [prepared](ByPart::prepare) just before its first part is relocated.
    fn prepares(&self, _index: usize) -> bool {
        false
    }
    /// Whether a part moves back when it is relocated once more.
    fn returns(&self) -> bool {
        false
    }
    /// No part is shorter than so many bytes, except the last one.
    fn shortest(&self) -> u64 {
        0
    }
    /// Does what can be done for `part` of the staged range `index` without locking out other programs. What
    /// may last long ends once `stop` is set.
    fn prepare(
        &mut self,
        _: &Self::File,
        _index: usize,
        _part: ByteRange,
        _stop: &AtomicBool,
    ) -> Result<(), Skip> {
        Ok(())
    }
    /// Moves `part` of the staged range `index`, or more than the part, or less of it. What may last long
    /// before anything has moved ends once `stop` is set.
    fn relocate(
        &mut self,
        file: &Self::File,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step;
}

/// Takes an engine through its job, part by part; a range that is in more fragments afterwards goes back where it
/// can.
///
/// # Errors
/// Why something is not known to be durable.
pub fn by_part<M: ByPart>(
    mover: &mut M,
    job: &Job<'_, M::File>,
    pace: &mut dyn Pace,
) -> Result<(), Skip> {
    let mut drive = Drive::new(mover, job, pace);
    for (index, target) in job.targets.iter().enumerate() {
        if drive.stopped() {
            break;
        }
        let began = drive.pace.now();
        if drive.leave_well_alone(index) || drive.leave_joined(index) {
            continue;
        }
        let returns = drive.mover.returns();
        let mut moved = Moved { returns, ..Moved::default() };
        if drive.mover.prepares(index) {
            moved.skip = drive.prepare(index, M::prepare).err();
        }
        drive.relocate(index, &mut moved);
        if returns && drive.fragments(index).is_ok_and(|after| after > target.fragments) {
            drive.put_back(index, &mut moved);
        }
        moved.took = drive.pace.now() - began;
        drive.tell(index, Fate::Begun(moved));
    }
    drive.end()
}

impl<M: ByPart> Drive<'_, M> {
    /// Relocates a range until it meets a problem, or the move is to end.
    fn relocate(&mut self, index: usize, moved: &mut Moved) {
        let prepared = self.mover.prepares(index);
        let least = self.mover.shortest().max(self.job.file.block_bytes());
        let (mut rest, mut in_vain) = (self.job.targets[index].range, 0);
        while !rest.is_empty() && moved.skip.is_none() {
            if self.stopped() {
                moved.interrupted = true;
                break;
            }
            let gentle = self.mover.gently(self.pace.others_read());
            self.pace.set_gentle(gentle);
            let part = self.pace.step(rest, least);
            let began = self.pace.now();
            let stop = self.pace.stop();
            let mut done = self.mover.relocate(self.job.file, index, part, stop);
            done.skip = done.skip.filter(|skip| !self.was_stopped(skip));
            let (bytes, came) = (done.moved, done.moved + done.passed);
            done.add_to(moved);
            rest.start += came;
            in_vain = if came > 0 { 0 } else { in_vain + 1 };
            if in_vain >= STEPS_IN_VAIN && moved.skip.is_none() {
                moved.skip = Some(Skip::new(SkipReason::Busy, "it does not get on"));
            }
            // Bytes that were prepared have been counted.
            let bytes = if prepared { 0 } else { bytes };
            if moved.skip.is_none()
                && let Err(skip) = self.pause(bytes, began)
            {
                self.undurable.get_or_insert_with(|| skip.clone());
                moved.skip = Some(skip);
            }
        }
    }

    /// No range gets worse: what did move moves back.
    fn put_back(&mut self, index: usize, moved: &mut Moved) {
        let mut rest = ByteRange::at(self.job.targets[index].range.start, moved.bytes);
        let until = self.pace.now() + GOING_BACK;
        let why = moved.skip.take();
        while !rest.is_empty() {
            let step = self.pace.longest_step().max(self.job.file.block_bytes());
            let part = ByteRange::at(rest.start, step).intersect(rest);
            let stop = self.pace.stop();
            let back = self.mover.relocate(self.job.file, index, part, stop);
            let (bytes, skipped) = (back.moved, back.skip.is_some());
            Step { skip: None, note: None, ..back }.add_to(moved);
            rest.start += bytes;
            let in_time = !self.stopped() || self.pace.now() < until;
            if bytes == 0 || skipped || !in_time {
                break;
            }
        }
        moved.skip = why;
    }
}
