//! How a plan is made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How ranges are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Every fragmented file, whole: what e4defrag does. Needs no trace.
    WholeFile,
    /// Every fragmented readahead window (FragPicker section 4.1.4). Needs no trace.
    Bypass,
    /// Accessed, hot, fragmented windows (FragPicker section 4.1).
    Fragpicker,
    /// The most time saved for the bytes written.
    #[default]
    Gain,
    /// Accessed, fragmented ranges, by how fragmented and how often read they are (InDeF, equation 2).
    Iodp,
    /// Fragmented segments of a log-structured file system, emptied file by file (APSys'16). Needs no trace.
    Segments,
}

impl Policy {
    /// Whether it can choose only from accesses that were seen.
    pub fn needs_trace(self) -> bool {
        match self {
            Self::Fragpicker | Self::Gain | Self::Iodp => true,
            Self::Bypass | Self::WholeFile | Self::Segments => false,
        }
    }
}

/// The operator's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// How ranges are chosen.
    pub policy: Policy,
    /// Move at most so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Consider only this hottest fraction of the accessed windows, 0 to 1.
    pub hot_fraction: f64,
    /// Leave out so many per cent of the accessed ranges of each file, those of the lowest priority; of the policy `iodp` alone, and 30 without
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate_percent: Option<f64>,
    /// Seconds that a move must save, in one replay of what was recorded, per GiB that it writes. Without it: a
    /// sixteenth of the time that the device itself needs to read and write a GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_gain_s_per_gib: Option<f64>,
    /// Plan for a cold start: as if nothing were in the page cache, whatever missed it while recording.
    #[serde(default)]
    pub assume_cold: bool,
    /// Bytes that the drive is rated to be written in its life (TBW).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rated_writes_bytes: Option<u64>,
    /// Also move what is shared with other files or snapshots, which needs space.
    #[serde(default)]
    pub unshare: bool,
}

impl Settings {
    /// The per cent of ranges that the policy `iodp` leaves out.
    pub fn truncated(&self) -> f64 {
        self.truncate_percent.unwrap_or(crate::select::iodp::TRUNCATED)
    }
}

impl Default for Settings {
    /// All accesses hot, no budget, and a move that pays for itself within sixteen replays
    /// ([`REPLAYS`](crate::costs::REPLAYS)): then the time that programs have waited less is as long as the time for
    /// which the device was busy with the move.
    fn default() -> Self {
        Self {
            policy: Policy::Gain,
            budget_bytes: None,
            hot_fraction: 1.0,
            truncate_percent: None,
            min_gain_s_per_gib: None,
            assume_cold: false,
            rated_writes_bytes: None,
            unshare: false,
        }
    }
}

/// What is taken to have reached the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// What missed the page cache while it was recorded, and direct I/O.
    MissesRecorded,
    /// An assumption: what programs asked for, through an imitation of the page cache that is empty at first and keeps
    /// what it has read. Misses were not recorded.
    ImitatedCache,
    /// The same, because a cold start was asked for.
    AssumedCold,
    /// Nothing was recorded: one sequential read of every file.
    #[default]
    SequentialRead,
}

impl Basis {
    /// The basis of a plan from accesses (`traced`), with misses among them or not.
    pub fn of(traced: bool, misses: bool, assume_cold: bool) -> Self {
        match (traced, misses, assume_cold) {
            (false, ..) => Self::SequentialRead,
            (true, _, true) => Self::AssumedCold,
            (true, true, false) => Self::MissesRecorded,
            (true, false, false) => Self::ImitatedCache,
        }
    }

    /// Whether accesses were seen.
    pub fn is_traced(self) -> bool {
        self != Self::SequentialRead
    }
}
