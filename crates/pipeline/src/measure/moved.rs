//! The ranges of a plan that were moved: a prediction for others has nothing to do with what is measured afterwards.

use fragmend_apply::{Outcome, Receipt};
use fragmend_layout::PathText;
use fragmend_plan::{Plan, PlannedRange};
use std::collections::{BTreeMap, BTreeSet};

/// Ranges that were moved, by their receipts.
#[derive(Clone, Debug, Default)]
pub struct Moved(BTreeMap<PathText, BTreeSet<u64>>);

impl Moved {
    /// Takes a receipt; of a range that has two, the later one counts.
    pub fn note(&mut self, receipt: &Receipt) {
        match (self.0.get_mut(&receipt.path), receipt.outcome) {
            (Some(offsets), Outcome::Moved) => drop(offsets.insert(receipt.offset)),
            (Some(offsets), _) => drop(offsets.remove(&receipt.offset)),
            (None, Outcome::Moved) => {
                self.0.insert(receipt.path.clone(), BTreeSet::from([receipt.offset]));
            }
            (None, _) => {}
        }
    }

    /// Whether this range of a file was moved.
    pub(super) fn has(&self, path: &PathText, range: &PlannedRange) -> bool {
        self.0.get(path).is_some_and(|offsets| offsets.contains(&range.offset))
    }

    /// The number of moved ranges of a plan.
    pub(super) fn ranges(&self, plan: &Plan) -> u64 {
        self.sum(plan, |_| 1.0) as u64
    }

    /// What the moved ranges of a plan are predicted to save, as a share of what all of them are.
    pub(super) fn share(&self, plan: &Plan) -> f64 {
        let planned = plan.files.iter().flat_map(|file| &file.ranges);
        let (ranges, seconds) = planned.fold((0.0, 0.0), |(ranges, seconds), range| {
            (ranges + 1.0, seconds + range.seconds_saved)
        });
        if seconds > 0.0 {
            self.sum(plan, |range| range.seconds_saved) / seconds
        } else {
            self.sum(plan, |_| 1.0) / f64::max(ranges, 1.0)
        }
    }

    fn sum(&self, plan: &Plan, of: impl Fn(&PlannedRange) -> f64) -> f64 {
        let moved = plan
            .files
            .iter()
            .flat_map(|file| file.ranges.iter().filter(|range| self.has(&file.path, range)));
        moved.map(of).sum()
    }
}
