//! Which accesses reach a device, and which of them follow each other there: what is known of where the head of a disk
//! was before each.

use crate::{Access, Op};
use fragmend_layout::FileId;
use std::collections::HashMap;

/// What is taken to reach the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// What missed the page cache; otherwise what programs ask for. Direct I/O does in any case.
    pub misses: bool,
}

impl Reached {
    /// Whether an access does.
    pub fn has(self, access: &Access) -> bool {
        access.direct
            || match access.op {
                Op::Miss => self.misses,
                Op::Read | Op::Fault => !self.misses,
                Op::Write => false,
            }
    }
}

/// The file that was accessed last on each device.
#[derive(Default)]
pub(super) struct Heads {
    last: HashMap<u64, FileId>,
}

impl Heads {
    /// Whether the access before this one on its device was one of the same file; accesses come in their order. What stands
    /// for others, at times that are not known, follows nothing, and nothing follows it.
    pub fn follows(&mut self, file: FileId, access: &Access) -> bool {
        if access.count != 1 {
            self.last.remove(&file.device);
            return false;
        }
        self.last.insert(file.device, file) == Some(file)
    }
}
