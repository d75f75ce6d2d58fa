//! Sets of numbers as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers: ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
    numbers: u64,
}

impl RangeSet {
    /// How many numbers are in it.
    pub fn len(&self) -> u64 {
        self.numbers
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The ranges, in ascending order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// The range that holds this number.
    pub fn at(&self, number: u64) -> Option<Range<u64>> {
        let (start, end) = self.ends.range(..=number).next_back()?;
        (number < *end).then_some(*start..*end)
    }

    /// Whether it holds this number.
    pub fn contains(&self, number: u64) -> bool {
        self.at(number).is_some()
    }

    /// The parts of its ranges that are in `range`.
    pub fn within(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let first = self.at(range.start).map_or(range.start, |first| first.start);
        let found = self.ends.range(first..range.end.max(first));
        found
            .map(|(start, end)| range.start.max(*start)..range.end.min(*end))
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// The parts of `range` that are not in it.
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let parts = self.within(range.clone());
        gaps_between(range, parts)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Ranges that it touches become part of it.
        let before = range.start.checked_sub(1).and_then(|last| self.at(last));
        let (mut start, mut end) = (range.start, range.end);
        if let Some(before) = before {
            (start, end) = (before.start, end.max(before.end));
        }
        if let Some(behind) = self.at(range.end) {
            end = end.max(behind.end);
        }
        let inside: Vec<u64> = self.ends.range(start..end).map(|(start, _)| *start).collect();
        for start in inside {
            let end = self.ends.remove(&start).expect("it was there");
            self.numbers -= end - start;
        }
        self.ends.insert(start, end);
        self.numbers += end - start;
    }

    /// Removes a range; returns the parts that were there.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let removed = self.within(range);
        for part in &removed {
            let whole = self.at(part.start).expect("its range");
            self.ends.remove(&whole.start);
            for rest in [whole.start..part.start, part.end..whole.end] {
                if !rest.is_empty() {
                    self.ends.insert(rest.start, rest.end);
                }
            }
            self.numbers -= part.end - part.start;
        }
        removed
    }
}

/// What of `range` is between these parts of it, which are in ascending order.
pub(crate) fn gaps_between(
    range: Range<u64>,
    parts: impl IntoIterator<Item = Range<u64>>,
) -> Vec<Range<u64>> {
    let (mut gaps, mut at) = (Vec::new(), range.start);
    for part in parts {
        if at < part.start {
            gaps.push(at..part.start);
        }
        at = part.end;
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_the_set_of_its_numbers(
            steps in prop::collection::vec((0u64..60, 0u64..15, any::<bool>()), 1..60),
        ) {
            let (mut set, mut numbers) = (RangeSet::default(), BTreeSet::new());
            for (start, count, adds) in steps {
                let range = start..start + count;
                if adds {
                    set.insert(range.clone());
                    numbers.extend(range.clone());
                } else {
                    set.remove(range.clone());
                    range.clone().for_each(|n| _ = numbers.remove(&n));
                }
                prop_assert!(set.ranges().flatten().eq(numbers.iter().copied()));
                prop_assert_eq!(set.len(), numbers.len() as u64);
                let ranges: Vec<_> = set.ranges().collect();
                prop_assert!(ranges.windows(2).all(|two| two[0].end < two[1].start));
                let gaps: Vec<u64> = set.gaps(10..40).into_iter().flatten().collect();
                let expected: Vec<u64> = (10..40).filter(|n| !numbers.contains(n)).collect();
                prop_assert_eq!(gaps, expected);
                prop_assert_eq!(set.contains(start), numbers.contains(&start));
            }
        }
    }
}
