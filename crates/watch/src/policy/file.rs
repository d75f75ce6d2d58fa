//! The policy as it is written: TOML in which every key is known and every value is checked where it is.

use super::hours::{Hours, Range, Zone};
use super::rules::{Mode, Rule};
use super::values::{Absolute, Address, Bytes, Gain, Length, Pattern, Percent, Speed};
use super::{Budget, METRICS, Metrics, Policy, PolicyError, Recording, Yielding};
use fragmend_apply::Rate;
use fragmend_layout::printable;
use fragmend_sys::input;
use jiff::tz::TimeZone;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// The longest policy, in bytes.
const LONGEST: u64 = 1 << 20;
/// The most rules and paths.
const MOST: usize = 10_000;
/// The most characters of what the parser says is wrong.
const MOST_SAID: usize = 300;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    paths: Vec<Absolute>,
    #[serde(default)]
    hours: Vec<Range>,
    time_zone: Option<Zone>,
    #[serde(default)]
    recording: WrittenRecording,
    #[serde(default)]
    planning: WrittenPlanning,
    #[serde(default)]
    budget: WrittenBudget,
    #[serde(default, rename = "yield")]
    yielding: WrittenYielding,
    #[serde(default)]
    recurrence: WrittenRecurrence,
    #[serde(default)]
    store: WrittenStore,
    #[serde(default)]
    metrics: WrittenMetrics,
    #[serde(default, rename = "rule")]
    rules: Vec<WrittenRule>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRecording {
    window: Option<Length>,
    every: Option<Length>,
    overhead_percent: Option<Percent>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPlanning {
    every: Option<Length>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBudget {
    bytes_per_day: Option<Bytes>,
    endurance_percent_per_day: Option<Percent>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenYielding {
    rate: Option<Speed>,
    io_pressure_percent: Option<Percent>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRecurrence {
    advise_after: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenStore {
    keep: Option<Length>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMetrics {
    listen: Option<Address>,
    textfile: Option<Absolute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    path: Option<Pattern>,
    cgroup: Option<Pattern>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    policy: fragmend_plan::Policy,
    min_gain_s_per_gib: Option<Gain>,
}

impl Policy {
    /// Reads and checks the policy in a file.
    ///
    /// # Errors
    /// [`PolicyError`]: what is wrong, in which line, and what to write instead.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let unread = |source| PolicyError::Unread { path: path.to_owned(), source };
        let text = input::read_text(path, LONGEST).map_err(unread)?;
        Self::parse(&text).map_err(|what| PolicyError::Wrong { path: path.to_owned(), what })
    }

    /// Parses and checks a policy; the error is a sentence with the line.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|e| located(text, &e))?;
        let policy = written.policy();
        policy.check()?;
        Ok(policy)
    }
}

impl Written {
    fn policy(self) -> Policy {
        let zone = self.time_zone.map_or_else(TimeZone::system, |zone| zone.0);
        let length = |length: Option<Length>, default| length.map_or(default, |l| l.0);
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let rule = |rule: WrittenRule| Rule {
            path: rule.path.map(|p| p.0),
            cgroup: rule.cgroup.map(|p| p.0),
            mode: rule.mode,
            policy: rule.policy,
            min_gain_s_per_gib: rule.min_gain_s_per_gib.map(|gain| gain.0),
        };
        Policy {
            paths: self.paths.into_iter().map(|path| path.0).collect(),
            hours: Hours { ranges: self.hours, zone },
            recording: Recording {
                window: length(self.recording.window, minutes(1)),
                every: length(self.recording.every, minutes(15)),
                overhead_percent: self.recording.overhead_percent.map_or(0.5, |p| p.0),
            },
            planning_every: length(self.planning.every, minutes(60)),
            budget: Budget {
                bytes_per_day: self.budget.bytes_per_day.map(|b| b.0),
                endurance_per_day: self.budget.endurance_percent_per_day.map(|p| p.0 / 100.0),
            },
            yielding: Yielding {
                rate: self.yielding.rate.map_or(Rate::Yielding, |speed| speed.0),
                io_pressure_percent: self.yielding.io_pressure_percent.map_or(20.0, |p| p.0),
            },
            advise_after: self.recurrence.advise_after.unwrap_or(3),
            keep: length(self.store.keep, 90 * crate::Time::DAY),
            metrics: Metrics {
                listen: self.metrics.listen.map_or(Some(METRICS), |address| address.0),
                textfile: self.metrics.textfile.map(|path| path.0),
            },
            rules: self.rules.into_iter().map(rule).collect(),
        }
    }
}

impl Policy {
    /// What no single value shows.
    fn check(&self) -> Result<(), String> {
        let moves = self.moves();
        if self.paths.is_empty() {
            return Err(
                "paths: nothing is watched; name a directory, a file or a mount point".into()
            );
        }
        if self.rules.len() > MOST || self.paths.len() > MOST {
            return Err(format!("at most {MOST} rules and {MOST} paths"));
        }
        if self.recording.window > self.recording.every {
            return Err(
                "recording: window is longer than every; make every at least as long".into()
            );
        }
        if self.planning_every < self.recording.every {
            return Err("planning: every is shorter than that of recording, and a plan needs a new recording; make it at least as long".into());
        }
        if self.keep < crate::Time::DAY {
            return Err("store: keep is shorter than a day, for which the budget must be known; make it at least \"1d\"".into());
        }
        // The collector reads no other, and no file of the system's has such a name.
        if self
            .metrics
            .textfile
            .as_ref()
            .is_some_and(|file| file.extension() != Some("prom".as_ref()))
        {
            return Err("metrics: textfile does not end in .prom, as the collector needs; it would replace a file that is something else".into());
        }
        if moves && self.budget.bytes_per_day.is_none() && self.budget.endurance_per_day.is_none() {
            return Err("budget: a rule has mode = \"move\", and nothing limits what is written; set bytes_per_day, or endurance_percent_per_day".into());
        }
        if let Some(n) = self.rules.iter().position(|r| r.policy == fragmend_plan::Policy::Segments)
        {
            return Err(format!(
                "rule {}: the policy \"segments\" needs no recording: use fragmend plan, and fragmend apply",
                n + 1
            ));
        }
        let fault = |(n, rule): (usize, &Rule)| Some((n + 1, in_vain(rule)?));
        if let Some((n, why)) = self.rules.iter().enumerate().find_map(fault) {
            return Err(format!("rule {n}: {why}"));
        }
        let needless = |rule: &Rule| rule.path.is_none() && rule.cgroup.is_none();
        if let Some(n) = self.rules.iter().position(needless).filter(|n| n + 1 < self.rules.len()) {
            return Err(format!(
                "rule {} matches every file, so that those after it never apply; put it last",
                n + 1
            ));
        }
        Ok(())
    }
}

/// Why a rule can match nothing, so that it would not protect what it is meant to.
fn in_vain(rule: &Rule) -> Option<String> {
    let path = rule.path.as_ref().map_or("/", |glob| glob.glob().glob());
    let is_absolute = path.starts_with(['/', '{', '[', '\\']) || path.starts_with("**");
    let is_plain = path.split('/').skip(1).all(|name| !["", ".", ".."].contains(&name));
    if rule.path.is_some() && !(is_absolute && is_plain) {
        return Some(format!(
            "path = \"{}\" matches no file: write an absolute path, without .. and without a slash at the end",
            printable(path)
        ));
    }
    let cgroup = rule.cgroup.as_ref().map_or("", |glob| glob.glob().glob());
    cgroup.starts_with('/').then(|| {
        format!(
            "cgroup = \"{}\" matches none: write it without the slash at the beginning",
            printable(cgroup)
        )
    })
}

/// An error of the parser with its line, in one line of limited length: it quotes what was written.
fn located(text: &str, error: &toml::de::Error) -> String {
    let message: String = error.message().replace('\n', ", ").chars().take(MOST_SAID).collect();
    let message = printable(&message);
    let Some(span) = error.span() else { return message.to_string() };
    let before = text.get(..span.start).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    let line: String = line.chars().take(80).collect();
    format!("line {number} ({}): {message}", printable(&line))
}
