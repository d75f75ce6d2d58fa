//! What is chosen: the options of the planner.

use super::Sharing;
use crate::size;
use fragmend_plan::{Policy, Settings};

/// The options that decide what is chosen.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// How ranges are chosen
    #[arg(long, value_enum, default_value_t = PolicyArg::Gain)]
    policy: PolicyArg,
    /// Move at most this many bytes, for example 500M; if more is worth moving, the exit status of auto, and
    /// of plan --check, contains 16
    #[arg(long, value_name = "BYTES", value_parser = size::bytes)]
    budget: Option<u64>,
    /// Consider only the hottest fraction of what was accessed, for example 0.5
    #[arg(long, value_name = "FRACTION", default_value_t = 1.0, value_parser = fraction)]
    hot: f64,
    /// Requests that a move must save per replay of the trace and per MiB moved
    #[arg(long, value_name = "REQUESTS", default_value_t = Settings::default().min_gain_per_mib,
          value_parser = not_negative)]
    min_gain: f64,
}

/// Values of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyArg {
    /// Fewest bytes for the most requests saved
    Gain,
    /// Accessed, hot, fragmented windows, as FragPicker chooses them
    Fragpicker,
    /// Every fragmented readahead window; needs no trace
    Bypass,
    /// Every fragmented file, whole; needs no trace
    WholeFile,
}

impl Choice {
    /// The planner's settings.
    pub fn settings(&self, sharing: Sharing) -> Settings {
        Settings {
            policy: match self.policy {
                PolicyArg::Gain => Policy::Gain,
                PolicyArg::Fragpicker => Policy::Fragpicker,
                PolicyArg::Bypass => Policy::Bypass,
                PolicyArg::WholeFile => Policy::WholeFile,
            },
            budget_bytes: self.budget,
            hot_fraction: self.hot,
            min_gain_per_mib: self.min_gain,
            unshare: sharing.unshare,
        }
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f| *f > 0.0 && *f <= 1.0);
    value.ok_or_else(|| "a fraction above 0 and up to 1".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f: &f64| *f >= 0.0 && f.is_finite());
    value.ok_or_else(|| "a number that is not negative".into())
}
