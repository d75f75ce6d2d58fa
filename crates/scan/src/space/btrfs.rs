//! Space of Btrfs, in its logical address space, in which FIEMAP reports extents as well.
//!
//! A block group is for data, for metadata or for both. What is free in one that is for metadata alone cannot hold data of a
//! file, so all of it counts as metadata. Devices are divided as they are needed: what is in no block group yet has no
//! address, and is reported as a sum.

use super::{Collector, NotKnown, bits, not_known};
use crate::FileSystem;
use fragmend_layout::{ByteRange, SpaceKind};
use fragmend_sys::btrfs::space::{
    BlockGroup, BlockGroups, FreeSpace, SUPER_STRIPE, block_groups, free_space,
};
use fragmend_sys::root::Root;
use rustix::io::Errno;
use std::iter::Peekable;

pub(super) fn read(root: &Root, fs: &FileSystem, to: &mut Collector) -> Result<(), NotKnown> {
    let BlockGroups { groups, unallocated } = block_groups(root).map_err(|e| not_known(fs, e))?;
    to.unallocated(unallocated);
    let mut all = Groups { groups: groups.into_iter().peekable(), to };
    let read = free_space(root, |found| match found {
        FreeSpace::Run { start, length } => all.free(ByteRange::at(start, length)),
        FreeSpace::Bitmap { start, bits } => {
            let address = |bit: u64| start.saturating_add(bit.saturating_mul(fs.block_bytes));
            for (run, _) in bits::runs(bits).filter(|(_, is_free)| *is_free) {
                all.free(ByteRange { start: address(run.start), end: address(run.end) });
            }
        }
    });
    read.map_err(|e| match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => NotKnown::NoFreeSpaceTree,
        _ => not_known(fs, e),
    })?;
    all.pass(u64::MAX);
    Ok(())
}

/// The block groups that free space has not reached yet.
struct Groups<'a, I: Iterator<Item = BlockGroup>> {
    groups: Peekable<I>,
    to: &'a mut Collector,
}

impl<I: Iterator<Item = BlockGroup>> Groups<'_, I> {
    /// Adds the groups that end before `address`, or there.
    fn pass(&mut self, address: u64) {
        while let Some(group) = self.groups.next_if(|group| group.addresses.end <= address) {
            let BlockGroup { addresses, holds_data, .. } = group;
            self.to.reaches(addresses.end);
            if !holds_data {
                let range = ByteRange { start: addresses.start, end: addresses.end };
                self.to.add(SpaceKind::Metadata, range);
            }
        }
    }

    /// Adds what is free, if data may be there: without copies of the super block, which the tree has as free.
    fn free(&mut self, range: ByteRange) {
        self.pass(range.start);
        let Some(group) = self.groups.peek().filter(|group| group.holds_data) else { return };
        let mut rest =
            range.intersect(ByteRange { start: group.addresses.start, end: group.addresses.end });
        for at in &group.super_blocks {
            let stripe = ByteRange::at(*at, SUPER_STRIPE).intersect(rest);
            if !stripe.is_empty() {
                self.to.add(SpaceKind::Free, ByteRange { end: stripe.start, ..rest });
                self.to.add(SpaceKind::Metadata, stripe);
                rest.start = stripe.end;
            }
        }
        self.to.add(SpaceKind::Free, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SpaceKind::{Free, Metadata};

    #[test]
    fn free_space_counts_where_data_may_be() {
        let group = |addresses, holds_data, super_blocks| BlockGroup {
            addresses,
            holds_data,
            copies: 1,
            super_blocks,
        };
        let mib = |n: u64| n << 20;
        let groups = [
            group(mib(1)..mib(2), false, vec![]),
            group(mib(4)..mib(8), true, vec![mib(5), mib(6)]),
            group(mib(8)..mib(9), false, vec![]),
            group(mib(9)..mib(10), true, vec![]),
        ];
        let mut to = Collector::of(7, 4096, 99);
        let mut all = Groups { groups: groups.into_iter().peekable(), to: &mut to };
        for (start, end) in [
            (mib(1), mib(1) + 4096),
            // Across the copy at 5 MiB, and from within the one at 6 MiB on.
            (mib(5) - 4096, mib(5) + SUPER_STRIPE + 4096),
            (mib(6) + 4096, mib(7)),
            (mib(8), mib(9)),
            // Across the end of its group, which no tree has.
            (mib(9) + 4096, mib(11)),
            (mib(20), mib(21)),
        ] {
            all.free(ByteRange { start, end });
        }
        all.pass(u64::MAX);
        let found = to.finish();
        let runs: Vec<_> =
            found.space.runs.iter().map(|r| (r.kind, r.range.start, r.range.end)).collect();
        let expected = [
            (Metadata, mib(1), mib(2)),
            (Free, mib(5) - 4096, mib(5)),
            (Metadata, mib(5), mib(5) + SUPER_STRIPE),
            (Free, mib(5) + SUPER_STRIPE, mib(5) + SUPER_STRIPE + 4096),
            (Metadata, mib(6) + 4096, mib(6) + SUPER_STRIPE),
            (Free, mib(6) + SUPER_STRIPE, mib(7)),
            (Metadata, mib(8), mib(9)),
            (Free, mib(9) + 4096, mib(10)),
        ];
        assert_eq!(runs, expected);
        assert_eq!(found.space.bytes, mib(10));
    }
}
