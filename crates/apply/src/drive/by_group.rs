//! Ranges of which several move together, because making them durable costs the same for one as for many.

use super::groups::groups;
use super::{Drive, Job, Mover, Step};
use fragmend_layout::{ByteRange, Fate, Moved, Pace, Skip};
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// An engine that moves several ranges in one go.
pub trait ByGroup: Mover {
    /// Bytes of the largest group, unless it is one range.
    fn most(&self) -> u64;
    /// Does what can be done for `part` of the staged range `index` without locking out other programs.
    fn prepare(&mut self, file: &Self::File, index: usize, part: ByteRange) -> Result<(), Skip>;
    /// Moves these staged ranges in this order, and makes that durable. It ends once `stop` is set, with what
    /// has moved by then, and without a reason; or because another program waits for the file. Returns the
    /// result of each range that was begun: of none if `stop` was set already, else of the first at least.
    fn relocate(
        &mut self,
        file: &Self::File,
        group: &[usize],
        stop: &AtomicBool,
    ) -> Vec<(usize, Step)>;
}

/// Takes an engine through its job, group by group.
///
/// # Errors
/// Why something is not known to be durable.
pub fn by_group<M: ByGroup>(
    mover: &mut M,
    job: &Job<'_, M::File>,
    pace: &mut dyn Pace,
) -> Result<(), Skip> {
    let mut drive = Drive::new(mover, job, pace);
    let ranges: Vec<ByteRange> = job.targets.iter().map(|target| target.range).collect();
    let most = drive.pace.in_one_go(drive.mover.most());
    for group in groups(most, &ranges, |index| drive.is_better(index)) {
        if drive.stopped() {
            break;
        }
        let mut problems: HashMap<usize, Skip> = HashMap::new();
        for &index in group.iter().filter(|index| drive.is_better(**index)).collect::<Vec<_>>() {
            if let Err(skip) =
                drive.prepare(index, |m, file, at, part, _| m.prepare(file, at, part))
            {
                problems.insert(index, skip);
            }
        }
        if drive.stopped() {
            break;
        }
        drive.relocate_group(&group, problems);
    }
    drive.end()
}

impl<M: ByGroup> Drive<'_, M> {
    /// Relocates in one go those ranges of a group that would be better elsewhere and have met no problem yet;
    /// ranges that this did not come to be tried one by one.
    fn relocate_group(&mut self, group: &[usize], mut problems: HashMap<usize, Skip>) {
        let fine = |index: &usize| !problems.contains_key(index) && self.is_better(*index);
        let mut together: Vec<usize> = group.iter().copied().filter(fine).collect();
        let mut steps: HashMap<usize, Step> = HashMap::new();
        for &index in group {
            let began = self.pace.now();
            if self.leave_well_alone(index) {
                continue;
            }
            let mut moved =
                Moved { whole: true, skip: problems.remove(&index), ..Moved::default() };
            if moved.skip.is_none() {
                if !steps.contains_key(&index) {
                    let all = std::mem::take(&mut together);
                    let these = if all.is_empty() { vec![index] } else { all };
                    let stop = self.pace.stop();
                    steps.extend(self.mover.relocate(self.job.file, &these, stop));
                }
                let done = steps.remove(&index).unwrap_or_default();
                let came = done.moved + done.passed;
                done.add_to(&mut moved);
                let all_came = came >= self.job.targets[index].range.len();
                moved.interrupted = moved.skip.is_none() && !all_came && self.stopped();
            }
            moved.took = self.pace.now() - began;
            self.tell(index, Fate::Begun(moved));
        }
    }
}
