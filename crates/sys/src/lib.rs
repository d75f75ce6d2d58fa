//! The kernel interfaces that fragmend uses beyond `rustix`.
//!
//! Every ioctl and `unsafe` line of the program is here, one module per kernel interface. Each interface is
//! typed so that no caller can pair a request with the wrong structure. Policy is left to the crates above.
//!
//! | module | interface |
//! |---|---|
//! | [`backoff`] | the waits between attempts (`nanosleep(2)`) |
//! | [`fiemap`] | the extents of a file (`FS_IOC_FIEMAP`) |
//! | [`move_ext`] | exchanging blocks between two ext4 files (`EXT4_IOC_MOVE_EXT`) |
//! | [`dedupe`] | sharing equal bytes between two files (`FIDEDUPERANGE`) |
//! | [`clone`] | sharing any bytes between two files, for tests (`FICLONERANGE`) |
//! | [`btrfs`] | Btrfs: subvolumes, extents of a file, block groups and free space (`BTRFS_IOC_TREE_SEARCH`), recompressing (`BTRFS_IOC_DEFRAG_RANGE`) |
//! | [`xfs`] | XFS: features, exchanging ranges (`XFS_IOC_COMMIT_RANGE`) |
//! | [`bulkstat`] | XFS: inodes by their numbers (`XFS_IOC_BULKSTAT`) |
//! | [`swapext`] | XFS: swapping whole files (`XFS_IOC_SWAPEXT`) |
//! | [`f2fs`] | F2FS: writing ranges out of place (`F2FS_IOC_DEFRAGMENT`), free segments |
//! | [`fsmap`] | the owner of each block (`FS_IOC_GETFSMAP`) |
//! | [`inode`] | generation and attribute flags (`FS_IOC_GETVERSION`, `FS_IOC_GETFLAGS`) |
//! | [`again`] | opening a file that was found again, if it is the same |
//! | [`grace`] | waiting for what the kernel has running (`membarrier(2)`) |
//! | [`handle`] | a file by inode number, without its path (`open_by_handle_at`) |
//! | [`held`] | whether others can rename what is ours in a directory (`lstat(2)`) |
//! | [`root`] | a mounted file system, held open, and files by path below it (`openat2`) |
//! | [`fs_id`] | which file system this is (`FS_IOC_GETFSUUID`, `fstatfs`) |
//! | [`lease`] | keeping other programs from opening a file (`F_SETLEASE`) |
//! | [`listeners`] | programs that are asked before a file is opened (`/proc/PID/fdinfo` of fanotify) |
//! | [`mounts`] | what is mounted where (`/proc/self/mountinfo`) |
//! | [`block`] | a block device's queue settings and counters (`/sys/dev/block`) |
//! | [`loop_device`] | a file as a block device (`LOOP_CONFIGURE`) |
//! | [`disks`] | the disks below a file system (`/sys/dev/block`, `/sys/fs/btrfs`) |
//! | [`apart`] | an ioctl in a process of its own, which may be left behind (`fork(2)`) |
//! | [`nvme`] | what an NVMe drive reports of its health (`NVME_IOCTL_ADMIN_CMD`) |
//! | [`ata`] | the logs of an ATA drive (`SG_IO`) |
//! | [`bpf_table`] | the elements of a BPF table, many at once (`BPF_MAP_LOOKUP_BATCH`) |
//! | [`bpf_stats`] | counting the run time of BPF programs (`BPF_ENABLE_STATS`) |
//! | [`capabilities`] | dropping privileges for good (`capset(2)`, `prctl(2)`) |
//! | [`claim`] | a lock on a block device's node, visible to all namespaces (`F_OFD_SETLK`) |
//! | [`cache`] | writing back and dropping page cache |
//! | [`writeback`] | writing out what is dirty now, and waiting for that alone |
//! | [`mapping`] | loads and stores through a shared mapping of a file, for tests (`mmap(2)`) |
//! | [`memory`] | the memory that can still be allocated (`getrlimit(2)`, cgroups) |
//! | [`priority`] | the I/O class of a thread while other programs wait for it (`ioprio_set(2)`) |
//! | [`process`] | this process's I/O account and priority, and the kernel's version |
//! | [`ring`] | many reads in flight (`io_uring(7)`) |
//! | [`users`] | user names (`getpwnam_r`) |
//! | [`output`] | output files: complete or absent, never written through a link |
//! | [`input`] | regular files opened for reading, without blocking |
//! | [`directory`] | a directory opened for output, or a path resolved, without following other users' links |
//! | [`kind`] | names of file types, for messages |
//! | [`same`] | whether page cache and device hold the same bytes (`O_DIRECT`) |
//! | [`session`] | identities of the boot, a mount and a disk (`statx(2)`, sysfs) |
//! | [`signals`] | deferring signals (`sigaction(2)`) |
//! | [`shutdown`] | shutting a file system down as a power cut would, for tests |

pub mod again;
pub mod apart;
pub mod ata;
pub mod backoff;
pub mod block;
pub mod bpf_stats;
pub mod bpf_table;
pub mod btrfs;
pub mod bulkstat;
pub mod cache;
pub mod capabilities;
pub mod claim;
pub mod clone;
pub mod dedupe;
pub mod directory;
pub mod disks;
pub mod f2fs;
pub mod fiemap;
pub mod fs_id;
pub mod fsmap;
pub mod grace;
pub mod handle;
pub mod held;
pub mod inode;
pub mod input;
pub mod kind;
pub mod lease;
pub mod listeners;
pub mod locked;
pub mod loop_device;
pub mod mapping;
pub mod memory;
pub mod mounts;
pub mod move_ext;
pub mod nvme;
pub mod output;
pub mod patience;
pub mod priority;
pub mod process;
pub mod ring;
pub mod root;
pub mod same;
pub mod session;
pub mod shutdown;
pub mod signals;
pub mod swapext;
pub mod users;
pub mod writeback;
pub mod xfs;

/// The error for results of the kernel that do not advance: to continue would loop endlessly.
fn no_progress() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "the file system's answers go in circles")
}
