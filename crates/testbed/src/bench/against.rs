//! The cost of defragmenting and the requests of a load afterwards, relative to another contender.

use super::markdown;
use crate::measure::Cost;

/// One contender's figures.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The cost of defragmenting.
    pub cost: Cost,
    /// Read requests of the load after it.
    pub requests: u64,
}

impl Figures {
    fn written(&self) -> u64 {
        self.cost.device.written_bytes
    }

    fn seconds(&self) -> f64 {
        self.cost.elapsed.as_secs_f64()
    }
}

/// One contender's figures, and those of the reference contender.
#[derive(Clone, Copy, Debug)]
pub struct Against {
    its: Figures,
    baseline: Figures,
}

impl Against {
    /// Names of the columns.
    pub const COLUMNS: [&str; 6] = [
        "written MiB",
        "of the tool's",
        "elapsed s",
        "of the tool's",
        "requests after",
        "of the tool's",
    ];

    /// These figures beside the first contender's, which are the reference for all others.
    pub fn first(first: &mut Option<Figures>, its: Figures) -> Self {
        Self { its, baseline: *first.get_or_insert(its) }
    }

    /// Share of the bytes written.
    pub fn writes(&self) -> f64 {
        markdown::ratio(self.its.written(), self.baseline.written())
    }

    /// Share of the time.
    pub fn time(&self) -> f64 {
        self.its.seconds() / self.baseline.seconds()
    }

    /// Share of the requests.
    pub fn requests(&self) -> f64 {
        markdown::ratio(self.its.requests, self.baseline.requests)
    }

    /// Its cells.
    pub fn cells(&self) -> [String; 6] {
        [
            markdown::mib(self.its.written()),
            markdown::percent(self.its.written(), self.baseline.written()),
            format!("{:.2}", self.its.seconds()),
            format!("{:.1} %", self.time() * 100.0),
            self.its.requests.to_string(),
            markdown::percent(self.its.requests, self.baseline.requests),
        ]
    }
}
