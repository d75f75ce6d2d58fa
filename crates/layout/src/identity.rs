//! What identifies a file permanently.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Device, inode and generation: a path can be renamed and an inode number reused, this triple
/// cannot.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct FileId {
    /// Device number as in `st_dev` of `stat(2)`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Inode generation (`FS_IOC_GETVERSION`); 0 where the file system has none.
    pub generation: u32,
}
