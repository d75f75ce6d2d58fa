//! The document of `fragmend recover`.

use fragmend_engines::rewrite::recover::{Recovered, RecoveryOutcome};
use fragmend_layout::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The document of `fragmend recover --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoverReport {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Always `recover`.
    pub command: String,
    /// Whether nothing was to be changed (`--dry-run`).
    pub dry_run: bool,
    /// The figures.
    pub totals: RecoverTotals,
    /// Every record that was found.
    pub records: Vec<Recovered>,
    /// Journals that could not be used, and why.
    pub errors: Vec<String>,
    /// What was not looked at, although nothing went wrong: a journal's name that is another user's and was not
    /// itself asked for, mounts that are hidden, and what is above a directory that is mounted alone.
    #[serde(default)]
    pub left: Vec<String>,
}

/// The figures of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecoverTotals {
    /// Records and unfinished copies that were found.
    pub records: u64,
    /// Of them, those whose range was restored.
    pub restored: u64,
    /// Of them, those that still exist and whose file may lack bytes.
    pub at_risk: u64,
    /// Bytes restored, or to be restored.
    #[schemars(extend("x-unit" = "bytes"))]
    pub restored_bytes: u64,
}

impl RecoverReport {
    /// The figures of these records.
    pub fn new(
        dry_run: bool,
        records: Vec<Recovered>,
        errors: Vec<String>,
        left: Vec<String>,
    ) -> Self {
        let count = |counts: &dyn Fn(RecoveryOutcome) -> bool| {
            records.iter().filter(|r| counts(r.outcome)).count() as u64
        };
        let totals = RecoverTotals {
            records: records.len() as u64,
            restored: count(&|outcome| outcome == RecoveryOutcome::Restored),
            at_risk: count(&RecoveryOutcome::at_risk),
            restored_bytes: records.iter().map(|r| r.restored_bytes).sum(),
        };
        let (schema_version, command) = (schema::DOCUMENT, "recover".into());
        Self { schema_version, command, dry_run, totals, records, errors, left }
    }
}
