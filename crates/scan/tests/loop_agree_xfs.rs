//! The reverse mapping of an XFS and FIEMAP report the same layout of every file.

mod common;

use common::{assert_agree, deep_file, layouts, mixed_files, walk};
use fragmend_layout::{ExtentKind, SkipReason};
use fragmend_scan::Source;
use fragmend_scan::xfs::Map;
use fragmend_testbed::file_system::{FileSystem, XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::delete_for_good;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

const DISK: u64 = 320 << 20;

/// Fills a file system, compares, and compares again with a cold cache. Returns how many files came
/// from the map, and how many there are.
fn agree_on(file_system: &'static FileSystem, further: impl Fn(&Image)) -> (usize, usize) {
    let image = Image::of(file_system, DISK);
    let files = mixed_files(image.path());
    deep_file(&image.path().join("deep"), 3000, 4096);
    // Attributes too long for the inode have blocks of their own, which contain no data.
    let path = image.path().join("a/b/plain");
    let value = "v".repeat(3000);
    run("setfattr", ["-n", "user.long", "-v", &value, path.to_str().unwrap()]);
    further(&image);
    let found = assert_agree(image.path());
    assert!(found.len() > files && found.values().all(Result::is_ok), "{found:?}");
    image.remount();
    assert_eq!(assert_agree(image.path()), found);
    let tree = walk(&[image.path()]);
    let map = Map::read(&tree.file_systems()[0]).unwrap();
    let direct = tree.entries().iter().filter(|e| map.layout(e.inode).is_some()).count();
    (direct, tree.entries().len())
}

#[test]
fn loop_every_kind_of_file() {
    let (direct, all) = agree_on(&XFS_RMAP, |_| {});
    assert_eq!(direct, all);
}

#[test]
fn loop_what_is_shared_goes_through_fiemap() {
    let (direct, all) = agree_on(&XFS_EXCHANGE, |image| {
        let at = |name: &str| image.path().join(name);
        run("cp", ["--reflink=always".as_ref(), at("deep").as_os_str(), at("twin").as_os_str()]);
        // Overwritten in part: some of its extents are its own.
        File::options().write(true).open(at("twin")).unwrap().write_all_at(&[1; 9000], 0).unwrap();
    });
    assert_eq!(direct, all - 2, "all but the two that share");
}

#[test]
fn loop_data_that_is_still_in_memory_is_seen() {
    let image = Image::of(&XFS_RMAP, DISK);
    let path = image.path().join("fresh");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    let found = layouts(&walk(&[image.path()]), Source::Bulk);
    let data = found[&path].as_ref().unwrap().extents().iter();
    let data = data.filter(|e| e.kind == ExtentKind::Data).map(|e| e.length);
    assert_eq!(data.sum::<u64>(), 1 << 20);
}

#[test]
fn loop_a_file_gone_since_the_walk_is_counted() {
    let image = Image::of(&XFS_RMAP, DISK);
    for name in ["stays", "goes"] {
        fs::write(image.path().join(name), [1; 5000]).unwrap();
    }
    let tree = walk(&[image.path()]);
    delete_for_good(&image.path().join("goes"));
    let found = layouts(&tree, Source::Bulk);
    assert_eq!(found[&image.path().join("goes")], Err(SkipReason::Vanished.into()));
    assert!(found[&image.path().join("stays")].is_ok());
}

#[test]
fn loop_it_is_used_where_most_files_are_wanted() {
    let image = Image::of(&XFS_RMAP, DISK);
    for dir in ["few", "many"] {
        fs::create_dir(image.path().join(dir)).unwrap();
    }
    let make = |name: String| fs::write(image.path().join(name), [1; 100]).unwrap();
    (0..200).for_each(|i| make(format!("many/{i}")));
    (0..20).for_each(|i| make(format!("few/{i}")));
    image.sync();
    let pays = |dir: &str| {
        let tree = walk(&[&image.path().join(dir)]);
        Map::pays(&tree.file_systems()[0], tree.entries().len())
    };
    assert!(pays("") && pays("many") && !pays("few"));
}

#[test]
fn loop_without_a_reverse_mapping_it_says_why() {
    let image = Image::of(&XFS_PLAIN, DISK);
    let path = image.path().join("file");
    fs::write(&path, [1; 5000]).unwrap();
    let tree = walk(&[image.path()]);
    let error = fragmend_scan::measure(&tree, Source::Bulk, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("rmapbt") && error.lines().count() == 1, "{error}");
    let found = layouts(&tree, Source::Auto);
    assert_eq!(found[&path].as_ref().unwrap().file.inode, path.metadata().unwrap().ino());
}
