//! What became of a record.

use fragmend_layout::PathText;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryOutcome {
    /// The file has every byte: the record was removed.
    Whole,
    /// Bytes were put back, and the record was removed.
    Restored,
    /// The same, if it were not for `--dry-run`.
    WouldRestore,
    /// A copy that was not finished, of a file that was not touched: removed.
    NeverBegun,
    /// It is not certain that this is the record's own file, or its only state: what it lacked was
    /// put back, and the record was kept under another name, which nothing looks at again.
    SetAside,
    /// The record was removed and the file left as it is, as asked for.
    Discarded,
    /// The file was changed by another program: nothing was done.
    Changed,
    /// The record is damaged: nothing was done.
    Damaged,
    /// A record of another version, or of a file system that is not mounted: nothing was done.
    Foreign,
    /// The file cannot be found or is in use: nothing was done.
    Unreachable,
    /// Putting back failed: the record stays.
    Failed,
}

impl RecoveryOutcome {
    /// Whether bytes of a file may still be missing.
    pub fn at_risk(self) -> bool {
        use RecoveryOutcome::{
            Changed, Damaged, Failed, Foreign, SetAside, Unreachable, WouldRestore,
        };
        matches!(self, Changed | Damaged | Failed | Foreign | SetAside | Unreachable | WouldRestore)
    }
}

/// One record, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// The file, or as much as is known of it.
    #[serde(flatten)]
    pub path: PathText,
    /// The record's own file.
    pub record: String,
    /// First byte of the range.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What became of it.
    pub outcome: RecoveryOutcome,
    /// Bytes that were put back, or would be.
    pub restored_bytes: u64,
    /// What to know, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Recovered {
    /// The same record, with this outcome.
    pub(super) fn ended(self, outcome: RecoveryOutcome, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let detail = (!detail.is_empty()).then_some(detail).or(self.detail);
        Self { outcome, detail, ..self }
    }
}
