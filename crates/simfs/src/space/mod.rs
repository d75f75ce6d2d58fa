//! Free space in groups, and how a place is found in it: the goal first, then by a [`Rule`].
//!
//! A block is free, or held (taken by an allocation that no file has: a reservation, a donor), or a file's.

mod search;

use crate::ranges::RangeSet;
use fragmend_flash::command::Units;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many runs of an order are looked at until one is long enough (`mb_max_to_scan`).
const SCANNED: usize = 200;
/// Orders of runs: a run of order `n` has at least `2^n` blocks.
const ORDERS: usize = 32;

/// How a place is found where the goal has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// The first run that is long enough, of whichever group, else the longest one there is.
    #[default]
    FirstFit,
    /// ext4's (`search`).
    Multiblock,
}

/// The free blocks of a drive.
#[derive(Clone, Debug)]
pub struct Space {
    rule: Rule,
    groups: Vec<Group>,
    per_group: u32,
    free: u64,
    held: RangeSet,
}

/// The free runs of a group.
#[derive(Clone, Debug)]
struct Group {
    /// The end of each run, by its start.
    runs: BTreeMap<u32, u32>,
    by_order: [BTreeSet<u32>; ORDERS],
    /// Free blocks.
    free: u32,
}

fn order(count: u32) -> usize {
    count.max(1).ilog2() as usize
}

impl Group {
    fn new() -> Self {
        let by_order = std::array::from_fn(|_| BTreeSet::new());
        Self { runs: BTreeMap::new(), by_order, free: 0 }
    }

    fn put(&mut self, start: u32, end: u32) {
        if start < end {
            self.runs.insert(start, end);
            self.by_order[order(end - start)].insert(start);
            self.free += end - start;
        }
    }

    fn pull(&mut self, start: u32) -> u32 {
        let end = self.runs.remove(&start).expect("a free run");
        self.by_order[order(end - start)].remove(&start);
        self.free -= end - start;
        end
    }

    /// The free run that holds this block.
    fn at(&self, block: u32) -> Option<Units> {
        let (start, end) = self.runs.range(..=block).next_back()?;
        (block < *end).then(|| Units::new(*start, end - start))
    }

    fn take(&mut self, units: Units) {
        let run = self.at(units.start).expect("it is free");
        debug_assert!(units.end() <= run.end(), "all of it is free");
        self.pull(run.start);
        self.put(run.start, units.start);
        self.put(units.end(), run.end());
    }

    fn give(&mut self, units: Units) {
        let (mut start, mut end) = (units.start, units.end());
        if let Some(before) = self.runs.range(..start).next_back().filter(|run| *run.1 == start) {
            start = *before.0;
            self.pull(start);
        }
        if self.runs.contains_key(&end) {
            end = self.pull(end);
        }
        self.put(start, end);
    }

    /// The first run of at least `count` blocks.
    fn first(&self, count: u32) -> Option<Units> {
        let least = order(count);
        let of_order = self.by_order[least].iter().take(SCANNED);
        let fits = of_order.copied().find(|start| self.runs[start] - start >= count);
        let longer = self.by_order[least + 1..].iter().filter_map(|starts| starts.first().copied());
        let start = fits.into_iter().chain(longer).min()?;
        Some(Units::new(start, self.runs[&start] - start))
    }

    /// One of the longest runs.
    fn long(&self) -> Option<Units> {
        let starts = self.by_order.iter().rev().find(|starts| !starts.is_empty())?;
        let run = |start: &u32| Units::new(*start, self.runs[start] - start);
        starts.iter().take(SCANNED).map(run).max_by_key(|run| (run.count, u32::MAX - run.start))
    }
}

impl Space {
    /// All blocks are free.
    pub fn new(blocks: u32, per_group: u32) -> Self {
        let per_group = per_group.max(1);
        let groups = (0..blocks.div_ceil(per_group)).map(|_| Group::new()).collect();
        let (rule, held) = (Rule::default(), RangeSet::default());
        let mut space = Self { rule, groups, per_group, free: 0, held };
        space.release(Units::new(0, blocks));
        space
    }

    /// It, with this rule.
    #[must_use]
    pub fn with(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// Free blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Blocks that are taken and no file's.
    pub fn held(&self) -> &RangeSet {
        &self.held
    }

    /// The parts of a run, by the group that they are in.
    fn by_group(&self, units: Units) -> impl Iterator<Item = (usize, Units)> + use<> {
        let per_group = self.per_group;
        let groups = units.start / per_group..units.end().div_ceil(per_group);
        groups.map(move |group| {
            let (first, last) =
                (group * per_group, group.saturating_add(1).saturating_mul(per_group));
            let start = units.start.max(first);
            (group as usize, Units::new(start, units.end().min(last) - start))
        })
    }

    /// Takes blocks that are free.
    ///
    /// # Panics
    /// If one of them is not.
    pub fn take(&mut self, units: Units) {
        for (group, part) in self.by_group(units) {
            self.groups[group].take(part);
        }
        self.free -= u64::from(units.count);
    }

    /// Frees blocks.
    pub fn release(&mut self, units: Units) {
        for (group, part) in self.by_group(units) {
            self.groups[group].give(part);
        }
        self.free += u64::from(units.count);
    }

    /// Takes at most `count` blocks; `None` if none is free. `continues` says that they continue data that ends before the goal: by
    /// first fit, any free blocks there are welcome then; the multiblock allocator tries the goal then alone, and wants all of them there.
    pub fn allocate(&mut self, goal: u32, count: u32, continues: bool) -> Option<Units> {
        let count = count.max(1);
        let found = match self.rule {
            Rule::FirstFit => self.find(goal, count, continues),
            Rule::Multiblock => self.search(continues.then_some(goal), goal, count),
        }?;
        self.take(found);
        Some(found)
    }

    /// The same by ext4's rule, where the search begins with the group of another block if the goal, if there is one, is not free.
    pub fn allocate_from(&mut self, goal: Option<u32>, from: u32, count: u32) -> Option<Units> {
        let found = self.search(goal, from, count.max(1))?;
        self.take(found);
        Some(found)
    }

    fn group_of(&self, block: u32) -> usize {
        ((block / self.per_group) as usize).min(self.groups.len().saturating_sub(1))
    }

    fn search(&self, goal: Option<u32>, from: u32, count: u32) -> Option<Units> {
        let at_goal = |goal: u32| {
            let run = self.groups[self.group_of(goal)].at(goal)?;
            (run.end() - goal >= count).then(|| Units::new(goal, count))
        };
        // A run cannot be longer than a group.
        let wanted = count.min(self.per_group);
        goal.and_then(at_goal).or_else(|| {
            let found = search::search(&self.groups, self.per_group, self.group_of(from), wanted)?;
            Some(Units::new(found.start, count.min(found.count)))
        })
    }

    /// Takes at most `count` blocks, `None` if none is free: in the first run of so many that begins at this block or behind it, then in the
    /// first of the other groups, or else the longest run there is.
    pub fn allocate_behind(&mut self, start: u32, count: u32) -> Option<Units> {
        let wanted = count.clamp(1, self.per_group);
        let group = self.groups.get((start / self.per_group) as usize)?;
        let within = group.at(start).map(|run| Units::new(start, run.end() - start));
        let behind = group.runs.range(start..).map(|(start, end)| Units::new(*start, end - start));
        let found = within.into_iter().chain(behind).find(|run| run.count >= wanted);
        match found {
            Some(run) => {
                let found = Units::new(run.start, wanted);
                self.take(found);
                Some(found)
            }
            None => self.allocate(start, count, false),
        }
    }

    fn find(&self, goal: u32, count: u32, merges: bool) -> Option<Units> {
        let (groups, first) = (self.groups.len(), self.group_of(goal));
        let from = |start: u32, run: Units| Units::new(start, count.min(run.end() - start));
        if let Some(run) = self.groups[first].at(goal)
            && (merges || run.end() - goal >= count)
        {
            return Some(from(goal, run));
        }
        let in_turn = || (first..groups).chain(0..first).map(|group| &self.groups[group]);
        // A run cannot be longer than a group.
        let count_here = count.min(self.per_group);
        let fits = in_turn().find_map(|group| group.first(count_here));
        let found = fits.or_else(|| in_turn().filter_map(Group::long).max_by_key(|run| run.count));
        found.map(|run| from(run.start, run))
    }

    /// Holds blocks that are taken: they are no file's.
    pub fn hold(&mut self, units: Units) {
        self.held.insert(u64::from(units.start)..u64::from(units.end()));
    }

    /// Blocks that were held are a file's from now on.
    pub fn hand_over(&mut self, units: Units) {
        self.held.remove(u64::from(units.start)..u64::from(units.end()));
    }

    /// Frees blocks that were held.
    pub fn let_go(&mut self, units: Units) {
        self.hand_over(units);
        self.release(units);
    }

    /// The free runs within these blocks.
    pub fn free_within(&self, units: Units) -> Vec<Units> {
        let clip = |run: Units| {
            let start = run.start.max(units.start);
            Units::new(start, run.end().min(units.end()).saturating_sub(start))
        };
        let parts = self.by_group(units).flat_map(|(group, part)| {
            let runs = &self.groups[group].runs;
            let first = self.groups[group].at(part.start).map_or(part.start, |run| run.start);
            let of_group = runs.range(first..part.end().max(first));
            of_group.map(|(start, end)| clip(Units::new(*start, end - start)))
        });
        parts.filter(|run| run.count > 0).collect()
    }

    /// How many blocks a group has.
    pub fn per_group(&self) -> u32 {
        self.per_group
    }

    /// The groups that these blocks are in.
    pub fn groups_of(&self, units: Units) -> Range<u32> {
        units.start / self.per_group..units.end().div_ceil(self.per_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_goal_comes_first_then_what_is_long_enough_then_what_there_is() {
        let mut space = Space::new(100, 50);
        assert_eq!(space.allocate(7, 10, false), Some(Units::new(7, 10)));
        assert_eq!(space.allocate(3, 8, false), Some(Units::new(17, 8)), "4 blocks are too few");
        assert_eq!(space.allocate(3, 8, true), Some(Units::new(3, 4)), "they are welcome");
        assert_eq!(space.allocate(60, 30, false), Some(Units::new(60, 30)));
        assert_eq!(space.allocate(20, 26, false), Some(Units::new(25, 25)), "the longest one");
        assert_eq!(space.allocate(20, 4, false), Some(Units::new(50, 4)), "the next group");
        assert_eq!(space.free(), 100 - 10 - 8 - 4 - 30 - 25 - 4);
    }

    #[test]
    fn the_first_run_behind_the_start_is_taken_that_is_long_enough() {
        let mut space = Space::new(100, 50);
        for units in [Units::new(10, 5), Units::new(18, 4), Units::new(30, 20)] {
            space.take(units);
        }
        // Free: 0..10, 15..18, 22..30, 50..100.
        assert_eq!(space.allocate_behind(12, 3), Some(Units::new(15, 3)));
        assert_eq!(space.allocate_behind(12, 4), Some(Units::new(22, 4)));
        assert_eq!(space.allocate_behind(27, 2), Some(Units::new(27, 2)), "within a run");
        assert_eq!(space.allocate_behind(28, 8), Some(Units::new(0, 8)), "the first of the group");
        assert_eq!(space.allocate_behind(28, 30), Some(Units::new(50, 30)), "the next group");
        assert_eq!(space.allocate_behind(28, 30), Some(Units::new(80, 20)), "the longest");
    }

    proptest! {
        #[test]
        fn blocks_are_taken_once(
            steps in prop::collection::vec(
                (0u32..64, 1u32..20, any::<bool>(), any::<bool>(), any::<bool>()),
                1..80,
            ),
            rule in prop_oneof![Just(Rule::FirstFit), Just(Rule::Multiblock)],
        ) {
            let mut space = Space::new(64, 24).with(rule);
            let (mut taken, mut runs) = (BTreeSet::new(), Vec::<Units>::new());
            for (goal, count, merges, first, frees) in steps {
                if frees && !runs.is_empty() {
                    let run = runs.swap_remove(goal as usize % runs.len());
                    space.release(run);
                    run.each().for_each(|block| _ = taken.remove(&block));
                } else if let Some(run) = if first {
                    space.allocate_behind(goal, count)
                } else {
                    space.allocate(goal, count, merges)
                } {
                    prop_assert!(run.count > 0 && run.count <= count && run.end() <= 64);
                    prop_assert!(run.each().all(|block| taken.insert(block)));
                    runs.push(run);
                } else {
                    prop_assert_eq!(taken.len(), 64);
                }
                let free: Vec<u32> = space.free_within(Units::new(0, 64)).into_iter().flat_map(Units::each).collect();
                prop_assert_eq!(free.len() as u64, space.free());
                prop_assert!(free.iter().all(|block| !taken.contains(block)));
                prop_assert_eq!(free.len() + taken.len(), 64);
            }
        }
    }
}
