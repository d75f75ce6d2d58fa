//! What the daemon remembers, across restarts and kills: evidence, plans, moves, bytes written, what became fragmented again.
//! An embedded SQLite database for its owner alone.
//!
//! | module | its job |
//! |---|---|
//! | [`open`] | opens it safely, or moves aside what is no store |
//! | [`schema`] | its tables |
//! | [`moves`] | budget and moves: what may move, what was written |
//! | [`memory`] | evidence, plans, findings, recurrence, and how long they are kept |
//!
//! Crash argument. Each change is one transaction, durable when it returns (`synchronous = FULL`). If the process is killed, or
//! power fails
//!
//! - before a move is stated: nothing has moved, nothing is debited.
//! - after that, until the move is settled: the debit is the most that it can write. The next process finds the move
//!   without its end and lets the debit stand; its ranges count as moved at that time, so that only a later recording
//!   permits to move them.
//! - after it is settled: the debit is what was written, metadata as the most that it can be.

mod memory;
mod moves;
mod open;
mod schema;

pub use memory::{Finding, Found, Recurrence, Written};
pub use moves::{Claim, Ended, Held, MoveId, NotNow, Outcome};
pub use open::MovedAside;

use fragmend_layout::PathText;
use rusqlite::Connection;
use std::path::PathBuf;

/// The number of a recording: one with a higher number began later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvidenceId(pub(crate) i64);

/// A file, found again after a reboot, when devices may have other numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The lasting name of its file system.
    pub volume: String,
    /// Inode number.
    pub inode: u64,
    /// Inode generation.
    pub generation: u32,
}

/// The store; one process has it open at a time.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory is not as it must be.
    #[error("the store: {} {what}", path.display())]
    Refused {
        /// Which one.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: &'static str,
    },
    /// A system call failed.
    #[error("the store {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It has contents that a store cannot have.
    #[error("the store is damaged: {0}; start again: it will be moved aside")]
    Damaged(String),
    /// A newer fragmend has written it.
    #[error(
        "the store is of version {found}, this fragmend knows version {known}; use the newer fragmend, or another --store"
    )]
    Later {
        /// Its version.
        found: i64,
        /// The latest version that is known.
        known: i64,
    },
    /// Another process has it open.
    #[error(
        "another fragmend watch uses the store; stop it first (systemctl stop fragmend-watch), or use another --store"
    )]
    InUse,
    /// SQLite failed.
    #[error("the store")]
    Sqlite(#[source] rusqlite::Error),
}

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A file of the store: its key, and its path when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Which file.
    pub key: FileKey,
    /// Its path.
    pub path: PathText,
}

#[cfg(test)]
mod tests;
