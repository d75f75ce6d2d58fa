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
    /// Who moves files.
    pub mover: Mover,
    /// Whether the disk keeps what it flushed.
    pub honest: bool,
}

/// Who moves files while the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// Nobody.
    Nobody,
    /// `fragmend apply`, with these further options.
    Fragmend(&'static [&'static str]),
    /// A control: reads a range, punches a hole, writes it again. Whoever is cut off in between
    /// has lost it.
    Careless,
}

const MIB: u64 = 1 << 20;

const fn engine(name: &'static str, file_system: &'static FileSystem, bytes: u64) -> Bed {
    Bed { name, file_system, bytes, mover: Mover::Fragmend(&[]), honest: true }
}

const fn alone(name: &'static str, file_system: &'static FileSystem, bytes: u64) -> Bed {
    Bed { name, file_system, bytes, mover: Mover::Nobody, honest: true }
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

/// What must be caught: a mover that takes no care, and a disk that lies.
pub static BROKEN: [Bed; 2] = [
    Bed { mover: Mover::Careless, ..engine("ext4-careless", &EXT4, 160 * MIB) },
    Bed { honest: false, ..engine("ext4-lying-disk", &EXT4, 160 * MIB) },
];

/// Where the kernel promises too little, and `--force` is needed: that anything is lost is
/// likely, but luck.
pub static FORCED: [Bed; 1] = [Bed {
    mover: Mover::Fragmend(&["--force"]),
    ..engine("ext4-writeback", &EXT4_WRITEBACK, 160 * MIB)
}];

/// The row with this name.
pub fn named(name: &str) -> Option<&'static Bed> {
    ENGINES.iter().chain(&ALONE).chain(&BROKEN).chain(&FORCED).find(|bed| bed.name == name)
}
