//! How fast an image is aged: ten million blocks in some two million calls on 25 GB, on a drive without content.

use crate::support::{Random, drives};
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use std::path::PathBuf;
use std::time::Instant;

/// Files that exist at a time.
const FILES: u64 = 20_000;
/// Pauses between calls: ten million of them would be six months.
const PAUSE_NS: u64 = 1_500_000_000;

/// Creates, appends, overwrites, removes and syncs files until so many blocks are written; returns how many calls that were.
fn age(fs: &dyn FileSystem, blocks: u64, seed: u64) -> u64 {
    let (mut random, block) = (Random(seed), fs.block_bytes());
    let (mut written, mut calls) = (0, 0);
    let mut files: Vec<(PathBuf, FileId, u64)> = Vec::new();
    while written < blocks {
        fs.machine().spend(PAUSE_NS);
        calls += 1;
        let full = fs.free_bytes().expect("its space") < fs.total_bytes() / 10;
        if full || files.len() as u64 >= FILES {
            let n = random.below(files.len() as u64) as usize;
            let (path, ..) = files.swap_remove(n);
            fs.remove(&path).expect("it was there");
            continue;
        }
        if (files.len() as u64) < FILES / 2 || random.below(40) == 0 {
            let path = PathBuf::from(format!("/{calls}"));
            let file = fs.create(&path).expect("a new file");
            files.push((path, file, 0));
        }
        let n = random.below(files.len() as u64) as usize;
        let (_, file, size) = &mut files[n];
        let count = 1 + random.below(8);
        let appends = *size < 64 || random.below(4) == 0;
        let at = if appends { *size } else { random.below(*size - count.min(*size - 1)) };
        match fs.write(*file, ByteRange::at(at * block, count * block), Access::Buffered) {
            Ok(()) => {
                written += count;
                *size = (*size).max(at + count);
            }
            Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        if random.below(10) == 0 {
            fs.sync_file(*file).expect("it is durable");
        }
    }
    fs.sync().expect("it is durable");
    calls
}

fn measure(fs: &dyn FileSystem, blocks: u64) {
    let began = Instant::now();
    let calls = age(fs, blocks, 1);
    let took = began.elapsed();
    let mut fragments = 0;
    let mut files = 0;
    fs.files(&mut |path, file| {
        let layout = fs.layout(file.expect("a file"), path).expect("its layout");
        fragments += layout.fragments(ByteRange { start: 0, end: u64::MAX });
        files += 1;
    })
    .expect("all files");
    let days = fs.machine().now_ns() / 86_400_000_000_000;
    let commands = fs.machine().commands();
    println!(
        "{}: {blocks} blocks in {calls} calls, {days} days, {commands} commands: {took:.1?}; {files} files in {fragments} fragments",
        fs.label()
    );
    fs.check().unwrap();
}

fn age_both(blocks: u64) {
    let machine = drives::without_content();
    let fs = InPlace::format(&machine, &inplace::Options::of(&machine)).expect("it is made");
    measure(&fs, blocks);
    let machine = drives::without_content();
    let fs = Cow::format(&machine, &cow::Options::of(&machine)).expect("it is made");
    measure(&fs, blocks);
}

#[test]
fn tables_agree_after_ageing() {
    age_both(50_000);
}

#[test]
#[ignore = "a minute and a half: cargo test -p fragmend-simfs --test simulated ageing -- --ignored --nocapture"]
fn ten_million_blocks_of_25_gigabytes() {
    age_both(10_000_000);
}
