//! What the cleaner does to files that were written concurrently (APSys'16, sections 4.1 and 4.2), and what ageing costs.

use super::drives::fast;
use crate::support::Random;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::segments::{Cleaning, CopyOrder, LogStructured, Settings, Victims};
use std::path::Path;

const BLOCK: u64 = 4096;

fn mounted(cleaning: Cleaning, blocks: u32) -> LogStructured {
    let settings = Settings { cleaning, cache_blocks: 1024, ..Settings::default() };
    LogStructured::format(&fast(blocks), &settings).expect("it is made")
}

/// Writes these files at once: a record of each in turn, synchronously, until each has its blocks. They are `(blocks, record)`.
fn write_concurrently(fs: &LogStructured, files: &[(u64, u64)]) -> Vec<FileId> {
    let path = |n: usize| format!("/file-{n}");
    let ids: Vec<FileId> =
        (0..files.len()).map(|n| fs.create(Path::new(&path(n))).expect("a new file")).collect();
    let most = files.iter().map(|(blocks, record)| blocks / record).max().unwrap_or(0);
    for turn in 0..most {
        for (id, (blocks, record)) in ids.iter().zip(files) {
            if turn * record < *blocks {
                let range = ByteRange::at(turn * record * BLOCK, record * BLOCK);
                fs.write(*id, range, Access::Direct).expect("space");
            }
        }
    }
    fs.sync().expect("it is durable");
    ids
}

fn fragments(fs: &LogStructured, file: FileId) -> u64 {
    let layout = fs.layout(file, Path::new("")).expect("its layout");
    layout.fragments(ByteRange { start: 0, end: u64::MAX })
}

/// Eight files of 10 MiB in records of 4 KiB; every eighth one is removed, so that each segment has invalid blocks, and all segments are
/// cleaned.
fn cleaned(order: CopyOrder, batch: u32) -> (u64, u64) {
    let cleaning = Cleaning { order, batch, ..Cleaning::default() };
    let fs = mounted(cleaning, 200 * 512);
    let files = write_concurrently(&fs, &[(2560, 1); 8]);
    let before = fragments(&fs, files[0]);
    fs.remove(Path::new("/file-7")).expect("it is there");
    fs.sync().expect("it is durable");
    fs.clean(40).expect("space");
    fs.check().unwrap();
    (before, fragments(&fs, files[0]))
}

#[test]
fn sorting_by_inode_joins_what_was_written_concurrently() {
    let (before, original) = cleaned(CopyOrder::Original, 1);
    assert_eq!(before, 2560, "table 1's baseline");
    // Where the removed file had its block, the one before it is directly before the next now, of another file.
    assert_eq!(original, 2560);
    let (_, sorted) = cleaned(CopyOrder::Inode, 1);
    // 64 blocks of each file in a segment of 512: 40 segments; table 1 has 39 and 41.
    assert!((38..=42).contains(&sorted), "{sorted} fragments");
    let (_, batched) = cleaned(CopyOrder::Inode, 4);
    assert!((10..=12).contains(&batched), "{batched} fragments");
}

/// Table 2: files of several sizes and record lengths, in blocks.
const TABLE_2: [(u64, u64); 8] =
    [(256, 1), (256, 1), (5120, 16), (5120, 16), (5120, 1), (5120, 1), (12_800, 1), (25_600, 32)];

#[test]
fn fragmented_victims_go_first() {
    let degree = |policy| {
        let cleaning =
            Cleaning { background: policy, order: CopyOrder::Inode, ..Cleaning::default() };
        let fs = mounted(cleaning, 300 * 512);
        let mut files = TABLE_2.to_vec();
        files.push((5120, 16));
        let ids = write_concurrently(&fs, &files);
        fs.remove(Path::new("/file-8")).expect("it is there");
        fs.sync().expect("it is durable");
        let before: u64 = fs.degrees().iter().sum();
        fs.clean(12).expect("space");
        fs.check().unwrap();
        let fragments: u64 = ids[4..7].iter().map(|id| fragments(&fs, *id)).sum();
        (before - fs.degrees().iter().sum::<u64>(), fragments)
    };
    let (aware, fragments_aware) = degree(Victims::FragmentationAware { candidates: 64 });
    let (benefit, fragments_benefit) = degree(Victims::CostBenefit);
    assert!(aware > benefit, "the degree falls by {aware} and by {benefit}");
    assert!(fragments_aware < fragments_benefit, "{fragments_aware} and {fragments_benefit}");
}

/// Overwrites `turns` random blocks of a file, and returns blocks copied for each block written, in thousandths.
fn aged(fs: &LogStructured, file: FileId, blocks: u64, turns: u64) -> u64 {
    let mut random = Random(1);
    let before = fs.counts();
    for _ in 0..turns {
        let range = ByteRange::at(random.below(blocks) * BLOCK, BLOCK);
        fs.write(file, range, Access::Direct).expect("space");
    }
    let copied = fs.counts().blocks_copied - before.blocks_copied;
    copied * 1000 / turns
}

#[test]
fn ageing_at_four_fifths_copies_about_one_block_for_each_write() {
    let fs = mounted(Cleaning::default(), 128 * 512);
    let blocks = 128 * 512 * 3 / 4;
    let file = fs.create(Path::new("/file")).expect("a new file");
    fs.write(file, ByteRange::at(0, blocks * BLOCK), Access::Direct).expect("space");
    let copied = aged(&fs, file, blocks, 200_000);
    fs.check().unwrap();
    assert!((500..3000).contains(&copied), "{copied} thousandths");
}

/// No block is free for users, and still each can be overwritten.
#[test]
fn what_is_full_can_be_overwritten() {
    for order in [CopyOrder::Original, CopyOrder::Inode] {
        let fs = mounted(Cleaning { order, ..Cleaning::default() }, 64 * 512);
        let file = fs.create(Path::new("/file")).expect("a new file");
        let mut blocks = 0;
        while fs.write(file, ByteRange::at(blocks * BLOCK, 64 * BLOCK), Access::Direct).is_ok() {
            blocks += 64;
        }
        assert!(fs.free_bytes().expect("its free space") < 65 * BLOCK);
        let copied = aged(&fs, file, blocks, 30_000);
        assert!(copied > 1000, "{copied} thousandths");
        fs.check().unwrap();
    }
}

#[test]
#[ignore = "a minute: cargo test -p fragmend-simfs --test simulated ages_sixteen -- --ignored --nocapture"]
fn ages_sixteen_gibibytes() {
    let fs = mounted(Cleaning::default(), 4 << 20);
    let blocks = 3 << 20;
    let began = std::time::Instant::now();
    let file = fs.create(Path::new("/file")).expect("a new file");
    fs.write(file, ByteRange::at(0, blocks * BLOCK), Access::Direct).expect("space");
    eprintln!("filled in {:?}", began.elapsed());
    let copied = aged(&fs, file, blocks, 20_000_000);
    eprintln!("overwrites in {:?}, {copied} copied of 1000 {:?}", began.elapsed(), fs.counts());
    fs.check().unwrap();
}
