//! Which accesses reach a device, and in which order: what is known of where the head of a disk was before each.

use super::join::Group;
use crate::meta::DeviceMeta;
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

/// Which files are on one disk: subvolumes have a device number each, and so have partitions, but one head reads them all.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    /// By the device number of the file system.
    of_device: HashMap<u64, u64>,
    /// Of a subvolume that was not named, where all others are on one.
    of_others: Option<u64>,
}

impl Disks {
    /// Those below these file systems. Of several below one, the first stands for all.
    pub fn of(devices: &[DeviceMeta]) -> Self {
        let disk = |device: &DeviceMeta| Some((device.device, *device.disks.first()?));
        let of_device: HashMap<u64, u64> = devices.iter().filter_map(disk).collect();
        let of_others = of_device.values().next().copied();
        let of_others = of_others.filter(|one| of_device.values().all(|disk| disk == one));
        Self { of_device, of_others }
    }

    /// The disk of a file; its device where that is not known.
    fn below(&self, file: FileId) -> u64 {
        self.of_device.get(&file.device).copied().or(self.of_others).unwrap_or(file.device)
    }
}

/// How many accesses have reached each disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    of_disk: HashMap<u64, u32>,
}

impl Ranks {
    /// The rank of an access of a file among those that have reached its disk, if they come in their order. What stands for
    /// others, at times that are not known, has none, and no two ranks before and behind it are neighbours.
    pub fn next(&mut self, disks: &Disks, file: FileId, access: &Access) -> u32 {
        let rank = self.of_disk.entry(disks.below(file)).or_default();
        *rank = rank.saturating_add(1);
        if access.count == 1 && *rank < u32::MAX { *rank } else { 0 }
    }

    /// Puts the accesses of a row group behind those before it.
    pub fn go_on(&mut self, disks: &Disks, group: &mut Group) {
        for (file, _, rows) in &mut group.files {
            let before = self.of_disk.get(&disks.below(*file)).copied().unwrap_or_default();
            for rank in rows.ranks.iter_mut().filter(|rank| **rank > 0) {
                *rank = rank.checked_add(before).unwrap_or_default();
            }
        }
        for (disk, ranks) in &group.ranks.of_disk {
            let all = self.of_disk.entry(*disk).or_default();
            *all = all.saturating_add(*ranks);
        }
    }
}
