//! Free space of real file systems is what their own tools find in their structures on the device, extent by extent; it
//! agrees with layouts and with `statfs`, and follows what is allocated.

mod common;

use common::space::{age, follows_allocation, free_runs, is_sound, space_of, statfs};
use common::walk;
use fragmend_layout::{ByteRange, SpaceKind};
use fragmend_scan::space::space;
use fragmend_scan::{FoundSpace, NotKnown, WalkOptions, files};
use fragmend_testbed::file_system::{BTRFS, EXT4_1K, FileSystem, XFS_PLAIN, XFS_RMAP};
use fragmend_testbed::image::{Image, run};
use std::fs;

const DISK: u64 = 320 << 20;

static BTRFS_WITHOUT_TREE: FileSystem = FileSystem {
    name: "btrfs-without-tree",
    make: &["mkfs.btrfs", "-q", "-f", "-R", "^free-space-tree"],
    options: "nospace_cache",
    beside_copy: None,
    moved_by: &[],
    check: &["btrfs", "check"],
    later: None,
};

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The first difference of two long lists.
fn assert_same(found: &[ByteRange], told: &[ByteRange]) {
    let differ = found.iter().zip(told).find(|(one, other)| one != other);
    let behind = told.get(found.len()..).or(found.get(told.len()..));
    assert_eq!((differ, behind), (None, Some(&[][..])));
}

fn joined(mut runs: Vec<ByteRange>) -> Vec<ByteRange> {
    runs.sort_unstable();
    ByteRange::joined(runs).collect()
}

/// What `dumpe2fs` reads in the block bitmaps.
fn of_bitmaps(image: &Image, block: u64) -> Vec<ByteRange> {
    let listed = run("dumpe2fs", [image.device()]);
    let lists = listed.lines().filter_map(|line| line.strip_prefix("  Free blocks: "));
    let runs = lists.flat_map(|list| list.split(", ").filter(|run| !run.is_empty()));
    let bytes = |run: &str| {
        let ends = numbers(run);
        ByteRange { start: ends[0] * block, end: (ends[ends.len() - 1] + 1) * block }
    };
    joined(runs.map(bytes).collect())
}

#[test]
fn loop_ext4_is_what_its_bitmaps_say() {
    for (image, block) in [(Image::ext4(DISK), 4096), (Image::of(&EXT4_1K, DISK), 1024)] {
        age(&image);
        // What is preallocated in memory alone is not in the bitmaps.
        image.remount();
        let found = is_sound(&image);
        let told = of_bitmaps(&image, block);
        assert!(told.len() > 1500, "{}", told.len());
        assert_same(&free_runs(&found), &told);
        assert_eq!(found.free.bytes, statfs(image.path())[0]);
        let inodes = rustix::fs::statvfs(image.path()).unwrap().f_files;
        assert!(found.metadata_bytes >= inodes * 256, "{} of metadata", found.metadata_bytes);
        follows_allocation(&image);
    }
}

/// What `xfs_db` reads in the trees of free space of an unmounted file system, but for blocks that a group keeps for these
/// trees, which it lists as well.
fn of_free_trees(image: &Image) -> Vec<ByteRange> {
    image.unmount();
    let read =
        |of: &str, command: &str| run("xfs_db", ["-r", "-c", of, "-c", command, image.device()]);
    let value = |field: &str| numbers(&read("sb 0", &format!("print {field}")))[0];
    let (block, group) = (value("blocksize"), value("agblocks"));
    let freed = read("sb 0", "freesp -d");
    image.mount_with("");
    let runs = freed.lines().map(numbers).filter(|line| line.len() == 3);
    joined(runs.map(|at| ByteRange::at((at[0] * group + at[1]) * block, at[2] * block)).collect())
}

fn xfs(file_system: &'static FileSystem) -> FoundSpace {
    let image = Image::of(file_system, DISK);
    age(&image);
    image.remount();
    let found = is_sound(&image);
    let (free, told) = (free_runs(&found), of_free_trees(&image));
    assert!(told.len() > 1500, "{}", told.len());
    let holds = |outer: &ByteRange, inner: &ByteRange| outer.intersect(*inner) == *inner;
    let missing = free.iter().find(|run| !told.iter().any(|outer| holds(outer, run)));
    assert_eq!(missing, None);
    let bytes: u64 = told.iter().map(|run| run.len()).sum();
    let kept = bytes - found.free.bytes;
    assert!(kept <= 4 * 16 * 4096, "{kept}");
    // Each group has set some aside for its trees.
    let (free, told) = (found.free.bytes, statfs(image.path())[0]);
    assert!(free >= told && free - told < DISK / 16, "{free}, {told}");
    follows_allocation(&image);
    found
}

#[test]
fn loop_xfs_is_what_its_trees_of_free_space_say() {
    // With a reverse mapping it is known what is metadata as well.
    let (without, with) = (xfs(&XFS_PLAIN), xfs(&XFS_RMAP));
    assert_eq!(without.metadata_bytes, 0);
    assert!(with.metadata_bytes > 16 << 20, "{} with its log", with.metadata_bytes);
}

/// The gaps of the extent tree in the block groups of data, as `btrfs` dumps both.
fn of_extents(image: &Image) -> Vec<ByteRange> {
    let dump =
        |tree: &str| run("btrfs", ["inspect-internal", "dump-tree", "-t", tree, image.device()]);
    let (chunks, extents) = (dump("chunk"), dump("extent"));
    let keys = |dump: &str, kind: &str| -> Vec<Vec<u64>> {
        let key = format!(" {kind} ");
        let is_key = |line: &&str| line.trim_start().starts_with("item") && line.contains(&key);
        let numbered = |line: &str| numbers(line.split_once("key (").unwrap().1);
        dump.lines().filter(is_key).map(numbered).collect()
    };
    let mut used: Vec<ByteRange> =
        keys(&extents, "EXTENT_ITEM").iter().map(|key| ByteRange::at(key[0], key[1])).collect();
    used.sort_unstable();
    let mut free = Vec::new();
    let kinds = chunks.lines().filter(|line| line.contains("owner 2 stripe_len"));
    for (key, kind) in keys(&chunks, "CHUNK_ITEM").iter().zip(kinds) {
        let length = numbers(kind)[0];
        if !kind.contains("DATA") || kind.contains("METADATA") {
            continue;
        }
        let group = ByteRange::at(key[0], length);
        let mut at = group.start;
        for extent in used.iter().filter(|extent| extent.overlaps(group)) {
            free.push(ByteRange { start: at, end: extent.start });
            at = extent.end;
        }
        free.push(ByteRange { start: at, end: group.end });
    }
    free.retain(|run| !run.is_empty());
    free
}

#[test]
fn loop_btrfs_is_what_its_extents_leave() {
    let image = Image::of(&BTRFS, DISK);
    age(&image);
    let subvolume = image.path().join("below");
    run("btrfs", ["subvolume".as_ref(), "create".as_ref(), subvolume.as_os_str()]);
    fs::write(subvolume.join("file"), vec![3; 1 << 20]).unwrap();
    let found = is_sound(&image);
    let told = of_extents(&image);
    assert!(told.len() > 1500, "{}", told.len());
    let with_supers: Vec<ByteRange> = found
        .space
        .runs
        .iter()
        .filter(|run| run.kind == SpaceKind::Free || run.range.len() == 64 << 10)
        .map(|run| run.range)
        .collect();
    assert_same(&joined(with_supers), &joined(told));
    let (free, told) = (found.free.bytes + found.unallocated_bytes, statfs(image.path())[1]);
    assert!(free.abs_diff(told) < DISK / 16, "{free}, {told}");
    follows_allocation(&image);

    // A subvolume has another number, and the same space.
    let tree = walk(&[&subvolume]);
    let of_subvolume = &tree.file_systems()[0];
    let whole = &walk(&[image.path()]);
    let whole = &whole.file_systems()[0];
    assert!(of_subvolume.dev != whole.dev && of_subvolume.number() == whole.number());
    assert_eq!(space(of_subvolume, 0).unwrap().free, space_of(&image).free);
}

#[test]
fn loop_what_is_not_known_has_its_reason() {
    let of = |path: &str| {
        let tree = files(&[path.into()], &WalkOptions::default(), &|_| {}).unwrap();
        space(&tree.file_systems()[0], 0).unwrap_err()
    };
    let error = of("/proc/self");
    assert!(matches!(&error, NotKnown::NotReported(name) if name == "proc"), "{error:?}");
    assert_eq!(error.to_string(), "proc does not report its free space");
    let image = Image::of(&BTRFS_WITHOUT_TREE, DISK);
    fs::write(image.path().join("file"), [1]).unwrap();
    let error = of(image.path().to_str().unwrap());
    assert!(matches!(error, NotKnown::NoFreeSpaceTree), "{error:?}");
}
