//! Files that describe a drive or a load (TOML): an error names the file and the line.

use serde::de::DeserializeOwned;
use std::ops::Range;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct BadFile {
    /// Its name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// The text of a file that is parsed.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The text.
    pub text: &'a str,
    /// The name of the file, for errors.
    pub file: &'a str,
}

impl Text<'_> {
    /// Parses the text.
    ///
    /// # Errors
    /// The first part that is not TOML, or does not belong in such a file.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, BadFile> {
        toml::from_str(self.text)
            .map_err(|e| self.bad(e.span().unwrap_or(0..0), e.message().to_owned()))
    }

    /// An error at this place of the text.
    pub fn bad(self, at: Range<usize>, why: impl Into<String>) -> BadFile {
        let before = &self.text[..at.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        BadFile { file: self.file.to_owned(), line, why: why.into() }
    }

    /// The first line that sets a field of this name, in whichever section; `None` if no line does.
    pub fn find_field(self, field: &str) -> Option<Range<usize>> {
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            if line.split('=').next().is_some_and(|name| name.trim() == field) {
                return Some(at..at + line.len());
            }
            at += line.len();
        }
        None
    }
}
