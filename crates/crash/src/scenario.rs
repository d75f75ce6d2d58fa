//! One scenario per engine, and the controls. Further ones are drawn: see [`crate::matrix`].

use crate::matrix;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, EXT4_WRITEBACK, F2FS, FileSystem, MAY_BE_SHARED, XFS,
    XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP,
};
use fragmend_testbed::process::run;
use std::path::Path;

/// A file system, its mover, and what must hold after a cut.
#[derive(Debug)]
pub struct Scenario {
    /// Its name in the table and on the command line.
    pub name: &'static str,
    /// How it is made.
    pub file_system: &'static FileSystem,
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Free bytes when recording begins.
    pub free: u64,
    /// What moves files.
    pub mover: Mover,
    /// The disk's atomic write unit in bytes: as large as the file system relies on. Btrfs refuses
    /// to mount with a torn super block of 4 KiB, although there are copies.
    pub atom: u64,
    /// Whether the disk keeps what it has flushed.
    pub honest: bool,
    /// What must hold after a cut.
    pub promise: Promise,
    /// Whether a file moves as a whole, so that it is never half moved.
    pub whole_files: bool,
    /// Whether the journal is emptied from time to time, as a snapshot of a volume does. XFS lets 64 MiB of
    /// it fill before it does so itself, and replaying them lasts seconds.
    pub freezes: bool,
    /// Whether everything runs in a guest, because the host's kernel may lack the file system.
    pub in_guest: bool,
    /// The kernel interfaces that must have moved the data: all of these, and no others.
    pub expects: &'static [&'static str],
    /// The interface that may be used instead, if the receipt names one of these reasons.
    pub fallback: Option<(&'static str, &'static [&'static str])>,
    /// Whether the users of a file after its move keep it open, so that no lease is granted.
    pub keeps_open: bool,
    /// The policy by which it is planned what moves.
    pub policy: &'static str,
    /// The role of a second disk, if there is one.
    pub second: Option<Second>,
}

/// The role of a second disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// XFS: an external log.
    Log,
    /// ext4: an external journal.
    Journal,
    /// Btrfs: a mirror of the first disk.
    Mirror,
}

impl Second {
    /// Its size in bytes, beside a first disk of `first` bytes.
    pub fn bytes(self, first: u64) -> u64 {
        match self {
            Self::Log | Self::Journal => 32 * MIB,
            Self::Mirror => first,
        }
    }
}

/// What must hold after a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// What each file's role promises: see [`crate::files::Role`].
    Everything,
    /// The same, except that a place that was never synced may hold anything that was on the disk before.
    /// With a journal on a disk of its own, Linux flushes the data's disk before a commit only if the
    /// transaction has ordered data (`t_need_data_flush`, fs/jbd2/commit.c). An extent that becomes written
    /// (`dioread_nolock`, the default) is none; a move is (`ext4_jbd2_inode_add_write`,
    /// fs/ext4/move_extent.c).
    ///
    /// And where ext4 has no delayed allocation, a file that is truncated just while a transaction is closed:
    /// `ext4_setattr()` looks for the data that this transaction must write before its own begins
    /// (`ext4_begin_ordered_truncate()`, fs/ext4/inode.c), so the pages are dropped, and blocks that were never
    /// written are committed. (Seen without a mover in 8 of 12,538 transactions, and in none with delayed
    /// allocation.)
    WhatWasSynced,
    /// What each file's role promises, except that an untouched file may have a later modification time: an
    /// interrupted rewrite sets it, and `fragmend recover` cannot distinguish that from another program's
    /// write.
    ExceptTimes,
    /// Untouched files keep their content. Of the others, every byte has at least the version that was synced
    /// before the start of the last complete checkpoint: never bytes that the file did not have in that
    /// place, nor zeroes that were not written. (Measured: F2FS keeps that without a mover, too.)
    ///
    /// Only a place that was never synced (new files, appended data, data that is written again behind a
    /// truncation or into a hole) may hold anything that was on the disk before, blocks of other files and of
    /// trees: a checkpoint waits for node blocks, not for the data that they point to (`F2FS_WB_CP_DATA`,
    /// fs/f2fs/checkpoint.c). Measured without a mover, with a checkpoint every few milliseconds: a tree's
    /// block in appended data, in one of 1,500 cuts.
    ///
    /// F2FS promises no more: its `fsync` leaves a file's node blocks to a checkpoint under way and returns
    /// before that is complete, and it flushes once, behind node blocks and data alike. Measured: cuts during
    /// a checkpoint lose what was just synced, also without a mover.
    CheckpointsOnly,
}

impl Promise {
    /// Whether a place of a file that was never synced may hold what was on the disk before.
    pub fn allows_stale_blocks(self) -> bool {
        matches!(self, Self::WhatWasSynced | Self::CheckpointsOnly)
    }
}

/// What moves files while the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// Nothing.
    Nobody,
    /// `fragmend apply`, with these further options.
    Fragmend(&'static [&'static str]),
    /// A control: reads a range, punches a hole, writes it again. A cut in between loses the range.
    Unprotected,
}

/// A rewrite keeps its records at the top of the file system that is cut.
const REWRITING: &[&str] = &["--engine", "rewrite"];

impl Scenario {
    /// Whether `fragmend recover` has to run before the files are compared.
    pub fn recovers(&self) -> bool {
        self.mover == Mover::Fragmend(REWRITING)
    }

    /// Makes its file system on the disks.
    ///
    /// # Panics
    /// When that fails.
    pub fn make(&self, disk: &Path, second: Option<&Path>) {
        let node = text(second);
        let with_node = |option: &str| format!("{option}={node}");
        match self.second {
            None => self.file_system.make(disk, &[]),
            // The option allows logs of less than 64 MiB.
            Some(Second::Log) => {
                let log = with_node("size=16m,logdev");
                self.file_system.make(disk, &["--unsupported", "-l", &log]);
            }
            Some(Second::Mirror) => self.file_system.make(disk, &[&node]),
            Some(Second::Journal) => {
                run("mke2fs", ["-q", "-F", "-O", "journal_dev", "-b", "4096", &node]);
                self.file_system.make(disk, &["-J", &with_node("device")]);
            }
        }
    }

    /// Mount options for a second disk.
    pub fn mount_options(&self, second: Option<&Path>) -> String {
        let node = text(second);
        match self.second {
            None => String::new(),
            Some(Second::Log) => format!("logdev={node}"),
            Some(Second::Journal) => format!("journal_path={node}"),
            Some(Second::Mirror) => format!("device={node}"),
        }
    }

    /// Runs the file system's own check on the unmounted disks.
    ///
    /// # Errors
    /// What the check found.
    pub fn check(&self, disk: &Path, second: Option<&Path>) -> Result<(), String> {
        match self.second {
            Some(Second::Log) => self.file_system.check_with(disk, &["-l", &text(second)]),
            Some(Second::Journal) => self.file_system.check_with(disk, &["-j", &text(second)]),
            Some(Second::Mirror) => match second {
                Some(second) => self.file_system.check_two([disk, second]),
                None => self.file_system.check(disk),
            },
            None => self.file_system.check(disk),
        }
    }

    /// Bytes of both disks together.
    pub fn all_bytes(&self) -> u64 {
        self.bytes + self.second.map_or(0, |second| second.bytes(self.bytes))
    }

    /// Whether a receipt may name these interfaces, with this reason for a fallback. For a file that nothing
    /// else uses (`untouched`), no reason is accepted.
    pub fn allows_primitives(
        &self,
        primitives: &str,
        reason: Option<&str>,
        untouched: bool,
    ) -> bool {
        let all = |may: &dyn Fn(&str) -> bool| primitives.split(", ").all(may);
        match (reason, self.fallback) {
            (None, _) => all(&|by| self.expects.contains(&by)),
            (Some(why), Some((other, reasons))) if !untouched && reasons.contains(&why) => {
                all(&|by| by == other || self.expects.contains(&by))
            }
            _ => false,
        }
    }
}

fn text(node: Option<&Path>) -> String {
    node.map(|node| node.to_string_lossy().into_owned()).unwrap_or_default()
}

const MIB: u64 = 1 << 20;

/// ext4: exchanges blocks with a donor.
pub const BY_EXT4: &[&str] = &["EXT4_IOC_MOVE_EXT"];
/// XFS and Btrfs: shares a donor's blocks.
pub const BY_SHARING: &[&str] = &[SHARING];
const SHARING: &str = "FIDEDUPERANGE";
/// XFS: exchanges ranges; in Linux since 6.12.
pub const BY_EXCHANGE: &[&str] = &["XFS_IOC_COMMIT_RANGE"];
/// XFS: swaps whole files.
pub const BY_SWAPPING: &[&str] = &["XFS_IOC_SWAPEXT"];
/// Btrfs with compression: the kernel rewrites compressed extents.
pub const BY_BOTH: &[&str] = &["BTRFS_IOC_DEFRAG_RANGE", SHARING];
const BY_F2FS: &[&str] = &["F2FS_IOC_DEFRAGMENT"];
const BY_REWRITING: &[&str] = &["rewrite"];

/// The size of a disk, and how it is used.
#[derive(Clone, Copy)]
pub struct Size {
    /// See [`Scenario`].
    pub bytes: u64,
    /// See [`Scenario`].
    pub free: u64,
    /// See [`Scenario`].
    pub atom: u64,
    /// See [`Scenario`].
    pub freezes: bool,
}

/// ext4: quick to check. Its super block of 1 KiB has a checksum and bypasses the journal at
/// unmount: ext4 does not mount with a torn one, whether or not anything was moved.
pub const EXT4_SIZE: Size = Size { bytes: 160 * MIB, free: 48 * MIB, atom: 1024, freezes: false };
/// `mkfs.xfs` makes nothing smaller than 300 MiB. Log recovery trusts a metadata block whose head is newer
/// than the log, so XFS does not mount when the rest of the block is torn.
pub const XFS_SIZE: Size = Size { bytes: 320 * MIB, free: 48 * MIB, atom: 4096, freezes: true };
/// Btrfs keeps old data until it commits, and needs space for it.
pub const BTRFS_SIZE: Size = Size { bytes: 320 * MIB, free: 96 * MIB, atom: 4096, freezes: false };

/// F2FS allocates whole segments, and invalidated blocks are free only after a checkpoint. Its
/// nodes have no checksum: it relies on atomic blocks.
const F2FS_SIZE: Size = Size { bytes: 320 * MIB, free: 128 * MIB, atom: 4096, freezes: false };

/// A scenario in which `fragmend apply` moves files with its default options.
pub const fn engine(
    name: &'static str,
    file_system: &'static FileSystem,
    size: Size,
    expects: &'static [&'static str],
) -> Scenario {
    let Size { bytes, free, atom, freezes } = size;
    Scenario {
        name,
        file_system,
        bytes,
        free,
        atom,
        mover: Mover::Fragmend(&[]),
        honest: true,
        promise: Promise::Everything,
        whole_files: false,
        freezes,
        in_guest: false,
        expects,
        fallback: None,
        keeps_open: false,
        policy: "whole-file",
        second: None,
    }
}

/// The same on an XFS with range exchange; with reflink, sharing is an allowed fallback.
pub const fn exchanging(scenario: Scenario, reflink: bool) -> Scenario {
    let fallback = if reflink { Some((SHARING, MAY_BE_SHARED.as_slice())) } else { None };
    Scenario { expects: BY_EXCHANGE, fallback, ..scenario }
}

const fn rewriting(name: &'static str, file_system: &'static FileSystem, size: Size) -> Scenario {
    let mover = Mover::Fragmend(REWRITING);
    Scenario {
        mover,
        promise: Promise::ExceptTimes,
        ..engine(name, file_system, size, BY_REWRITING)
    }
}

const fn in_guest(scenario: Scenario) -> Scenario {
    Scenario { in_guest: true, promise: Promise::CheckpointsOnly, ..scenario }
}

const fn alone(name: &'static str, file_system: &'static FileSystem, size: Size) -> Scenario {
    Scenario { mover: Mover::Nobody, ..engine(name, file_system, size, &[]) }
}

/// The engines: not a byte may be lost.
pub static ENGINES: [Scenario; 10] = [
    engine("ext4", &EXT4, EXT4_SIZE, BY_EXT4),
    engine("ext4-1k", &EXT4_1K, EXT4_SIZE, BY_EXT4),
    engine("xfs", &XFS, XFS_SIZE, BY_SHARING),
    exchanging(engine("xfs-exchange", &XFS_EXCHANGE, XFS_SIZE, &[]), true),
    Scenario { whole_files: true, ..engine("xfs-rmap", &XFS_RMAP, XFS_SIZE, BY_SWAPPING) },
    engine("btrfs", &BTRFS, BTRFS_SIZE, BY_SHARING),
    engine("btrfs-zstd", &BTRFS_ZSTD, BTRFS_SIZE, BY_BOTH),
    in_guest(engine("f2fs", &F2FS, F2FS_SIZE, BY_F2FS)),
    rewriting("rewrite-ext4", &EXT4, EXT4_SIZE),
    rewriting("rewrite-xfs-plain", &XFS_PLAIN, XFS_SIZE),
];

/// The same load without a mover: if one of these loses anything, the crash machine is wrong.
pub static ALONE: [Scenario; 4] = [
    alone("ext4-alone", &EXT4, EXT4_SIZE),
    alone("xfs-alone", &XFS, XFS_SIZE),
    alone("btrfs-alone", &BTRFS, BTRFS_SIZE),
    in_guest(alone("f2fs-alone", &F2FS, F2FS_SIZE)),
];

/// What must lose data: a mover without protection, and a disk that loses what it has flushed.
pub static BROKEN: [Scenario; 2] = [
    Scenario { mover: Mover::Unprotected, ..engine("ext4-careless", &EXT4, EXT4_SIZE, &[]) },
    Scenario { honest: false, ..engine("ext4-lying-disk", &EXT4, EXT4_SIZE, BY_EXT4) },
];

/// ext4 where files are moved although others have them open. What they `fdatasync` before the move is
/// committed must be lost: the kernel commits nothing for it.
pub static FORCED: Scenario = Scenario {
    mover: Mover::Fragmend(&["--force"]),
    keeps_open: true,
    ..engine("ext4-forced", &EXT4, EXT4_SIZE, BY_EXT4)
};

/// F2FS, where what moves is what empties segments.
pub static SEGMENTS: Scenario =
    Scenario { policy: "segments", ..in_guest(engine("f2fs-segments", &F2FS, F2FS_SIZE, BY_F2FS)) };

/// File systems that promise too little, so that `fragmend` requires `--force`; and what they lose by
/// themselves. Measured: without a mover, too, files made just before a cut hold bytes of deleted files. On
/// XFS, log recovery sometimes cannot replay a swap.
pub static LOOSE: [Scenario; 3] = [
    Scenario {
        mover: Mover::Fragmend(&["--force"]),
        ..engine("xfs-plain", &XFS_PLAIN, XFS_SIZE, BY_SWAPPING)
    },
    Scenario {
        mover: Mover::Fragmend(&["--force"]),
        ..engine("ext4-writeback", &EXT4_WRITEBACK, EXT4_SIZE, BY_EXT4)
    },
    alone("ext4-writeback-alone", &EXT4_WRITEBACK, EXT4_SIZE),
];

/// The scenario with this name: one of those above, or a cell of the matrix.
pub fn named(name: &str) -> Option<&'static Scenario> {
    let known =
        ENGINES.iter().chain(&ALONE).chain(&BROKEN).chain(&LOOSE).chain([&FORCED, &SEGMENTS]);
    known.into_iter().find(|scenario| scenario.name == name).or_else(|| matrix::named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_needs_a_reason() {
        let scenario = named("xfs-exchange").unwrap();
        let (real, both) = (BY_EXCHANGE[0], format!("{}, {SHARING}", BY_EXCHANGE[0]));
        let [open, changes] = MAY_BE_SHARED.map(Some);
        assert!(
            scenario.allows_primitives(real, None, true)
                && !scenario.allows_primitives(SHARING, None, false)
        );
        assert!(
            scenario.allows_primitives(SHARING, open, false)
                && scenario.allows_primitives(&both, changes, false)
        );
        assert!(
            !scenario.allows_primitives(SHARING, Some("for no reason"), false),
            "a reason of its own"
        );
        assert!(
            !scenario.allows_primitives(SHARING, open, true)
                && !scenario.allows_primitives(&both, changes, true)
        );
        assert!(
            !named("xfs").unwrap().allows_primitives(SHARING, open, false),
            "it has no fallback"
        );
    }
}
