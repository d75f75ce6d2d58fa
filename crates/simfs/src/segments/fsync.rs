//! Making one file durable without a checkpoint.
//!
//! 1. The file's dirty data is written, and flushed. A power cut before the end leaves the old addresses, whose blocks are held.
//! 2. Its dirty nodes are written to the node log; each names the place of the next one, and the last one has a mark. A power cut
//!    before the end leaves a chain without the mark, or a gap in the chain before it: the file is what it was.
//! 3. A flush. Now the chain from the last checkpoint up to the mark is durable: a mount takes over the nodes (`recovery.rs`), whose
//!    addresses lead to data that step 1 has made durable.
//!
//! F2FS flushes once, after step 3, unless it is mounted with `fsync_mode=strict`: on a drive that writes in an order of its own a
//! power cut may leave nodes there without their data. Here nothing is lost on any drive.

use super::node::HOLE;
use super::settings::Barrier;
use super::state::{Contents, LogKind, Owner, State, add_block};
use crate::error::Error;
use fragmend_flash::command::Units;

impl State {
    /// See [`crate::file_system::FileSystem::sync_file`].
    pub fn sync_file(&mut self, inode: u32) -> Result<(), Error> {
        self.write_back_file(inode)?;
        if self.needs_checkpoint(inode)? && self.keeps(Barrier::CheckpointForNames) {
            return self.checkpoint();
        }
        // This may move blocks of the file, or end in a checkpoint, which writes its nodes.
        self.make_space(self.dirty_nodes_of(inode).len() as u64)?;
        let nodes = self.dirty_nodes_of(inode);
        let is_written = self.files.get(inode)?.written > self.flushed;
        // Without a dirty node, it may have been overwritten in place.
        if is_written && (nodes.is_empty() || self.keeps(Barrier::DataBeforeNodes)) {
            self.flush()?;
        }
        if nodes.is_empty() {
            return Ok(());
        }
        self.write_nodes(&nodes, true)?;
        if self.keeps(Barrier::FlushAfterNodes) { self.flush() } else { Ok(()) }
    }

    fn dirty_nodes_of(&self, inode: u32) -> Vec<(u32, u32)> {
        self.dirty_nodes.range((inode, 0)..=(inode, u32::MAX)).copied().collect()
    }

    /// Whether a roll-forward cannot repeat what has happened to a file since the last checkpoint: it lost a node, or its name is
    /// another one, or is one that another file had.
    fn needs_checkpoint(&self, inode: u32) -> Result<bool, Error> {
        let file = self.files.get(inode)?;
        Ok(self.unrepeatable.contains(&inode) || self.retired.contains(&file.attributes.path))
    }

    /// Writes nodes to the node log; `marked` sets the mark of an fsync on the last one.
    ///
    /// # Errors
    /// No section is free, or the drive refuses.
    pub fn write_nodes(&mut self, nodes: &[(u32, u32)], marked: bool) -> Result<(), Error> {
        let mut rest = nodes;
        while !rest.is_empty() {
            rest = self.write_some_nodes(rest, marked)?;
        }
        Ok(())
    }

    /// Writes nodes up to the end of the log's section, or all; returns the others.
    fn write_some_nodes<'n>(
        &mut self,
        nodes: &'n [(u32, u32)],
        marked: bool,
    ) -> Result<&'n [(u32, u32)], Error> {
        let log = self.logs[LogKind::Node as usize];
        let left =
            if log.is_open { self.geometry.section - log.next } else { self.geometry.section };
        let (these, others) = nodes.split_at(nodes.len().min(left as usize));
        let owners = these.iter().map(|(inode, number)| Owner { inode: *inode, number: *number });
        let places: Vec<u32> =
            owners.map(|owner| self.allocate(LogKind::Node, owner)).collect::<Result<_, _>>()?;
        // Where the chain goes on. Without a free section it ends: the next node is written after a checkpoint.
        let behind = self.next_place(LogKind::Node).unwrap_or(HOLE);
        let (mut units, mut contents) = (Vec::<Units>::new(), Contents::new());
        for (at, (inode, number)) in these.iter().enumerate() {
            add_block(&mut units, places[at]);
            if self.machine.keeps_content() {
                let mut block = self.files.node_block(*inode, *number, self.version)?;
                block.mark = marked && others.is_empty() && at + 1 == these.len();
                block.next = places.get(at + 1).copied().unwrap_or(behind);
                contents.insert(places[at], block.encode(self.geometry.block_bytes));
            }
        }
        self.put(&units, &mut contents)?;
        for ((inode, number), place) in these.iter().zip(places) {
            self.node_moved(*inode, *number, place)?;
        }
        Ok(others)
    }

    /// A node has a new place, where it is as it is in memory.
    fn node_moved(&mut self, inode: u32, number: u32, place: u32) -> Result<(), Error> {
        let file = self.files.get_mut(inode)?;
        let node = file.nodes.get_mut(&number).ok_or(Error::Gone)?;
        let before = std::mem::replace(&mut node.place, place);
        node.dirty = false;
        self.dirty_nodes.remove(&(inode, number));
        self.moved_nodes.insert((inode, number));
        if before != HOLE {
            self.invalidate(before);
        }
        Ok(())
    }
}
