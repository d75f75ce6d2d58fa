//! The demo's figures side by side, and whether they show what the demo claims.

use crate::bench::markdown::{self, mib, ratio};
use serde_json::Value;

/// The queries were asked once, with nothing in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// What they answered.
    pub answers: String,
    /// Nanoseconds of the drive's virtual time.
    pub ns: u64,
    /// Reads that reached the drive.
    pub requests: u64,
    /// Extents of the database at that time.
    pub extents: u64,
}

/// What a plan said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// Bytes that it moves.
    pub bytes_to_move: u64,
    /// Ranges that it moves.
    pub ranges: u64,
    /// Bytes of all fragmented files.
    pub whole_file_bytes: u64,
    /// Predicted seconds of the queries, before and after.
    pub seconds: [f64; 2],
    /// Why it moves what it moves, in words.
    pub verdict: String,
    /// Where its costs come from.
    pub cost_source: String,
}

impl Planned {
    /// From the document of `fragmend plan`.
    ///
    /// # Panics
    /// When a figure is missing.
    pub fn of(document: &Value) -> Self {
        let whole = |name: &str| document[name].as_u64().unwrap_or_else(|| missing(name, document));
        let seconds =
            |name: &str| document[name].as_f64().unwrap_or_else(|| missing(name, document));
        let text = |name: &str| {
            document[name].as_str().unwrap_or_else(|| missing(name, document)).to_owned()
        };
        Self {
            bytes_to_move: whole("bytes_to_move"),
            ranges: whole("ranges"),
            whole_file_bytes: whole("whole_file_bytes"),
            seconds: [seconds("seconds_before"), seconds("seconds_after")],
            verdict: text("verdict"),
            cost_source: text("cost_source"),
        }
    }
}

/// What `fragmend apply` did with the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Ranges that are in fewer fragments now.
    pub ranges_moved: u64,
    /// Bytes that the drive was written until all was synced, journal included.
    pub written_bytes: u64,
}

impl Outcome {
    /// From the summary of `fragmend apply`, and what the drive counted.
    ///
    /// # Panics
    /// When the figure is missing.
    pub fn of(summary: &Value, written_bytes: u64) -> Self {
        let moved = summary["ranges_moved"].as_u64();
        let ranges_moved = moved.unwrap_or_else(|| missing("ranges_moved", summary));
        Self { ranges_moved, written_bytes }
    }
}

fn missing(name: &str, document: &Value) -> ! {
    panic!("fragmend printed no {name}: {document}")
}

/// The results on one drive.
#[derive(Clone, Debug, Default)]
pub struct OnDrive {
    /// The drive's name.
    pub drive: &'static str,
    /// Before the plan was applied.
    pub before: Asked,
    /// After it.
    pub after: Asked,
    /// The plan.
    pub planned: Planned,
    /// What became of it.
    pub outcome: Outcome,
    /// Checksums of the file, before and after.
    pub sha256: [String; 2],
    /// The result of SQLite's integrity check at the end.
    pub integrity: String,
}

/// The results.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// On the drive where it pays.
    pub card: OnDrive,
    /// On the drive where it does not.
    pub nvme: OnDrive,
    /// The queries on the latter, once all of the database was moved nevertheless, and what that wrote.
    pub all_the_same: (Asked, Outcome),
}

/// How many times quicker the queries must be on the card.
pub const FACTOR: f64 = 1.8;
/// At most this share of the database may be written on the card, in per cent.
const SMALL_PERCENT: u64 = 50;
/// How far prediction and measurement of the time saved on the card may be apart, as a share of the latter.
const APART: f64 = 0.25;
/// How much quicker the queries may be on the NVMe drive once all of the database was moved, as a share.
const NOTHING: f64 = 0.1;

impl Verdict {
    /// The figures, for a person.
    pub fn table(&self) -> String {
        let row = |name: &str, of: &dyn Fn(&OnDrive) -> String| {
            vec![name.to_owned(), of(&self.card), of(&self.nvme)]
        };
        let times = |d: &OnDrive| format!("{:.2}", d.before.ns as f64 / d.after.ns.max(1) as f64);
        let rows = vec![
            row("extents of the database", &|d| {
                format!("{} -> {}", d.before.extents, d.after.extents)
            }),
            row("reads of the drive for the queries", &|d| {
                format!("{} -> {}", d.before.requests, d.after.requests)
            }),
            row("the queries wait for the drive, ms", &|d| {
                format!("{} -> {}", ms(d.before.ns), ms(d.after.ns))
            }),
            row("times as quick", &times),
            row("MiB written for that", &|d| mib(d.outcome.written_bytes)),
            row("of the database, %", &|d| {
                let share = ratio(d.outcome.written_bytes, d.planned.whole_file_bytes);
                format!("{:.1}", share * 100.0)
            }),
        ];
        let columns = ["virtual time of the drives", self.card.drive, self.nvme.drive];
        let (asked, outcome) = &self.all_the_same;
        format!(
            "{}\n\nHad all of the file been moved on {} (tried afterwards): {} MiB written, and {} ms instead of {}.",
            markdown::table(&columns, 1, rows),
            self.nvme.drive,
            mib(outcome.written_bytes),
            ms(asked.ns),
            ms(self.nvme.before.ns),
        )
    }

    /// What is wrong, or does not show what is claimed; empty when all is well.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for on in [&self.card, &self.nvme] {
            let mut demand = |holds: bool, otherwise: &str| {
                if !holds {
                    complaints.push(format!("{}: {otherwise}", on.drive));
                }
            };
            demand(on.sha256[0] == on.sha256[1], "the database's content changed");
            demand(on.before.answers == on.after.answers, "the queries gave other answers");
            demand(on.integrity == "ok", "SQLite found the database damaged");
            demand(on.planned.cost_source == "probed", "the plan is not by what was probed");
        }
        let mut demand = |holds: bool, otherwise: String| {
            if !holds {
                complaints.push(otherwise);
            }
        };
        let (card, nvme) = (&self.card, &self.nvme);
        let factor = card.before.ns as f64 / card.after.ns.max(1) as f64;
        demand(
            factor >= FACTOR,
            format!("{}: the queries are {factor:.2} times as quick, not {FACTOR}", card.drive),
        );
        demand(
            card.outcome.written_bytes * 100 <= card.planned.whole_file_bytes * SMALL_PERCENT,
            format!("{}: more than {SMALL_PERCENT} % of the database was written", card.drive),
        );
        let saved = (card.before.ns as f64 - card.after.ns as f64) / 1e9;
        let predicted = card.planned.seconds[0] - card.planned.seconds[1];
        demand(
            (predicted - saved).abs() <= APART * saved,
            format!("{}: {predicted:.3} s were to be saved, and {saved:.3} s were", card.drive),
        );
        demand(
            nvme.planned.ranges == 0 && nvme.planned.verdict.starts_with("not worth it"),
            format!("{}: it was not left alone: {}", nvme.drive, nvme.planned.verdict),
        );
        demand(
            nvme.outcome == Outcome::default(),
            format!("{}: {} bytes were written", nvme.drive, nvme.outcome.written_bytes),
        );
        let (asked, outcome) = &self.all_the_same;
        demand(
            asked.answers == nvme.before.answers && outcome.ranges_moved > 0,
            format!("{}: the test that moves all of the file did not", nvme.drive),
        );
        let gained = 1.0 - asked.ns as f64 / nvme.before.ns.max(1) as f64;
        demand(
            gained <= NOTHING,
            format!("{}: moving all would have saved {:.1} %", nvme.drive, gained * 100.0),
        );
        complaints
    }
}

/// Nanoseconds in milliseconds.
pub fn ms(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Verdict {
        let asked = |ms: u64| Asked { ns: ms * 1_000_000, ..Asked::default() };
        let on = |drive, planned, before, after| OnDrive {
            drive,
            planned: Planned { cost_source: "probed".into(), whole_file_bytes: 100, ..planned },
            before: asked(before),
            after: asked(after),
            integrity: "ok".into(),
            ..OnDrive::default()
        };
        let mends = Planned { ranges: 1, seconds: [0.1, 0.04], ..Planned::default() };
        let leaves = Planned { verdict: "not worth it: ...".into(), ..Planned::default() };
        let mut card = on("card", mends, 100, 40);
        card.outcome = Outcome { ranges_moved: 1, written_bytes: 20 };
        let all_the_same = (asked(10), Outcome { ranges_moved: 3, written_bytes: 90 });
        Verdict { card, nvme: on("nvme", leaves, 10, 10), all_the_same }
    }

    #[test]
    fn every_failure_is_a_complaint() {
        assert_eq!(good().complaints(), [""; 0]);
        type Spoil = fn(&mut Verdict);
        let spoilt: [Spoil; 13] = [
            |v| v.card.sha256[1] = "other".into(),
            |v| v.nvme.sha256[1] = "other".into(),
            |v| v.nvme.after.answers = "other".into(),
            |v| v.card.integrity = "row 3 missing".into(),
            |v| v.card.planned.cost_source = "guessed".into(),
            |v| (v.card.after.ns, v.card.planned.seconds[1]) = (80_000_000, 0.08),
            |v| v.card.outcome.written_bytes = 60,
            |v| v.card.planned.seconds[1] = 0.01,
            |v| v.nvme.planned.ranges = 1,
            |v| v.nvme.planned.verdict = "worth it".into(),
            |v| v.nvme.outcome.written_bytes = 1,
            |v| v.all_the_same.1.ranges_moved = 0,
            |v| v.all_the_same.0.ns = 8_000_000,
        ];
        for (n, spoil) in spoilt.iter().enumerate() {
            let mut verdict = good();
            spoil(&mut verdict);
            assert_eq!(verdict.complaints().len(), 1, "{n}: {:?}", verdict.complaints());
        }
    }
}
