//! Files in memory: their nodes with all addresses, and their names.

use super::Temperature;
use super::node::{Attributes, Capacity, HOLE, NodeBlock, is_place};
use crate::error::Error;
use fragmend_layout::{Extent, ExtentKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A node, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where its block is; [`HOLE`] if it was never written.
    pub place: u32,
    /// Whether the block is older than the node.
    pub dirty: bool,
    /// The addresses.
    pub addresses: Vec<u32>,
    /// How many of them are no holes.
    pub used: u32,
}

impl Node {
    /// A node without addresses, which has no block yet.
    pub fn empty(addresses: usize) -> Self {
        Self { place: HOLE, dirty: false, addresses: vec![HOLE; addresses], used: 0 }
    }

    /// A node that was read from its block.
    pub fn read(place: u32, addresses: Vec<u32>) -> Self {
        let used = addresses.iter().filter(|address| **address != HOLE).count() as u32;
        Self { place, dirty: false, addresses, used }
    }
}

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// Path, size, generation, temperature.
    pub attributes: Attributes,
    /// Its nodes; the inode is there always.
    pub nodes: BTreeMap<u32, Node>,
    /// The number of its last write of data, among all writes.
    pub written: u64,
}

impl File {
    /// The address of a block.
    pub fn address(&self, capacity: Capacity, block: u64) -> u32 {
        let (number, slot) = capacity.slot(block);
        self.nodes.get(&number).map_or(HOLE, |node| node.addresses[slot])
    }

    /// The blocks in `range` that are no holes, with their addresses, in the order of the file.
    pub fn addresses(
        &self,
        capacity: Capacity,
        range: Range<u64>,
    ) -> impl Iterator<Item = (u64, u32)> + '_ {
        let nodes = self.nodes.range(capacity.slot(range.start).0..);
        let end = range.end;
        nodes.take_while(move |(number, _)| capacity.first(**number) < end).flat_map(
            move |(number, node)| {
                let first = capacity.first(*number);
                let from = range.start.saturating_sub(first) as usize;
                let to = (end - first).min(node.addresses.len() as u64) as usize;
                let slots = node.addresses.get(from..to).unwrap_or_default().iter();
                let numbered = (first + from as u64..).zip(slots.copied());
                numbered.filter(|(_, address)| *address != HOLE)
            },
        )
    }

    /// The extents in `range`, in bytes. Space without a place is delayed where `is_dirty`, and else was never written.
    pub fn extents(
        &self,
        capacity: Capacity,
        block_bytes: u64,
        range: Range<u64>,
        is_dirty: impl Fn(u64) -> bool,
    ) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for (block, address) in self.addresses(capacity, range) {
            let kind = match address {
                _ if is_place(address) => ExtentKind::Data,
                _ if is_dirty(block) => ExtentKind::Delayed,
                _ => ExtentKind::Unwritten,
            };
            let physical =
                if kind == ExtentKind::Data { u64::from(address) * block_bytes } else { 0 };
            let logical = block * block_bytes;
            let last = extents.last_mut().filter(|last| {
                last.kind == kind
                    && last.range().end == logical
                    && (kind != ExtentKind::Data || last.physical_end() == physical)
            });
            match last {
                Some(last) => last.length += block_bytes,
                None => extents.push(Extent { logical, physical, length: block_bytes, kind }),
            }
        }
        extents
    }
}

/// All files, and their names.
#[derive(Clone, Debug, Default)]
pub struct Files {
    by_inode: BTreeMap<u32, File>,
    names: BTreeMap<PathBuf, u32>,
}

impl Files {
    /// A file.
    ///
    /// # Errors
    /// It is gone.
    pub fn get(&self, inode: u32) -> Result<&File, Error> {
        self.by_inode.get(&inode).ok_or(Error::Gone)
    }

    /// The same, to change it.
    ///
    /// # Errors
    /// It is gone.
    pub fn get_mut(&mut self, inode: u32) -> Result<&mut File, Error> {
        self.by_inode.get_mut(&inode).ok_or(Error::Gone)
    }

    /// All files, by their inodes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &File)> {
        self.by_inode.iter().map(|(inode, file)| (*inode, file))
    }

    /// The file with this name.
    pub fn named(&self, path: &Path) -> Option<u32> {
        self.names.get(path).copied()
    }

    /// How many names there are.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Adds a file under its path; returns false, and adds nothing, if another has that.
    pub fn add(&mut self, inode: u32, file: File) -> bool {
        let path = &file.attributes.path;
        if self.names.contains_key(path) {
            return false;
        }
        self.names.insert(path.clone(), inode);
        self.by_inode.insert(inode, file);
        true
    }

    /// Removes a file, with its name; returns it.
    pub fn remove(&mut self, inode: u32) -> Option<File> {
        let file = self.by_inode.remove(&inode)?;
        self.names.remove(&file.attributes.path);
        Some(file)
    }

    /// Gives a file another name, which none has.
    ///
    /// # Errors
    /// It is gone.
    pub fn rename(&mut self, inode: u32, to: &Path) -> Result<(), Error> {
        let file = self.by_inode.get_mut(&inode).ok_or(Error::Gone)?;
        let from = std::mem::replace(&mut file.attributes.path, to.to_owned());
        self.names.remove(&from);
        self.names.insert(to.to_owned(), inode);
        Ok(())
    }

    /// The block that a node is written as.
    ///
    /// # Errors
    /// The file is gone, or has no such node.
    pub fn node_block(&self, inode: u32, number: u32, version: u64) -> Result<NodeBlock, Error> {
        let file = self.get(inode)?;
        let node = file.nodes.get(&number).ok_or(Error::Gone)?;
        let attributes = (number == 0).then(|| file.attributes.clone());
        let addresses = node.addresses.clone();
        Ok(NodeBlock { version, inode, number, next: HOLE, mark: false, attributes, addresses })
    }
}

/// A new file without blocks.
pub fn new_file(path: &Path, generation: u32, capacity: Capacity) -> File {
    let temperature = Temperature::Warm;
    let attributes = Attributes { path: path.to_owned(), size: 0, generation, temperature };
    let nodes = BTreeMap::from([(0, Node::empty(capacity.of(0)))]);
    File { attributes, nodes, written: 0 }
}
