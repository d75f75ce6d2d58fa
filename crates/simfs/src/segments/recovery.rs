//! Roll-forward: what fsyncs have made durable since the last checkpoint.
//!
//! Nodes that were written after the checkpoint are a chain: the first one is where the checkpoint says, each names the place of the
//! next, and all have the checkpoint's version. A file is brought to the state of its last node with a mark; nodes behind that are of
//! an fsync, or a checkpoint, that did not end. The sections of the chain, and of what it leads to, are not free until the mount's
//! checkpoint is durable.

use super::files::{Node, new_file};
use super::mount::damaged;
use super::node::{HOLE, NodeBlock, is_place};
use super::sections::{Kind, State as Use};
use super::settings::Barrier;
use super::state::{LogKind, Owner, State};
use crate::error::Error;
use std::collections::BTreeMap;

impl State {
    /// Rolls forward; returns whether there was a node to look at.
    pub fn roll_forward(&mut self) -> Result<bool, Error> {
        let chain = self.chain();
        for (place, _) in &chain {
            self.in_use(*place, Kind::Node);
        }
        let marked = chain.iter().enumerate().filter(|(_, (_, block))| block.mark);
        let last: BTreeMap<u32, usize> = marked.map(|(at, (_, block))| (block.inode, at)).collect();
        let has_rolled = !chain.is_empty();
        for (at, (place, block)) in chain.into_iter().enumerate() {
            if last.get(&block.inode).is_some_and(|last| at <= *last) {
                self.take_over(place, block)?;
            }
        }
        Ok(has_rolled)
    }

    /// The nodes that were written since the checkpoint, with their places.
    fn chain(&self) -> Vec<(u32, NodeBlock)> {
        let log = self.logs[LogKind::Node as usize];
        let first = self.geometry.place(log.section, log.next);
        let mut chain: Vec<(u32, NodeBlock)> = Vec::new();
        let mut next = log.is_open.then_some(first);
        let most = self.geometry.sections * self.geometry.section;
        while let Some(place) = next.filter(|_| chain.len() < most as usize) {
            let found = self.node_at(place).filter(|block| {
                block.version == self.version || !self.keeps(Barrier::VersionInChain)
            });
            next = found.as_ref().map(|block| block.next);
            chain.extend(found.map(|block| (place, block)));
        }
        chain
    }

    /// A section that a block of the chain is in, or a block that it leads to, is not free.
    fn in_use(&mut self, place: u32, kind: Kind) -> (u32, u32) {
        let (section, offset) = self.locate(place);
        if self.sections.get(section).state == Use::Free {
            self.sections.occupy(section, Use::Closed, kind);
        }
        (section, offset)
    }

    /// Puts a node of the chain in the place of the one that the file has.
    fn take_over(&mut self, place: u32, block: NodeBlock) -> Result<(), Error> {
        let NodeBlock { inode, number, attributes, addresses, .. } = block;
        if self.files.get(inode).is_err() {
            let file = attributes.as_ref().map(|a| new_file(&a.path, a.generation, self.capacity));
            let file = file.ok_or_else(|| damaged(format!("inode {inode} is not in its fsync")))?;
            if !self.files.add(inode, file) {
                return Err(damaged(format!("the name of inode {inode} belongs to another file")));
            }
            self.next_inode = self.next_inode.max(inode + 1);
        }
        if let Some(attributes) = attributes {
            self.next_generation = self.next_generation.max(attributes.generation + 1);
            self.files.get_mut(inode)?.attributes = attributes;
        }
        let old = self.files.get_mut(inode)?.nodes.remove(&number);
        let old = old.unwrap_or_else(|| Node::empty(addresses.len()));
        let first = self.capacity.first(number);
        for (slot, (before, after)) in old.addresses.iter().zip(&addresses).enumerate() {
            if before != after {
                self.exchange(*before, *after, Kind::Data)?;
                self.own(inode, first + slot as u64, *after)?;
            }
        }
        self.exchange(old.place, place, Kind::Node)?;
        self.set_owner(place, Owner { inode, number });
        self.moved_nodes.insert((inode, number));
        self.files.get_mut(inode)?.nodes.insert(number, Node::read(place, addresses));
        Ok(())
    }

    /// One block becomes invalid, and another one valid.
    fn exchange(&mut self, before: u32, after: u32, kind: Kind) -> Result<(), Error> {
        if before != HOLE && is_place(before) {
            self.invalidate(before);
        }
        if is_place(after) {
            if !self.geometry.is_main(after) || self.is_valid(after) {
                return Err(damaged(format!("block {after} has two owners")));
            }
            let (section, offset) = self.in_use(after, kind);
            self.sections.add(section, offset, self.machine.now_ns());
        }
        Ok(())
    }
}
