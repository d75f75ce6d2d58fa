//! The monitor of InDeF at the level of the file system (section III-A).

use std::ops::Range;

/// A monitor.
#[derive(Clone, Debug, Default)]
pub struct Monitor;

impl Monitor {
    /// A read has reached the drive.
    pub fn read(&mut self, _inode: u64, _blocks: Range<u64>) {}
}
