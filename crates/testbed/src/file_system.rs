//! The file systems that the tests make: how each is made, mounted and checked.

use crate::process::{try_run, try_run_within};
use rustix::mount::{MountFlags, mount};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// One kind of file system, made in one way.
#[derive(Debug)]
pub struct FileSystem {
    /// Its name in messages and tables.
    pub name: &'static str,
    /// Program and arguments that make it; the disk comes last.
    pub make: &'static [&'static str],
    /// Mount options, comma-separated.
    pub options: &'static str,
    /// Mount options without which the kernel refuses it beside a copy of itself; `None` where
    /// copies cannot be mounted together (Btrfs takes the devices of both for one file system).
    pub beside_copy: Option<&'static str>,
    /// The interfaces that move data on it, as receipts name them: the first one by default.
    pub moved_by: &'static [&'static str],
    /// Program and arguments that check it, unmounted, and change nothing; the disk comes last.
    pub check: &'static [&'static str],
    /// Features that the installed tools do not support yet.
    pub later: Option<LaterFeature>,
}

/// A feature of XFS that a bit in every super block turns on (`sb_features_incompat`, xfs_format.h).
#[derive(Clone, Copy, Debug)]
pub struct LaterFeature {
    bit: u32,
}

impl LaterFeature {
    /// Ranges may be exchanged (`mkfs.xfs -i exchange=1` of xfsprogs 6.10).
    pub const EXCHANGE: Self = Self { bit: 1 << 6 };
}

/// A mount or check of a small disk that lasts more seconds counts as hung.
const TOO_LONG: u32 = 120;
/// Checks an XFS, which is small: without prefetching, and with hash tables of that size instead of the memory's.
const XFS_CHECK: &[&str] = &["xfs_repair", "-n", "-P", "-o", "bhash=512"];
/// Checks a Btrfs, whether or not it is found out if it is mounted, which the caller knows: that look fails where
/// another Btrfs is unmounted and its loop device detached meanwhile.
const BTRFS_CHECK: &[&str] = &["btrfs", "check", "--readonly", "--force"];

/// ext4 as `mkfs.ext4` makes it, with 4 KiB blocks.
pub static EXT4: FileSystem = FileSystem {
    name: "ext4",
    make: &["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    options: "",
    beside_copy: Some(""),
    moved_by: &["EXT4_IOC_MOVE_EXT"],
    check: &["e2fsck", "-fn"],
    later: None,
};

/// ext3: its files have block maps, no extents, and no kernel interface moves them.
pub static EXT3: FileSystem = FileSystem {
    name: "ext3",
    make: &["mkfs.ext3", "-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0"],
    options: "",
    beside_copy: Some(""),
    moved_by: &[],
    check: &["e2fsck", "-fn"],
    later: None,
};

/// ext4 with 1 KiB blocks, which discards freed blocks.
pub static EXT4_1K: FileSystem = FileSystem {
    name: "ext4-1k",
    make: &["mkfs.ext4", "-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    options: "discard",
    beside_copy: Some(""),
    moved_by: &["EXT4_IOC_MOVE_EXT"],
    check: &["e2fsck", "-fn"],
    later: None,
};

/// ext4 that does not order data before the metadata that maps it.
pub static EXT4_WRITEBACK: FileSystem = FileSystem {
    name: "ext4-writeback",
    make: EXT4.make,
    options: "data=writeback",
    beside_copy: Some(""),
    moved_by: &["EXT4_IOC_MOVE_EXT"],
    check: &["e2fsck", "-fn"],
    later: None,
};

/// Why ranges of an XFS that exchanges them may have been shared instead, as receipts have it.
pub const MAY_BE_SHARED: [&str; 2] =
    ["others have the file open", "the file changes under the copy"];

/// XFS as `mkfs.xfs` makes it: with reflink. Copies of an image are mounted beside it, hence
/// `nouuid`.
pub static XFS: FileSystem = FileSystem {
    name: "xfs",
    make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["FIDEDUPERANGE"],
    check: XFS_CHECK,
    later: None,
};

/// XFS with blocks that are smaller than pages.
pub static XFS_1K: FileSystem = FileSystem {
    name: "xfs-1k",
    make: &["mkfs.xfs", "-q", "-f", "-b", "size=1k", "-m", "reflink=1"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["FIDEDUPERANGE"],
    check: XFS_CHECK,
    later: None,
};

/// XFS with blocks of 64 KiB, which Linux mounts since 6.12.
pub static XFS_64K: FileSystem = FileSystem {
    name: "xfs-64k",
    make: &["mkfs.xfs", "-q", "-f", "-b", "size=64k", "-m", "reflink=1"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["FIDEDUPERANGE"],
    check: XFS_CHECK,
    later: None,
};

/// XFS with range exchange.
pub static XFS_EXCHANGE: FileSystem = FileSystem {
    name: "xfs-exchange",
    make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=1,rmapbt=1"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["XFS_IOC_COMMIT_RANGE"],
    check: XFS_CHECK,
    later: Some(LaterFeature::EXCHANGE),
};

/// XFS with range exchange, without reflink and rmapbt.
pub static XFS_EXCHANGE_ALONE: FileSystem = FileSystem {
    name: "xfs-exchange-alone",
    make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0,rmapbt=0"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["XFS_IOC_COMMIT_RANGE"],
    check: XFS_CHECK,
    later: Some(LaterFeature { bit: 1 << 6 }),
};

/// XFS without reflink.
pub static XFS_PLAIN: FileSystem = FileSystem {
    name: "xfs-plain",
    make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0,rmapbt=0"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["XFS_IOC_SWAPEXT"],
    check: XFS_CHECK,
    later: None,
};

/// XFS without reflink, with a reverse mapping.
pub static XFS_RMAP: FileSystem = FileSystem {
    name: "xfs-rmap",
    make: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0,rmapbt=1"],
    options: "",
    beside_copy: Some("nouuid"),
    moved_by: &["XFS_IOC_SWAPEXT"],
    check: XFS_CHECK,
    later: None,
};

/// Btrfs as `mkfs.btrfs` makes it on one device.
pub static BTRFS: FileSystem = FileSystem {
    name: "btrfs",
    make: &["mkfs.btrfs", "-q", "-f"],
    options: "",
    beside_copy: None,
    moved_by: &["FIDEDUPERANGE"],
    check: BTRFS_CHECK,
    later: None,
};

/// Btrfs that compresses.
pub static BTRFS_ZSTD: FileSystem = FileSystem {
    name: "btrfs-zstd",
    make: &["mkfs.btrfs", "-q", "-f"],
    options: "compress=zstd",
    beside_copy: None,
    moved_by: &["BTRFS_IOC_DEFRAG_RANGE", "FIDEDUPERANGE"],
    check: BTRFS_CHECK,
    later: None,
};

/// Btrfs that compresses data even if it looks incompressible.
pub static BTRFS_FORCE: FileSystem = FileSystem {
    name: "btrfs-force",
    make: &["mkfs.btrfs", "-q", "-f"],
    options: "compress-force=lzo",
    beside_copy: None,
    moved_by: &["BTRFS_IOC_DEFRAG_RANGE", "FIDEDUPERANGE"],
    check: BTRFS_CHECK,
    later: None,
};

/// F2FS as `mkfs.f2fs` makes it.
pub static F2FS: FileSystem = FileSystem {
    name: "f2fs",
    make: &["mkfs.f2fs", "-q", "-f"],
    options: "",
    beside_copy: Some(""),
    moved_by: &["F2FS_IOC_DEFRAGMENT"],
    // Without a cache it reads a block of the summary area for every block of data.
    check: &["fsck.f2fs", "--dry-run", "-c", "4096"],
    later: None,
};

impl FileSystem {
    /// Makes it on `disk`, a file or a device, with further arguments for the program.
    ///
    /// # Panics
    /// When the program fails.
    pub fn make(&self, disk: &Path, further: &[&str]) {
        const TRIES: u32 = 20;
        let args =
            || self.make[1..].iter().chain(further).map(OsStr::new).chain([disk.as_os_str()]);
        for tried in 1.. {
            match try_run(self.make[0], args()) {
                Ok(_) => break,
                // `mkfs.btrfs` cannot tell what is mounted while the loop device of another Btrfs is detached.
                Err(why) if why.contains("cannot check mount status") && tried < TRIES => {}
                Err(why) => panic!("{why}"),
            }
        }
        self.turn(disk, true);
    }

    /// Mounts `device` at a directory, with further comma-separated options: the file system's own, and `ro`. By
    /// `mount(2)`, as the tests do it by the thousand.
    ///
    /// # Errors
    /// The kernel's, or that it lasts too long.
    pub fn mount(&self, device: &Path, at: &Path, options: &str) -> Result<(), String> {
        let options = self.options.split(',').chain(options.split(','));
        let (to_read, own): (Vec<&str>, Vec<&str>) =
            options.filter(|option| !option.is_empty()).partition(|option| *option == "ro");
        let flags = if to_read.is_empty() { MountFlags::empty() } else { MountFlags::RDONLY };
        let kind = self.make[0].strip_prefix("mkfs.").expect("the mkfs of one kind");
        let own = CString::new(own.join(",")).expect("no zero byte");
        let what = format!("mount -t {kind} -o {own:?} {}", device.display());
        let (device, at) = (device.to_owned(), at.to_owned());
        let (done, end) = channel();
        // A thread of its own, because the call cannot be ended.
        std::thread::spawn(move || {
            let _ = done.send(mount(&device, &at, kind, flags, Some(&*own)));
        });
        match end.recv_timeout(Duration::from_secs(TOO_LONG.into())) {
            Ok(mounted) => mounted.map_err(|e| format!("{what}: {e}")),
            Err(_) => Err(format!("{what} has not ended after {TOO_LONG} s")),
        }
    }

    /// Checks it, unmounted.
    ///
    /// # Errors
    /// What the check found.
    pub fn check(&self, disk: &Path) -> Result<(), String> {
        self.check_with(disk, &[])
    }

    /// The same with further arguments for the program.
    ///
    /// # Errors
    /// What the check found, or that it lasted too long.
    pub fn check_with(&self, disk: &Path, further: &[&str]) -> Result<(), String> {
        // Tools refuse a feature that they do not know.
        self.turn(disk, false);
        let args = self.check[1..].iter().chain(further).map(OsStr::new);
        let found = try_run_within(TOO_LONG, self.check[0], args.chain([disk.as_os_str()]));
        self.turn(disk, true);
        found.map(drop)
    }

    /// Checks it on two devices. `btrfs check` looks for the second one on all devices of the machine, which is load on the disks
    /// of other tests; so it is shown these two alone.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_two(&self, disks: [&Path; 2]) -> Result<(), String> {
        const SHOWN: &str = "
            one=$(readlink \"/sys/block/$1\") two=$(readlink \"/sys/block/$2\")
            mount -t tmpfs shown /sys/block
            ln -s \"$one\" \"/sys/block/$1\"
            ln -s \"$two\" \"/sys/block/$2\"
            shift 2
            BLKID_FILE=/dev/null exec \"$@\"";
        let names = disks.map(|disk| disk.file_name().expect("a device's node"));
        let args = ["--mount", "--", "sh", "-ec", SHOWN, "sh"].map(OsStr::new).into_iter();
        let args = args.chain(names).chain(self.check.iter().map(OsStr::new));
        try_run_within(TOO_LONG, "unshare", args.chain([disks[0].as_os_str()])).map(drop)
    }

    /// Turns the later feature on or off in every super block of an XFS (xfs_format.h,
    /// `struct xfs_dsb`: big-endian, with a CRC-32C of the sector in little-endian at 224).
    fn turn(&self, disk: &Path, on: bool) {
        const SUPER_BLOCK: usize = 512;
        let Some(LaterFeature { bit }) = self.later else { return };
        let file = File::options().read(true).write(true).open(disk).expect("the disk");
        let read = |at: u64| {
            let mut block = [0; SUPER_BLOCK];
            file.read_exact_at(&mut block, at).expect("a super block");
            assert_eq!(&block[..4], b"XFSB");
            block
        };
        let number = |block: &[u8], at: usize| {
            u32::from_be_bytes(block[at..at + 4].try_into().expect("four bytes"))
        };
        let first = read(0);
        let group = u64::from(number(&first, 84)) * u64::from(number(&first, 4));
        for n in 0..u64::from(number(&first, 88)) {
            let mut block = read(n * group);
            let features = number(&block, 216);
            let features = if on { features | bit } else { features & !bit };
            block[216..220].copy_from_slice(&features.to_be_bytes());
            block[224..228].fill(0);
            let sum = crc32c::crc32c(&block);
            block[224..228].copy_from_slice(&sum.to_le_bytes());
            file.write_all_at(&block, n * group).expect("a super block");
        }
        file.sync_all().expect("the disk");
    }
}
