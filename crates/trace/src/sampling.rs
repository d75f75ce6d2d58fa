//! Which accesses are in a trace when recording all of them would have cost too much.
//!
//! What programs ask for through the page cache is then watched in turns with pauses. What reaches the device (misses
//! and direct I/O) is never paused, but perhaps recorded in a part of all places only: aligned regions of files, by a hash
//! as SHARDS has it (Waldspurger and others, FAST'15). The parts take turns, so that each place is recorded for the same
//! time: a plan shall see all of them, not one in 64, which would be all that it mends. Either way a row says in
//! `count` and `bytes` for how many accesses it stands: the inverse of the rate at its time, so that sums are unbiased
//! whatever the rates were (Horvitz and Thompson, JASA 1952).
//!
//! What one access stands for need not be in the same place: of places that are read once each, the one that was in turn
//! stands for 63 others, which nobody has seen. A plan tells them apart by the turns in which a place was recorded.

use serde::{Deserialize, Serialize};

/// How a recording was thinned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// Bytes of a place, a power of two.
    pub region_bytes: u64,
    /// For how long what programs ask for was watched.
    pub watched_ns: u64,
    /// The share of the places in which that was recorded which reached the device, on average over the recording, in
    /// millionths.
    pub places_ppm: u32,
    /// How long one part of the places was recorded before the next one's turn; 0 if it was the same one all the time.
    #[serde(default = "older_turn_ns")]
    pub turn_ns: u64,
    /// The most that one access stands for; 0 in traces that are older than this field.
    #[serde(default)]
    pub most: u32,
}

/// That of traces that do not say it.
fn older_turn_ns() -> u64 {
    20_000_000
}

impl Sampling {
    /// Whether a recording can have been made like this.
    pub fn is_possible(&self) -> bool {
        self.region_bytes.is_power_of_two() && self.places_ppm <= 1_000_000
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

    #[test]
    fn a_trace_that_does_not_say_how_long_turns_were_is_of_the_older_ones() {
        let older = r#"{"region_bytes": 1048576, "watched_ns": 7, "places_ppm": 15625}"#;
        let expected = Sampling {
            region_bytes: 1 << 20,
            watched_ns: 7,
            places_ppm: 15_625,
            turn_ns: 20_000_000,
            most: 0,
        };
        assert_eq!(serde_json::from_str::<Sampling>(older).unwrap(), expected);
    }
}
