//! The inode tables and FIEMAP report the same layout of every file, with all features of ext4; and
//! a file whose inode is damaged on the device is scanned by FIEMAP instead.

mod common;

use common::{assert_agree, deep_file, layouts, mixed_files, walk};
use fragmend_layout::{ExtentKind, SkipReason};
use fragmend_scan::ext4::Bulk;
use fragmend_scan::{Source, WalkOptions, files};
use fragmend_testbed::image::{Image, run};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Makes a file system with these features, fills it, compares, and compares again with a cold cache.
/// Returns how many files came from the inode tables, and how many there are.
fn agree_on(mkfs: &[&str], block: u64) -> (usize, usize) {
    let image = Image::ext4_with(512 << 20, mkfs, "");
    let files = mixed_files(image.path());
    deep_file(&image.path().join("deep"), 3000, block);
    let found = assert_agree(image.path());
    assert_eq!(found.len(), files + 1);
    assert!(found.values().all(Result::is_ok), "{found:?}");
    image.remount();
    assert_eq!(assert_agree(image.path()), found);

    let tree = walk(&[image.path()]);
    let bulk = Bulk::open(&tree.file_systems()[0]).unwrap();
    let mut direct = 0;
    let inodes = tree.entries().iter().map(|e| e.inode);
    bulk.layouts(&mut bulk.worker(), inodes, |_, layout| direct += usize::from(layout.is_some()));
    (direct, found.len())
}

#[test]
fn loop_default_features() {
    let (direct, all) = agree_on(&[], 4096);
    assert_eq!(direct, all);
}

#[test]
fn loop_one_kib_blocks_and_inline_data() {
    let (direct, all) = agree_on(&["-b", "1024", "-O", "inline_data", "-I", "256"], 1024);
    assert_eq!(direct, all);
}

#[test]
fn loop_inline_data_is_inline() {
    let image = Image::ext4_with(128 << 20, &["-O", "inline_data"], "");
    mixed_files(image.path());
    let found = assert_agree(image.path());
    let forty = found[&image.path().join("a/forty")].as_ref().unwrap();
    assert_eq!(forty.extents()[0].kind, ExtentKind::Inline);
    assert_eq!(forty.extents()[0].length, 40);
}

#[test]
fn loop_small_inodes_without_checksums() {
    let (direct, all) = agree_on(&["-I", "128", "-O", "^metadata_csum,^64bit"], 4096);
    assert_eq!(direct, all);
}

#[test]
fn loop_small_inodes_with_checksums() {
    let (direct, all) = agree_on(&["-I", "128", "-O", "metadata_csum"], 4096);
    assert_eq!(direct, all);
}

#[test]
fn loop_meta_bg_sparse_super2_and_no_flex_bg() {
    let (direct, all) = agree_on(&["-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg"], 1024);
    assert_eq!(direct, all);
    let (direct, all) = agree_on(
        &["-b", "2048", "-O", "meta_bg,sparse_super2,^resize_inode,metadata_csum_seed"],
        2048,
    );
    assert_eq!(direct, all);
}

#[test]
fn loop_files_without_extents_go_through_fiemap() {
    let image = Image::ext4_with(256 << 20, &["-O", "^extents,^64bit,^flex_bg,^metadata_csum"], "");
    std::fs::write(image.path().join("blockmap"), vec![1; 200_000]).unwrap();
    let found = assert_agree(image.path());
    let layout = found[&image.path().join("blockmap")].as_ref().unwrap();
    assert_eq!(layout.fragments(fragmend_layout::ByteRange::at(0, 200_000)), 1);
}

#[test]
fn loop_bigalloc_is_refused_in_words() {
    let image = Image::ext4_with(256 << 20, &["-O", "bigalloc", "-C", "65536"], "");
    std::fs::write(image.path().join("file"), [1; 5000]).unwrap();
    let tree = walk(&[image.path()]);
    let error = Bulk::open(&tree.file_systems()[0]).err().unwrap();
    assert!(error.contains("bigalloc"), "{error}");
    let found = layouts(&tree, Source::Auto);
    assert!(found.values().all(Result::is_ok), "{found:?}");
}

#[test]
fn loop_delayed_allocation_is_flushed_first() {
    let image = Image::ext4(256 << 20);
    std::fs::write(image.path().join("fresh"), vec![1; 1 << 20]).unwrap();
    let found = layouts(&walk(&[image.path()]), Source::Bulk);
    let fresh = found[&image.path().join("fresh")].as_ref().unwrap();
    assert_eq!(fresh.extents().iter().map(|e| e.length).sum::<u64>(), 1 << 20);
}

#[test]
fn loop_the_deep_tree_is_deep_and_filefrag_counts_the_same() {
    let image = Image::ext4(256 << 20);
    let path = image.path().join("deep");
    deep_file(&path, 3000, 4096);
    let stat = run("debugfs", ["-R", "ex -n /deep", image.device()]);
    assert!(stat.contains("2/ 2") || stat.contains("1/ 2"), "the tree is not deep: {stat}");
    let found = assert_agree(image.path());
    let extents = found[&path].as_ref().unwrap().extents().len();
    // Written and unwritten blocks alternate.
    assert_eq!(extents, 3000);
    let said = run("filefrag", ["-v", path.to_str().unwrap()]);
    let rows = said.lines().filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), extents);
}

/// Inverts some bits of an inode on the device, where `block` is the file system's block size.
fn damage(image: &Image, inode: u64, block_bytes: u64) {
    let device = std::fs::File::options().read(true).write(true).open(image.device()).unwrap();
    let said = run("debugfs", ["-R", &format!("imap <{inode}>"), image.device()]);
    // "located at block 1065, offset 0x0b00"
    let (_, place) = said.split_once("located at block ").unwrap();
    let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
    let offset = u64::from_str_radix(offset, 16).unwrap();
    let at = block.parse::<u64>().unwrap() * block_bytes + offset + 0x30;
    let mut byte = [0];
    device.read_exact_at(&mut byte, at).unwrap();
    device.write_all_at(&[byte[0] ^ 0x5A], at).unwrap();
    device.sync_all().unwrap();
}

/// Below a mounted file system that has the inodes in memory, so that FIEMAP stays right.
#[test]
fn loop_damage_is_found_by_its_checksum() {
    let image = Image::ext4(128 << 20);
    mixed_files(image.path());
    deep_file(&image.path().join("deep"), 1000, 4096);
    run("sync", ["-f", image.path().to_str().unwrap()]);
    let tree = walk(&[image.path()]);
    let whole = layouts(&tree, Source::Bulk);
    let held: Vec<_> =
        tree.entries().iter().map(|e| std::fs::File::open(tree.path(e)).unwrap()).collect();
    tree.entries().iter().for_each(|e| damage(&image, e.inode, 4096));

    let bulk = Bulk::open(&tree.file_systems()[0]).unwrap();
    let mut direct = 0;
    let inodes = tree.entries().iter().map(|e| e.inode);
    bulk.layouts(&mut bulk.worker(), inodes, |_, layout| direct += usize::from(layout.is_some()));
    assert_eq!(direct, 0, "a damaged inode was believed");
    assert_eq!(layouts(&tree, Source::Bulk), whole, "the fallback tells another story");
    drop(held);
}

/// Damaged while nothing is mounted: the kernel refuses the file, too, and the scan reports that and
/// continues.
#[test]
fn loop_a_file_that_the_kernel_refuses_is_reported() {
    let image = Image::ext4(128 << 20);
    let (good, bad) = (image.path().join("good"), image.path().join("bad"));
    [&good, &bad].into_iter().for_each(|p| std::fs::write(p, [1; 5000]).unwrap());
    let inode = std::os::unix::fs::MetadataExt::ino(&bad.metadata().unwrap());
    image.unmount();
    damage(&image, inode, 4096);
    image.mount_with("");
    let found = layouts(&walk(&[image.path()]), Source::Auto);
    assert!(found[&good].is_ok());
    let refused = found[&bad].as_ref().unwrap_err();
    assert_eq!(refused.reason(), SkipReason::Failed, "{refused}");
}

#[test]
fn loop_a_file_gone_since_the_walk_is_counted() {
    let image = Image::ext4(128 << 20);
    for name in ["stays", "goes"] {
        std::fs::write(image.path().join(name), [1; 5000]).unwrap();
    }
    let tree = walk(&[image.path()]);
    std::fs::remove_file(image.path().join("goes")).unwrap();
    for source in [Source::Bulk, Source::Fiemap] {
        let found = layouts(&tree, source);
        assert_eq!(
            found[&image.path().join("goes")],
            Err(SkipReason::Vanished.into()),
            "{source:?}"
        );
        assert!(found[&image.path().join("stays")].is_ok());
    }
}

#[test]
fn loop_bulk_where_there_is_no_ext4_says_why() {
    let tree = files(&["/proc/self".into()], &WalkOptions::default(), &|_| {}).unwrap();
    let error = fragmend_scan::measure(&tree, Source::Bulk, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("proc, not ext4"), "{error}");
    assert!(Path::new("/proc/self").exists());
}
