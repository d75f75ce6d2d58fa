//! Node blocks: an inode with the addresses of a file's first blocks, or the addresses of further ones.
//!
//! A node is known by its file and its number there: 0 is the inode. F2FS finds the others through the inode and indirect nodes, and
//! has both numbers in a node's footer; here the NAT has them, so that there are no indirect nodes (one for 1018 direct ones).

use super::Temperature;
use std::path::{Path, PathBuf};

/// A hole (`NULL_ADDR`).
pub const HOLE: u32 = 0;
/// Space without a place: it was allocated, or its data is in memory, and reads as zeroes from the drive (`NEW_ADDR`).
pub const RESERVED: u32 = u32::MAX;

/// Whether an address is a place on the drive.
pub fn is_place(address: u32) -> bool {
    address != HOLE && address != RESERVED
}

/// Checksum, version, inode, number, next, flags.
const HEADER: usize = 32;
/// Size, generation, temperature, length of the path, and the path.
const INODE: usize = 16 + PATH;
/// The longest path, in bytes.
pub const PATH: usize = 200;

/// How many addresses nodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    inode: u64,
    direct: u64,
}

impl Capacity {
    /// Of blocks of so many bytes, and at most `most` addresses of each.
    pub fn new(block_bytes: usize, most: u64) -> Self {
        let fit = |head: usize| ((block_bytes - head) as u64 / 4).min(most);
        let [inode, direct] = [HEADER + INODE, HEADER].map(fit);
        Self { inode, direct }
    }

    /// The node with the address of a block of a file, and the address's number there.
    pub fn slot(&self, block: u64) -> (u32, usize) {
        match block.checked_sub(self.inode) {
            None => (0, block as usize),
            Some(rest) => (1 + (rest / self.direct) as u32, (rest % self.direct) as usize),
        }
    }

    /// The first block of a file whose address is in this node.
    pub fn first(&self, node: u32) -> u64 {
        if node == 0 { 0 } else { self.inode + u64::from(node - 1) * self.direct }
    }

    /// Addresses in this node.
    pub fn of(&self, node: u32) -> usize {
        if node == 0 { self.inode as usize } else { self.direct as usize }
    }
}

/// What an inode says of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its path, which F2FS has in the inode, too (`i_name`), and besides in directories.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Its generation.
    pub generation: u32,
    /// Which log its data goes to.
    pub temperature: Temperature,
}

/// A node as a block holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBlock {
    /// The checkpoint before it: with an older one it is no part of a roll-forward.
    pub version: u64,
    /// Its file.
    pub inode: u32,
    /// Its number in the file.
    pub number: u32,
    /// Where the node is that is written after it.
    pub next: u32,
    /// Whether it is the last one of an fsync.
    pub mark: bool,
    /// Of an inode: its file.
    pub attributes: Option<Attributes>,
    /// The addresses.
    pub addresses: Vec<u32>,
}

impl NodeBlock {
    /// The bytes of the block.
    pub fn encode(&self, block_bytes: usize) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(block_bytes);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        for field in [self.inode, self.number, self.next, self.mark.into()] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.resize(HEADER, 0);
        if let Some(Attributes { path, size, generation, temperature }) = &self.attributes {
            let path = path.as_os_str().as_encoded_bytes();
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&generation.to_le_bytes());
            bytes.extend_from_slice(&(*temperature as u16).to_le_bytes());
            bytes.extend_from_slice(&(path.len() as u16).to_le_bytes());
            bytes.extend_from_slice(path);
            bytes.resize(HEADER + INODE, 0);
        }
        bytes.extend(self.addresses.iter().flat_map(|address| address.to_le_bytes()));
        bytes.resize(block_bytes, 0);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes.into()
    }

    /// The node in a block; `None` if there is none, or not all of one.
    pub fn decode(bytes: &[u8], capacity: Capacity) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if word(0)? != crc32c::crc32c(bytes.get(4..)?) {
            return None;
        }
        let number = word(16)?;
        let (attributes, head) = if number == 0 {
            let (temperature, length) = (word(HEADER + 12)? & 0xffff, word(HEADER + 12)? >> 16);
            let from = HEADER + 16;
            let path = std::str::from_utf8(bytes.get(from..from + length as usize)?).ok()?;
            let attributes = Attributes {
                path: Path::new(path).to_owned(),
                size: long(HEADER)?,
                generation: word(HEADER + 8)?,
                temperature: Temperature::from_number(temperature)?,
            };
            (Some(attributes), HEADER + INODE)
        } else {
            (None, HEADER)
        };
        let addresses = bytes.get(head..)?.chunks_exact(4).take(capacity.of(number));
        let addresses =
            addresses.map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
        Some(Self {
            version: long(4)?,
            inode: word(12)?,
            number,
            next: word(20)?,
            mark: word(24)? != 0,
            attributes,
            addresses: addresses.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_what_was_written_or_none() {
        let capacity = Capacity::new(4096, u64::MAX);
        let node = |number: u32, attributes| NodeBlock {
            version: 7,
            inode: 3,
            number,
            next: 99,
            mark: number > 0,
            attributes,
            addresses: (0..capacity.of(number) as u32).map(|n| n * n).collect(),
        };
        let (size, generation) = (5 << 33, 8);
        let path = PathBuf::from("/a/b");
        let file = Attributes { path, size, generation, temperature: Temperature::Cold };
        for node in [node(0, Some(file)), node(4, None)] {
            let mut bytes = node.encode(4096);
            assert_eq!(bytes.len(), 4096);
            assert_eq!(NodeBlock::decode(&bytes, capacity), Some(node));
            bytes[2000] ^= 1;
            assert_eq!(NodeBlock::decode(&bytes, capacity), None);
        }
        assert_eq!(NodeBlock::decode(&[0; 4096], capacity), None);
        for block in [0, 961, 962, 5_000_000] {
            let (node, slot) = capacity.slot(block);
            assert_eq!(capacity.first(node) + slot as u64, block);
            assert!(slot < capacity.of(node));
        }
    }
}
