//! Programs that use files while ranges of the same files are moved: no write of theirs is lost, no
//! read is wrong, and their waits are measured.
//!
//! | module | its job |
//! |---|---|
//! | [`exercise`] | random operations on files, against a model in memory |
//! | [`bank`] | a SQLite database whose books must balance |
//! | [`log`] | a file that is appended to, and its reader |
//! | [`load`] | the interface of these loads |
//! | [`mover`] | `fragmend plan` and `apply`, repeatedly |
//! | [`run`] | all of them at once, with and without the mover |
//! | [`table`] | their latencies as a table |

pub mod bank;
pub mod exercise;
pub mod load;
pub mod log;
pub mod mover;
pub mod run;
pub mod table;

use crate::file_system::{BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, F2FS, FileSystem};
use crate::file_system::{XFS, XFS_EXCHANGE, XFS_PLAIN};
use crate::guest;
use crate::image::Image;
use bank::{Bank, Journal};
use exercise::Exerciser;
use load::Load;
use log::Log;
pub use run::Goals;
use run::Worker;
use std::path::PathBuf;
use std::time::Duration;
use table::Row;

impl Goals {
    /// For a test: some seconds.
    pub const TEST: Self = Self { operations: 150, moved: 4, patience: Duration::from_secs(600) };
    /// For figures: a minute or two.
    pub const FULL: Self =
        Self { operations: 2000, moved: 40, patience: Duration::from_secs(1800) };
}

/// One engine on one file system.
#[derive(Debug)]
pub struct Engine {
    /// Its name in the table.
    pub name: &'static str,
    file_system: &'static FileSystem,
    /// Further options of `apply`.
    options: &'static [&'static str],
}

impl Engine {
    const fn native(name: &'static str, file_system: &'static FileSystem) -> Self {
        Self { name, file_system, options: &[] }
    }

    /// Whether it keeps writers out.
    fn is_exclusive(&self) -> bool {
        self.options.contains(&"rewrite")
    }

    /// The interface that moves data with it, as receipts name it.
    fn moved_by(&self) -> &'static [&'static str] {
        if self.is_exclusive() { &["rewrite"] } else { self.file_system.moved_by }
    }

    /// Whether it needs a guest.
    pub fn is_in_guest(&self) -> bool {
        std::ptr::eq(self.file_system, &F2FS)
    }
}

/// All of them.
pub static ENGINES: [Engine; 8] = [
    // Forced: otherwise files that others have open are left alone, because of power cuts only.
    Engine { name: "ext4", file_system: &EXT4, options: &["--force"] },
    Engine { name: "ext4, 1 KiB", file_system: &EXT4_1K, options: &["--force"] },
    Engine::native("XFS", &XFS),
    Engine::native("XFS, exchange", &XFS_EXCHANGE),
    Engine::native("Btrfs", &BTRFS),
    Engine::native("Btrfs, zstd", &BTRFS_ZSTD),
    Engine { name: "rewrite, XFS", file_system: &XFS_PLAIN, options: &["--engine", "rewrite"] },
    // Forced for the same reason, as far as writers have files open.
    Engine { name: "F2FS", file_system: &F2FS, options: &["--force"] },
];

/// The engine of this name.
pub fn engine(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|e| e.name == name)
}

/// Runs all loads on a fresh file system of one engine; returns the rows of the table.
///
/// # Panics
/// As [`run::run`].
pub fn on(engine: &Engine, goals: Goals, seed: u64) -> Vec<Row> {
    let bytes = if guest::inside() { 320 << 20 } else { 512 << 20 };
    let image = Image::of(engine.file_system, bytes);
    let rests = engine.is_exclusive();
    let place = |name: &str| {
        let dir = image.path().join(name);
        std::fs::create_dir(&dir).expect("a directory");
        dir
    };
    let mut workers = Vec::new();
    let mut add = |load: Box<dyn Load>, dir: Option<PathBuf>| {
        workers.push(Worker { load, dir, rests, movable: true });
    };
    for (n, name) in ["first", "second", "third"].into_iter().enumerate() {
        let dir = place(name);
        let exerciser = Exerciser::new(&dir, name, seed + n as u64).expect("a pair of files");
        add(Box::new(exerciser), Some(dir));
    }
    for (name, syncs) in [("synced-log", true), ("log", false)] {
        let dir = place(name);
        let log = Log::new(&dir, name, syncs, seed).expect("a file");
        add(Box::new(log.reader(seed)), None);
        add(Box::new(log), Some(dir));
    }
    let bank = |name, journal, restored| {
        let dir = place(name);
        let bank = Bank::create(&dir, "bank.db", journal, restored, seed).expect("a database");
        (Box::new(bank), Some(dir))
    };
    let (load, dir) = bank("rollback", Journal::Rollback, bank::OFTEN);
    add(load, dir);
    // A load that never closes its file is never disturbed by an engine that keeps writers out.
    let restored = if rests { u64::MAX } else { bank::OFTEN };
    let (load, dir) = bank("wal", Journal::Wal, restored);
    workers.push(Worker { load, dir, rests: false, movable: !rests });
    run::run(&image, engine, workers, goals, seed)
}
