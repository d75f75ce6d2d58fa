//! One row per engine, and the controls. Further rows are drawn: see [`crate::matrix`].

use crate::matrix;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, EXT4_1K, EXT4_WRITEBACK, F2FS, FileSystem, MAY_BE_SHARED, XFS,
    XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP,
};
use fragmend_testbed::process::run;
use std::path::Path;

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
    /// What must have moved the data: all of these, and nothing else.
    pub expects: &'static [&'static str],
    /// What may stand in for it, if the receipt says so, and for which reasons.
    pub stands_in: Option<(&'static str, &'static [&'static str])>,
    /// Whether they keep the files open that they use after a move, so that nobody gets a lease.
    pub keeps_open: bool,
    /// A second disk, and what for.
    pub second: Option<Second>,
}

/// What a second disk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// XFS: its log.
    Log,
    /// ext4: its journal.
    Journal,
    /// Btrfs: all once more.
    Mirror,
}

impl Second {
    /// Its size in bytes.
    pub fn bytes(self, first: u64) -> u64 {
        match self {
            Self::Log | Self::Journal => 32 * MIB,
            Self::Mirror => first,
        }
    }
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
    /// began that is complete, or any later version: never bytes that the file did not have in that
    /// place, nor zeroes where nobody made any. (Measured: F2FS alone keeps that, too.) But files that were
    /// made just before may hold what lay in their blocks, other files' bytes: a checkpoint waits for node blocks, not
    /// for the data that they lead to (`F2FS_WB_CP_DATA`, fs/f2fs/checkpoint.c; seen in
    /// 2 cuts of 300, and in none of 720 of F2FS alone). That is F2FS:
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

    /// Makes its file system.
    ///
    /// # Panics
    /// When that fails.
    pub fn make(&self, disk: &Path, second: Option<&Path>) {
        let node = text(second);
        let of_node = |option: &str| format!("{option}={node}");
        match self.second {
            None => self.file_system.make(disk, &[]),
            // The option is for logs of less than 64 MiB.
            Some(Second::Log) => {
                let log = of_node("size=16m,logdev");
                self.file_system.make(disk, &["--unsupported", "-l", &log]);
            }
            Some(Second::Mirror) => self.file_system.make(disk, &[&node]),
            Some(Second::Journal) => {
                run("mke2fs", ["-q", "-F", "-O", "journal_dev", "-b", "4096", &node]);
                self.file_system.make(disk, &["-J", &of_node("device")]);
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

    /// Has its file system checked, unmounted.
    ///
    /// # Errors
    /// What the check found.
    pub fn check(&self, disk: &Path, second: Option<&Path>) -> Result<(), String> {
        match self.second {
            Some(Second::Log) => self.file_system.check_with(disk, &["-l", &text(second)]),
            Some(Second::Journal) => self.file_system.check_with(disk, &["-j", &text(second)]),
            None | Some(Second::Mirror) => self.file_system.check(disk),
        }
    }

    /// Bytes of both disks.
    pub fn all_bytes(&self) -> u64 {
        self.bytes + self.second.map_or(0, |second| second.bytes(self.bytes))
    }

    /// Whether a receipt may name these interfaces, with this reason for their not being others. For a
    /// file that nobody else uses (`still`), no reason is good enough.
    pub fn may_be_by(&self, primitives: &str, fallback: Option<&str>, still: bool) -> bool {
        let all = |may: &dyn Fn(&str) -> bool| primitives.split(", ").all(may);
        match (fallback, self.stands_in) {
            (None, _) => all(&|by| self.expects.contains(&by)),
            (Some(why), Some((other, reasons))) if !still && reasons.contains(&why) => {
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
/// XFS and Btrfs: share a donor's blocks.
pub const BY_SHARING: &[&str] = &[SHARING];
const SHARING: &str = "FIDEDUPERANGE";
/// XFS: exchanges ranges, which Linux has had since 6.10.
pub const BY_EXCHANGE: &[&str] = &["XFS_IOC_COMMIT_RANGE"];
/// XFS: swaps whole files.
pub const BY_SWAPPING: &[&str] = &["XFS_IOC_SWAPEXT"];
/// Btrfs: what is compressed the kernel writes anew.
pub const BY_BOTH: &[&str] = &["BTRFS_IOC_DEFRAG_RANGE", SHARING];
const BY_F2FS: &[&str] = &["F2FS_IOC_DEFRAGMENT"];
const BY_REWRITING: &[&str] = &["rewrite"];

/// How large a disk is, and how it is used.
#[derive(Clone, Copy)]
pub struct Size {
    /// See [`Bed`].
    pub bytes: u64,
    /// See [`Bed`].
    pub free: u64,
    /// See [`Bed`].
    pub atom: u64,
    /// See [`Bed`].
    pub freezes: bool,
}

/// ext4: quick to check. Its super block of 1 KiB has a checksum and is written past the journal
/// when it is unmounted: with a torn one it does not mount, whoever was at work.
pub const SMALL: Size = Size { bytes: 160 * MIB, free: 48 * MIB, atom: 1024, freezes: false };
/// `mkfs.xfs` makes nothing smaller than 300 MiB. Its recovery takes a metadata block whose head is
/// on the disk for newer than the log, all of it, and does not mount when the rest is torn.
pub const OF_XFS: Size = Size { bytes: 320 * MIB, free: 48 * MIB, atom: 4096, freezes: true };
/// Btrfs keeps old data until it commits, and needs room for that.
pub const OF_BTRFS: Size = Size { bytes: 320 * MIB, free: 96 * MIB, atom: 4096, freezes: false };

/// F2FS gives out whole segments, and what is left behind is free only after a checkpoint. Its
/// nodes have no checksum: it relies on whole blocks.
const OF_F2FS: Size = Size { bytes: 320 * MIB, free: 128 * MIB, atom: 4096, freezes: false };

/// A row on which `fragmend apply` moves files as it does by default.
pub const fn engine(
    name: &'static str,
    file_system: &'static FileSystem,
    size: Size,
    expects: &'static [&'static str],
) -> Bed {
    let Size { bytes, free, atom, freezes } = size;
    Bed {
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
        stands_in: None,
        keeps_open: false,
        second: None,
    }
}

/// A row on an XFS whose ranges may be exchanged; where it has reflink, sharing may stand in.
pub const fn exchanging(bed: Bed, reflink: bool) -> Bed {
    let stands_in = if reflink { Some((SHARING, MAY_BE_SHARED.as_slice())) } else { None };
    Bed { expects: BY_EXCHANGE, stands_in, ..bed }
}

const fn rewriting(name: &'static str, file_system: &'static FileSystem, size: Size) -> Bed {
    let mover = Mover::Fragmend(REWRITING);
    Bed { mover, promise: Promise::ButTimes, ..engine(name, file_system, size, BY_REWRITING) }
}

const fn in_guest(bed: Bed) -> Bed {
    Bed { in_guest: true, promise: Promise::OfCheckpoints, ..bed }
}

const fn alone(name: &'static str, file_system: &'static FileSystem, size: Size) -> Bed {
    Bed { mover: Mover::Nobody, ..engine(name, file_system, size, &[]) }
}

/// The engines: not a byte may be lost.
pub static ENGINES: [Bed; 10] = [
    engine("ext4", &EXT4, SMALL, BY_EXT4),
    engine("ext4-1k", &EXT4_1K, SMALL, BY_EXT4),
    engine("xfs", &XFS, OF_XFS, BY_SHARING),
    exchanging(engine("xfs-exchange", &XFS_EXCHANGE, OF_XFS, &[]), true),
    Bed { whole_files: true, ..engine("xfs-rmap", &XFS_RMAP, OF_XFS, BY_SWAPPING) },
    engine("btrfs", &BTRFS, OF_BTRFS, BY_SHARING),
    engine("btrfs-zstd", &BTRFS_ZSTD, OF_BTRFS, BY_BOTH),
    in_guest(engine("f2fs", &F2FS, OF_F2FS, BY_F2FS)),
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
    Bed { mover: Mover::Careless, ..engine("ext4-careless", &EXT4, SMALL, &[]) },
    Bed { honest: false, ..engine("ext4-lying-disk", &EXT4, SMALL, BY_EXT4) },
];

/// ext4 where files that others have open are moved all the same: what those sync without metadata
/// before the move is committed must be lost, by the kernel's way of doing it.
pub static FORCED: Bed = Bed {
    mover: Mover::Fragmend(&["--force"]),
    keeps_open: true,
    ..engine("ext4-forced", &EXT4, SMALL, BY_EXT4)
};

/// Where the kernel promises too little, so that `fragmend` wants `--force`; and what that file
/// system loses by itself. Measured: without a move, too, files that were made a moment before a
/// cut hold bytes of files that are gone. On XFS, the kernel sometimes cannot replay a swap.
pub static LOOSE: [Bed; 3] = [
    Bed {
        mover: Mover::Fragmend(&["--force"]),
        ..engine("xfs-plain", &XFS_PLAIN, OF_XFS, BY_SWAPPING)
    },
    Bed {
        mover: Mover::Fragmend(&["--force"]),
        ..engine("ext4-writeback", &EXT4_WRITEBACK, SMALL, BY_EXT4)
    },
    alone("ext4-writeback-alone", &EXT4_WRITEBACK, SMALL),
];

/// The row with this name: of those above, or of the matrix.
pub fn named(name: &str) -> Option<&'static Bed> {
    let known = ENGINES.iter().chain(&ALONE).chain(&BROKEN).chain(&LOOSE).chain([&FORCED]);
    known.into_iter().find(|bed| bed.name == name).or_else(|| matrix::named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_no_real_thing() {
        let bed = named("xfs-exchange").unwrap();
        let (real, both) = (BY_EXCHANGE[0], format!("{}, {SHARING}", BY_EXCHANGE[0]));
        let [open, changes] = MAY_BE_SHARED.map(Some);
        assert!(bed.may_be_by(real, None, true) && !bed.may_be_by(SHARING, None, false));
        assert!(bed.may_be_by(SHARING, open, false) && bed.may_be_by(&both, changes, false));
        assert!(!bed.may_be_by(SHARING, Some("for no reason"), false), "a reason of its own");
        assert!(!bed.may_be_by(SHARING, open, true) && !bed.may_be_by(&both, changes, true));
        assert!(!named("xfs").unwrap().may_be_by(SHARING, open, false), "nothing stands in there");
    }
}
