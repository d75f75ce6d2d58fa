//! Which accesses reach a device, and in which order: what is known of where the head of a disk was before each.

use super::join::Group;
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

/// How many accesses have reached each device.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    of_device: HashMap<u64, u32>,
}

impl Ranks {
    /// The rank of an access of a file among those that have reached its device, if they come in their order. What stands for
    /// others, at times that are not known, has none, and no two ranks before and behind it are neighbours.
    pub fn next(&mut self, file: FileId, access: &Access) -> u32 {
        let rank = self.of_device.entry(file.device).or_default();
        *rank = rank.saturating_add(1);
        if access.count == 1 && *rank < u32::MAX { *rank } else { 0 }
    }

    /// Puts the accesses of a row group behind those before it.
    pub fn go_on(&mut self, group: &mut Group) {
        for (file, _, rows) in &mut group.files {
            let before = self.of_device.get(&file.device).copied().unwrap_or_default();
            for access in rows.accesses.iter_mut().filter(|access| access.rank > 0) {
                access.rank = access.rank.checked_add(before).unwrap_or_default();
            }
        }
        for (device, ranks) in &group.ranks.of_device {
            let all = self.of_device.entry(*device).or_default();
            *all = all.saturating_add(*ranks);
        }
    }
}
