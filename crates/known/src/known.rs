//! What a file is to the program that it belongs to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A file that was recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Known {
    /// The program, for example `PostgreSQL`.
    pub program: String,
    /// What the file is to it, for example `table public.orders of database shop`. Names come from the program's own files,
    /// and may have any characters.
    pub what: String,
    /// How fragments are prevented in this program, if that is documented.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
}

/// In one line: `SQLite: write-ahead log of pages of 4096 bytes`. It may have any characters.
impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.program, self.what)
    }
}

/// What prevents fragments, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// What to do, in one line.
    pub text: String,
    /// The document that describes it.
    pub source: String,
}
