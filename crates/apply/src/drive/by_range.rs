//! Ranges that move as a whole, each for itself or all of a file together.

use super::{Drive, Job, Mover, Step};
use fragmend_layout::{ByteRange, Fate, Moved, Pace, Skip};
use std::sync::atomic::AtomicBool;

/// An engine that moves a range as a whole.
pub trait ByRange: Mover {
    /// Does what can be done for `part` of the staged range `index` without locking out other programs. What
    /// may last long ends once `stop` is set.
    fn prepare(
        &mut self,
        file: &Self::File,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip>;
    /// Moves the staged range `index`, which is `range`; it may leave alone what is in a good enough place.
    /// What may last long before anything has moved ends once `stop` is set, as a step that [goes
    /// on](Step::goes_on).
    fn relocate(
        &mut self,
        file: &Self::File,
        index: usize,
        range: ByteRange,
        stop: &AtomicBool,
    ) -> Step;
}

/// Takes an engine through its job, range by range: each is prepared, part by part, just before one call
/// relocates it.
///
/// # Errors
/// Why something is not known to be durable.
pub fn by_range<M: ByRange>(
    mover: &mut M,
    job: &Job<'_, M::File>,
    pace: &mut dyn Pace,
) -> Result<(), Skip> {
    let mut drive = Drive::new(mover, job, pace);
    for index in 0..job.targets.len() {
        if drive.stopped() {
            break;
        }
        let began = drive.pace.now();
        if drive.leave_well_alone(index) || drive.leave_joined(index) {
            continue;
        }
        let mut moved = Moved { whole: true, ..Moved::default() };
        moved.skip = drive.prepare(index, M::prepare).err();
        drive.relocate_whole(index, &mut moved, Drive::stopped);
        moved.took = drive.pace.now() - began;
        drive.tell(index, Fate::Begun(moved));
    }
    drive.end()
}

/// The same where all ranges of a file move together: all are prepared before the first is relocated, which
/// moves the others as well. Once one has moved, all have, and all are reported, even if the move is to end.
///
/// # Errors
/// As [`by_range`].
pub fn whole_file<M: ByRange>(
    mover: &mut M,
    job: &Job<'_, M::File>,
    pace: &mut dyn Pace,
) -> Result<(), Skip> {
    let mut drive = Drive::new(mover, job, pace);
    let prepare = |index| drive.prepare(index, M::prepare).err();
    let problems: Vec<Option<Skip>> = (0..job.targets.len()).map(prepare).collect();
    let mut has_moved = false;
    for (index, skip) in problems.into_iter().enumerate() {
        let ends = |drive: &Drive<'_, M>| !has_moved && drive.stopped();
        if ends(&drive) {
            break;
        }
        let began = drive.pace.now();
        let mut moved = Moved { whole: true, skip, ..Moved::default() };
        drive.relocate_whole(index, &mut moved, ends);
        has_moved |= moved.bytes > 0;
        moved.took = drive.pace.now() - began;
        drive.tell(index, Fate::Begun(moved));
    }
    drive.end()
}

impl<M: ByRange> Drive<'_, M> {
    /// Relocates a range unless it has met a problem already, or `ends` returns true.
    fn relocate_whole(&mut self, index: usize, moved: &mut Moved, ends: impl Fn(&Self) -> bool) {
        let range = self.job.targets[index].range;
        while moved.skip.is_none() {
            if ends(self) {
                moved.interrupted = true;
                break;
            }
            let stop = self.pace.stop();
            let done = self.mover.relocate(self.job.file, index, range, stop);
            let goes_on = done.goes_on;
            done.add_to(moved);
            if !goes_on {
                break;
            }
        }
    }
}
