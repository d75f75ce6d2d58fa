//! A half-open range of bytes in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes `start..end` of a file; empty when `end <= start`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The range of `len` bytes from `start`; it ends at `u64::MAX` instead of wrapping around.
    pub fn at(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// Length in bytes.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds no byte.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// The bytes in both ranges; may be empty.
    pub fn intersect(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Whether the two share at least one byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// The range in steps of `bytes`; the last one may be shorter.
    pub fn steps(self, bytes: u64) -> impl Iterator<Item = Self> {
        let starts = (self.start..self.end).step_by(bytes.max(1) as usize);
        starts.map(move |start| Self::at(start, bytes.max(1)).intersect(self))
    }

    /// Joins each range that begins where the one before it ends to that one.
    pub fn joined(ranges: impl IntoIterator<Item = Self>) -> impl Iterator<Item = Self> {
        let mut ranges = ranges.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut joined = ranges.next()?;
            while let Some(next) = ranges.next_if(|range| range.start == joined.end) {
                joined.end = next.end;
            }
            Some(joined)
        })
    }

    /// The smallest range with both ends on multiples of `unit` that holds this one.
    pub fn align_outward(self, unit: u64) -> Self {
        let end = self.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX - u64::MAX % unit);
        Self { start: self.start - self.start % unit, end }
    }
}
