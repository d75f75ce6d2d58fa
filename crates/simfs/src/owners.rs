//! Which blocks of the drive have several owners: files that share them.

use crate::ranges::RangeSet;
use fragmend_flash::command::Units;
use std::ops::Range;

/// Owners of blocks beyond the first one. Level `n` holds the blocks that have more than `n + 1` owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(Vec<RangeSet>);

fn range(units: Units) -> Range<u64> {
    u64::from(units.start)..u64::from(units.end())
}

fn units(range: Range<u64>) -> Units {
    Units::new(range.start as u32, (range.end - range.start) as u32)
}

impl Owners {
    /// Blocks that have an owner get one more.
    pub fn add(&mut self, blocks: Units) {
        let mut rest = vec![range(blocks)];
        for level in 0.. {
            if rest.is_empty() {
                break;
            }
            if self.0.len() == level {
                self.0.push(RangeSet::default());
            }
            let next = rest.iter().flat_map(|part| self.0[level].within(part.clone())).collect();
            rest.drain(..).for_each(|part| self.0[level].insert(part));
            rest = next;
        }
    }

    /// Blocks lose an owner; returns those that have none any more.
    pub fn remove(&mut self, blocks: Units) -> Vec<Units> {
        let mut rest = vec![range(blocks)];
        for level in self.0.iter_mut().rev() {
            let gaps: Vec<_> = rest.iter().flat_map(|part| level.gaps(part.clone())).collect();
            rest.drain(..).for_each(|part| _ = level.remove(part));
            rest = gaps;
        }
        while self.0.pop_if(|level| level.is_empty()).is_some() {}
        rest.into_iter().map(units).collect()
    }

    /// The parts of these blocks that several files have.
    pub fn shared(&self, blocks: Units) -> Vec<Units> {
        let first = self.0.first();
        let parts = first.map_or_else(Vec::new, |level| level.within(range(blocks)));
        parts.into_iter().map(units).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_once_its_last_owner_is_gone() {
        let mut owners = Owners::default();
        owners.add(Units::new(0, 10));
        owners.add(Units::new(5, 10));
        assert_eq!(owners.shared(Units::new(0, 100)), [Units::new(0, 15)]);
        assert_eq!(owners.remove(Units::new(4, 3)), []);
        assert_eq!(owners.shared(Units::new(0, 100)), [Units::new(0, 4), Units::new(5, 10)]);
        assert_eq!(owners.remove(Units::new(4, 3)), [Units::new(4, 1)]);
        assert_eq!(owners.remove(Units::new(0, 20)), [Units::new(4, 3), Units::new(15, 5)]);
    }
}
