//! One inode of an inode table (fs/ext4/ext4.h: `struct ext4_inode`), checked before anything in it is
//! believed.

use super::bytes::{crc32c, join, le16, le32};
use super::superblock::Superblock;

const FLAG_ENCRYPT: u32 = 0x800;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;
const I_BLOCK: usize = 0x28;
const CHECKSUM_LOW: usize = 0x7C;
const CHECKSUM_HIGH: usize = 0x82;
const OLD_SIZE: usize = 128;

/// The contents of an inode that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inode<'a> {
    pub generation: u32,
    /// Size of the file, in bytes.
    pub size: u64,
    pub content: Content<'a>,
    /// Seed for the checksums of its extent blocks.
    pub seed: Option<u32>,
}

/// Where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// The root node of an extent tree.
    Tree(&'a [u8]),
    /// In the inode itself, from this offset of the inode on.
    Inline(usize),
}

impl<'a> Inode<'a> {
    /// Parses inode `number`. Returns `None` when it is not a regular file in use, when its checksum is wrong,
    /// or when it is of a kind that only the kernel should interpret.
    pub fn parse(sb: &Superblock, number: u32, bytes: &'a [u8]) -> Option<Self> {
        let generation = le32(bytes, 0x64)?;
        let seed =
            sb.seed.map(|fs| crc32c(crc32c(fs, &number.to_le_bytes()), &generation.to_le_bytes()));
        if let Some(seed) = seed
            && !checksum_holds(seed, bytes)?
        {
            return None;
        }
        let (mode, links) = (le16(bytes, 0)?, le16(bytes, 0x1A)?);
        if mode & 0xF000 != 0x8000 || links == 0 {
            return None;
        }
        let flags = le32(bytes, 0x20)?;
        if flags & (FLAG_ENCRYPT | FLAG_EA_INODE) != 0 {
            return None;
        }
        let content = if flags & FLAG_INLINE_DATA != 0 {
            Content::Inline(I_BLOCK)
        } else if flags & FLAG_EXTENTS != 0 {
            Content::Tree(bytes.get(I_BLOCK..I_BLOCK + 60)?)
        } else {
            return None;
        };
        let size = join(le32(bytes, 0x4)?, le32(bytes, 0x6C)?);
        (size <= i64::MAX as u64).then_some(Self { generation, size, content, seed })
    }
}

/// Whether the checksum is right. It covers the whole inode with its own two halves as zeroes; the upper half
/// exists only where the inode has space for it.
fn checksum_holds(seed: u32, bytes: &[u8]) -> Option<bool> {
    let mut sum = crc32c(seed, bytes.get(..CHECKSUM_LOW)?);
    sum = crc32c(sum, &[0; 2]);
    sum = crc32c(sum, bytes.get(CHECKSUM_LOW + 2..OLD_SIZE)?);
    let mut stored = u32::from(le16(bytes, CHECKSUM_LOW)?);
    if bytes.len() == OLD_SIZE {
        return Some(stored == sum & 0xFFFF);
    }
    let has_high = usize::from(le16(bytes, OLD_SIZE)?) >= CHECKSUM_HIGH + 2 - OLD_SIZE;
    if !has_high {
        sum = crc32c(sum, bytes.get(OLD_SIZE..)?);
        return Some(stored == sum & 0xFFFF);
    }
    sum = crc32c(sum, bytes.get(OLD_SIZE..CHECKSUM_HIGH)?);
    sum = crc32c(sum, &[0; 2]);
    sum = crc32c(sum, bytes.get(CHECKSUM_HIGH + 2..)?);
    stored |= u32::from(le16(bytes, CHECKSUM_HIGH)?) << 16;
    Some(stored == sum)
}
