//! Copies that a drive with zones makes itself (InDeF, sections III-C and IV): the host allocates space at the write pointer of a zone,
//! and names the blocks that go there; their data crosses no link.
//!
//! What is dirty in memory is newer than what the drive has: it is split off and written by the host (the paper's dirty-page split),
//! between the copies, so that the range is in the order of its file.
//!
//! The host does not wait for a copy before it asks for the next one, so that dies which are done with one begin the next.
//!
//! **What is on the drive if power fails.** As in `mover`: the old blocks are held, and the new addresses are in memory alone until the
//! checkpoint, or an fsync, which waits for the copies and flushes them before it refers to them (`State::flush`).

use super::mount::damaged;
use super::node::is_place;
use super::state::{LogKind, Owner, State, add_block};
use crate::error::Error;
use crate::ranges::RangeSet;
use fragmend_flash::command::{Command, Units};
use std::ops::Range;

/// The most source blocks of one command.
const AT_ONCE: u64 = 1024;

impl State {
    /// Has the drive copy blocks of a file to the cold log, and writes what is dirty; returns how many the drive has copied.
    pub fn copy_in_device(&mut self, inode: u32, blocks: Range<u64>) -> Result<u64, Error> {
        let dirty: RangeSet = self.cache.dirty(inode.into(), blocks.clone()).into_iter().collect();
        let (mut rest, mut copied) = (blocks, 0);
        while !rest.is_empty() {
            if let Some(run) = dirty.at(rest.start) {
                let run = rest.start..run.end.min(rest.end);
                self.write_in_order(inode, run.clone())?;
                rest.start = run.end;
            } else {
                let next = dirty.within(rest.clone()).first().map_or(rest.end, |next| next.start);
                let end = self.copy_run(inode, rest.start..next)?;
                copied += end - rest.start;
                rest.start = end;
            }
        }
        Ok(copied)
    }

    /// Has the drive copy blocks, none of which is dirty, up to the end of the zone at most; returns the block after the last one.
    fn copy_run(&mut self, inode: u32, blocks: Range<u64>) -> Result<u64, Error> {
        let first = self.next_place(LogKind::Cold)?;
        let left = u64::from(self.geometry.section - first % self.geometry.section);
        let end = blocks.end.min(blocks.start + left.min(AT_ONCE));
        let file = self.files.get(inode)?;
        let mut from: Vec<Units> = Vec::new();
        let addresses = file.addresses(self.capacity, blocks.start..end);
        addresses.filter(|(_, a)| is_place(*a)).for_each(|(_, place)| add_block(&mut from, place));
        let zone = first / self.geometry.section;
        let done = self.machine.begin_command(&Command::InDeviceDefragment { from, zone })?;
        self.copies_end_ns = self.copies_end_ns.max(done.done_ns);
        if done.at != first {
            return Err(damaged(format!("the drive has copied to {}, not to {first}", done.at)));
        }
        self.writes += 1;
        for block in blocks.start..end {
            let place = self.allocate(LogKind::Cold, Owner { inode, number: block as u32 })?;
            self.set_address(inode, block, place)?;
        }
        let writes = self.writes;
        self.files.get_mut(inode)?.written = writes;
        self.counts.copied_in_device += end - blocks.start;
        Ok(end)
    }
}
