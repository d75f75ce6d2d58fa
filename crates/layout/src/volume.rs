//! A mounted file system, real or simulated, as planning and moving see it: the one place where the two differ.

use crate::{DeviceProfile, FileId, FsKind, Layout, Movable, Skip};
use std::path::Path;

/// Something that holds files and can relocate their ranges.
///
/// A file is identified by its identity. The path that is passed with it is a hint: its last known path.
pub trait Volume {
    /// Its name in messages: its mount point.
    fn label(&self) -> String;
    /// Which file system it is, or imitates.
    fn kind(&self) -> FsKind;
    /// Bytes that may still be allocated.
    fn free_bytes(&self) -> Result<u64, Skip>;
    /// Size of the whole volume in bytes.
    fn total_bytes(&self) -> u64;
    /// Allocation block in bytes.
    fn block_bytes(&self) -> u64;
    /// What its device costs; `None` where that is not known.
    fn profile(&self) -> Option<DeviceProfile> {
        None
    }
    /// Segments without a valid block; `None` where it has no segments, or does not report them.
    fn free_segments(&self) -> Option<u64> {
        None
    }
    /// Shows every regular file once to `visit`, with a path that leads to it, or why it cannot be examined.
    ///
    /// # Errors
    /// The search ended before all files were shown.
    fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip>;
    /// The present layout of all of a file, or why it cannot be read.
    fn layout(&self, file: FileId, hint: &Path) -> Result<Layout, Skip>;
    /// Opens a file for relocation, or returns why it is left alone.
    fn open(&self, file: FileId, hint: &Path) -> Result<Box<dyn Movable + '_>, Skip>;
}
