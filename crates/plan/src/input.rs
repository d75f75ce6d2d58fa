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
    /// The fewest bytes for the most requests saved.
    #[default]
    Gain,
}

impl Policy {
    /// Whether it can choose only from accesses that were seen.
    pub fn needs_trace(self) -> bool {
        match self {
            Self::Fragpicker | Self::Gain => true,
            Self::Bypass | Self::WholeFile => false,
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
    /// Requests that a move must save per replay of the trace and per MiB moved.
    pub min_gain_per_mib: f64,
    /// Also move what is shared with other files or snapshots, which needs space.
    #[serde(default)]
    pub unshare: bool,
}

impl Default for Settings {
    /// All accesses hot, no budget, and a gain of one request per MiB: a move of 1 MiB itself costs about
    /// sixteen requests of 128 KiB, so it pays for itself within sixteen replays.
    fn default() -> Self {
        Self {
            policy: Policy::Gain,
            budget_bytes: None,
            hot_fraction: 1.0,
            min_gain_per_mib: 1.0,
            unshare: false,
        }
    }
}
