//! Nodes of an extent tree (fs/ext4/ext4_extents.h), and the walk over one file's tree.
//!
//! The walk ends on any input: children must be strictly forward in the file, so no node can be reached twice,
//! and the depth shrinks by one at each step.

use super::bytes::{crc32c, join, le16, le32};
use super::superblock::Superblock;
use fragmend_layout::{Extent, ExtentKind, Layout};

const MAGIC: u16 = 0xF30A;
const HEADER: usize = 12;
const ENTRY: usize = 12;
/// `EXT4_MAX_EXTENT_DEPTH`.
const MAX_DEPTH: u16 = 5;
/// A larger length means an unwritten extent that is shorter by this much.
const MAX_WRITTEN: u16 = 32768;

/// Reads extent blocks.
pub(crate) trait Nodes {
    /// The bytes of the node at a block number, valid until the next call for the same depth.
    fn node(&mut self, block: u64, depth: u16) -> Option<&[u8]>;
    /// Announces blocks that will be read soon.
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

/// Whether the checksum after a node's last possible entry is right.
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

/// The walk over one file's tree.
pub(crate) struct TreeWalk<'a> {
    pub sb: &'a Superblock,
    /// Seed of the file's extent blocks; `None` without checksums.
    pub seed: Option<u32>,
    pub layout: &'a mut Layout,
    /// The first file block at which the next extent may start.
    next: u64,
}

impl<'a> TreeWalk<'a> {
    /// A walk that fills `layout`.
    pub fn new(sb: &'a Superblock, seed: Option<u32>, layout: &'a mut Layout) -> Self {
        Self { sb, seed, layout, next: 0 }
    }

    /// Walks from the root in the inode. Returns `None` as soon as something is invalid; the layout must then
    /// not be used.
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
            // A chain of empty nodes would let a small file keep a reader busy for ever.
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

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::FileId;
    use std::collections::BTreeMap;

    const BLOCK: usize = 1024;
    const SEED: u32 = 77;

    /// Extent blocks in memory.
    struct Memory(BTreeMap<u64, Vec<u8>>);

    impl Nodes for Memory {
        fn node(&mut self, block: u64, _depth: u16) -> Option<&[u8]> {
            self.0.get(&block).map(Vec::as_slice)
        }
        fn expect(&mut self, _blocks: &mut Vec<u64>) {}
    }

    fn superblock() -> Superblock {
        let mut bytes = [0u8; 1024];
        let mut put = |at: usize, v: u32| bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put(0x0, 2048);
        put(0x4, 16384);
        put(0x14, 1);
        put(0x20, 8192);
        put(0x28, 1024);
        put(0x38, 0xEF53);
        Superblock::parse(&bytes).unwrap()
    }

    /// A node with entries (first file block, length or 0 for an index, block).
    fn node(bytes: usize, depth: u16, entries: &[(u32, u16, u32)]) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let room = ((bytes - HEADER - 4) / ENTRY) as u16;
        let mut put16 = |at: usize, v: u16| out[at..at + 2].copy_from_slice(&v.to_le_bytes());
        put16(0, MAGIC);
        put16(2, entries.len() as u16);
        put16(4, room);
        put16(6, depth);
        for (i, (first, length, block)) in entries.iter().enumerate() {
            let at = HEADER + i * ENTRY;
            out[at..at + 4].copy_from_slice(&first.to_le_bytes());
            if depth == 0 {
                out[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
                out[at + 8..at + 12].copy_from_slice(&block.to_le_bytes());
            } else {
                out[at + 4..at + 8].copy_from_slice(&block.to_le_bytes());
            }
        }
        let end = HEADER + usize::from(room) * ENTRY;
        let sum = crc32c(SEED, &out[..end]);
        out[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn walk(root: &[u8], blocks: &BTreeMap<u64, Vec<u8>>, seed: Option<u32>) -> Option<Layout> {
        let sb = superblock();
        let mut layout = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 0);
        TreeWalk::new(&sb, seed, &mut layout).run(root, &mut Memory(blocks.clone()))?;
        Some(layout)
    }

    fn two_levels() -> (Vec<u8>, BTreeMap<u64, Vec<u8>>) {
        let root = node(60, 2, &[(0, 0, 100)]);
        let blocks = BTreeMap::from([
            (100, node(BLOCK, 1, &[(0, 0, 101), (50, 0, 102)])),
            (101, node(BLOCK, 0, &[(0, 10, 1000), (20, 32768 + 5, 2000)])),
            (102, node(BLOCK, 0, &[(50, 1, 3000), (51, 1, 3001)])),
        ]);
        (root, blocks)
    }

    #[test]
    fn a_deep_tree_is_read_in_file_order() {
        let (root, blocks) = two_levels();
        let layout = walk(&root, &blocks, Some(SEED)).unwrap();
        let found: Vec<_> =
            layout.extents().iter().map(|e| (e.logical, e.physical, e.length, e.kind)).collect();
        let kib = |n: u64| n * 1024;
        assert_eq!(
            found,
            [
                (0, kib(1000), kib(10), ExtentKind::Data),
                (kib(20), kib(2000), kib(5), ExtentKind::Unwritten),
                (kib(50), kib(3000), kib(2), ExtentKind::Data),
            ]
        );
    }

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        let (root, blocks) = two_levels();
        for at in 0..BLOCK - 4 {
            for bit in 0..8 {
                let mut bad = blocks.clone();
                bad.get_mut(&101).unwrap()[at] ^= 1 << bit;
                let last = HEADER + (BLOCK - HEADER - 4) / ENTRY * ENTRY + 4;
                assert!(at >= last || walk(&root, &bad, Some(SEED)).is_none(), "{at} {bit}");
            }
        }
    }

    #[test]
    fn without_checksums_damage_ends_the_walk_and_never_the_program() {
        let (root, blocks) = two_levels();
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for _ in 0..20_000 {
            let (mut root, mut blocks) = (root.clone(), blocks.clone());
            for _ in 0..=random(4) {
                let value = random(256) as u8;
                match random(4) {
                    0 => root[random(60)] = value,
                    n => blocks.get_mut(&(99 + n as u64)).unwrap()[random(64)] = value,
                }
            }
            if let Some(layout) = walk(&root, &blocks, None) {
                let forward = |w: &[Extent]| w[0].range().end <= w[1].logical;
                assert!(layout.extents().windows(2).all(forward));
            }
        }
    }

    #[test]
    fn a_tree_that_leads_back_to_itself_ends() {
        let root = node(60, 5, &[(0, 0, 100)]);
        let blocks = BTreeMap::from([(100, node(BLOCK, 4, &[(0, 0, 100), (1, 0, 100)]))]);
        assert_eq!(walk(&root, &blocks, None), None);
    }
}
