//! What `--engine rewrite` requires of file systems: that of the files must take no snapshots, that of
//! the records must keep what was synced. Others are refused, whatever the options, and nothing is
//! touched.

mod support;

use fragmend_crash::after::AfterCut;
use fragmend_crash::cut::Cut;
use fragmend_crash::marks::Mark;
use fragmend_crash::scenario::BTRFS_SIZE;
use fragmend_crash::slow::SlowMount;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::overlay::Overlay;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use rustix::fs::FallocateFlags;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use support::records::names;
use support::rewrite::{is_stopped, outcomes, recover, rewrite};
use support::{SIZE, fragmented};

/// Checks that it is refused with these words, before anything was touched.
fn refused(image: &Image, file: &Path, args: &[&dyn AsRef<OsStr>], words: &str) {
    let before = extents(file);
    for force in [&[][..], &["--force"]] {
        let mut command = rewrite(image, file, "");
        let ended = finish(command.args(args.iter().map(AsRef::as_ref)).args(force));
        assert_eq!(ended.status.code(), Some(4), "{words}, {force:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{words}, {force:?}: {ended:?}");
        assert_eq!(extents(file), before, "{words}");
    }
    assert!(is_intact(file, SIZE).unwrap(), "{words}");
    assert!(!image.path().join(".fragmend-rewrite").exists(), "{words}");
}

/// A mount at a new directory.
fn mounted(at: &Path, args: &[&str]) -> MountGuard {
    fs::create_dir(at).unwrap();
    MountGuard::mount(args, at)
}

/// There the disk cannot be asked what it has of a file.
#[test]
fn loop_data_through_the_journal_is_not_rewritten() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    image.unmount();
    image.mount_with("data=journal");
    refused(&image, &file, &[], "mount it with data=ordered");
}

#[test]
fn loop_a_file_system_with_snapshots_is_refused_whatever_is_asked() {
    let image = Image::of(&BTRFS, 320 << 20);
    let file = fragmented(&image, "file");
    let disk = Image::ext4(64 << 20);
    refused(&image, &file, &[], "btrfs: it takes snapshots");
    refused(&image, &file, &[&"--journal", &disk.path()], "btrfs: it takes snapshots");
    assert_eq!(names(disk.path()), ["lost+found"]);
}

#[test]
fn loop_records_are_kept_where_they_outlast_a_power_cut_only() {
    let image = Image::of(&EXT4, 128 << 20);
    let file = fragmented(&image, "file");
    let at = |name: &str| image.scratch().join(name);
    let journal = |dir: &Path, words: &str| {
        refused(&image, &file, &[&"--journal", &dir], words);
        assert!(names(dir).iter().all(|n| !n.starts_with("fragmend")), "{words}");
    };
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    journal(shm.path(), "tmpfs: its files are in memory");
    journal(
        mounted(&at("ramfs"), &["-t", "ramfs", "none"]).path(),
        "ramfs: its files are in memory",
    );
    let below = Image::ext4(64 << 20);
    let overlay = Overlay::over(&below);
    journal(&overlay.merged, "an overlay");
    drop(overlay);
    let good = below.path().join("good");
    fs::create_dir(&good).unwrap();
    let bound = mounted(&at("bound"), &["--bind", good.to_str().unwrap()]);
    run(
        "mount",
        ["-o", "remount,bind,ro"].map(OsStr::new).into_iter().chain([bound.path().as_os_str()]),
    );
    journal(bound.path(), "mounted read-only");
    drop(bound);
    for (mkfs, options, words) in [
        (&[][..], "nobarrier", "without write barriers"),
        (&[], "barrier=0", "without write barriers"),
        (&[], "data=writeback", "with data=writeback"),
        (&[], "journal_async_commit,data=writeback", "data=writeback"),
        (&["-O", "^has_journal"], "", "without a journal"),
    ] {
        let disk = Image::ext4_with(32 << 20, mkfs, options);
        journal(disk.path(), words);
        // The same for the file's own file system, wherever the records are.
        if options != "nobarrier" && !mkfs.is_empty() {
            continue;
        }
        let own = Image::ext4_with(64 << 20, mkfs, options);
        let file = fragmented(&own, "file");
        refused(&own, &file, &[], words);
        refused(&own, &file, &[&"--journal", &good], words);
    }
    // On a disk that is in memory itself.
    let disk = shm.path().join("disk.img");
    File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    run("mkfs.ext4", [OsStr::new("-q"), disk.as_os_str()]);
    let device = LoopDevice::attach(&disk);
    journal(mounted(&at("memory"), &["-t", "ext4", device.node()]).path(), "a disk in memory");
    drop(device);
    // A kind that is not known to keep what was synced.
    let old = at("old.img");
    File::create(&old).unwrap().set_len(16 << 20).unwrap();
    run("mkfs.ext2", [OsStr::new("-q"), old.as_os_str()]);
    let device = LoopDevice::attach(&old);
    journal(mounted(&at("old"), &["-t", "ext2", device.node()]).path(), "(ext2) that is not known");
    drop(device);
    // And one that is fine.
    finish(rewrite(&image, &file, "").arg("--journal").arg(&good)).expect(&[0, 2]);
    assert_eq!(extents(&file), 1);
    assert_eq!(names(&good), [""; 0]);
}

/// A user who may rename a directory can give records to another user.
#[test]
fn loop_records_are_not_kept_where_other_users_may_rename_them() {
    let (image, below) = (Image::of(&EXT4, 128 << 20), Image::ext4(64 << 20));
    let file = fragmented(&image, "file");
    let good = below.path().join("good");
    fs::create_dir(&good).unwrap();
    run("chmod", [OsStr::new("0777"), good.as_os_str()]);
    let ended = finish(rewrite(&image, &file, "").arg("--journal").arg(&good));
    assert!(ended.stderr.contains("others may rename"), "{ended:?}");
    run("chmod", [OsStr::new("0755"), good.as_os_str()]);
    // Also further up: renaming a directory removes what is below it.
    let (user, inner) = (below.path().join("user"), below.path().join("user/inner"));
    fs::create_dir_all(&inner).unwrap();
    std::os::unix::fs::chown(&user, Some(65534), None).unwrap();
    let mut command = rewrite(&image, &file, "");
    let ended = finish(command.arg("--journal").arg(inner.join("..").join("inner")));
    assert!(ended.stderr.contains("others may rename"), "{ended:?}");
    let deeper = inner.join("deeper");
    fs::create_dir(&deeper).unwrap();
    let ended = finish(rewrite(&image, &file, "").arg("--journal").arg(&deeper));
    assert!(ended.stderr.contains("others may rename"), "{ended:?}");
    assert!(extents(&file) > 100);
}

/// The record and its name are on the journal's disk before anything happens to the file.
#[test]
fn loop_a_record_is_on_its_disk_before_the_punch() {
    for (files, records) in [(&EXT4, &XFS), (&XFS, &EXT4)] {
        let image = Image::of(files, 320 << 20);
        let disk = Image::of(records, 320 << 20);
        let file = fragmented(&image, "file");
        let mut command = rewrite(&image, &file, "punched=stop");
        command.arg("--journal").arg(disk.path());
        let stopped = Running::start(&mut command).wait_until(is_stopped);
        // The hole is durable, and so is only that of the records which was synced.
        image.sync();
        cut_power(File::open(disk.path()).unwrap()).unwrap();
        stopped.signal(Signal::KILL);
        stopped.wait();
        disk.remount();
        image.remount();
        assert_eq!(fs::read(&file).unwrap(), vec![0; SIZE as usize]);
        let args: [&dyn AsRef<OsStr>; 3] = [&"--journal", &disk.path(), &image.path()];
        let (told, code) = recover(&args);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&file, SIZE).unwrap(), "{} on {}", records.name, files.name);
    }
}

/// Btrfs makes a name durable without the file's latest bytes. That shows with the second of two ranges: the
/// first record of a new journal is durable all the same.
#[test]
fn loop_all_of_a_record_is_on_btrfs_before_the_punch() {
    let image = Image::of(&EXT4, 320 << 20);
    let file = fragmented(&image, "file");
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let open = File::options().write(true).open(&file).unwrap();
    rustix::fs::fallocate(open, how, SIZE / 2, 64 << 10).unwrap();
    let before = fs::read(&file).unwrap();
    let mut disk = SlowMount::new(&BTRFS, BTRFS_SIZE.bytes, "");
    disk.sync();
    disk.record();
    let mut command = rewrite(&image, &file, "punched=stop");
    command.arg("--journal").arg(disk.root());
    let first = Running::start(&mut command).wait_until(is_stopped);
    first.signal(Signal::CONT);
    let second = first.wait_until(is_stopped);
    disk.mark(&Mark::AtRest);
    image.sync();
    second.signal(Signal::KILL);
    second.wait();
    disk.unmount();
    let (base, log) = disk.recorded().unwrap();
    let at_rest = log.marks().map(Result::unwrap).find(|(_, mark)| mark.contains("AtRest"));
    let (position, _) = at_rest.expect("its mark");
    let cut = Cut { position, seed: 1, honest: true };
    let left = AfterCut::new(&BTRFS, (&base, &log), BTRFS_SIZE.atom, cut);
    let args: [&dyn AsRef<OsStr>; 3] = [&"--journal", &left.root(), &image.path()];
    let (told, code) = recover(&args);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(fs::read(&file).unwrap() == before);
}

/// With records elsewhere, the commit that removes one commits nothing of the file.
#[test]
fn loop_what_is_written_back_is_on_its_disk_before_the_record_goes() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let disk = Image::ext4(64 << 20);
        let file = fragmented(&image, "file");
        let mut command = rewrite(&image, &file, "punched=stop,removed=stop");
        command.arg("--journal").arg(disk.path());
        let stopped = Running::start(&mut command).wait_until(is_stopped);
        // The hole is durable.
        image.sync();
        stopped.signal(Signal::CONT);
        let stopped = stopped.wait_until(is_stopped);
        cut_power(File::open(image.path()).unwrap()).unwrap();
        stopped.signal(Signal::KILL);
        stopped.wait();
        image.remount();
        assert!(is_intact(&file, SIZE).unwrap(), "{}", file_system.name);
    }
}
