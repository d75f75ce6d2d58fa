//! A tree with one file of every kind that a layout can have, and its layouts through a source.

#![allow(dead_code)] // each test binary uses its own part

pub mod space;

use fragmend_layout::Layout;
use fragmend_scan::{Cause, Source, Tree, WalkOptions, files, in_batches};
use fragmend_testbed::{fragment, image::run};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Layouts, or why there is none, by path.
pub type Layouts = BTreeMap<PathBuf, Result<Layout, Cause>>;

pub fn walk(paths: &[&Path]) -> Tree {
    let paths: Vec<PathBuf> = paths.iter().map(|p| p.to_path_buf()).collect();
    files(&paths, &WalkOptions::default(), &|_| {}).unwrap()
}

pub fn layouts(tree: &Tree, source: Source) -> Layouts {
    let mut all = Layouts::new();
    in_batches(
        tree,
        source,
        |batch: &mut Vec<_>, _, entry, layout| batch.push((tree.path(entry), layout.cloned())),
        |batch| {
            all.extend(batch);
            Ok(())
        },
    )
    .unwrap();
    all
}

/// Fills `dir` with files of every kind; returns how many.
pub fn mixed_files(dir: &Path) -> usize {
    std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
    let create = |name: &str| File::create_new(dir.join(name)).unwrap();
    create("empty");
    create("tiny").write_all(b"x").unwrap();
    create("a/forty").write_all(&[7; 40]).unwrap();
    create("a/hundred").write_all(&[7; 100]).unwrap();
    create("a/b/plain").write_all(&vec![1; 300_000]).unwrap();

    let sparse = create("a/b/sparse");
    for i in 0..12 {
        sparse.write_all_at(&[2; 5000], i * 1_000_000).unwrap();
    }
    sparse.write_all_at(&[3; 10], (1 << 33) + 77).unwrap();

    let unwritten = create("a/b/unwritten");
    fallocate(&unwritten, FallocateFlags::empty(), 0, 4 << 20).unwrap();
    unwritten.write_all_at(&[4; 8192], 1 << 20).unwrap();

    let beyond = create("a/b/beyond-the-end");
    beyond.write_all_at(&[5; 100], 0).unwrap();
    fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 2 << 20).unwrap();

    let odd_name: &std::ffi::OsStr =
        std::os::unix::ffi::OsStrExt::from_bytes(b"a/b/c/not \xFF\xFE utf8\nand two lines");
    std::fs::write(dir.join(odd_name), [6; 9000]).unwrap();

    create("linked").write_all(&[8; 20_000]).unwrap();
    std::fs::hard_link(dir.join("linked"), dir.join("a/linked-too")).unwrap();
    std::os::unix::fs::symlink("linked", dir.join("symlink")).unwrap();
    run("mkfifo", [dir.join("pipe")]);

    fragment::interleaved(&dir.join("a/in-fragments"), 4 << 20, &[4096, 8192], true).unwrap();
    // Ten made here, hard links once, and the file in fragments with its dummy.
    12
}

/// A file with so many extents that its tree has two levels below the inode: every second block
/// of a preallocated file is written.
pub fn deep_file(path: &Path, extents: u64, block: u64) {
    let file = File::create_new(path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, extents * block).unwrap();
    for i in (0..extents).step_by(2) {
        file.write_all_at(&[9], i * block).unwrap();
    }
    file.sync_all().unwrap();
}

/// Checks that both sources report the same layout of every file of a tree, extent by extent.
pub fn assert_agree(dir: &Path) -> Layouts {
    let tree = walk(&[dir]);
    let bulk = layouts(&tree, Source::Bulk);
    let fiemap = layouts(&tree, Source::Fiemap);
    assert_eq!(bulk.keys().collect::<Vec<_>>(), fiemap.keys().collect::<Vec<_>>());
    for (path, layout) in &bulk {
        assert_eq!(layout, &fiemap[path], "{}", path.display());
    }
    bulk
}
