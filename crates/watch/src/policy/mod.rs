//! What an operator allows: what is watched, what happens to which files, when, and how much may be written.
//!
//! The default is to advise. Data moves where a rule says so, and only with a budget.
//!
//! | module | its job |
//! |---|---|
//! | [`file`] | the TOML, its values and their contradictions |
//! | [`values`] | sizes, times, globs as they are written |
//! | [`hours`] | hours of the wall clock |
//! | [`rules`] | which rule a file is under |
//! | [`words`] | what a policy means, in sentences |

pub mod file;
pub mod hours;
pub mod rules;
pub mod values;
pub mod words;

use fragmend_apply::Rate;
use fragmend_plan::Settings;
use hours::Hours;
use rules::{Cgroups, Mode, Rule, Ruling};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A policy that was checked.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Directories, files or mount points that are watched.
    pub paths: Vec<PathBuf>,
    /// When data may move.
    pub hours: Hours,
    /// How programs are watched.
    pub recording: Recording,
    /// The least time from one plan to the next.
    pub planning_every: Duration,
    /// How much may be written.
    pub budget: Budget,
    /// When others go first.
    pub yielding: Yielding,
    /// A file that was fragmented again so often after it was mended is only advised from then on.
    pub advise_after: u32,
    /// How long the store keeps what it knows.
    pub keep: Duration,
    /// Where the status is served and written.
    pub metrics: Metrics,
    /// The first one that matches a file applies to it.
    pub rules: Vec<Rule>,
}

/// How programs are watched.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The length of a recording.
    pub window: Duration,
    /// The time from the begin of one to the begin of the next.
    pub every: Duration,
    /// What it may cost while it lasts, in per cent of one processor.
    pub overhead_percent: f64,
}

/// How much may be written in any 24 hours; of two limits, the lower one.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes.
    pub bytes_per_day: Option<u64>,
    /// A share of what the drive is rated to be written in its life, by its own account; of several drives, of the lowest.
    pub endurance_per_day: Option<f64>,
}

/// When others go first.
#[derive(Clone, Copy, Debug)]
pub struct Yielding {
    /// How fast data moves.
    pub rate: Rate,
    /// Nothing is begun while programs waited for I/O for more than this share of the last ten seconds, in per cent (`some
    /// avg10` of `/proc/pressure/io`).
    pub io_pressure_percent: f64,
}

/// Where metrics are served if a policy does not say: on this machine alone.
pub const METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9796);

/// Where the status is served and written, as OpenMetrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The address of the HTTP server, if there is one.
    pub listen: Option<SocketAddr>,
    /// The file for the node exporter's textfile collector, if one is written.
    pub textfile: Option<PathBuf>,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("cannot read the policy {}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot be used.
    #[error("{}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, in which line, and what to write instead.
        what: String,
    },
}

impl Policy {
    /// What applies to a file at `path`, which may have other names, that programs in `cgroups` use.
    pub fn ruling(&self, path: &Path, has_other_names: bool, cgroups: &Cgroups) -> Ruling {
        rules::ruling(&self.rules, path, has_other_names, cgroups)
    }

    /// Whether a rule lets data move.
    pub fn moves(&self) -> bool {
        self.rules.iter().any(|rule| rule.mode == Mode::Move)
    }

    /// The planner's settings under a rule, or without one; at most `budget_bytes` are to be moved.
    pub fn settings(&self, rule: Option<usize>, budget_bytes: Option<u64>) -> Settings {
        let rule = rule.and_then(|n| self.rules.get(n));
        Settings {
            policy: rule.map_or_else(Default::default, |rule| rule.policy),
            min_gain_s_per_gib: rule.and_then(|rule| rule.min_gain_s_per_gib),
            budget_bytes,
            ..Settings::default()
        }
    }
}

impl Budget {
    /// Bytes that may be written in any 24 hours to drives of which the lowest rating is `rated_bytes`; `None` if the limit
    /// depends on a rating that is not known.
    pub fn bytes(&self, rated_bytes: Option<u64>) -> Option<u64> {
        let share = |rated: u64| self.endurance_per_day.map(|share| (rated as f64 * share) as u64);
        match (self.bytes_per_day, self.endurance_per_day) {
            (bytes, None) => bytes,
            (None, Some(_)) => rated_bytes.and_then(share),
            (Some(bytes), Some(_)) => {
                Some(rated_bytes.and_then(share).map_or(bytes, |b| b.min(bytes)))
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
