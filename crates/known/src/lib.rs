//! Which program a file belongs to, and which table, log or guest it is to it: found out by its first bytes and its name, and
//! the program's own catalogues where their format is known. Nothing is written; links are not followed.
//!
//! What is read may be forged, or just being written: a recogniser reads a bounded number of bytes, checks every number, and
//! answers with nothing where anything is not as it should be. A name that it returns may have any characters.
//!
//! | module | recognises |
//! |---|---|
//! | [`sqlite`] | databases and write-ahead logs of SQLite |
//! | [`postgresql`] | tables, indexes and logs of PostgreSQL, by name |
//! | [`mysql`] | tables and logs of MySQL and MariaDB, by name |
//! | [`qcow2`] | images of virtual machines, and how scattered a guest's data is in them |
//! | [`raw`] | images of disks in raw format, with what is on them |
//! | [`journald`] | journals of systemd |
//! | [`downloads`] | downloads, finished and unfinished |
//! | `candidate` | the file that is looked at |

mod bytes;
mod candidate;
pub mod downloads;
pub mod journald;
mod known;
pub mod mysql;
pub mod postgresql;
pub mod qcow2;
pub mod raw;
pub mod sqlite;

pub use candidate::Candidate;
pub use known::{Advice, Known};

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Recognises files. It keeps what it has read of catalogues, so that they are read once for many files.
#[derive(Default)]
pub struct Recogniser {
    postgresql: postgresql::Catalogues,
}

impl Recogniser {
    /// What the regular file at `path` is, if it still has this inode number; no component of its path may be a link.
    pub fn at(&mut self, path: &Path, inode: u64) -> Option<Known> {
        let file = candidate::open(path)?;
        let is_same = file.metadata().is_ok_and(|about| about.ino() == inode);
        if is_same { self.known(&file, path) } else { None }
    }

    /// What the regular file is that is at `path` now; no component of its path may be a link.
    pub fn in_place(&mut self, path: &Path) -> Option<Known> {
        self.known(&candidate::open(path)?, path)
    }

    /// What the regular file `file`, which was opened for reading at `path`, is; `None` where that is not known.
    pub fn known(&mut self, file: &File, path: &Path) -> Option<Known> {
        let candidate = Candidate::of(file, path).ok()?;
        // Part of a database is a download first, and a whole one that was downloaded is a database.
        downloads::unfinished(&candidate)
            .or_else(|| sqlite::known(&candidate))
            .or_else(|| qcow2::known(&candidate))
            .or_else(|| self.postgresql.known(&candidate))
            .or_else(|| mysql::known(&candidate))
            .or_else(|| journald::known(&candidate))
            .or_else(|| raw::known(&candidate))
            .or_else(|| downloads::finished(&candidate))
    }
}

/// A file of this program.
fn known(program: &str, what: impl Into<String>, advice: Option<(&str, &str)>) -> Known {
    let advice = advice.map(|(text, source)| Advice { text: text.into(), source: source.into() });
    Known { program: program.into(), what: what.into(), advice }
}
