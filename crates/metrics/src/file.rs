//! The text in a file, for the textfile collector of the node exporter.
//!
//! The file appears whole, under its name, by a rename: a collector never reads half of it. A power cut leaves the old
//! one, or the new one.

use crate::Text;
use fragmend_sys::output::{Audience, Output};
use std::io::{self, Write};
use std::path::Path;

/// Writes the text to `path`, which everybody may read as far as the umask permits: there is nothing of a user's in it.
///
/// # Errors
/// What the file system refuses; the file is then as it was.
pub fn write(path: &Path, text: &Text) -> io::Result<()> {
    let mut output = Output::create(path, Audience::Anybody)?;
    output.file().write_all(text.plain.as_bytes())?;
    output.commit().map(|_| ())
}
