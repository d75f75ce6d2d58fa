//! How ext4 searches its groups for a free run (`ext4_mb_regular_allocator`, fs/ext4/mballoc.c of Linux 3.10).
//!
//! A power of two is looked for among runs that are aligned to it, in each group in turn. Everything else, and what was not found so,
//! is the best of the free runs of groups that are good enough: first of those whose runs are long enough on average, then of those that
//! have as many free blocks, then of all. It looks at no more than [`MOST`] runs, whatever they are like: where free space is in many
//! short runs, an allocation is one of these, although other groups may have longer ones. Unlike there, a run is looked at as a whole,
//! and not in buddies.

use super::{Group, ORDERS, order};
use fragmend_flash::command::Units;

/// Runs that are looked at (`mb_max_to_scan`), and how many are even if one of them would do (`mb_min_to_scan`).
const MOST: usize = 200;
const LEAST: usize = 10;

impl Group {
    /// The first run of the lowest order that has `2^wanted` blocks at a multiple of that from the group's start.
    fn aligned(&self, wanted: usize, start: u32) -> Option<Units> {
        let count = 1 << wanted;
        let within = |run: &u32| {
            let first = start + (run - start).next_multiple_of(count);
            (first + count <= self.runs[run]).then(|| Units::new(first, count))
        };
        // A run of the order above that one has such a place, wherever it begins.
        let near = self.by_order[wanted..ORDERS.min(wanted + 2)].iter();
        let far = self.by_order[ORDERS.min(wanted + 2)..].iter().filter_map(|runs| runs.first());
        near.flatten().chain(far).find_map(within)
    }

    /// Whether a group is worth a look by one of the criteria 1 to 3 (`ext4_mb_good_group`).
    fn is_good(&self, criterion: u32, wanted: u32) -> bool {
        let fragments = self.runs.len() as u32;
        match criterion {
            _ if fragments == 0 => false,
            1 => self.free / fragments >= wanted,
            2 => self.free >= wanted,
            _ => true,
        }
    }
}

/// Whether a run is better than the best so far (`ext4_mb_measure_extent`): the shortest that is long enough, else the longest.
fn is_better(count: u32, best: u32, wanted: u32) -> bool {
    if best < wanted { count > best } else { count >= wanted && count < best }
}

/// A free run for `wanted` blocks, and perhaps shorter or longer, from the group `first` on; `None` if nothing is free.
pub(super) fn search(groups: &[Group], per_group: u32, first: usize, wanted: u32) -> Option<Units> {
    let in_turn = || (first..groups.len()).chain(0..first);
    if wanted.is_power_of_two() && wanted > 1 {
        let aligned = |n: usize| groups[n].aligned(order(wanted), n as u32 * per_group);
        if let Some(found) = in_turn().find_map(aligned) {
            return Some(found);
        }
    }
    let (mut best, mut seen) = (None::<Units>, 0);
    for criterion in 1..=3 {
        for group in in_turn().map(|n| &groups[n]) {
            if !group.is_good(criterion, wanted) {
                continue;
            }
            for (start, end) in &group.runs {
                let run = Units::new(*start, end - start);
                seen += 1;
                if best.is_none_or(|best| is_better(run.count, best.count, wanted)) {
                    best = Some(run);
                }
                let count = best.map_or(0, |best| best.count);
                if count == wanted || seen > MOST || count > wanted && seen > LEAST {
                    return best;
                }
            }
            if best.is_some_and(|best| best.count >= wanted) {
                return best;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::{Rule, Space};
    use super::*;

    const GROUP: u32 = 4096;

    /// A space of four groups of which only these runs are free.
    fn space(runs: impl IntoIterator<Item = (u32, u32)>) -> Space {
        let mut space = Space::new(4 * GROUP, GROUP).with(Rule::Multiblock);
        space.take(Units::new(0, GROUP));
        for group in 1..4 {
            space.take(Units::new(group * GROUP, GROUP));
        }
        runs.into_iter().for_each(|(start, count)| space.release(Units::new(start, count)));
        space
    }

    #[test]
    fn a_power_of_two_is_aligned() {
        let mut space = space([(3, 14), (100, 90)]);
        assert_eq!(space.allocate(0, 8, false), Some(Units::new(8, 8)));
        assert_eq!(space.allocate(0, 8, false), Some(Units::new(104, 8)), "7 and 1 are left there");
        let mut other = self::space([(GROUP - 7, 7), (GROUP + 1, 15)]);
        assert_eq!(other.allocate(0, 8, false), Some(Units::new(GROUP + 8, 8)), "the next group");
    }

    #[test]
    fn the_shortest_that_is_long_enough_is_taken_else_the_longest() {
        let mut space = space([(0, 20), (40, 9), (80, 12), (200, 7)]);
        assert_eq!(space.allocate(0, 10, false), Some(Units::new(80, 10)));
        assert_eq!(space.allocate(0, 100, false), Some(Units::new(0, 20)));
    }

    #[test]
    fn a_goal_is_taken_whole_or_not_at_all() {
        let mut space = space([(0, 5), (40, 9)]);
        assert_eq!(space.allocate(1, 3, true), Some(Units::new(1, 3)));
        assert_eq!(space.allocate(4, 3, true), Some(Units::new(40, 3)), "one block is too few");
    }

    /// Were all runs looked at, the long one would be found.
    #[test]
    fn a_search_ends_among_short_runs() {
        let short = |count: u32| (0..count).map(|n| (10 * n, 5));
        let long = (2 * GROUP, 100);
        let mut few = space(short(150).chain([long]));
        assert_eq!(
            few.allocate(0, 99, false),
            Some(Units::new(2 * GROUP, 99)),
            "its group is good"
        );
        let group = (2 * GROUP, 20);
        let fill = (0..200).map(|n| (2 * GROUP + 40 + 10 * n, 5));
        let mut many = space(short(300).chain([group]).chain(fill));
        let found = many.allocate(0, 19, false);
        assert_eq!(found, Some(Units::new(0, 5)), "after {MOST} runs");
    }
}
