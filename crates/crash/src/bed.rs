//! One row per engine, and the controls.

use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, EXT4_WRITEBACK, F2FS, FileSystem, XFS, XFS_EXCHANGE,
    XFS_PLAIN, XFS_RMAP,
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
    /// So much of it is free when recording begins.
    pub free: u64,
    /// Who moves files.
    pub mover: Mover,
    /// Bytes that the disk writes whole or not at all: as many as the file system needs so. Btrfs
    /// refuses to mount with a torn super block of 4 KiB, although there are copies.
    pub atom: u64,
    /// Whether the disk keeps what it flushed.
    pub honest: bool,
    /// What must be there.
    pub promise: Promise,
    /// Whether a file moves as a whole, so that it is never half moved.
    pub whole_files: bool,
    /// Whether the journal is emptied now and then, as a snapshot of a volume does. XFS lets 64 MiB
    /// of it fill before it does so by itself, and to mount that takes seconds.
    pub freezes: bool,
    /// Whether all is done in a guest, because this kernel need not have the file system.
    pub in_guest: bool,
}

/// What must be there after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// What each file's role says: see [`crate::files::Role`].
    Everything,
    /// The same, but a file that nobody writes may have a later time of modification: a rewrite
    /// that was cut short leaves its own, and whose it is `fragmend recover` cannot know.
    ButTimes,
    /// What a file that nobody writes holds; and of others what was synced before a checkpoint
    /// began that is complete. Where something is or was on its way, anything may be. That is F2FS:
    /// its `fsync` lets a checkpoint that is under way have a file's node blocks, and returns before
    /// that is complete; and it flushes once, behind node blocks and data alike. Measured: without
    /// a move, too, cuts during a checkpoint lose what was synced a moment before.
    OfCheckpoints,
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

/// Its records lie at the top of the file system that is cut.
const REWRITING: &[&str] = &["--engine", "rewrite"];

impl Bed {
    /// Whether `fragmend recover` has to run before files are what they must be.
    pub fn recovers(&self) -> bool {
        self.mover == Mover::Fragmend(REWRITING)
    }
}

const MIB: u64 = 1 << 20;

#[derive(Clone, Copy)]
struct Size {
    bytes: u64,
    free: u64,
    atom: u64,
    freezes: bool,
}

/// ext4: quick to check. Its super block of 1 KiB has a checksum and is written past the journal
/// when it is unmounted: with a torn one it does not mount, whoever was at work.
const SMALL: Size = Size { bytes: 160 * MIB, free: 48 * MIB, atom: 1024, freezes: false };
/// `mkfs.xfs` makes nothing smaller than 300 MiB. Its recovery takes a metadata block whose head is
/// on the disk for newer than the log, all of it, and does not mount when the rest is torn.
const OF_XFS: Size = Size { bytes: 320 * MIB, free: 48 * MIB, atom: 4096, freezes: true };
/// Btrfs keeps old data until it commits, and needs room for that.
const OF_BTRFS: Size = Size { bytes: 320 * MIB, free: 96 * MIB, atom: 4096, freezes: false };

/// F2FS gives out whole segments, and what is left behind is free only after a checkpoint. Its
/// nodes have no checksum: it relies on whole blocks.
const OF_F2FS: Size = Size { bytes: 320 * MIB, free: 128 * MIB, atom: 4096, freezes: false };

const fn engine(name: &'static str, file_system: &'static FileSystem, size: Size) -> Bed {
    let Size { bytes, free, atom, freezes } = size;
    let mover = Mover::Fragmend(&[]);
    let promise = Promise::Everything;
    let (honest, whole_files, in_guest) = (true, false, false);
    Bed {
        name,
        file_system,
        bytes,
        free,
        atom,
        mover,
        honest,
        promise,
        whole_files,
        freezes,
        in_guest,
    }
}

const fn rewriting(name: &'static str, file_system: &'static FileSystem, size: Size) -> Bed {
    let mover = Mover::Fragmend(REWRITING);
    Bed { mover, promise: Promise::ButTimes, ..engine(name, file_system, size) }
}

const fn in_guest(bed: Bed) -> Bed {
    Bed { in_guest: true, promise: Promise::OfCheckpoints, ..bed }
}

const fn alone(name: &'static str, file_system: &'static FileSystem, size: Size) -> Bed {
    Bed { mover: Mover::Nobody, ..engine(name, file_system, size) }
}

/// The engines: not a byte may be lost.
pub static ENGINES: [Bed; 10] = [
    engine("ext4", &EXT4, SMALL),
    engine("ext4-1k", &EXT4_1K, SMALL),
    engine("xfs", &XFS, OF_XFS),
    engine("xfs-exchange", &XFS_EXCHANGE, OF_XFS),
    Bed { whole_files: true, ..engine("xfs-rmap", &XFS_RMAP, OF_XFS) },
    engine("btrfs", &BTRFS, OF_BTRFS),
    engine("btrfs-zstd", &BTRFS_ZSTD, OF_BTRFS),
    in_guest(engine("f2fs", &F2FS, OF_F2FS)),
    rewriting("rewrite-ext4", &EXT4, SMALL),
    rewriting("rewrite-xfs-plain", &XFS_PLAIN, OF_XFS),
];

/// The same load with nothing moved: if these lose anything, the machine is wrong.
pub static ALONE: [Bed; 4] = [
    alone("ext4-alone", &EXT4, SMALL),
    alone("xfs-alone", &XFS, OF_XFS),
    alone("btrfs-alone", &BTRFS, OF_BTRFS),
    in_guest(alone("f2fs-alone", &F2FS, OF_F2FS)),
];

/// What must be caught: a mover that takes no care, and a disk that lies.
pub static BROKEN: [Bed; 2] = [
    Bed { mover: Mover::Careless, ..engine("ext4-careless", &EXT4, SMALL) },
    Bed { honest: false, ..engine("ext4-lying-disk", &EXT4, SMALL) },
];

/// Where the kernel promises too little, so that `fragmend` wants `--force`; and what that file
/// system loses by itself. Measured: without a move, too, files that were made a moment before a
/// cut hold bytes of files that are gone. On XFS, the kernel sometimes cannot replay a swap.
pub static LOOSE: [Bed; 3] = [
    Bed { mover: Mover::Fragmend(&["--force"]), ..engine("xfs-plain", &XFS_PLAIN, OF_XFS) },
    Bed {
        mover: Mover::Fragmend(&["--force"]),
        ..engine("ext4-writeback", &EXT4_WRITEBACK, SMALL)
    },
    alone("ext4-writeback-alone", &EXT4_WRITEBACK, SMALL),
];

/// The row with this name.
pub fn named(name: &str) -> Option<&'static Bed> {
    ENGINES.iter().chain(&ALONE).chain(&BROKEN).chain(&LOOSE).find(|bed| bed.name == name)
}
