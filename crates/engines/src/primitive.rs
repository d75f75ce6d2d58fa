//! The primitives that move data, by their names in the kernel's headers and manuals; a receipt names the one
//! that was used.

/// ext4: exchanges blocks with a donor (fs/ext4/ext4.h).
pub const MOVE_EXT: &str = "EXT4_IOC_MOVE_EXT";
/// XFS: exchanges ranges with a donor, unless the file has changed (fs/xfs/libxfs/xfs_fs.h).
pub const COMMIT_RANGE: &str = "XFS_IOC_COMMIT_RANGE";
/// XFS: swaps the extents of whole files (fs/xfs/libxfs/xfs_fs.h).
pub const SWAPEXT: &str = "XFS_IOC_SWAPEXT";
/// XFS and Btrfs: shares a donor's blocks, if they hold the same bytes (ioctl_fideduperange(2)).
pub const DEDUPE: &str = "FIDEDUPERANGE";
/// Btrfs: the kernel writes a range anew (linux/btrfs.h).
pub const BTRFS_DEFRAG: &str = "BTRFS_IOC_DEFRAG_RANGE";
/// F2FS: the kernel writes a range to the log (linux/f2fs.h).
pub const F2FS_DEFRAG: &str = "F2FS_IOC_DEFRAGMENT";
/// Any: a durable copy, a punched hole, new space, and the bytes written back.
pub const REWRITE: &str = "rewrite";
