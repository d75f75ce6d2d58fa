//! What is chosen: the options of the planner.

use super::Sharing;
use crate::exit::Usage;
use fragmend_plan::{Policy, Settings};
use fragmend_report::size;

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
    /// Leave out so many per cent of the accessed ranges of each file, those of the lowest priority: of the policy iodp, and 30 if it is not given
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    truncate: Option<f64>,
    /// Seconds that a move must save per GiB that it writes, in one replay of what was recorded. By default a sixteenth
    /// of the time that the device itself needs to read and write a GiB, so that a move has paid for itself after
    /// sixteen such replays: 0.04 s on an NVMe drive, 0.2 s on a SATA one, 0.9 s on a disk, 1.4 s on a memory card
    #[arg(long, value_name = "SECONDS", value_parser = not_negative)]
    min_gain: Option<f64>,
    /// Plan for a cold start (boot, batch job, fail-over): as if nothing were in the page cache at first, whatever
    /// reached the device while it was recorded
    #[arg(long)]
    pub assume_cold: bool,
    /// What the drive is rated to be written in its life, for example 600T: shows which share of it the plan writes. Drives
    /// that keep an account of their wear (NVMe, many SATA drives) are asked for it in any case, where this is run as root
    #[arg(long, value_name = "SIZE", value_parser = rated)]
    rated_writes: Option<u64>,
}

/// What a drive is rated to be written, for clap.
fn rated(text: &str) -> Result<u64, String> {
    match size::bytes(text)? {
        0 => Err("no drive is rated for nothing; say for example 600T".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Values of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PolicyArg {
    /// The most time saved for the bytes written
    Gain,
    /// Accessed, hot, fragmented windows, as FragPicker chooses them
    Fragpicker,
    /// Every fragmented readahead window; needs no trace
    Bypass,
    /// Every fragmented file, whole; needs no trace
    WholeFile,
    /// Accessed ranges by how fragmented and how often read they are, as InDeF chooses them
    Iodp,
    /// Fragmented segments of an F2FS, emptied file by file, so that files become contiguous and segments free; needs no
    /// trace, and root
    Segments,
}

impl Choice {
    /// The planner's settings.
    ///
    /// # Errors
    /// An option that the policy does not have.
    pub fn settings(&self, sharing: Sharing) -> Result<Settings, Usage> {
        if self.truncate.is_some() && self.policy != PolicyArg::Iodp {
            return Err(Usage("--truncate is for --policy iodp alone".into()));
        }
        Ok(Settings {
            policy: match self.policy {
                PolicyArg::Gain => Policy::Gain,
                PolicyArg::Fragpicker => Policy::Fragpicker,
                PolicyArg::Bypass => Policy::Bypass,
                PolicyArg::WholeFile => Policy::WholeFile,
                PolicyArg::Iodp => Policy::Iodp,
                PolicyArg::Segments => Policy::Segments,
            },
            budget_bytes: self.budget,
            hot_fraction: self.hot,
            truncate_percent: self.truncate,
            min_gain_s_per_gib: self.min_gain,
            assume_cold: self.assume_cold,
            rated_writes_bytes: self.rated_writes,
            unshare: sharing.unshare,
        })
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f| *f > 0.0 && *f <= 1.0);
    value.ok_or_else(|| "a fraction above 0 and up to 1".into())
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|p| (0.0..=100.0).contains(p));
    value.ok_or_else(|| "per cent from 0 to 100".into())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|f: &f64| *f >= 0.0 && f.is_finite());
    value.ok_or_else(|| "a number that is not negative".into())
}
