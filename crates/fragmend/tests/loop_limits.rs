//! Where space runs out in another way than by a full disk: no inode for the donor, a quota that it
//! does not fit in, a disk that promised more than it has. Nothing moves, nothing is lost, and the
//! reason says what it was.
//!
//! A quota counts the donor while it is there: against whoever runs `apply`, on Btrfs against the
//! subvolume (qgroups), and on an XFS that swaps whole files against the file's owner. Blocks that
//! change places count for one file as for the other, so usage is afterwards what it was before.
//! User quotas are tried in `uml_limits`.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use support::{SIZE, apply, conformance, fragmented, plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");
/// The file systems that move data in ways of their own.
static SYSTEMS: [&FileSystem; 5] = [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS];

#[test]
fn loop_a_full_disk_is_left_alone_everywhere() {
    for file_system in SYSTEMS {
        println!("on {}", file_system.name);
        conformance::a_full_disk_is_left_alone(&Image::of(file_system, 320 * MIB));
    }
}

#[test]
fn loop_without_a_free_inode_nothing_moves() {
    let image = Image::ext4_with(64 * MIB, &["-N", "32"], "");
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    plan(&[&path], Policy::WholeFile).write(&plan_file).unwrap();
    let mut taken = 0;
    while File::create(image.path().join(format!("taken-{taken}"))).is_ok() {
        taken += 1;
    }
    let lies = extents(&path);
    let said = finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file));
    let told = said.expect(&[2]);
    let line = told.lines().find(|l| l.starts_with("left alone")).expect("the reason");
    assert!(line.contains("no space") && line.contains("no inode is free"), "{line}");
    assert_eq!(extents(&path), lies);
    assert!(is_intact(&path, SIZE).unwrap());
    fs::remove_file(image.path().join("taken-0")).unwrap();
    finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).arg(&plan_file)).expect(&[0]);
    assert_eq!(extents(&path), 1);
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}

#[test]
fn loop_btrfs_quota_groups_are_kept() {
    let image = Image::of(&BTRFS, 512 * MIB);
    let volume = image.path().join("volume");
    let btrfs = |args: &[&str], path: &Path| {
        run("btrfs", args.iter().map(AsRef::as_ref).chain([path.as_os_str()]))
    };
    btrfs(&["quota", "enable"], image.path());
    btrfs(&["subvolume", "create"], &volume);
    let path = volume.join("file");
    interleaved(&path, 16 * MIB, &[4096], false).unwrap();
    let used = || {
        image.sync();
        btrfs(&["quota", "rescan", "-w"], image.path());
        let groups = btrfs(&["qgroup", "show", "-f", "--raw"], &volume);
        let line = groups.lines().find(|l| l.starts_with("0/")).expect("its group");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("bytes")
    };
    let before = used();
    btrfs(&["qgroup", "limit", "24M"], &volume);
    let made = plan(&[&path], Policy::WholeFile);
    let lies = extents(&path);
    let (summary, receipts) = apply(&made);
    let quota = receipts.iter().filter(|r| r.reason == Some(SkipReason::Quota)).count();
    assert!(quota > 0 && !summary.failed(), "{summary:?}");
    assert!(extents(&path) <= lies && is_intact(&path, 16 * MIB).unwrap());
    assert!(used() <= before + MIB, "{before} before, {} after", used());
    btrfs(&["qgroup", "limit", "none"], &volume);
    let (summary, _) = apply(&made);
    assert!(summary.ranges_moved > 0 && !summary.failed(), "{summary:?}");
    assert!(used() <= before + MIB, "{before} before, {} after", used());
    image.fsck();
    assert!(is_intact(&path, 16 * MIB).unwrap());
}
