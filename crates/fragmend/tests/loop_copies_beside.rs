//! What others do to a file while it is copied: they keep a part of it dirty on a slow disk, mend it
//! themselves, truncate it, or cut the power. No program is kept out for that long, and receipts report only
//! what `apply` has done.

mod support;

use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_engines::engine::{Choice, volume_for};
use fragmend_plan::Policy;
use fragmend_sys::mounts;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{BTRFS, FileSystem, XFS, XFS_EXCHANGE, XFS_RMAP};
use fragmend_testbed::fragment::{content, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running};
use fragmend_testbed::tools::extents;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::pace::relocate;
use support::rewrite::{FRAGMEND, go_on_throughout};
use support::{SIZE, fragmented, plan, write_plan};

const MIB: u64 = 1 << 20;

/// Applies a new plan for a file, and continues it wherever it stops; calls `meanwhile` when it has stopped
/// for the first time.
fn apply(
    scratch: &Path,
    path: &Path,
    args: &[&str],
    stop_at: &str,
    meanwhile: impl FnOnce(),
) -> Finished {
    let plan_file = scratch.join("plan.json");
    write_plan(&plan(&[path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json"]).args(args).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", format!("{stop_at}=stop"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    go_on_throughout(Running::start(&mut command), meanwhile)
}

/// The last receipt of each range.
fn receipts(ended: &Finished) -> Vec<Value> {
    let events = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ranges = events.filter(|event| event["event"] == "range");
    let last: BTreeMap<u64, Value> =
        ranges.map(|range| (range["offset"].as_u64().unwrap(), range)).collect();
    last.into_values().collect()
}

/// A program keeps writing the same bytes to blocks of the file; the disk completes two requests a second.
#[test]
fn loop_what_others_keep_dirty_is_not_written_out_with_the_file_locked() {
    for file_system in [&XFS, &BTRFS] {
        let slow_mount = SlowMount::new(file_system, 320 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, MIB, &[16 << 10], true).unwrap();
        slow_mount.sync();
        let over = Arc::new(AtomicBool::new(false));
        let writer = std::thread::spawn({
            let (path, over) = (path.clone(), Arc::clone(&over));
            move || {
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                let mut bytes = [0; 4096];
                while !over.load(Ordering::Relaxed) {
                    for at in (0..MIB).step_by(256 << 10) {
                        file.read_exact_at(&mut bytes, at).unwrap();
                        file.write_all_at(&bytes, at).unwrap();
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let slow = || slow_mount.gate().pace(Kind::Write, Some(2));
        let ended = apply(slow_mount.scratch(), &path, &["--rate", "max"], "staged", slow);
        over.store(true, Ordering::Relaxed);
        slow_mount.gate().pace(Kind::Write, None);
        writer.join().unwrap();
        let longest = receipts(&ended)[0]["longest_step_seconds"].as_f64().unwrap();
        println!("{}: {longest} s, {}", file_system.name, receipts(&ended)[0]);
        assert!(longest < 1.5, "{}: {longest}", file_system.name);
        assert!(is_intact(&path, MIB).unwrap());
    }
}

/// A program writes to the file once its copy is on the way, and the disk completes two requests a second.
#[test]
fn loop_what_others_wrote_since_the_copy_is_not_written_out_with_the_file_locked() {
    for file_system in [&XFS, &BTRFS] {
        let slow_mount = SlowMount::new(file_system, 320 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, MIB, &[16 << 10], true).unwrap();
        slow_mount.sync();
        let gate = slow_mount.gate().clone();
        let mut writer = None;
        let ended = apply(slow_mount.scratch(), &path, &["--rate", "max"], "staged", || {
            let copy = gate.hold(|request| request.kind == Kind::Write);
            let (gate, path) = (gate.clone(), path.clone());
            writer = Some(std::thread::spawn(move || {
                assert!(copy.wait_for(1, Duration::from_secs(20)), "no copy");
                let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
                let mut bytes = [0; 4096];
                // In blocks that are not adjacent on the disk.
                for at in (0..64 << 10).step_by(16 << 10) {
                    file.read_exact_at(&mut bytes, at).unwrap();
                    file.write_all_at(&bytes, at).unwrap();
                }
                gate.pace(Kind::Write, Some(2));
                copy.release();
            }));
        });
        gate.pace(Kind::Write, None);
        writer.expect("it was staged").join().unwrap();
        let longest = receipts(&ended)[0]["longest_step_seconds"].as_f64().unwrap();
        println!("{}: {longest} s, {}", file_system.name, receipts(&ended)[0]);
        assert!(longest < 1.0, "{}: {longest}", file_system.name);
        assert!(is_intact(&path, MIB).unwrap());
    }
}

/// A program writes to the file faster than the disk completes it, while the file is staged: to report the
/// layout, the kernel would write out all of that with writers kept out.
#[test]
fn loop_a_writer_does_not_wait_until_all_that_it_wrote_is_on_the_disk() {
    const BEHIND: u64 = 8 * MIB;
    for file_system in [&BTRFS, &XFS_RMAP] {
        let slow_mount = SlowMount::new(file_system, 640 * MIB, "");
        let path = slow_mount.root().join("file");
        interleaved(&path, MIB, &[64 << 10], true).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        fallocate(&file, FallocateFlags::empty(), BEHIND, 200 * MIB).unwrap();
        slow_mount.sync();
        let planned = plan(&[&path], Policy::WholeFile).files.remove(0);
        let ranges: Vec<_> = planned.ranges.iter().map(|range| range.range()).collect();
        let mount = mounts::of_path(&slow_mount.root()).unwrap();
        let volume = volume_for(&mount, &Choice::Native, true).unwrap();
        let mut opened = volume.open(planned.file, &path).unwrap();
        slow_mount.gate().pace(Kind::Write, Some(40));
        let (over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
        let staged = std::thread::scope(|scope| {
            scope.spawn(|| {
                let bytes = vec![7; MIB as usize];
                for n in (0..200).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                    let started = Instant::now();
                    file.write_all_at(&bytes, BEHIND + n * MIB).unwrap();
                    let waited = started.elapsed().as_millis() as u64;
                    longest.fetch_max(waited, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            std::thread::sleep(Duration::from_millis(500));
            let alone = longest.swap(0, Ordering::Relaxed);
            let need = opened.need(&ranges);
            let of_need = longest.load(Ordering::Relaxed);
            let mut staged = 0;
            let end = || {
                staged = longest.load(Ordering::Relaxed);
                over.store(true, Ordering::Relaxed);
                slow_mount.gate().pace(Kind::Write, None);
            };
            let moved = relocate(&mut *opened, &ranges, end).map(drop);
            if !over.swap(true, Ordering::Relaxed) {
                staged = longest.load(Ordering::Relaxed);
                slow_mount.gate().pace(Kind::Write, None);
            }
            let name = file_system.name;
            println!("{name}: {alone}, {of_need}, {staged} ms; {need:?} {moved:?}");
            staged
        });
        assert!(staged < 1000, "{}: {staged} ms", file_system.name);
    }
}

/// The owner of a file writes it anew into one extent, while `apply` has staged it.
#[test]
fn loop_what_its_owner_has_joined_meanwhile_has_not_moved() {
    for file_system in [&XFS, &XFS_EXCHANGE, &BTRFS] {
        let image = Image::of(file_system, 320 * MIB);
        let path = fragmented(&image, "file");
        let join = || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, how, 0, SIZE).unwrap();
            fallocate(&file, FallocateFlags::empty(), 0, SIZE).unwrap();
            let mut bytes = vec![0; SIZE as usize];
            content(0, &mut bytes);
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
        };
        let ended = apply(image.scratch(), &path, &["--rate", "max"], "staged", join);
        let told = &receipts(&ended)[0];
        assert_eq!(extents(&path), 1, "{told}");
        assert_eq!(told["moved_bytes"], 0, "{}: {told}", file_system.name);
        assert_eq!(told["outcome"], "skipped", "{}: {told}", file_system.name);
        assert_eq!(told["reason"], "already_contiguous", "{}: {told}", file_system.name);
        assert!(is_intact(&path, SIZE).unwrap());
    }
}

/// A move that cannot be made durable or checked any more is not reported as one.
#[test]
fn loop_no_receipt_says_moved_when_the_disk_has_gone() {
    for file_system in [&XFS, &XFS_EXCHANGE, &XFS_RMAP] {
        let image = Image::of(file_system, 320 * MIB);
        let path = fragmented(&image, "file");
        let root = File::open(image.path()).unwrap();
        let cut = || cut_power(&root).unwrap();
        let args = ["--rate", "max", "--force"];
        let ended = apply(image.scratch(), &path, &args, "moved", cut);
        drop(root);
        let name = file_system.name;
        for told in receipts(&ended) {
            assert_ne!(told["outcome"], "moved", "{name}: {ended:?}");
        }
        assert!(ended.status.code().is_some_and(|code| code & 4 != 0), "{name}: {ended:?}");
        image.remount();
        assert!(is_intact(&path, SIZE).unwrap(), "{name}");
        image.fsck();
    }
}

/// A file that is truncated while its long first extent is copied is left alone.
#[test]
fn loop_a_long_first_extent_that_is_cut_off_ends_the_copy() {
    const FIRST: u64 = 3 * MIB;
    for (file_system, at) in [
        (&XFS, FIRST / 2),
        (&XFS, FIRST / 2 + 100),
        (&XFS_EXCHANGE, FIRST / 2),
        (&BTRFS, FIRST / 2),
    ] as [(&FileSystem, u64); 4]
    {
        let slow_mount = SlowMount::new(file_system, 320 * MIB, "");
        let path = slow_mount.root().join("file");
        let mut fragments = vec![4096; 65];
        fragments[0] = FIRST;
        interleaved(&path, FIRST + (256 << 10), &fragments, true).unwrap();
        slow_mount.sync();
        let (gate, file) = (slow_mount.gate().clone(), path.clone());
        let mut cutter = None;
        let slow = || {
            gate.pace(Kind::Write, Some(20));
            cutter = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                OpenOptions::new().write(true).open(file).unwrap().set_len(at).unwrap();
            }));
        };
        let ended = apply(slow_mount.scratch(), &path, &["--rate", "max"], "staged", slow);
        slow_mount.gate().pace(Kind::Write, None);
        cutter.unwrap_or_else(|| panic!("{ended:?}")).join().unwrap();
        let told = &receipts(&ended)[0];
        println!("{}: {told}", file_system.name);
        assert_eq!(told["outcome"], "skipped", "{}: {told}", file_system.name);
        assert!(is_intact(&path, at).unwrap());
    }
}
