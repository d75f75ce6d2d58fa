//! Which accesses are in a trace when recording all of them would have cost too much.
//!
//! Two things thin out what is recorded. *Pauses*: requests are watched in turns, and an access that is seen in one
//! stands for those of the pause as well; its row says for how many, in `count` and `bytes`. *Places*: only accesses
//! are recorded whose place, an aligned region of a file, has a hash below a threshold, as SHARDS does (Waldspurger
//! and others, FAST'15). Of a place that is sampled everything is there. The threshold may fall during a recording,
//! so the trace may contain rows of places that are not below the last one: the reader leaves them out, and
//! multiplies the counts of the others.

use crate::Op;
use serde::{Deserialize, Serialize};

/// The hashes of places are below this number.
pub const ALL_PLACES: u32 = 1 << 24;

/// How a recording was thinned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Bytes of a region, a power of two.
    pub region_bytes: u64,
    /// Requests are recorded in places with a hash below this power of two; [`ALL_PLACES`] is all.
    pub requests_below: u32,
    /// The same for misses.
    pub misses_below: u32,
    /// For how long requests were watched.
    pub watched_ns: u64,
}

/// The hash of the place in which an access begins.
pub fn place_hash(inode: u64, region: u64) -> u32 {
    let x = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(region);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 40) as u32
}

impl Sampling {
    /// Whether a recording can have been made like this.
    pub fn is_possible(&self) -> bool {
        let threshold = |below: u32| below.is_power_of_two() && below <= ALL_PLACES;
        self.region_bytes.is_power_of_two()
            && threshold(self.requests_below)
            && threshold(self.misses_below)
    }

    /// In one of how many places accesses of this kind were recorded.
    pub fn one_of(&self, op: Op) -> u32 {
        ALL_PLACES / self.below(op).max(1)
    }

    /// Whether an access that begins there is of a place that was sampled to the end.
    pub fn keeps(&self, op: Op, inode: u64, offset: u64) -> bool {
        let region = offset >> self.region_bytes.trailing_zeros().min(63);
        self.below(op) >= ALL_PLACES || place_hash(inode, region) < self.below(op)
    }

    fn below(&self, op: Op) -> u32 {
        if op == Op::Miss { self.misses_below } else { self.requests_below }
    }
}

/// What a recording cost the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overhead {
    /// What it might cost, in millionths of the machine's processor time.
    pub limit_ppm: u64,
    /// What it cost, in the same unit.
    pub used_ppm: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that docs/trace-format.md gives, for readers in other languages.
    #[test]
    fn the_hash_is_the_documented_one() {
        let hashes =
            [(12, 0), (12, 1), (13, 0), (u64::MAX, 1 << 40)].map(|(i, r)| place_hash(i, r));
        assert_eq!(hashes, [12768038, 10157268, 8790432, 6844893]);
    }

    #[test]
    fn a_smaller_part_of_the_places_is_within_a_larger_one_and_as_small_as_it_says() {
        let of = |below| Sampling {
            region_bytes: 1 << 20,
            requests_below: below,
            misses_below: ALL_PLACES,
            watched_ns: 0,
        };
        let kept = |n: u64, shift: u32| of(ALL_PLACES >> shift).keeps(Op::Read, n % 100, n << 20);
        for shift in 0..=6 {
            assert_eq!(of(ALL_PLACES >> shift).one_of(Op::Read), 1 << shift);
            let all = (0..100_000).filter(|n| kept(*n, shift)).count();
            let share = all as f64 / 100_000.0 * f64::from(1u32 << shift);
            assert!((0.9..1.1).contains(&share), "{share}");
            assert!((0..10_000).all(|n| shift == 0 || !kept(n, shift) || kept(n, shift - 1)));
        }
        assert!(of(1).keeps(Op::Miss, 1, 2) && of(1).one_of(Op::Miss) == 1);
        assert!(!of(0).is_possible() && !of(3).is_possible() && !of(1 << 25).is_possible());
    }
}
