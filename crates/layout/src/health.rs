//! What a drive reports of its own wear, and what follows from it for the bytes that it can still be written.
//! `fragmend-device` asks drives for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a drive reports of its own wear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveHealth {
    /// What share of its rated life the drive has used, as it estimates it; above 1 once it has used more. Where it
    /// reports a step, the end of it.
    #[schemars(extend("x-unit" = "share"))]
    pub used_share: f64,
    /// The step in which it reports that: 0.01, or 0.1 of eMMC and UFS.
    #[schemars(extend("x-unit" = "share"))]
    pub used_step: f64,
    /// Bytes that hosts have written to it in its life; `null` if it does not report them.
    #[schemars(extend("x-unit" = "bytes"))]
    pub written_bytes: Option<u64>,
    /// Derived from both: the bytes that hosts can write in its rated life, if it goes on to wear by the byte as it did so
    /// far. `null` where too little is used, or reported, to tell.
    pub rated_bytes: Option<RatedBytes>,
    /// Its rated life is used up, as it reports.
    pub life_used_up: bool,
    /// Its spare blocks are below the threshold (NVMe), or used up to nine tenths (eMMC, UFS).
    pub spare_low: bool,
    /// It has become read-only.
    pub read_only: bool,
}

/// How many bytes a drive can be written in its rated life: between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RatedBytes {
    /// At least.
    #[schemars(extend("x-unit" = "bytes"))]
    pub low: u64,
    /// At most.
    #[schemars(extend("x-unit" = "bytes"))]
    pub high: u64,
}

/// Below this many per cent no rating is derived: how a whole number was rounded is not known, so that 3 % is between 2 %
/// and 4 %, and the ends of the rating differ by a factor of two.
pub const LEAST_PERCENT: u8 = 3;
/// Stands for more than 254 % (NVM Express Base Specification 2.0, ACS-4).
const BEYOND_PERCENT: u8 = 255;

impl DriveHealth {
    /// Of a drive that reports whole per cents (NVMe, ATA), with the bytes that were written to it.
    pub fn of_percent(used: u8, written_bytes: Option<u64>) -> Self {
        Self {
            used_share: f64::from(used) / 100.0,
            used_step: 0.01,
            written_bytes,
            rated_bytes: written_bytes.and_then(|written| rated(used, written)),
            life_used_up: used >= 100,
            spare_low: false,
            read_only: false,
        }
    }

    /// Of a drive that reports tenths of its life (eMMC, UFS): in which it is, the first being 1, and 11 if it has used
    /// more than all of them. It reports no bytes.
    pub fn of_tenth(tenth: u8) -> Self {
        Self {
            used_share: f64::from(tenth.min(10)) / 10.0,
            used_step: 0.1,
            life_used_up: tenth > 10,
            ..Self::of_percent(0, None)
        }
    }

    /// Why no rating can be derived; `None` if there is one.
    pub fn unrated(&self) -> Option<&'static str> {
        if self.rated_bytes.is_some() {
            None
        } else if self.written_bytes.is_none() {
            Some("it does not report what was written to it")
        } else if self.used_share < f64::from(LEAST_PERCENT) / 100.0 {
            Some("whole per cents are too coarse below 3 %")
        } else {
            Some("what it reports goes no further, or does not fit together")
        }
    }

    /// What should be known before anything is written to it, in words that continue "it reports that"; empty if nothing.
    pub fn warnings(&self) -> Vec<&'static str> {
        let all = [
            (self.life_used_up, "its rated life is used up: every byte written counts"),
            (self.spare_low, "its spare blocks run out"),
            (self.read_only, "it has become read-only"),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect()
    }
}

/// The rating of a drive of which this much was used by that many bytes. How a share becomes a whole number is
/// the drive's affair, so it may be almost one per cent more or less.
fn rated(percent: u8, written_bytes: u64) -> Option<RatedBytes> {
    if !(LEAST_PERCENT..BEYOND_PERCENT).contains(&percent) {
        return None;
    }
    let at = |percent: u8| {
        let all = u128::from(written_bytes) * 100 / u128::from(percent);
        u64::try_from(all).unwrap_or(u64::MAX)
    };
    let rated = RatedBytes { low: at(percent + 1), high: at(percent - 1) };
    (rated.low > 0).then_some(rated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rating_is_what_all_of_its_life_would_be() {
        let used = |percent, written| DriveHealth::of_percent(percent, Some(written));
        let rated = used(12, 41_000_000_000_000).rated_bytes.unwrap();
        assert_eq!(rated, RatedBytes { low: 315_384_615_384_615, high: 372_727_272_727_272 });
        let rated = used(120, 600_000).rated_bytes.unwrap();
        assert_eq!((rated.low, rated.high), (495_867, 504_201));
        for (percent, written) in [(0, 1 << 40), (2, 1 << 40), (255, 1 << 40), (12, 0)] {
            let health = used(percent, written);
            assert!(health.rated_bytes.is_none() && health.unrated().is_some(), "{percent}");
        }
        let least = used(LEAST_PERCENT, 1 << 40).rated_bytes.unwrap();
        assert_eq!(least.high, 2 * least.low);
        assert_eq!(used(3, u64::MAX).rated_bytes.unwrap().high, u64::MAX);
        assert!(DriveHealth::of_percent(50, None).unrated().unwrap().contains("written to it"));
    }

    #[test]
    fn what_is_used_up_is_a_warning() {
        assert!(DriveHealth::of_percent(99, None).warnings().is_empty());
        assert_eq!(DriveHealth::of_percent(100, None).warnings().len(), 1);
        let tenth = |n| {
            let health = DriveHealth::of_tenth(n);
            (health.used_share, health.life_used_up, health.rated_bytes)
        };
        assert_eq!(tenth(2), (0.2, false, None));
        assert_eq!(tenth(10), (1.0, false, None));
        assert_eq!(tenth(11), (1.0, true, None));
    }
}
