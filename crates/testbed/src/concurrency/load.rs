//! A program that uses files of its own, one operation after another, with a record of what they must hold at
//! any time.

use std::fmt;
use std::io;
use std::time::Duration;

/// A foreground load, which detects a lost byte or a long wait.
pub trait Load: Send {
    /// The row of the table that its figures go to.
    fn kind(&self) -> &'static str;

    /// Its pause between two operations.
    fn pause(&self) -> Duration {
        Duration::from_micros(150)
    }

    /// Opens its files; they stay open until [`Self::close`].
    ///
    /// # Errors
    /// When the system refuses.
    fn open(&mut self) -> Result<(), Failure>;

    /// Carries out the next operation.
    ///
    /// # Errors
    /// When the system refuses, or a byte is not what it must be.
    fn step(&mut self) -> Result<Step, Failure>;

    /// Closes its files.
    ///
    /// # Errors
    /// When the system refuses.
    fn close(&mut self) -> Result<(), Failure>;

    /// Compares all its files with what they must hold; returns the bytes compared. They are closed
    /// before and after.
    ///
    /// # Errors
    /// As [`Self::step`].
    fn verify(&mut self) -> Result<u64, Failure>;
}

/// The result of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// How long the system needed; `None` for preparations that no program would make.
    pub waited: Option<Duration>,
    /// Bytes that were read and compared.
    pub compared: u64,
}

/// Why a load cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The system refused what it must do.
    #[error("{what}: {error}")]
    Refused {
        /// What was tried.
        what: String,
        /// Why not.
        error: io::Error,
    },
    /// A query had a wrong result.
    #[error("{what}: expected {expected}, found {found}")]
    Unexpected {
        /// The query.
        what: String,
        /// The right result, or the line of it that differs.
        expected: String,
        /// The result.
        found: String,
    },
    /// Bytes are not what they must be.
    #[error("{what}: {difference}")]
    Differs {
        /// What was compared.
        what: String,
        /// Where, and how.
        difference: Difference,
    },
}

impl Failure {
    /// The system refused; for `map_err`.
    pub fn refused(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Refused { what: what.to_string(), error }
    }
}

/// Where bytes begin to differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// What was expected there: some bytes in hex.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// How many bytes were compared.
    pub compared: usize,
    /// How many of them differ.
    pub differing: usize,
}

impl Difference {
    /// Compares `found`, read at `at`, with what was expected there; `None` if they are equal.
    pub fn between(at: u64, expected: &[u8], found: &[u8]) -> Option<Self> {
        if expected == found {
            return None;
        }
        let unequal = || expected.iter().zip(found).enumerate().filter(|(_, (e, f))| e != f);
        let common = expected.len().min(found.len());
        let first = unequal().next().map_or(common, |(n, _)| n);
        let some = |bytes: &[u8]| {
            let shown: Vec<String> =
                bytes[first..].iter().take(16).map(|b| format!("{b:02x}")).collect();
            if shown.is_empty() { "the end of the file".into() } else { shown.join(" ") }
        };
        let compared = expected.len().max(found.len());
        let differing = unequal().count() + compared - common;
        let (expected, found) = (some(expected), some(found));
        Some(Self { offset: at + first as u64, expected, found, compared, differing })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, expected, found, compared, differing } = self;
        write!(
            f,
            "at {offset:#x} expected {expected}, found {found} ({differing} of {compared} bytes differ)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_its_place() {
        assert_eq!(Difference::between(7, b"abc", b"abc"), None);
        let found = Difference::between(7, b"abcd", b"abxx").unwrap();
        assert_eq!((found.offset, found.differing, found.compared), (9, 2, 4));
        assert_eq!((&*found.expected, &*found.found), ("63 64", "78 78"));
        let short = Difference::between(0, b"abcd", b"ab").unwrap();
        assert_eq!((short.offset, short.differing, &*short.found), (2, 2, "the end of the file"));
    }
}
