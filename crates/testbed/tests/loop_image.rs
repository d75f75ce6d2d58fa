//! The testbed itself: an image mounts, a file fragments, and everything is gone afterwards.

use fragmend_testbed::file_system::{BTRFS, EXT4};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::loop_device::{LoopDevice, try_unmount};
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::Running;
use fragmend_testbed::{fragment, scratch};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn loop_fragpickers_file_is_truly_fragmented() {
    let image = Image::ext4(256 << 20);
    let path = image.path().join("file");
    fragment::interleaved(&path, 8 << 20, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
    let found = run("filefrag", [&path]);
    // 8 MiB are 32 rounds of 33 extents; the allocator's first preallocation hides a few.
    let extents: u64 = found.split_whitespace().rev().nth(2).unwrap().parse().unwrap();
    assert!((1000..=1056).contains(&extents), "{found}");
    assert!(fragment::is_intact(&path, 8 << 20).unwrap());
    image.fsck();
    assert!(fragment::is_intact(&path, 8 << 20).unwrap());
}

/// What keeps a mount in use is named, and a device that does not answer keeps nobody waiting.
#[test]
fn loop_unmounting_ends_and_names_what_uses_the_mount() {
    let (soon, moment) = (Duration::from_secs(20), Duration::from_millis(300));
    let outer = Image::ext4(96 << 20);
    let disk = outer.path().join("disk.img");
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    EXT4.make(&disk, &[]);
    let device = LoopDevice::attach(&disk);
    let (node, at) = (Path::new(device.node()), outer.scratch().join("inner"));
    fs::create_dir(&at).unwrap();
    let mounted = MountGuard::mount(&[node], &at);

    let sleeper = Running::start(Command::new("sleep").arg("60").current_dir(&at));
    let why = try_unmount(node, &at, moment, soon).unwrap_err();
    let named = format!("in use by sleep (process {}: {})", sleeper.id(), at.display());
    assert!(why.contains(&named), "{why}");
    let outside = outer.path().to_owned();
    let why = try_unmount(Path::new(outer.device()), &outside, moment, soon).unwrap_err();
    assert!(why.contains(&format!(" ({})", disk.display())) && why.contains("loop"), "{why}");
    drop(sleeper);

    // Its disk is a file that cannot be written now.
    fs::write(at.join("dirty"), [1; 4096]).unwrap();
    run("fsfreeze", ["--freeze".as_ref(), outside.as_os_str()]);
    let why = try_unmount(node, &at, moment, moment);
    run("fsfreeze", ["--unfreeze".as_ref(), outside.as_os_str()]);
    let why = why.unwrap_err();
    assert!(why.contains("is being unmounted for longer than 0.3 s"), "{why}");
    // It ends by itself once the device answers.
    drop(mounted);
    device.detach();
}

/// A check of a mirror opens the disks of no other test.
#[test]
fn loop_a_check_of_two_disks_opens_these_alone() {
    let dir = scratch::for_disks();
    let disks = ["one", "two", "other"].map(|name| {
        let disk = dir.path().join(name);
        File::create(&disk).unwrap().set_len(128 << 20).unwrap();
        LoopDevice::attach(&disk)
    });
    let [one, two, other] = disks.each_ref().map(|disk| Path::new(disk.node()));
    BTRFS.make(one, &["-d", "raid1", "-m", "raid1", two.to_str().unwrap()]);
    let opened = [two, other].map(|node| {
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, node, WatchFlags::OPEN).unwrap();
        let mut buffer = [MaybeUninit::uninit(); 512];
        move || inotify::Reader::new(&watch, &mut buffer).next().is_ok()
    });
    let [mut is_second_opened, mut is_other_opened] = opened;
    BTRFS.check_two([one, two]).unwrap();
    assert!(is_second_opened() && !is_other_opened());
    BTRFS.check(one).unwrap();
    assert!(is_other_opened(), "a check that is shown all disks does not look for the second one");
    disks.into_iter().for_each(LoopDevice::detach);
}
