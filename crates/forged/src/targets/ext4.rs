//! ext4's own structures on a device: every requested inode is answered once, and the extents that are
//! accepted are within the file system, in whole blocks, in order.

use super::layout;
use crate::bytes::{Bytes, with_file};
use fragmend_layout::{ExtentKind, Layout};
use fragmend_scan::ext4::Bulk;

/// An image from its first byte on; bytes behind its end cannot be read.
pub fn image(input: &[u8]) -> bool {
    let mut image = input.to_vec();
    // A real one is mostly zeroes, which would bloat a corpus.
    image.resize(input.len().next_multiple_of(1024), 0);
    read(&image)
}

/// Bytes of a block here.
const BLOCK: usize = 1024;
/// Inodes, in one block.
const INODES: usize = 4;
/// Bytes of each.
const INODE: usize = 256;
/// The first block of their table, behind super block and descriptors.
const TABLE: usize = 3;
/// Seed of all checksums.
const SEED: u32 = 77;

/// Four inodes, and the blocks behind them, on a small file system that is valid otherwise; their
/// checksums are corrected, because a fuzzer cannot guess one.
pub fn tree(input: &[u8]) -> bool {
    let mut input = Bytes::new(input);
    let choice = input.u8();
    let sums = choice & 1 == 1;
    let mut image = vec![0; TABLE * BLOCK];
    super_block(&mut image[BLOCK..2 * BLOCK], sums);
    image[2 * BLOCK + 8..][..4].copy_from_slice(&(TABLE as u32).to_le_bytes());
    let start = image.len();
    for _ in 0..INODES {
        image.extend(input.up_to(INODE));
        image.resize(image.len().next_multiple_of(INODE), 0);
    }
    image.resize(start + BLOCK, 0);
    while !input.is_empty() {
        image.extend(input.up_to(BLOCK));
        image.resize(image.len().next_multiple_of(BLOCK), 0);
    }
    if sums {
        put_right(&mut image[start..], usize::from(choice >> 1));
    }
    read(&image)
}

fn super_block(bytes: &mut [u8], sums: bool) {
    let mut put = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(0x0, INODES as u32);
    put(0x4, 8192);
    put(0x14, 1);
    put(0x20, 8192);
    put(0x28, INODES as u32);
    put(0x38, 0xEF53);
    put(0x4C, 1);
    put(0x58, INODE as u32);
    // extents; csum_seed
    put(0x60, 0x40 | 0x2000);
    put(0x64, if sums { 0x400 } else { 0 });
    put(0x270, SEED);
}

fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Corrects the checksums of inodes, and those of blocks as if they were of inode `owner`'s tree.
fn put_right(from_table: &mut [u8], owner: usize) {
    let (table, blocks) = from_table.split_at_mut(BLOCK);
    let mut seeds = [0; INODES];
    for (i, inode) in table.chunks_exact_mut(INODE).enumerate() {
        let number = i as u32 + 1;
        seeds[i] = crc(crc(SEED, &number.to_le_bytes()), &inode[0x64..0x68]);
        inode[0x7C..0x7E].fill(0);
        let has_high = u16::from_le_bytes([inode[128], inode[129]]) >= 4;
        if has_high {
            inode[0x82..0x84].fill(0);
        }
        let sum = crc(seeds[i], inode).to_le_bytes();
        inode[0x7C..0x7E].copy_from_slice(&sum[..2]);
        if has_high {
            inode[0x82..0x84].copy_from_slice(&sum[2..]);
        }
    }
    for block in blocks.chunks_exact_mut(BLOCK) {
        let end = 12 + 12 * usize::from(u16::from_le_bytes([block[4], block[5]]));
        if end + 4 <= BLOCK {
            let sum = crc(seeds[owner % INODES], &block[..end]);
            block[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Reads the first inodes, and others that do not exist.
fn read(image: &[u8]) -> bool {
    const WANTED: [u64; 14] =
        [11, 1, 2, 3, 4, 12, 13, 14, 15, 16, 0, u32::MAX as u64, u64::MAX, 1 << 32 | 12];
    with_file(image, |file| {
        let device = file.file.try_clone().expect("a descriptor");
        let Ok(bulk) = Bulk::on(device, 7) else { return false };
        let mut worker = bulk.worker();
        let mut read = || {
            let mut found: [Option<Option<Layout>>; WANTED.len()] = Default::default();
            bulk.layouts(&mut worker, WANTED.into_iter(), |at, layout| {
                assert!(found[at].replace(layout).is_none(), "answered twice");
            });
            found.map(|layout| layout.expect("every inode is answered"))
        };
        let found = read();
        let [block, blocks] = geometry(image);
        for (number, layout) in WANTED.iter().zip(&found) {
            let Some(layout) = layout else { continue };
            assert_eq!((layout.file.device, layout.file.inode), (7, *number));
            layout::check(layout, Some(block * blocks));
            for extent in layout.extents().iter().filter(|e| e.kind != ExtentKind::Inline) {
                let figures = [extent.logical, extent.physical, extent.length];
                assert!(figures.iter().all(|figure| figure.is_multiple_of(block)), "{extent:?}");
                assert!(extent.physical > 0 && extent.range().end <= block << 32, "{extent:?}");
            }
        }
        assert!(found == read(), "not the same again");
        found.iter().any(Option::is_some)
    })
}

/// Bytes of a block, and the number of blocks, as the super block has them.
fn geometry(image: &[u8]) -> [u64; 2] {
    let u32_at = |at: usize| {
        let bytes = &image[1024 + at..][..4];
        u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    };
    let high = if u32_at(0x60) & 0x80 == 0 { 0 } else { u32_at(0x150) };
    [1024 << u32_at(0x18), high << 32 | u32_at(0x4)]
}
