//! How the cleaner chooses its victims.

use super::super::sections::{Kind, State as Use};
use super::super::state::State;
use fragmend_layout::{Section, by_cost_benefit, segment_degree};
use std::cmp::Reverse;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The fewest valid blocks.
    Greedy,
    /// The most benefit for the cost, by age and valid blocks, as F2FS computes it.
    CostBenefit,
    /// Of the best sections by cost and benefit the most fragmented one (APSys'16, section 3.2 and algorithm 1).
    FragmentationAware {
        /// How many of the best are looked at: "several candidates".
        candidates: usize,
    },
}

impl State {
    /// At most `count` victims: sections with valid blocks and invalid ones that no log has open. The first one is the best.
    pub fn victims(&self, policy: Victims, count: usize) -> Vec<u32> {
        let has_both = |valid: u32| valid > 0 && valid < self.geometry.section;
        let closed = self.sections.iter().filter(|(_, s)| s.state == Use::Closed);
        let mut found: Vec<u32> =
            closed.filter(|(_, s)| has_both(s.valid)).map(|(n, _)| n).collect();
        found.retain(|number| !self.cleaned_nodes.contains(number));
        match policy {
            Victims::Greedy => {
                let valid = |number: &u32| (self.sections.get(*number).valid, *number);
                if count < found.len() {
                    // To sort them all for each victim would cost half as much again as all the rest of ageing.
                    found.select_nth_unstable_by_key(count, valid);
                    found.truncate(count);
                }
                found.sort_by_key(valid);
            }
            Victims::CostBenefit => found = self.by_cost_benefit(&found),
            Victims::FragmentationAware { candidates } => {
                found = self.by_cost_benefit(&found);
                found.truncate(candidates.max(count));
                found.sort_by_cached_key(|number| Reverse(self.degree(*number)));
            }
        }
        found.truncate(count);
        found
    }

    fn by_cost_benefit(&self, numbers: &[u32]) -> Vec<u32> {
        let section = |number: &u32| {
            let section = self.sections.get(*number);
            let modified = Some(section.modified_ns);
            Section { valid: section.valid, is_closed: true, modified }
        };
        let sections: Vec<Section> = numbers.iter().map(section).collect();
        let order = by_cost_benefit(&sections, self.geometry.section);
        order.into_iter().map(|at| numbers[at]).collect()
    }

    /// How fragmented files are in a section; 0 for nodes, which no file is read through.
    pub fn degree(&self, section: u32) -> u64 {
        if self.sections.get(section).kind == Kind::Node {
            return 0;
        }
        segment_degree((0..self.geometry.section).map(|offset| {
            let is_valid = self.sections.is_valid(section, offset);
            is_valid.then(|| u64::from(self.owner(self.geometry.place(section, offset)).inode))
        }))
    }
}
