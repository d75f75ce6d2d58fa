//! The order in which writes must reach the device: mounts that do not guarantee it are refused, and
//! on ext4, where other programs cannot make their own bytes durable until a move is committed, they
//! are kept out until it is.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::{PlannedRange, Policy};
use fragmend_sys::cache;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::rewrite::is_stopped;
use support::{
    SIZE, apply, apply_forced, fragmented, holder, plan, readable_by_all, reasons, write_plan,
};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// Checks that `fragmend apply` of a plan for one file refuses the whole file system, for this reason.
fn refused(image: &Image, file: &Path, why: &str) -> PathBuf {
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[file], Policy::WholeFile), &plan_file);
    let before = extents(file);
    let ended = finish(Command::new(FRAGMEND).arg("apply").arg(&plan_file).arg("--quiet"));
    assert!(ended.stderr.contains(why) && ended.stderr.contains("--force"), "{ended:?}");
    ended.expect(&[4]);
    assert_eq!(extents(file), before);
    plan_file
}

#[test]
fn loop_fast_commits_are_refused() {
    // Not with `--force`: moves beside fast commits can hang Linux 6.18 until it is rebooted.
    let image = Image::ext4_with(128 * MIB, &["-O", "fast_commit"], "");
    let file = fragmented(&image, "file");
    let plan_file = refused(&image, &file, "fast commits");
    // For its owner, who may not read the device, the counters show it.
    let owner = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    [image.path(), &file].into_iter().for_each(owner);
    readable_by_all(&plan_file);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND, "apply", "--json"])
        .arg(&plan_file);
    let text = finish(&mut command).expect(&[0, 2]);
    assert!(text.contains("fast commits") && text.contains("\"moved_bytes\":0"), "{text}");
    assert!(extents(&file) > 100);
}

#[test]
fn loop_mounts_without_flushes_are_refused() {
    let cases: [(&'static FileSystem, &str); 3] =
        [(&EXT4, "nobarrier"), (&EXT4, "barrier=0"), (&BTRFS, "nobarrier")];
    for (file_system, option) in cases {
        let image = Image::of(file_system, 256 * MIB);
        let file = fragmented(&image, "file");
        image.unmount();
        image.mount_with(option);
        let plan_file = refused(&image, &file, "mounted with nobarrier");
        let forced = ["apply", "--force", "--quiet"];
        finish(Command::new(FRAGMEND).args(forced).arg(plan_file)).expect(&[0]);
        assert_eq!(extents(&file), 1, "{} {option}", file_system.name);
        image.fsck();
    }
}

/// The option is in the super block, so that mountinfo does not show it.
#[test]
fn loop_flushes_that_the_super_block_turns_off_are_seen() {
    let image = Image::ext4(128 * MIB);
    let file = fragmented(&image, "file");
    image.unmount();
    run("tune2fs", ["-o", "nobarrier", image.device()]);
    image.mount_with("");
    refused(&image, &file, "mounted with nobarrier");
}

/// Readers too: a lease does not distinguish them from writers, and they may open it once more to write.
#[test]
fn loop_what_others_have_open_stays_on_ext4_unless_forced() {
    let image = Image::ext4(128 * MIB);
    let holders = [
        ("reader", "import sys;f=open(sys.argv[1],'rb')"),
        ("writer", "import sys;f=open(sys.argv[1],'r+b')"),
        (
            "mapping",
            "import sys,mmap\nwith open(sys.argv[1],'r+b') as f: m=mmap.mmap(f.fileno(),0)",
        ),
    ];
    for (name, script) in holders {
        let file = fragmented(&image, name);
        let made = plan(&[&file], Policy::WholeFile);
        let holds = format!("{script}\nprint('!',flush=True);sys.stdin.read()");
        let other = holder(&file, &holds);
        let (summary, _) = apply(&made);
        assert_eq!(reasons(&summary, &file), [SkipReason::Busy], "{name}: {summary:?}");
        assert!(summary.skipped[0].detail.contains("have it open"), "{name}: {summary:?}");
        assert_eq!(summary.moved_bytes, 0, "{name}");
        let (summary, _) = apply_forced(&made);
        assert_eq!((summary.ranges_moved, extents(&file)), (1, 1), "{name}: {summary:?}");
        drop(other);
    }
    image.fsck();
}

/// If the donor has the last inode, a commit syncs the donor alone: it does not wait for what others have
/// written to other files.
#[test]
fn loop_a_commit_without_a_free_inode_writes_nobody_elses_data() {
    const MUCH: usize = 8 << 20;
    let image = Image::ext4_with(128 * MIB, &["-N", "128"], "");
    let (path, big) = (fragmented(&image, "file"), image.path().join("big"));
    std::fs::write(&big, vec![1; MUCH]).unwrap();
    let made = plan(&[&path], Policy::WholeFile);
    let mut names = (0..).map(|n| image.path().join(format!("inode {n}")));
    let last = names.find(|name| File::create(name).is_err()).unwrap();
    std::fs::remove_file(last.with_file_name("inode 0")).unwrap();
    image.sync();
    assert_eq!(rustix::fs::statvfs(image.path()).unwrap().f_ffree, 1);
    // So that each step is committed by itself.
    let other = File::open(&path).unwrap();
    let writer = OpenOptions::new().write(true).open(&big).unwrap();
    writer.write_all_at(&vec![2; MUCH], 0).unwrap();
    let dirty = || cache::dirty_pages(&writer, 0..MUCH as u64).unwrap();
    let before = dirty();
    let (summary, _) = apply_forced(&made);
    assert_eq!((summary.ranges_moved, extents(&path)), (1, 1), "{summary:?}");
    let after = dirty();
    assert!(before > 0 && after == before, "{after} of {before} pages are dirty");
    drop((other, writer));
    image.fsck();
}

/// A program that opens a file between an exchange and its commit waits for the commit; and what it then
/// overwrites and syncs without metadata survives a power cut.
#[test]
fn loop_an_open_of_a_file_that_moves_waits_for_the_commit_and_loses_nothing() {
    let image = Image::ext4(128 * MIB);
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--quiet", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "moved=stop");
    let apply = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let apply = apply.wait_until(is_stopped);
    let want = synced_beside(apply, &path, image.path());
    image.remount();
    image.fsck();
    assert!(std::fs::read(&path).unwrap() == want, "what was synced is gone");
}

/// Opens the file that a stopped `apply` is moving, waits until it is let in, overwrites the file and
/// syncs its data; then cuts the power of what is mounted at `mount`. Returns what was written.
fn synced_beside(apply: Running, path: &Path, mount: &Path) -> Vec<u8> {
    let opened = std::thread::spawn({
        let path = path.to_owned();
        move || OpenOptions::new().write(true).open(path)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!opened.is_finished(), "nothing keeps others out of what is not committed");
    let started = Instant::now();
    while !opened.is_finished() {
        apply.signal(rustix::process::Signal::CONT);
        assert!(started.elapsed() < Duration::from_secs(20), "no program is let in");
        std::thread::sleep(Duration::from_millis(2));
    }
    let file = opened.join().unwrap().unwrap();
    let want = vec![b'!'; SIZE as usize];
    file.write_all_at(&want, 0).unwrap();
    file.sync_data().unwrap();
    cut_power(File::open(mount).unwrap()).unwrap();
    apply.signal(rustix::process::Signal::KILL);
    drop((apply.wait(), file));
    want
}

/// A mount below a directory that its owner may rename.
struct Below {
    home: PathBuf,
    /// The directory's present name.
    name: &'static str,
}

impl Below {
    fn of(image: &Image) -> Self {
        let below = Self { home: image.scratch().join("home"), name: "a" };
        std::fs::create_dir_all(below.mount()).unwrap();
        image.unmount();
        run("mount", [Path::new(image.device()), &below.mount()]);
        below
    }

    fn mount(&self) -> PathBuf {
        self.home.join(self.name).join("mnt")
    }

    /// Renames the directory, and puts another one in its place.
    fn rename(&mut self) {
        let before = self.mount();
        std::fs::rename(self.home.join("a"), self.home.join("b")).unwrap();
        self.name = "b";
        std::fs::create_dir_all(before).unwrap();
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        let _ = finish(Command::new("umount").arg(self.mount()));
    }
}

/// Renaming a directory above the mount point does not redirect commits to another file system, where
/// they would make nothing durable.
#[test]
fn loop_what_is_put_where_the_mount_was_gets_neither_commits_nor_donors() {
    for point in ["staged", "moved"] {
        let image = Image::ext4(128 * MIB);
        let _ = fragmented(&image, "file");
        let mut below = Below::of(&image);
        let plan_file = image.scratch().join("plan.json");
        write_plan(&plan(&[&below.mount().join("file")], Policy::WholeFile), &plan_file);
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
        command.env("FRAGMEND_STOP_AT", format!("{point}=stop"));
        let apply = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let apply = apply.wait_until(is_stopped);
        below.rename();
        let path = below.mount().join("file");
        if point == "staged" {
            apply.signal(rustix::process::Signal::CONT);
            let text = apply.wait().expect(&[0]);
            assert!(text.contains("\"primitive\":\"EXT4_IOC_MOVE_EXT\""), "{text}");
            assert!(text.contains("\"ranges_moved\":1"), "{text}");
            assert_eq!(extents(&path), 1);
        } else {
            let want = synced_beside(apply, &path, &below.mount());
            drop(below);
            image.mount_with("");
            image.fsck();
            let found = std::fs::read(image.path().join("file")).unwrap();
            assert!(found == want, "what was synced is gone");
        }
    }
}

/// A file that was renamed away before `apply` began is found where it is now; what is at its path is not
/// touched.
#[test]
fn loop_a_mount_whose_path_has_changed_since_the_plan_is_mended_where_it_is() {
    let image = Image::ext4(128 * MIB);
    let _ = fragmented(&image, "file");
    let mut below = Below::of(&image);
    let made = plan(&[&below.mount().join("file")], Policy::WholeFile);
    let other = below.mount();
    below.rename();
    std::fs::write(other.join("file"), "theirs").unwrap();
    let (summary, receipts) = apply(&made);
    let path = below.mount().join("file");
    assert_eq!((summary.ranges_moved, extents(&path)), (1, 1), "{summary:?}");
    assert!(receipts.iter().all(|r| r.path.to_path() == Some(path.clone())), "{receipts:?}");
}

/// A plan names files below one mount of a file system, and they are found through another: bind mounts.
#[test]
fn loop_a_path_below_another_mount_of_the_same_file_system_is_found_by_anybody() {
    let image = Image::ext4(128 * MIB);
    std::fs::create_dir(image.path().join("dir")).unwrap();
    let file = fragmented(&image, "dir/file");
    let below = Below { home: image.scratch().join("home"), name: "a" };
    std::fs::create_dir_all(below.mount()).unwrap();
    run("mount", [Path::new("--bind"), &image.path().join("dir"), &below.mount()]);
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    own(&file);
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&below.mount().join("file")], Policy::WholeFile), &plan_file);
    readable_by_all(&plan_file);
    let text = std::fs::read_to_string(&plan_file).unwrap();
    assert!(text.contains("home/a/mnt/file") || text.contains("dir/file"), "{text}");
    own(&image.path().join("dir"));
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND, "apply", "--json"])
        .args(["--rate", "max"])
        .arg(&plan_file);
    let text = finish(&mut command).expect(&[0]);
    assert!(text.contains("\"ranges_moved\":1"), "{text}");
    assert_eq!(extents(&file), 1);
}

/// Ctrl-Z while a move is not committed: the process stops once it is, with the lease released, so that no
/// program waits for a stopped process, and what it syncs survives a power cut.
#[test]
fn loop_a_stop_signal_waits_for_the_commit() {
    use std::os::unix::process::CommandExt;
    use std::sync::mpsc;
    let image = Image::ext4(128 * MIB);
    let path = fragmented(&image, "file");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    for number in [20, 21, 22] {
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--quiet", "--rate", "max"]).arg(&plan_file);
        // A process group of its own: the kernel does not stop orphaned ones.
        command.env("FRAGMEND_STOP_AT", format!("moved={number}")).process_group(0);
        let apply = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let apply = apply.wait_until(is_stopped);
        let leases = std::fs::read_to_string("/proc/locks").unwrap();
        let ours =
            |l: &&str| l.contains("LEASE") && l.split(' ').any(|w| w == apply.id().to_string());
        assert_eq!(leases.lines().find(ours), None, "signal {number}: stopped with the lease");
        let (done, opened) = mpsc::channel();
        let of_thread = path.clone();
        std::thread::spawn(move || done.send(OpenOptions::new().write(true).open(of_thread)));
        let file =
            opened.recv_timeout(Duration::from_secs(5)).expect("no program is let in").unwrap();
        let want = vec![number; SIZE as usize];
        file.write_all_at(&want, 0).unwrap();
        file.sync_data().unwrap();
        cut_power(File::open(image.path()).unwrap()).unwrap();
        apply.signal(rustix::process::Signal::KILL);
        drop((apply.wait(), file));
        image.remount();
        image.fsck();
        assert!(std::fs::read(&path).unwrap() == want, "signal {number}: what was synced is gone");
    }
}

/// The same for a file that no program opened before the move had ended.
#[test]
fn loop_what_others_sync_after_the_move_survives_a_power_cut() {
    const BYTES: u64 = 8 * MIB; // an extent tree with leaves, whose inode stays as it is
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    interleaved(&path, BYTES, &[4096], true).unwrap();
    image.sync();
    let (summary, receipts) = apply(&plan(&[&path], Policy::WholeFile));
    assert_eq!(summary.moved_by_primitive.get("EXT4_IOC_MOVE_EXT"), Some(&BYTES), "{summary:?}");
    assert!(receipts.iter().all(|r| r.fallback.is_none()));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let want = vec![b'!'; BYTES as usize];
    file.write_all_at(&want, 0).unwrap();
    file.sync_data().unwrap();
    cut_power(File::open(image.path()).unwrap()).unwrap();
    drop(file);
    image.remount();
    image.fsck();
    assert!(std::fs::read(&path).unwrap() == want, "what was synced is gone");
}

/// A move that could not be made durable is not reported as one.
#[test]
fn loop_what_moves_while_the_device_goes_is_not_told_as_moved() {
    const RANGE: u64 = 128 << 10;
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 * MIB);
        let file = fragmented(&image, "file");
        let plan_file = image.scratch().join("plan.json");
        let mut made = plan(&[&file], Policy::WholeFile);
        let whole = made.files[0].ranges[0].clone();
        let part = |n| PlannedRange { offset: n * RANGE, length: RANGE, ..whole.clone() };
        made.files[0].ranges = (0..SIZE / RANGE).map(part).collect();
        write_plan(&made, &plan_file);
        let mut command = Command::new(FRAGMEND);
        command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
        command.env("FRAGMEND_STOP_AT", "moved=stop");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut out = BufReader::new(running.child().stdout.take().unwrap());
        let (tell, told) = channel();
        let reader = std::thread::spawn(move || {
            let mut lines = Vec::new();
            let mut line = String::new();
            while out.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let event: Value = serde_json::from_str(&std::mem::take(&mut line)).unwrap();
                if event["outcome"] == "moved" {
                    let _ = tell.send(());
                }
                lines.push(event);
            }
            lines
        });
        let (mut left, started) = (Some(File::open(image.path()).unwrap()), Instant::now());
        while running.child().try_wait().unwrap().is_none() {
            assert!(started.elapsed() < Duration::from_secs(30), "{}", file_system.name);
            if is_stopped(running.id()) {
                // One range has moved completely by now.
                if let Some(root) = left.take_if(|_| told.try_recv().is_ok()) {
                    cut_power(root).unwrap();
                }
                running.signal(Signal::CONT);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let (ended, told) = (running.wait(), reader.join().unwrap());
        assert!(ended.status.code().is_some_and(|code| code & 4 != 0), "{ended:?}");
        // The last receipt of a range counts.
        let last: BTreeMap<_, _> = (told.iter().filter(|e| e["event"] == "range"))
            .map(|range| (range["offset"].as_u64(), range))
            .collect();
        let first = last[&Some(0)];
        assert!(first["moved_bytes"] == RANGE, "{}: {first}", file_system.name);
        for range in last.values() {
            assert_eq!(range["outcome"], "skipped", "{}: {range}", file_system.name);
            assert!(range["moved_bytes"] == 0 || range["reason"] == "failed", "{range}");
        }
        assert_eq!(told.last().unwrap()["ranges_moved"], 0, "{}", file_system.name);
        image.remount();
    }
}
