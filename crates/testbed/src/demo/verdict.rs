//! The demo's figures side by side, and whether they show what the demo claims.

use crate::bench::markdown::{self, mib, percent};
use crate::measure::Cost;
use std::time::Duration;

/// The database at one time: its layout, and what the queries cost on the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    extents: u64,
    requests: u64,
    read_bytes: u64,
    elapsed: Duration,
}

impl State {
    /// From a count of extents and the cost of the queries.
    pub fn new(extents: u64, queries: Cost) -> Self {
        Self {
            extents,
            requests: queries.device.reads,
            read_bytes: queries.device.read_bytes,
            elapsed: queries.elapsed,
        }
    }
}

/// The results.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Before defragmenting.
    pub before: State,
    /// After it.
    pub after: State,
    /// What defragmenting cost the device.
    pub mending: Cost,
    /// What moving the whole file would have moved.
    pub whole_file_bytes: u64,
    /// The file's SHA-256 is the same.
    pub same_content: bool,
    /// The queries returned the same answers.
    pub same_answers: bool,
    /// The result of SQLite's integrity check.
    pub integrity: String,
}

impl Verdict {
    /// The figures, for a person.
    pub fn table(&self) -> String {
        let (b, a) = (&self.before, &self.after);
        let seconds = |d: Duration| format!("{:.2}", d.as_secs_f64());
        let row = |name: &str, before: String, after: String, change: String| {
            vec![name.to_owned(), before, after, change]
        };
        let rows = vec![
            row(
                "extents of the database",
                b.extents.to_string(),
                a.extents.to_string(),
                percent(a.extents, b.extents),
            ),
            row(
                "device requests for the queries",
                b.requests.to_string(),
                a.requests.to_string(),
                percent(a.requests, b.requests),
            ),
            row(
                "MiB read for the queries",
                mib(b.read_bytes),
                mib(a.read_bytes),
                percent(a.read_bytes, b.read_bytes),
            ),
            row(
                "seconds for the queries",
                seconds(b.elapsed),
                seconds(a.elapsed),
                percent(a.elapsed.as_micros() as u64, b.elapsed.as_micros() as u64),
            ),
        ];
        let columns = ["as the kernel counted", "before", "after", "of before"];
        let written = self.mending.device.written_bytes;
        format!(
            "{}\n\nMending wrote {} MiB to the device in {:.2} s, journal included; whole-file \
             defragmentation\nwould have moved {} MiB ({} of that).\nDatabase: integrity_check \
             says {}; sha256 {}; answers {}.",
            markdown::table(&columns, 1, rows),
            mib(written),
            self.mending.elapsed.as_secs_f64(),
            mib(self.whole_file_bytes),
            percent(written, self.whole_file_bytes),
            self.integrity,
            if self.same_content { "unchanged" } else { "CHANGED" },
            if self.same_answers { "the same" } else { "DIFFERENT" },
        )
    }

    /// What is wrong, or does not show an improvement; empty when all is well.
    pub fn complaints(&self) -> Vec<&'static str> {
        let mut complaints = Vec::new();
        let mut demand = |holds: bool, otherwise| {
            if !holds {
                complaints.push(otherwise);
            }
        };
        demand(self.same_content, "the database's content changed");
        demand(self.same_answers, "the queries gave other answers");
        demand(self.integrity == "ok", "SQLite found the database damaged");
        demand(
            self.after.requests < self.before.requests,
            "the queries cost no fewer requests than before",
        );
        demand(
            self.mending.device.written_bytes < self.whole_file_bytes,
            "mending wrote as much as moving the whole file",
        );
        complaints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Verdict {
        Verdict {
            before: State { requests: 100, ..State::default() },
            after: State { requests: 10, ..State::default() },
            mending: Cost::default(),
            whole_file_bytes: 1,
            same_content: true,
            same_answers: true,
            integrity: "ok".into(),
        }
    }

    #[test]
    fn every_failure_is_a_complaint() {
        assert_eq!(good().complaints().len(), 0);
        let no_better = State { requests: 100, ..State::default() };
        let bad = [
            Verdict { same_content: false, ..good() },
            Verdict { same_answers: false, ..good() },
            Verdict { integrity: "row 3 missing".into(), ..good() },
            Verdict { after: no_better, ..good() },
            Verdict { whole_file_bytes: 0, ..good() },
        ];
        for verdict in bad {
            assert_eq!(verdict.complaints().len(), 1, "{verdict:?}");
        }
    }
}
