//! Nodes of an extent tree (fs/ext4/ext4_extents.h), and the walk over one file's tree.
//!
//! The walk ends on any input: children must lie strictly forward in the file, so no node can be
//! reached twice, and the depth shrinks by one at each step.

use super::bytes::{crc32c, join, le16, le32};
use super::superblock::Superblock;
use fragmend_layout::{Extent, ExtentKind, Layout};

const MAGIC: u16 = 0xF30A;
const HEADER: usize = 12;
const ENTRY: usize = 12;
/// `EXT4_MAX_EXTENT_DEPTH`.
const MAX_DEPTH: u16 = 5;
/// Longer than this, a length means "unwritten, and this much less long".
const MAX_WRITTEN: u16 = 32768;

/// A reader of extent blocks: gives the block's bytes, valid until the next call for the same
/// depth.
pub(crate) trait Nodes {
    /// The node at a block number.
    fn node(&mut self, block: u64, depth: u16) -> Option<&[u8]>;
    /// Blocks that will be asked for soon.
    fn expect(&mut self, blocks: &mut Vec<u64>);
}

/// A parsed header; the entries follow it.
struct Header {
    entries: usize,
    depth: u16,
}

fn header(node: &[u8]) -> Option<Header> {
    let (entries, room) = (usize::from(le16(node, 2)?), usize::from(le16(node, 4)?));
    let depth = le16(node, 6)?;
    let valid = le16(node, 0)? == MAGIC
        && entries <= room
        && HEADER + room * ENTRY <= node.len()
        && depth <= MAX_DEPTH;
    valid.then_some(Header { entries, depth })
}

/// Whether the checksum behind a node's last possible entry holds.
fn checksum_holds(node: &[u8], seed: u32) -> Option<bool> {
    let end = HEADER + usize::from(le16(node, 4)?) * ENTRY;
    Some(le32(node, end)? == crc32c(seed, node.get(..end)?))
}

/// The blocks that a root's entries lead to; nothing for a leaf.
pub(crate) fn children(node: &[u8], sb: &Superblock, into: &mut Vec<u64>) {
    let Some(header) = header(node).filter(|h| h.depth > 0) else { return };
    into.extend((0..header.entries).filter_map(|i| index(node, i)).filter_map(|(_, block)| {
        let inside = block > sb.first_data_block && block < sb.blocks;
        inside.then_some(block)
    }));
}

/// Entry `i` of an index node: first file block, block of the child.
fn index(node: &[u8], i: usize) -> Option<(u32, u64)> {
    let at = HEADER + i * ENTRY;
    Some((le32(node, at)?, join(le32(node, at + 4)?, le16(node, at + 8)?.into())))
}

/// One file's walk.
pub(crate) struct TreeWalk<'a> {
    pub sb: &'a Superblock,
    /// Seed of the file's extent blocks; `None` without checksums.
    pub seed: Option<u32>,
    pub layout: &'a mut Layout,
    /// File block that the next extent may start at, at the earliest.
    next: u64,
}

impl<'a> TreeWalk<'a> {
    /// A walk that fills `layout`.
    pub fn new(sb: &'a Superblock, seed: Option<u32>, layout: &'a mut Layout) -> Self {
        Self { sb, seed, layout, next: 0 }
    }

    /// Walks from the root in the inode. `None` as soon as anything is not as it must be; the
    /// layout is then worth nothing.
    pub fn run(&mut self, root: &[u8], nodes: &mut impl Nodes) -> Option<()> {
        let depth = header(root)?.depth;
        self.visit(root, depth, u64::from(u32::MAX) + 1, nodes)
    }

    fn visit(&mut self, node: &[u8], depth: u16, end: u64, nodes: &mut impl Nodes) -> Option<()> {
        let header = header(node).filter(|h| h.depth == depth)?;
        if depth == 0 {
            return (0..header.entries).try_for_each(|i| self.leaf_entry(node, i, end));
        }
        if depth > 1 {
            let mut blocks = Vec::new();
            children(node, self.sb, &mut blocks);
            nodes.expect(&mut blocks);
        }
        for i in 0..header.entries {
            let (first, block) = index(node, i)?;
            let child_end = if i + 1 < header.entries { index(node, i + 1)?.0.into() } else { end };
            let forward = u64::from(first) >= self.next && u64::from(first) < child_end;
            if !forward || block <= self.sb.first_data_block || block >= self.sb.blocks {
                return None;
            }
            self.next = first.into();
            let child = nodes.node(block, depth - 1)?.to_vec();
            if let Some(seed) = self.seed
                && !checksum_holds(&child, seed)?
            {
                return None;
            }
            let before = self.next;
            self.visit(&child, depth - 1, child_end, nodes)?;
            // An empty node would let a small file keep a reader busy for ever.
            if self.next == before {
                return None;
            }
        }
        Some(())
    }

    fn leaf_entry(&mut self, node: &[u8], i: usize, end: u64) -> Option<()> {
        let at = HEADER + i * ENTRY;
        let first = u64::from(le32(node, at)?);
        let length = le16(node, at + 4)?;
        let start = join(le32(node, at + 8)?, le16(node, at + 6)?.into());
        let (blocks, kind) = match length {
            0 => return None,
            n if n <= MAX_WRITTEN => (u64::from(n), ExtentKind::Data),
            n => (u64::from(n - MAX_WRITTEN), ExtentKind::Unwritten),
        };
        let inside = start > self.sb.first_data_block && start + blocks <= self.sb.blocks;
        if first < self.next || first + blocks > end || !inside {
            return None;
        }
        self.next = first + blocks;
        let size = self.sb.block_bytes;
        self.layout.push(Extent {
            logical: first * size,
            physical: start * size,
            length: blocks * size,
            kind,
        });
        Some(())
    }
}
