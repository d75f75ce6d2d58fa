//! What a plan does to the segments of log-structured file systems, as figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Segments that a plan cleans, and what becomes of them. Predicted, not measured: a log that goes on elsewhere begins a fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cleaned {
    /// Segments out of which blocks are moved.
    pub segments_cleaned: u64,
    /// Segments of these in which no valid block is left, so that the next checkpoint frees them.
    pub segments_emptied: u64,
    /// Segments emptied, less those that the moved blocks fill. Below zero where files become contiguous and no space is gained.
    pub segments_gained: i64,
    /// Valid blocks in the segments that are cleaned.
    pub blocks_held: u64,
    /// Blocks of these that are moved.
    pub blocks_moved: u64,
    /// Fragments of the surveyed files in these segments.
    pub fragments_before: u64,
    /// The same once the blocks are moved.
    pub fragments_after: u64,
    /// Bytes of files in segments that are left as they are because too few are free.
    pub left_for_space_bytes: u64,
    /// Why victims were chosen by their valid blocks alone and not by their age, if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_age: Option<String>,
}
