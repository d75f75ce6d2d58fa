//! The super block and the group descriptors: where inode tables are, and whether this file system has only
//! features that are known here (fs/ext4/ext4.h: `struct ext4_super_block`, `struct ext4_group_desc`;
//! fs/ext4/super.c: `descriptor_loc`).
//!
//! A file system with other features is refused with a reason, and its files are read through FIEMAP.

use super::bytes::{crc32c, join, le16, le32};
use std::os::unix::fs::FileExt;

/// Incompatible features whose presence changes nothing that is read here, or is handled:
/// filetype, recover, meta_bg, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir,
/// inline_data, encrypt, casefold.
const INCOMPAT_KNOWN: u32 = 0x2
    | 0x4
    | INCOMPAT_META_BG
    | 0x40
    | INCOMPAT_64BIT
    | 0x100
    | 0x200
    | 0x400
    | INCOMPAT_CSUM_SEED
    | 0x4000
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_CSUM_SEED: u32 = 0x2000;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_BIGALLOC: u32 = 0x200;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
const RO_COMPAT_SHARED_BLOCKS: u32 = 0x4000;
const GROUP_INODE_UNINIT: u16 = 0x1;

/// The figures that are needed to find and check inodes. Blocks are file-system blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub block_bytes: u64,
    pub blocks: u64,
    pub first_data_block: u64,
    pub inode_bytes: usize,
    pub inodes: u32,
    pub inodes_per_group: u32,
    /// The seed of all checksums; `None` where metadata has no checksums.
    pub seed: Option<u32>,
    blocks_per_group: u64,
    descriptor_bytes: usize,
    meta_bg_from: Option<u64>,
    backups: Backups,
}

/// Which groups begin with a copy of the super block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    All,
    Sparse,
    Two([u32; 2]),
}

impl Superblock {
    /// Parses the 1024 bytes at offset 1024 of the device.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let u16_at = |at| le16(bytes, at).ok_or("the super block is cut short");
        let u32_at = |at| le32(bytes, at).ok_or("the super block is cut short");
        if u16_at(0x38)? != 0xEF53 {
            return Err("the device does not begin with an ext4 super block".into());
        }
        let (compat, incompat, ro_compat) = (u32_at(0x5C)?, u32_at(0x60)?, u32_at(0x64)?);
        let unknown = incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(format!("it has features not understood here ({unknown:#x})"));
        }
        if ro_compat & (RO_COMPAT_BIGALLOC | RO_COMPAT_SHARED_BLOCKS) != 0 {
            return Err("it has the feature bigalloc or shared_blocks".into());
        }
        let log = u32_at(0x18)?;
        let dynamic = u32_at(0x4C)? >= 1;
        let inode_bytes = if dynamic { usize::from(u16_at(0x58)?) } else { 128 };
        let is_64bit = incompat & INCOMPAT_64BIT != 0;
        let descriptor_bytes = if is_64bit { usize::from(u16_at(0xFE)?) } else { 32 };
        if log > 6 {
            return Err("its block size is out of range".into());
        }
        let block_bytes = 1024u64 << log;
        let sb = Self {
            block_bytes,
            blocks: join(u32_at(0x4)?, if is_64bit { u32_at(0x150)? } else { 0 }),
            first_data_block: u32_at(0x14)?.into(),
            inode_bytes,
            inodes: u32_at(0x0)?,
            inodes_per_group: u32_at(0x28)?,
            seed: match (ro_compat & RO_COMPAT_METADATA_CSUM, incompat & INCOMPAT_CSUM_SEED) {
                (0, _) => None,
                (_, 0) => Some(crc32c(!0, bytes.get(0x68..0x78).unwrap_or_default())),
                _ => Some(u32_at(0x270)?),
            },
            blocks_per_group: u32_at(0x20)?.into(),
            descriptor_bytes,
            meta_bg_from: (incompat & INCOMPAT_META_BG != 0)
                .then_some(u32_at(0x104)?)
                .map(u64::from),
            backups: if compat & COMPAT_SPARSE_SUPER2 != 0 {
                Backups::Two([u32_at(0x24C)?, u32_at(0x250)?])
            } else if ro_compat & RO_COMPAT_SPARSE_SUPER != 0 {
                Backups::Sparse
            } else {
                Backups::All
            },
        };
        let odd = !(128..=block_bytes as usize).contains(&inode_bytes)
            || !inode_bytes.is_power_of_two()
            || !(32..=1024).contains(&descriptor_bytes)
            || !descriptor_bytes.is_power_of_two()
            || (is_64bit && descriptor_bytes < 64)
            || sb.inodes_per_group == 0
            || !(1..=8 * block_bytes).contains(&sb.blocks_per_group)
            || sb.first_data_block > 1
            || sb.blocks <= sb.first_data_block
            || sb.blocks > u64::MAX / block_bytes / 2
            || sb.groups() != u64::from(sb.inodes.div_ceil(sb.inodes_per_group));
        if odd { Err("its super block contradicts itself".into()) } else { Ok(sb) }
    }

    fn groups(&self) -> u64 {
        (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group)
    }

    /// Reads all descriptors and returns each group's inode table as a byte address on the device; `None` where
    /// the group has no table in use or the address is impossible.
    pub fn inode_tables(&self, device: &std::fs::File) -> Result<Vec<Option<u64>>, String> {
        let per_block = self.block_bytes / self.descriptor_bytes as u64;
        let groups = self.groups();
        // An ext4 of full size has some 2^23 groups of this size; one with more is not an ext4.
        if groups > 1 << 24 {
            return Err("it claims too many block groups".into());
        }
        let mut tables = Vec::with_capacity(groups as usize);
        let mut block = vec![0; self.block_bytes as usize];
        for nr in 0..groups.div_ceil(per_block) {
            let at = self.descriptor_block(nr, per_block) * self.block_bytes;
            device
                .read_exact_at(&mut block, at)
                .map_err(|e| format!("its group descriptors cannot be read ({e})"))?;
            let here = (groups - nr * per_block).min(per_block) as usize;
            tables.extend(
                block.chunks_exact(self.descriptor_bytes).take(here).map(|d| self.table(d)),
            );
        }
        Ok(tables)
    }

    fn table(&self, descriptor: &[u8]) -> Option<u64> {
        let high = if self.descriptor_bytes >= 64 { le32(descriptor, 0x28)? } else { 0 };
        let block = join(le32(descriptor, 0x8)?, high);
        let bytes = u64::from(self.inodes_per_group) * self.inode_bytes as u64;
        let fits = block > self.first_data_block
            && block.checked_add(bytes.div_ceil(self.block_bytes))? <= self.blocks;
        let used = le16(descriptor, 0x12)? & GROUP_INODE_UNINIT == 0;
        (fits && used).then(|| block * self.block_bytes)
    }

    /// The block that holds the descriptors `nr * per_block ..`.
    fn descriptor_block(&self, nr: u64, per_block: u64) -> u64 {
        match self.meta_bg_from {
            Some(first) if nr >= first => {
                let group = nr * per_block;
                let has_super = u64::from(self.has_super(group as u32));
                self.first_data_block + group * self.blocks_per_group + has_super
            }
            // Right behind the super block, which is block 1 if blocks have a size of 1 KiB, and is in block 0
            // if they are larger.
            _ => 1024 / self.block_bytes + 1 + nr,
        }
    }

    fn has_super(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut n = group;
            while n > 1 && n.is_multiple_of(base) {
                n /= base;
            }
            n == 1
        };
        match self.backups {
            _ if group == 0 => true,
            Backups::All => true,
            Backups::Sparse => power_of(3) || power_of(5) || power_of(7),
            Backups::Two(groups) => groups.contains(&group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_are_refused() {
        assert!(Superblock::parse(&[]).is_err());
        assert!(Superblock::parse(&[0; 1024]).is_err());
        let mut bytes = [0xFF; 1024];
        bytes[0x38..0x3A].copy_from_slice(&0xEF53u16.to_le_bytes());
        assert!(Superblock::parse(&bytes).unwrap_err().contains("features"));
    }

    /// A small valid block: 1 KiB blocks, two groups, no features at all.
    fn small() -> [u8; 1024] {
        let mut good = [0u8; 1024];
        let mut put = |at: usize, v: u32| good[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put(0x0, 2048);
        put(0x4, 16384);
        put(0x14, 1);
        put(0x20, 8192);
        put(0x28, 1024);
        put(0x38, 0xEF53);
        good
    }

    #[test]
    fn every_single_byte_may_be_wrong() {
        let good = small();
        let sb = Superblock::parse(&good).unwrap();
        assert_eq!((sb.block_bytes, sb.groups(), sb.inode_bytes), (1024, 2, 128));
        for at in 0..good.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut bad = good;
                bad[at] = value;
                let _ = Superblock::parse(&bad);
            }
        }
    }

    #[test]
    fn sparse_backups_are_powers_of_three_five_and_seven() {
        let mut good = small();
        good[0x64..0x68].copy_from_slice(&RO_COMPAT_SPARSE_SUPER.to_le_bytes());
        let sb = Superblock::parse(&good).unwrap();
        let with: Vec<u32> = (0..82).filter(|g| sb.has_super(*g)).collect();
        assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
    }
}
