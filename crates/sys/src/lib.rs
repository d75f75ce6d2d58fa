//! The one crate that talks to the kernel.
//!
//! Every system call wrapper, ioctl and `unsafe` line of fragmend is here, one module per kernel
//! interface, each typed so that a call site cannot pair the wrong request with the wrong
//! structure. There is no policy here: that is for the crates above.
//!
//! | module | interface |
//! |---|---|
//! | [`backoff`] | waits between attempts (`nanosleep(2)`) |
//! | [`fiemap`] | the extents of a file (`FS_IOC_FIEMAP`) |
//! | [`move_ext`] | swapping blocks between two ext4 files (`EXT4_IOC_MOVE_EXT`) |
//! | [`dedupe`] | sharing equal bytes between two files (`FIDEDUPERANGE`) |
//! | [`clone`] | sharing any bytes between two files, for tests (`FICLONERANGE`) |
//! | [`btrfs`] | Btrfs: subvolumes, extents of a file, compressing anew (`BTRFS_IOC_DEFRAG_RANGE`) |
//! | [`xfs`] | XFS: features, exchanging ranges (`XFS_IOC_COMMIT_RANGE`) |
//! | [`bulkstat`] | XFS: inodes by their numbers (`XFS_IOC_BULKSTAT`) |
//! | [`swapext`] | XFS: exchanging whole files (`XFS_IOC_SWAPEXT`) |
//! | [`f2fs`] | F2FS: writing ranges out of place (`F2FS_IOC_DEFRAGMENT`), free segments |
//! | [`fsmap`] | the owner of each block (`FS_IOC_GETFSMAP`) |
//! | [`inode`] | generation and attribute flags (`FS_IOC_GETVERSION`, `FS_IOC_GETFLAGS`) |
//! | [`again`] | whether a file that was found again is the same, and opening it |
//! | [`handle`] | a file by inode number, without its path (`open_by_handle_at`) |
//! | [`root`] | a mounted file system held open, and files by path below it (`openat2`) |
//! | [`fs_id`] | which file system this is (`FS_IOC_GETFSUUID`, `fstatfs`) |
//! | [`lease`] | keeping others from opening a file (`F_SETLEASE`) |
//! | [`listeners`] | programs that are asked before a file is opened (`/proc/PID/fdinfo` of fanotify) |
//! | [`mounts`] | what is mounted where (`/proc/self/mountinfo`) |
//! | [`block`] | a block device's queue settings and counters (`/sys/dev/block`) |
//! | [`claim`] | a lock on a block device's node, visible to all namespaces (`F_OFD_SETLK`) |
//! | [`cache`] | writing back and dropping page cache |
//! | [`mapping`] | reading and storing to a file through a shared mapping, for tests (`mmap(2)`) |
//! | [`memory`] | the memory that can still be allocated (`getrlimit(2)`, cgroups) |
//! | [`priority`] | the I/O class of a thread while others wait for it (`ioprio_set(2)`) |
//! | [`process`] | this process's own I/O account, priority and pressure |
//! | [`users`] | user names (`getpwnam_r`) |
//! | [`output`] | output files: complete or not there, never written through a link |
//! | [`input`] | regular files opened for reading, without blocking |
//! | [`directory`] | a directory opened for output, without following other users' links |
//! | [`kind`] | what a file is, in words |
//! | [`same`] | whether page cache and device have the same bytes (`O_DIRECT`) |
//! | [`session`] | which boot, which mount, which disk (`statx(2)`, sysfs) |
//! | [`signals`] | deferring signals (`sigaction(2)`) |
//! | [`shutdown`] | cutting the power of a file system, for tests |

pub mod again;
pub mod backoff;
pub mod block;
pub mod btrfs;
pub mod bulkstat;
pub mod cache;
pub mod claim;
pub mod clone;
pub mod dedupe;
pub mod directory;
pub mod f2fs;
pub mod fiemap;
pub mod fs_id;
pub mod fsmap;
pub mod handle;
pub mod inode;
pub mod input;
pub mod kind;
pub mod lease;
pub mod listeners;
pub mod mapping;
pub mod memory;
pub mod mounts;
pub mod move_ext;
pub mod output;
pub mod priority;
pub mod process;
pub mod root;
pub mod same;
pub mod session;
pub mod shutdown;
pub mod signals;
pub mod swapext;
pub mod users;
pub mod writeback;
pub mod xfs;

/// The error that the kernel's answers do not advance: asking on would be an endless loop.
fn no_progress() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "the file system's answers go in circles")
}
