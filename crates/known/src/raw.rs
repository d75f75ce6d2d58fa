//! Images of disks in raw format: a file that begins as a disk does, with a table of partitions or a file system.
//!
//! Two bytes of a boot sector prove nothing, so more is demanded: of a GPT (UEFI 2.10, section 5.3) its header, which says
//! where it is itself, and its protective boot sector; of a boot sector, four entries that can be ones, without overlap; of
//! both, and of file systems, that what they describe ends within the file.

use crate::bytes::{be16, be32, be64, le16, le32, le64};
use crate::{Candidate, Known};

const ADVICE: (&str, &str) = (
    "allocate the whole disk before the guest first writes: qemu-img create -f raw -o preallocation=falloc; fallocate -l SIZE IMAGE does that to an image that exists",
    "https://www.qemu.org/docs/master/system/images.html, fallocate(1)",
);
/// Bytes of a sector. Disks of longer ones are not recognised by their partitions.
const SECTOR: u64 = 512;
/// The kind of the entry by which a GPT protects itself from programs that know boot sectors only.
const PROTECTIVE: u8 = 0xEE;

/// What a disk begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A GPT with so many partitions.
    Gpt(usize),
    /// A table of primary partitions in the boot sector, with so many of them.
    BootSector(usize),
    /// A file system.
    FileSystem(&'static str),
}

impl Content {
    /// What a file of `size` bytes begins with; `head` is its first bytes, and `read` fills a buffer from an offset on, or
    /// returns false.
    pub fn of(head: &[u8], size: u64, read: impl Fn(&mut [u8], u64) -> bool) -> Option<Self> {
        gpt(head, size, &read)
            .map(Self::Gpt)
            .or_else(|| ext(head, size).map(Self::FileSystem))
            .or_else(|| f2fs(head, size).then_some(Self::FileSystem("F2FS")))
            .or_else(|| xfs(head, size).then_some(Self::FileSystem("XFS")))
            .or_else(|| btrfs(size, &read).then_some(Self::FileSystem("Btrfs")))
            .or_else(|| boot_sector(head, size).map(Self::BootSector))
    }
}

/// The partitions in a boot sector: of each its kind, and its first sector and their number.
fn entries(head: &[u8]) -> Option<impl Iterator<Item = (u8, u64, u64)>> {
    let table = head.get(446..510).filter(|_| head.get(510..512) == Some(&[0x55, 0xAA]))?;
    let are_sound = table.chunks_exact(16).all(|entry| [0, 0x80].contains(&entry[0]));
    let used = table.chunks_exact(16).filter_map(|entry| {
        Some((entry[4], u64::from(le32(entry, 8)?), u64::from(le32(entry, 12)?)))
    });
    are_sound.then(|| used.filter(|(kind, ..)| *kind != 0))
}

/// The partitions of a GPT.
fn gpt(head: &[u8], size: u64, read: &impl Fn(&mut [u8], u64) -> bool) -> Option<usize> {
    const REVISION: u32 = 0x1_0000;
    /// Entries that are read.
    const MOST: u32 = 128;
    if !entries(head)?.any(|(kind, ..)| kind == PROTECTIVE) {
        return None;
    }
    let header = head.get(512..1024).filter(|header| header.starts_with(b"EFI PART"))?;
    let (this, other, table) = (le64(header, 24)?, le64(header, 32)?, le64(header, 72)?);
    let (count, entry_bytes) = (le32(header, 80)?, le32(header, 84)?);
    let ends = other.checked_add(1).and_then(|sectors| sectors.checked_mul(SECTOR));
    let is_sound = le32(header, 8)? == REVISION
        && (92..=512).contains(&le32(header, 12)?)
        && this == 1
        && ends.is_some_and(|ends| ends <= size)
        && entry_bytes == 128;
    let mut table_bytes = vec![0; 128 * count.min(MOST) as usize];
    if !is_sound || !read(&mut table_bytes, table.checked_mul(SECTOR)?) {
        return None;
    }
    let is_used = |entry: &&[u8]| entry[..16].iter().any(|byte| *byte != 0);
    Some(table_bytes.chunks_exact(128).filter(is_used).count())
}

/// The partitions of a boot sector that has no GPT behind it.
fn boot_sector(head: &[u8], size: u64) -> Option<usize> {
    let mut partitions: Vec<_> = entries(head)?.collect();
    partitions.sort_by_key(|(_, start, _)| *start);
    let mut behind = 1;
    for &(kind, start, sectors) in &partitions {
        if kind == PROTECTIVE || start < behind || sectors == 0 {
            return None;
        }
        behind = start + sectors;
    }
    (!partitions.is_empty() && behind * SECTOR <= size).then_some(partitions.len())
}

/// Whether so many blocks of 2^`shift` bytes are some, and within a file.
fn fits(blocks: u64, shift: u32, size: u64) -> bool {
    blocks > 0 && blocks.checked_mul(1 << shift).is_some_and(|bytes| bytes <= size)
}

/// ext2, ext3 or ext4 (fs/ext4/ext4.h).
fn ext(head: &[u8], size: u64) -> Option<&'static str> {
    const HAS_JOURNAL: u32 = 4;
    const EXTENTS: u32 = 0x40;
    const WIDE: u32 = 0x80;
    let block = head.get(1024..).filter(|block| le16(block, 56) == Some(0xEF53))?;
    let shift = le32(block, 24).filter(|log| *log <= 6)?;
    let (compatible, incompatible) = (le32(block, 92)?, le32(block, 96)?);
    let high = if incompatible & WIDE == 0 { 0 } else { le32(block, 0x150)? };
    let blocks = u64::from(high) << 32 | u64::from(le32(block, 4)?);
    let is_sound = fits(blocks, 10 + shift, size)
        && le32(block, 20)? == u32::from(shift == 0)
        && le32(block, 32)? > 0
        && le32(block, 40)? > 0;
    is_sound.then_some(match (incompatible & EXTENTS, compatible & HAS_JOURNAL) {
        (0, 0) => "ext2",
        (0, _) => "ext3",
        _ => "ext4",
    })
}

/// F2FS (include/linux/f2fs_fs.h).
fn f2fs(head: &[u8], size: u64) -> bool {
    let Some(block) = head.get(1024..) else { return false };
    let shift = le32(block, 16).filter(|log| (12..=16).contains(log));
    let blocks = le64(block, 36).zip(shift);
    le32(block, 0) == Some(0xF2F5_2010)
        && blocks.is_some_and(|(blocks, shift)| fits(blocks, shift, size))
}

/// XFS (fs/xfs/libxfs/xfs_format.h).
fn xfs(head: &[u8], size: u64) -> bool {
    let shift =
        be32(head, 4).filter(|bytes| bytes.is_power_of_two() && (512..=1 << 16).contains(bytes));
    let blocks = be64(head, 8).zip(shift);
    let version = be16(head, 100).map(|version| version & 0xF);
    head.starts_with(b"XFSB")
        && version.is_some_and(|version| (4..=5).contains(&version))
        && blocks.is_some_and(|(blocks, bytes)| fits(blocks, bytes.trailing_zeros(), size))
}

/// Btrfs (include/uapi/linux/btrfs_tree.h).
fn btrfs(size: u64, read: &impl Fn(&mut [u8], u64) -> bool) -> bool {
    const AT: u64 = 64 << 10;
    /// Of the item of this device: its bytes.
    const DEVICE_BYTES: usize = 0xC9 + 8;
    let mut block = [0; 512];
    size > AT
        && read(&mut block, AT)
        && block[64..72] == *b"_BHRfS_M"
        && le64(&block, 48) == Some(AT)
        && le64(&block, DEVICE_BYTES).is_some_and(|bytes| fits(bytes, 0, size))
}

/// An image.
pub fn known(file: &Candidate) -> Option<Known> {
    let content = Content::of(&file.head, file.size, |buffer, at| file.read(buffer, at))?;
    let partitions = |count| format!("{count} partition{}", if count == 1 { "" } else { "s" });
    let content = match content {
        Content::Gpt(count) => format!("{} (GPT)", partitions(count)),
        Content::BootSector(count) => format!("{} (MBR)", partitions(count)),
        Content::FileSystem(name) => format!("a file system ({name})"),
    };
    let mib = |bytes: u64| bytes / (1 << 20);
    let allocated = match file.allocated {
        allocated if allocated >= file.size => "all allocated".to_owned(),
        allocated => format!("{} MiB of it allocated", mib(allocated)),
    };
    let what = format!("{} MiB in raw format, {allocated}, with {content}", mib(file.size));
    Some(crate::known("Disk image", what, Some(ADVICE)))
}
