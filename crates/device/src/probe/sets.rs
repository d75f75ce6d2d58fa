//! Sets of single units within an area, for bursts: which of them share a die is what tells a drive's geometry.

use super::reader::Read;
use fastrand::Rng;
use std::ops::Range;

/// The most reads of a burst: what the queue of a SATA drive holds, which FAST'24 had in flight, too.
pub const MOST: u32 = 32;
/// With fewer rows in an area, nothing can be told of a distance.
pub const FEWEST: u32 = 8;

/// An area of which single units are read.
#[derive(Clone, Debug)]
pub struct Field {
    /// Bytes of the device.
    pub area: Range<u64>,
    /// Bytes of a unit.
    pub unit: u64,
}

impl Field {
    /// How many rows of `distance` bytes each the area has.
    pub fn rows(&self, distance: u64) -> u64 {
        (self.area.end - self.area.start) / distance
    }

    /// How many reads a burst at such a distance has, at most.
    pub fn reads(&self, distance: u64) -> u32 {
        self.rows(distance).min(MOST.into()) as u32
    }

    fn read(&self, at: u64) -> Read {
        Read { at, bytes: self.unit as u32 }
    }

    /// `count` units anywhere.
    pub fn anywhere(&self, rng: &mut Rng, count: u32) -> Vec<Read> {
        let units = (self.area.end - self.area.start) / self.unit;
        (0..count).map(|_| self.read(self.area.start + rng.u64(0..units) * self.unit)).collect()
    }

    /// `count` units at different multiples of `distance` from a random place. The numbers of these multiples are
    /// evenly distributed over the remainders of a division by `by`: if only each `by`-th of them is on one die, no
    /// die has more than its share.
    pub fn at_multiples(&self, rng: &mut Rng, distance: u64, count: u32, by: u64) -> Vec<Read> {
        let base = self.area.start + rng.u64(0..distance / self.unit) * self.unit;
        let groups = (self.rows(distance) / by).max(1);
        let (each, more) = (u64::from(count) / by, u64::from(count) % by);
        let mut reads = Vec::with_capacity(count as usize);
        let mut remainders: Vec<u64> = (0..by).collect();
        rng.shuffle(&mut remainders);
        for (n, remainder) in remainders.into_iter().enumerate() {
            for group in distinct(rng, groups, each + u64::from((n as u64) < more)) {
                reads.push(self.read(base + (group * by + remainder) * distance));
            }
        }
        rng.shuffle(&mut reads);
        reads
    }

    /// Half of `count` units at different multiples of `stripe` from `base` (bytes from the start of the area), and
    /// half at other multiples from `base + beside`, in random order. `beside` may be negative.
    pub fn two_columns(
        &self,
        rng: &mut Rng,
        stripe: u64,
        base: u64,
        beside: i64,
        count: u32,
    ) -> Vec<Read> {
        // One row at either end is left out, so that no column leaves the area.
        let rows = self.rows(stripe).saturating_sub(2).max(1);
        let rows: Vec<u64> = distinct(rng, rows, u64::from(count)).collect();
        let half = rows.len() / 2;
        let read = |(n, row): (usize, &u64)| {
            let at = self.area.start + base + (row + 1) * stripe;
            self.read(if n < half { at } else { at.wrapping_add_signed(beside) })
        };
        let mut reads: Vec<Read> = rows.iter().enumerate().map(read).collect();
        rng.shuffle(&mut reads);
        reads
    }
}

/// `count` different numbers below `bound`, or all of them.
fn distinct(rng: &mut Rng, bound: u64, count: u64) -> impl Iterator<Item = u64> + use<> {
    let mut drawn = Vec::with_capacity(count as usize);
    if count * 2 >= bound {
        drawn.extend(0..bound);
        rng.shuffle(&mut drawn);
        drawn.truncate(count as usize);
    }
    while (drawn.len() as u64) < count.min(bound) {
        let number = rng.u64(0..bound);
        if !drawn.contains(&number) {
            drawn.push(number);
        }
    }
    drawn.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sets_are_where_they_are_asked_for() {
        let field = Field { area: 1 << 20..9 << 20, unit: 4096 };
        let inside = |reads: &[Read]| {
            let within =
                |read: &Read| field.area.contains(&read.at) && read.at.is_multiple_of(4096);
            let places: BTreeSet<u64> = reads.iter().map(|read| read.at).collect();
            reads.iter().all(within) && places.len() == reads.len()
        };
        let mut rng = Rng::with_seed(3);
        for distance in [4096, 12288, 1 << 18] {
            for by in [1, 2, 3, 5] {
                let count = field.reads(distance * by).min(30);
                let reads = field.at_multiples(&mut rng, distance, count, by);
                assert!(inside(&reads) && reads.len() == count as usize);
                let same = |read: &Read| read.at % distance == reads[0].at % distance;
                assert!(reads.iter().all(same));
                let mut of = vec![0; by as usize];
                reads.iter().for_each(|read| of[(read.at / distance % by) as usize] += 1);
                let (least, most) = (of.iter().min(), of.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{of:?}");
            }
        }
        let reads = field.two_columns(&mut rng, 1 << 18, 8192, -12288, 30);
        assert!(inside(&reads) && reads.len() == 30);
        let low = reads.iter().filter(|read| read.at % (1 << 18) == (1 << 18) - 4096).count();
        assert_eq!(low, 15);
    }
}
