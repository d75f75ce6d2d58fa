//! Files in which somebody describes a drive or a load (TOML): what is wrong with one is said with
//! its line.

use serde::de::DeserializeOwned;
use std::ops::Range;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct BadFile {
    /// Which.
    pub file: String,
    /// In which line, from 1.
    pub line: usize,
    /// What.
    pub why: String,
}

/// A file that is being looked at.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// What it says.
    pub text: &'a str,
    /// Its name, for errors.
    pub file: &'a str,
}

impl Text<'_> {
    /// Reads it.
    ///
    /// # Errors
    /// The first thing that is no TOML, or not what is described here.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, BadFile> {
        toml::from_str(self.text)
            .map_err(|e| self.bad(e.span().unwrap_or(0..0), e.message().to_owned()))
    }

    /// That something there is wrong.
    pub fn bad(self, at: Range<usize>, why: impl Into<String>) -> BadFile {
        let before = &self.text[..at.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        BadFile { file: self.file.to_owned(), line, why: why.into() }
    }

    /// Where a field is set, by its name alone; the start of the file if nowhere.
    pub fn place_of(self, field: &str) -> Range<usize> {
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            if line.split('=').next().is_some_and(|name| name.trim() == field) {
                return at..at + line.len();
            }
            at += line.len();
        }
        0..0
    }
}
