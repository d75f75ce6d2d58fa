//! One row per engine, and the controls.

use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, EXT4_WRITEBACK, FileSystem, XFS, XFS_EXCHANGE,
};

/// A file system, and what is done on it.
#[derive(Debug)]
pub struct Bed {
    /// As in the table.
    pub name: &'static str,
    /// How it is made.
    pub file_system: &'static FileSystem,
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Whether `fragmend` moves files, and with which further options.
    pub apply: Option<&'static [&'static str]>,
    /// Whether the disk keeps what it flushed.
    pub honest: bool,
}

const MIB: u64 = 1 << 20;

const fn engine(name: &'static str, file_system: &'static FileSystem, bytes: u64) -> Bed {
    Bed { name, file_system, bytes, apply: Some(&[]), honest: true }
}

const fn alone(name: &'static str, file_system: &'static FileSystem, bytes: u64) -> Bed {
    Bed { name, file_system, bytes, apply: None, honest: true }
}

/// The engines: not a byte may be lost.
pub static ENGINES: [Bed; 6] = [
    engine("ext4", &EXT4, 160 * MIB),
    engine("ext4-1k", &EXT4_1K, 160 * MIB),
    engine("xfs", &XFS, 320 * MIB),
    engine("xfs-exchange", &XFS_EXCHANGE, 320 * MIB),
    engine("btrfs", &BTRFS, 320 * MIB),
    engine("btrfs-zstd", &BTRFS_ZSTD, 320 * MIB),
];

/// The same load with nothing moved: if these lose anything, the machine is wrong.
pub static ALONE: [Bed; 3] = [
    alone("ext4-alone", &EXT4, 160 * MIB),
    alone("xfs-alone", &XFS, 320 * MIB),
    alone("btrfs-alone", &BTRFS, 320 * MIB),
];

/// What must be caught: moves on a file system that orders nothing, and a disk that lies.
pub static BROKEN: [Bed; 2] = [
    Bed { apply: Some(&["--force"]), ..engine("ext4-writeback", &EXT4_WRITEBACK, 160 * MIB) },
    Bed { honest: false, ..engine("ext4-lying-disk", &EXT4, 160 * MIB) },
];

/// The row with this name.
pub fn named(name: &str) -> Option<&'static Bed> {
    ENGINES.iter().chain(&ALONE).chain(&BROKEN).find(|bed| bed.name == name)
}
