//! What a policy means, in sentences: the answer of `fragmend watch --check`.

use super::rules::{Mode, Rule};
use super::{Metrics, Policy};
use fragmend_apply::Rate;
use fragmend_layout::{printable, printable_path};
use fragmend_report::{Unit, human};
use std::time::Duration;

impl Metrics {
    fn in_words(&self) -> Vec<String> {
        let served = self.listen.map(|at| {
            let whom = if at.ip().is_loopback() { "this machine" } else { "whoever reaches it" };
            format!("Serves its figures to {whom}, at http://{at}/metrics.")
        });
        let written = self.textfile.as_ref();
        let written =
            written.map(|path| format!("Writes its figures to {}.", printable_path(path)));
        served.into_iter().chain(written).collect()
    }
}

impl Policy {
    /// What it means, a sentence for each line. Text that an operator wrote is made safe to show.
    pub fn in_words(&self) -> Vec<String> {
        let paths: Vec<_> = self.paths.iter().map(|p| printable_path(p).to_string()).collect();
        let recording = &self.recording;
        let mut lines = vec![
            format!("Watches {}.", paths.join(", ")),
            format!(
                "Records for {} every {}, for at most {} % of one processor meanwhile.",
                time(recording.window),
                time(recording.every),
                recording.overhead_percent
            ),
            format!(
                "Plans at most every {}, from the latest recording.",
                time(self.planning_every)
            ),
        ];
        lines.extend(self.rules.iter().enumerate().map(|(n, rule)| of_rule(n, rule)));
        let others = if self.rules.is_empty() { "Files" } else { "All other files" };
        if !self.rules.iter().any(|rule| rule.path.is_none() && rule.cgroup.is_none()) {
            lines.push(format!("{others} are advised on, and not moved."));
        }
        lines.extend(self.metrics.in_words());
        if !self.moves() {
            lines.push("Nothing moves: no rule has mode = \"move\".".into());
            return lines;
        }
        lines.push(format!("Data moves {}.", self.when()));
        lines.push(format!("Writes {} in any 24 hours.", self.at_most()));
        let rate = match self.yielding.rate {
            Rate::BytesPerSecond(bytes) => format!("at most {} a second", bytes_of(bytes)),
            Rate::Yielding | Rate::Unlimited => "as fast as others leave the disk idle".to_owned(),
        };
        lines.push(format!(
            "Moves {rate}, and begins nothing while programs waited for I/O more than {} % of the last ten seconds.",
            self.yielding.io_pressure_percent
        ));
        let times = match self.advise_after {
            0 => "A file that is fragmented again after it was mended is advised on".to_owned(),
            n => format!(
                "A file that is fragmented again {n} times after it was mended is advised on"
            ),
        };
        lines.push(format!("{times}, with the program that makes it so, and not moved any more."));
        lines
    }

    fn when(&self) -> String {
        if self.hours.ranges.is_empty() {
            return "at any hour".into();
        }
        let ranges: Vec<_> = self.hours.ranges.iter().map(ToString::to_string).collect();
        let zone = self.hours.zone.iana_name().unwrap_or("this machine's time zone");
        format!("from {} ({zone})", ranges.join(" and "))
    }

    fn at_most(&self) -> String {
        let bytes = self.budget.bytes_per_day.map(|bytes| format!("at most {}", bytes_of(bytes)));
        let share = self.budget.endurance_per_day.map(|share| {
            let percent = share * 100.0;
            format!("at most {percent} % of what the drive is rated to be written in its life")
        });
        let only = "; nothing where the drive does not report that";
        match (bytes, share) {
            (Some(bytes), Some(share)) => format!("{bytes}, and {share}, if it reports that"),
            (None, Some(share)) => format!("{share}{only}"),
            (Some(bytes), None) => bytes,
            (None, None) => "nothing".into(),
        }
    }
}

fn of_rule(n: usize, rule: &Rule) -> String {
    let files = match &rule.path {
        Some(glob) => format!("files that match {}", printable(glob.glob().glob())),
        None => "files".to_owned(),
    };
    let used = match &rule.cgroup {
        Some(glob) => {
            format!(" and are used by programs in the cgroup {}", printable(glob.glob().glob()))
        }
        None => String::new(),
    };
    let what = match rule.mode {
        Mode::Ignore => "are ignored",
        Mode::Advise => "are advised on, and not moved",
        Mode::Move => "are moved",
    };
    let gain = match rule.min_gain_s_per_gib {
        Some(gain) if rule.mode != Mode::Ignore => {
            format!(", where that saves {gain} s for each GiB in one replay of a recording")
        }
        _ => String::new(),
    };
    format!("Rule {}: {files}{used} {what}{gain}.", n + 1)
}

fn time(length: Duration) -> String {
    humantime::format_duration(length).to_string()
}

fn bytes_of(bytes: u64) -> String {
    human(bytes as f64, Unit::Bytes)
}
