//! Limits, and the measured values.

use super::markdown;
use serde::{Deserialize, Serialize};

/// A measured value and its limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Limit {
    what: String,
    measured: f64,
    at_most: f64,
}

/// All limits that a run has checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits(Vec<Limit>);

impl Limits {
    /// Adds a value that may be at most `at_most`.
    pub fn at_most(&mut self, what: impl Into<String>, measured: f64, at_most: f64) {
        self.0.push(Limit { what: what.into(), measured, at_most });
    }

    /// Adds those that another process checked.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Whether every limit was kept.
    pub fn all_reached(&self) -> bool {
        self.0.iter().all(Limit::is_reached)
    }

    /// Every limit with its value.
    pub fn table(&self) -> String {
        let row = |l: &Limit| {
            let verdict = if l.is_reached() { "reached" } else { "not reached" };
            let number = |n: f64| format!("{n:.3}");
            vec![l.what.clone(), verdict.into(), number(l.measured), number(l.at_most)]
        };
        let rows = self.0.iter().map(row).collect();
        let columns = ["limit", "", "measured", "at most"];
        format!("### Limits\n\n{}\n", markdown::table(&columns, 2, rows))
    }
}

impl Limit {
    /// NaN fails its limit.
    fn is_reached(&self) -> bool {
        self.measured <= self.at_most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_missed_or_could_not_be_measured_counts() {
        let mut limits = Limits::default();
        limits.at_most("kept", 0.5, 0.5);
        assert!(limits.all_reached());
        let mut missed = limits.clone();
        missed.at_most("missed", 0.51, 0.5);
        assert!(!missed.all_reached());
        assert!(missed.table().contains("not reached"));
        limits.at_most("unknown", f64::NAN, 0.5);
        assert!(!limits.all_reached());
    }
}
