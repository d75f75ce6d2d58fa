//! Space of ext4 and XFS, as `FS_IOC_GETFSMAP` reports it, and of any other file system that has it.
//!
//! XFS without `rmapbt=1`, or for others than root, reports free space alone; ext4 does not report where its journal is.
//! Space that a file system has set aside is free here: XFS keeps some in each allocation group for its trees, and ext4 some
//! for root. Records of other devices, of logs and of realtime files, are left out: their addresses are not comparable.

use super::{Collector, NotKnown, not_known};
use crate::FileSystem;
use fragmend_layout::{ByteRange, SpaceKind};
use fragmend_sys::fsmap::{self, Usage};
use fragmend_sys::root::Root;

pub(super) fn read(root: &Root, fs: &FileSystem, to: &mut Collector) -> Result<(), NotKnown> {
    let read = fsmap::each(root, |record| {
        if u64::from(record.device) != fs.dev {
            return;
        }
        let range = ByteRange::at(record.physical, record.length);
        to.reaches(range.end);
        match record.usage() {
            Usage::Free => to.add(SpaceKind::Free, range),
            Usage::Metadata => to.add(SpaceKind::Metadata, range),
            Usage::Other => {}
        }
    });
    read.map_err(|e| not_known(fs, e))?;
    // A zoned XFS numbers its devices in another way.
    if to.is_empty() { Err(NotKnown::NotReported(fs.type_name.clone())) } else { Ok(()) }
}
