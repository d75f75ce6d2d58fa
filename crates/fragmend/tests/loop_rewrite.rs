//! `--engine rewrite` beside other programs: which are kept out, what is refused and left alone, what
//! happens on a full disk. What every engine must do is in `loop_engines.rs`, crashes are in
//! `loop_rewrite_crash.rs` and `loop_rewrite_random.rs`.

mod support;

use fragmend_engines::Choice;
use fragmend_engines::begin::{Unready, Wanted, open};
use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_sys::cache;
use fragmend_testbed::aging;
use fragmend_testbed::file_system::{EXT3, EXT4, XFS};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::overlay::Overlay;
use fragmend_testbed::pipe::{RANGE, Sent};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::records::{journal, names};
use support::rewrite::{
    FRAGMEND, go_on, go_on_throughout, is_stopped, killed_at, outcomes, recover, rewrite,
    stopped_again, stopped_at,
};
use support::{SIZE, UNPACED, apply_on, fragmented, plan, reasons, write_plan};

fn rewriting() -> Wanted {
    let engine = Choice::Rewrite { journal: None };
    Wanted { engine, force: false }
}

#[test]
fn loop_an_open_file_is_left_alone() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let made = plan(&[&file], Policy::WholeFile);
    let program = "import mmap,sys\nf=open(sys.argv[1],sys.argv[2])\n\
        m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ) if sys.argv[3]=='map' else 0\n\
        f.close() if m else 0\nprint('there',flush=True)\nsys.stdin.read()";
    for how in [["rb", "hold"], ["r+b", "hold"], ["rb", "map"]] {
        let mut command = Command::new("python3");
        command.args(["-c", program]).arg(&file).args(how).stdin(Stdio::piped());
        let mut user = Running::start(command.stdout(Stdio::piped()));
        let mut line = [0; 6];
        let stdout = user.child().stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut line).unwrap();
        let (summary, _) = apply_on(&made, &rewriting(), &UNPACED);
        assert_eq!(reasons(&summary, &file), [SkipReason::Busy], "{how:?}: {summary:?}");
        assert_eq!(summary.moved_bytes, 0);
        drop(user.child().stdin.take());
        user.wait().expect(&[0]);
    }
    assert!(extents(&file) > 100 && is_intact(&file, SIZE).unwrap());
    let (summary, _) = apply_on(&made, &rewriting(), &UNPACED);
    assert_eq!((summary.ranges_moved, extents(&file)), (1, 1), "{summary:?}");
}

#[test]
fn loop_an_open_in_the_middle_waits_and_reads_right() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let (bytes, modified) = (fs::read(&file).unwrap(), file.metadata().unwrap().mtime_nsec());
        // The bytes are a hole now, and the process is stopped.
        let stopped = stopped_at(&image, &file, "punched");
        let mut sum = Command::new("sha256sum");
        let reader = Running::start(sum.arg(&file).stdout(Stdio::piped()));
        let mut cut = Command::new("python3");
        let program = "import os,sys;os.truncate(sys.argv[1],os.stat(sys.argv[1]).st_size+1)";
        let writer = Running::start(cut.args(["-c", program]).arg(&file));
        let direct = ["if=/dev/null", "oflag=nonblock", "conv=notrunc", "status=none"];
        let mut dd = Command::new("dd");
        dd.args(direct).arg(format!("of={}", file.display()));
        assert!(!finish(&mut dd).status.success(), "an open that does not wait fails");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let waits = |id: u32| fs::read_to_string(format!("/proc/{id}/wchan")).unwrap();
        assert!(waits(reader.id()).contains("break_lease"), "{}", waits(reader.id()));
        let told = go_on(stopped).expect(&[0, 2]);
        assert!(told.contains("\"outcome\":\"moved\""), "{told}");
        let read = reader.wait().expect(&[0]);
        writer.wait().expect(&[0]);
        // The program that waited to append may be before or after the one that waited to read.
        let grown = [&bytes[..], &[0]].concat();
        let sums = [&bytes, &grown].map(|bytes| {
            let copy = image.scratch().join("copy");
            fs::write(&copy, bytes).unwrap();
            fragmend_testbed::tools::sha256(&copy)
        });
        assert!(sums.iter().any(|sum| read.starts_with(sum.as_str())), "{read}");
        assert_eq!(fs::read(&file).unwrap(), grown);
        assert_ne!(file.metadata().unwrap().mtime_nsec(), modified, "the writer's time stays");
        image.fsck();
    }
}

#[test]
fn loop_a_write_between_copy_and_lease_is_kept() {
    // Where the time is put back, only the comparison of the bytes shows it.
    for time_is_put_back in [false, true] {
        let image = Image::ext4(320 << 20);
        let file = fragmented(&image, "file");
        let modified = || file.metadata().unwrap().modified().unwrap();
        let before = modified();
        let stopped = stopped_at(&image, &file, "copied");
        let changed = vec![7; 4096];
        let writer = File::options().write(true).open(&file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&writer, &changed, 8192).unwrap();
        if time_is_put_back {
            writer.set_modified(before).unwrap();
        }
        drop(writer);
        let theirs = modified();
        let told = go_on(stopped).expect(&[2]);
        assert!(told.contains("\"reason\":\"busy\""), "{told}");
        assert_eq!((&fs::read(&file).unwrap()[8192..12288], modified()), (&changed[..], theirs));
        assert!(extents(&file) > 100);
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
    }
}

/// Where nothing was cached, no device writes to its pages: that is not looked for, by reading all once more, while
/// others are kept out.
#[test]
fn loop_what_is_cold_is_not_read_once_more_under_the_lease() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let mut command = rewrite(&image, &file, "");
    cache::drop_clean(File::open(&file).unwrap(), 0..SIZE).unwrap();
    // So that a change would show in its times.
    std::thread::sleep(Duration::from_millis(3200));
    let told = finish(&mut command).expect(&[0]);
    let summary: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let read = summary["read_bytes"].as_u64().unwrap();
    // Copied, compared, read back from the record and from the new place: four times. With the pages dropped under the lease it would be six.
    println!("{read} bytes read for {SIZE}");
    assert!((4 * SIZE..5 * SIZE).contains(&read), "{told}");
}

/// Pages that a pipe holds since the copy was made: a punch would write zeroes into them where a folio crosses an
/// end of the range. Reading changes no times.
#[test]
fn loop_what_is_put_into_a_pipe_after_the_copy_arrives() {
    const BYTES: u64 = 4 << 20;
    let image = Image::ext4(320 << 20);
    let file = image.path().join("file");
    interleaved(&file, BYTES, &[4096], true).unwrap();
    image.sync();
    let mut plan = plan(&[&file], Policy::WholeFile);
    plan.files[0].ranges.truncate(1);
    (plan.files[0].ranges[0].offset, plan.files[0].ranges[0].length) = RANGE;
    let plan_file = image.scratch().join("range.json");
    write_plan(&plan, &plan_file);
    // So that it is known that no device writes to its pages.
    cache::drop_clean(File::open(&file).unwrap(), 0..BYTES).unwrap();
    std::thread::sleep(Duration::from_millis(3200));
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", "max", "--engine", "rewrite"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "copied=stop").stdin(Stdio::null()).stdout(Stdio::piped());
    let stopped = Running::start(&mut command).wait_until(is_stopped);
    let sent = Sent::begin(&file);
    let told = go_on(stopped).expect(&[0, 2]);
    assert_eq!(sent.wrong(), 0, "blocks arrive as others: {told}");
    assert!(is_intact(&file, BYTES).unwrap(), "{told}");
}

#[test]
fn loop_links_names_owners_and_times_stay() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let name = OsStr::from_bytes(b"new\nline \xff\\ (deleted)");
        let file = image.path().join(name);
        fs::rename(fragmented(&image, "file"), &file).unwrap();
        let link = image.path().join("link");
        fs::hard_link(&file, &link).unwrap();
        std::os::unix::fs::chown(&file, Some(1234), Some(5678)).unwrap();
        run(
            "setfattr",
            ["-n", "user.note", "-v", "kept"].map(OsStr::new).into_iter().chain([file.as_os_str()]),
        );
        run(
            "touch",
            ["-d", "2001-02-03 04:05:06.789"].map(OsStr::new).into_iter().chain([file.as_os_str()]),
        );
        let looks = || {
            let m = link.metadata().unwrap();
            let owner = (m.uid(), m.gid(), m.mode(), m.nlink());
            (owner, m.mtime(), m.mtime_nsec(), m.ino(), m.len())
        };
        let before = looks();
        let (summary, receipts) =
            apply_on(&plan(&[&file], Policy::WholeFile), &rewriting(), &UNPACED);
        assert_eq!((summary.ranges_moved, extents(&link)), (1, 1), "{summary:?}");
        assert_eq!(receipts[0].path.to_path().unwrap(), file);
        image.fsck();
        assert_eq!(looks(), before);
        assert!(is_intact(&link, SIZE).unwrap());
        let note = run(
            "getfattr",
            ["--only-values", "-n", "user.note"]
                .map(OsStr::new)
                .into_iter()
                .chain([link.as_os_str()]),
        );
        assert_eq!(note, "kept");
    }
}

/// A change of attributes between two changes before the punch: the file is left alone, with the time that it had.
#[test]
fn loop_a_change_of_mode_costs_no_time_of_modification() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let time = |path: &Path| path.metadata().unwrap().modified().unwrap();
        let before = time(&file);
        // The second change is to set the time that the first one has changed.
        let stopped = stopped_again(stopped_at(&image, &file, "looking"), 1);
        assert!(time(&file) > before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let ended = go_on_throughout(stopped, || ());
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.stdout.contains("others have changed its attributes"), "{ended:?}");
        assert_eq!(time(&file), before, "{ended:?}");
        assert!(is_intact(&file, SIZE).unwrap() && names(&journal(&image)).is_empty());
    }
}

#[test]
fn loop_what_writing_would_spoil_is_left_alone() {
    let image = Image::ext4(320 << 20);
    let (suid, capable) = (fragmented(&image, "suid"), fragmented(&image, "capable"));
    run("chmod", [OsStr::new("u+s"), suid.as_os_str()]);
    // cap_net_raw=ep, as setcap writes it (struct vfs_cap_data, revision 2).
    let raw = "0x0100000200200000000000000000000000000000";
    run(
        "setfattr",
        ["-n", "security.capability", "-v", raw]
            .map(OsStr::new)
            .into_iter()
            .chain([capable.as_os_str()]),
    );
    let (summary, _) = apply_on(&plan(&[image.path()], Policy::WholeFile), &rewriting(), &UNPACED);
    for file in [&suid, &capable] {
        assert_eq!(reasons(&summary, file), [SkipReason::Unsupported], "{summary:?}");
    }
    assert_eq!(summary.moved_bytes, 0);
}

#[test]
fn loop_refusals_say_why() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let made = plan(&[&file], Policy::WholeFile);
    // As if the file system were one without an engine of its own.
    let refused = |plan: &fragmend_plan::Plan, wanted: &Wanted| -> String {
        match open(plan, wanted, true) {
            Err(e @ Unready::Refused(_)) => e.to_string(),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it is not refused"),
        }
    };
    let elsewhere = |dir: &Path| {
        let mut other = made.clone();
        other.devices[0].device = dir.metadata().unwrap().dev();
        other.devices[0].mount = dir.into();
        other.files[0].file.device = other.devices[0].device;
        other
    };
    let shm = refused(&elsewhere(Path::new("/dev/shm")), &rewriting());
    assert!(shm.contains("tmpfs") && shm.contains("memory"), "{shm}");
    let overlay = Overlay::over(&image);
    let layers = refused(&elsewhere(&overlay.merged), &rewriting());
    assert!(layers.contains("an overlay") && layers.contains("upperdir"), "{layers}");
    drop(overlay);
    // Another user's directory in the place of the journal.
    let journal = image.path().join(".fragmend-rewrite");
    fs::create_dir(&journal).unwrap();
    std::os::unix::fs::chown(&journal, Some(65534), None).unwrap();
    let foreign = refused(&made, &rewriting());
    assert!(foreign.contains("not a directory of ours alone"), "{foreign}");
    fs::remove_dir(&journal).unwrap();
    std::os::unix::fs::symlink("/tmp", &journal).unwrap();
    assert!(refused(&made, &rewriting()).contains("not a directory of ours alone"));
    fs::remove_file(&journal).unwrap();
    // Records that were left.
    killed_at(&image, &fragmented(&image, "other"), "punched");
    let open = refused(&made, &rewriting());
    let what = format!("fragmend recover {}", image.path().display());
    assert!(open.contains(&what), "{open}");
    assert_eq!(recover(&[&image.path()]).1, 0);
    assert_eq!(apply_on(&made, &rewriting(), &UNPACED).0.ranges_moved, 1);
    // Options that do not go together.
    let mut command = Command::new(FRAGMEND);
    let usage = finish(command.args(["apply", "--journal", "/tmp", "plan.json"]));
    assert!(usage.stderr.contains("--engine rewrite"), "{usage:?}");
}

/// Planning moves nothing, so it needs no engine; applying reports what it needs.
#[test]
fn loop_a_file_system_without_an_engine_is_planned_for() {
    let image = Image::of(&EXT3, 128 << 20);
    let (path, between) = (image.path().join("file"), image.path().join("between"));
    let files = [File::create(&path).unwrap(), File::create(&between).unwrap()];
    for _ in 0..64 {
        for mut file in &files {
            std::io::Write::write_all(&mut file, &[9; 4096]).unwrap();
            file.sync_all().unwrap();
        }
    }
    drop(files);
    let plan_file = image.scratch().join("plan.json");
    let planned = finish(
        Command::new(FRAGMEND)
            .args(["plan", "--policy", "whole-file", "-o"])
            .args([&plan_file, &path]),
    );
    assert!(planned.stderr.contains("fragmend apply --engine rewrite"), "{planned:?}");
    planned.expect(&[0]);
    let apply = |args: &[&str]| {
        let ended = finish(Command::new(FRAGMEND).arg("apply").args(args).arg(&plan_file));
        assert_eq!(ended.status.code(), Some(4), "{ended:?}");
        ended.stderr
    };
    let native = apply(&[]);
    assert!(native.contains("ext3") && native.contains("--engine rewrite"), "{native}");
    // This one cannot allocate ahead: tried, not guessed.
    let tried = apply(&["--engine", "rewrite"]);
    assert!(tried.contains("no space can be allocated"), "{tried}");
    assert!(!image.path().join(".fragmend-rewrite").exists());
}

#[test]
fn loop_two_at_once_do_not_meet() {
    let image = Image::ext4(320 << 20);
    let (file, other) = (fragmented(&image, "file"), fragmented(&image, "other"));
    let stopped = stopped_at(&image, &file, "punched");
    let second = finish(&mut rewrite(&image, &other, ""));
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    assert!(second.stderr.contains("at work"), "{second:?}");
    let (told, code) = recover(&[&image.path()]);
    assert!(code == 4 && told["errors"][0].as_str().unwrap().contains("at work"), "{told}");
    go_on(stopped).expect(&[0, 2]);
    assert!(is_intact(&file, SIZE).unwrap() && extents(&file) == 1);
}

#[test]
fn loop_records_may_lie_elsewhere() {
    let image = Image::of(&XFS, 320 << 20);
    let file = fragmented(&image, "file");
    let disk = Image::ext4(64 << 20);
    let journal = disk.path().join("journal");
    fs::create_dir(&journal).unwrap();
    let mut command = rewrite(&image, &file, "punched=kill");
    command.arg("--journal").arg(&journal);
    assert_eq!(finish(&mut command).status.code(), None);
    assert!(!image.path().join(".fragmend-rewrite").exists());
    // Another device number would not matter, nor another mount point.
    image.remount();
    assert!(!is_intact(&file, SIZE).unwrap());
    let other = fragmented(&image, "other");
    let again = finish(rewrite(&image, &other, "").arg("--journal").arg(&journal));
    assert!(again.stderr.contains("fragmend recover --journal"), "{again:?}");
    let (told, code) = recover(&[&"--journal", &journal]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
}

/// Allocates every block, including those that are reserved for root.
fn fill(image: &Image, name: &str) -> File {
    let filler = aging::fill_up(&image.path().join(name));
    image.sync();
    filler
}

/// Any user may allocate what is free before the punch, as soon as the record appears.
#[test]
fn loop_a_disk_that_is_full_before_the_punch_leaves_no_hole() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let stopped = stopped_at(&image, &file, "sealed");
        image.sync();
        let filler = fill(&image, "filler");
        let ended = go_on(stopped);
        assert!(ended.stdout.contains("\"reason\":\"no_space\""), "{ended:?}");
        assert!(extents(&file) > 100 && is_intact(&file, SIZE).unwrap(), "{ended:?}");
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
        drop(filler);
    }
}

#[test]
fn loop_a_disk_that_fills_up_in_the_middle() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        // The range is punched, then all free space is allocated: the reserve must suffice.
        let file = fragmented(&image, "file");
        let stopped = stopped_at(&image, &file, "punched");
        // The punched blocks become free.
        image.sync();
        let filler = fill(&image, "filler");
        go_on(stopped).expect(&[0, 2]);
        assert!(is_intact(&file, SIZE).unwrap(), "{}: the reserve was there", file_system.name);
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
        fs::remove_file(image.path().join("filler")).unwrap();
        drop(filler);
        // What it releases is allocated, too, each time: the record stays until there is space.
        let file = fragmented(&image, "other");
        let mut running =
            Running::start(&mut rewrite(&image, &file, "punched=stop,room-made=stop"));
        let mut fillers = Vec::new();
        for name in ["all", "reserve", "donor"] {
            running = running.wait_until(is_stopped);
            image.sync();
            fillers.push(fill(&image, name));
            running.signal(rustix::process::Signal::CONT);
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        if image.is(&XFS) {
            // It waits for space some seconds, while no other program can read the hole.
            fs::remove_file(image.path().join("all")).unwrap();
            drop(fillers);
            running.wait().expect(&[0, 2]);
            assert!(is_intact(&file, SIZE).unwrap(), "there was space again");
            assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
            continue;
        }
        let ended = running.wait();
        assert_eq!(ended.status.code(), Some(6), "{ended:?}");
        assert!(ended.stdout.contains("\"reason\":\"needs_recovery\""), "{ended:?}");
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["failed".to_owned()], 5), "{told}");
        for name in ["all", "reserve", "donor"] {
            fs::remove_file(image.path().join(name)).unwrap();
        }
        drop(fillers);
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&file, SIZE).unwrap());
        image.fsck();
    }
}
