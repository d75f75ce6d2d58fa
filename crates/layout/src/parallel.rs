//! How evenly data is spread over the units of a flash drive that work side by side: the degree of physical fragmentation
//! (DoPF) and the priority by which InDeF ("InDeF: An Advanced Defragmenter Supporting Migration Offloading on ZNS SSD") moves ranges.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Blocks of the read by which InDeF weighs the two degrees against each other: 256 KiB (section IV).
pub const WEIGHED_BLOCKS: u64 = 64;

/// The units of a drive that work side by side, and where its addresses are on them: one stripe unit after the other, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParallelUnits {
    /// How many there are, at least one.
    pub units: u32,
    /// Bytes of a stripe unit.
    pub unit_bytes: u64,
}

impl ParallelUnits {
    /// The unit that holds this byte of the device.
    pub fn of(self, physical: u64) -> u32 {
        (physical / self.unit_bytes.max(1) % u64::from(self.units.max(1))) as u32
    }

    /// The weight of DoLF against a DoPF of weight 1: what makes the most that both can be equal, as a whole number. For
    /// sixteen units it is 4, as in section IV.
    pub fn weight_of_dolf(self) -> f64 {
        let units = f64::from(self.units.max(1));
        (WEIGHED_BLOCKS as f64 * (units - 1.0) / (units * units)).round().max(1.0)
    }
}

/// The degree of physical fragmentation (equation 1): the variance of how many blocks are on each unit.
pub fn dopf(blocks_of_units: &[u64]) -> f64 {
    let units = blocks_of_units.len() as f64;
    let mean = blocks_of_units.iter().sum::<u64>() as f64 / units.max(1.0);
    let square = |blocks: &u64| (*blocks as f64 - mean).powi(2);
    blocks_of_units.iter().map(square).sum::<f64>() / units.max(1.0)
}

/// The priority of a range (equation 2), with a weight of 1 for its DoPF, which is 0 where it is not known.
pub fn iodp(dolf: u64, weight_of_dolf: f64, dopf: f64, reads: u64) -> f64 {
    (weight_of_dolf * dolf as f64 + dopf) * reads as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_examples() {
        // Figure 9: eight blocks on four chips.
        assert_eq!(dopf(&[0, 1, 3, 4]), 2.5);
        // Figure 4: 64 blocks on one of sixteen chips are the most that there is.
        let mut one = [0; 16];
        one[5] = 64;
        assert_eq!(dopf(&one), 240.0);
        assert_eq!(dopf(&[4; 16]), 0.0);
        assert_eq!(dopf(&[]), 0.0);
        let drive = |units| ParallelUnits { units, unit_bytes: 4096 };
        assert_eq!(drive(16).weight_of_dolf(), 4.0);
        assert_eq!(drive(1).weight_of_dolf(), 1.0);
        // Both at their most count for about as much, and are proportional to the reads.
        assert_eq!(iodp(64, 4.0, 0.0, 1), 256.0);
        assert_eq!(iodp(1, 4.0, 240.0, 1), 244.0);
        assert_eq!(iodp(6, 4.0, 2.5, 10), 265.0);
    }

    #[test]
    fn addresses_go_round_the_units() {
        let drive = ParallelUnits { units: 4, unit_bytes: 8192 };
        let of: Vec<u32> = (0..10).map(|block| drive.of(block * 4096)).collect();
        assert_eq!(of, [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]);
        // What a file says is not trusted to make sense.
        assert_eq!(ParallelUnits { units: 0, unit_bytes: 0 }.of(77), 0);
    }
}
