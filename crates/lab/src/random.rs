//! Pseudo-random numbers from a seed, the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The stream of a seed and a purpose. Experiments do not share numbers, so each has the same results
    /// alone and beside others.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a.
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        let hash = purpose.bytes().fold(0xCBF2_9CE4_8422_2325, add);
        Self(ChaCha8Rng::seed_from_u64(seed ^ hash))
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// A number from `least` to `most`.
    pub fn within(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(most - least + 1)
    }

    /// A number below `bound`, which is not 0.
    pub fn below_u64(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 up to, but not, 1: a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
