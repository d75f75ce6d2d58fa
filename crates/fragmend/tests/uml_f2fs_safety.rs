//! No byte is lost on F2FS: not by a power cut, a kill -9, writers on the same file, or a full
//! disk.

mod support;

use fragmend_apply::{Options, Rate};
use fragmend_crash::slow::{Kind, SlowMount};
use fragmend_layout::SkipReason;
use fragmend_plan::{PlannedRange, Policy};
use fragmend_sys::cache;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::F2FS;
use fragmend_testbed::fio;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::guest::test::{self, f2fs};
use fragmend_testbed::guest::{self, Guest};
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Finished, Running, finish, is_handled};
use fragmend_testbed::random::Random;
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use support::rewrite::is_stopped;
use support::{apply, apply_forced, apply_with, plan, reasons, write_plan};

const MIB: u64 = 1 << 20;

/// Random instants repeat with this seed; a failure names its round.
const SEED: u64 = 0x00F2_F5ED;

guest_tests! {
    uml_50_kills_lose_nothing => kills_lose_nothing(&f2fs());
    uml_10_power_cuts_lose_nothing => power_cuts_lose_nothing(&f2fs());
    uml_what_a_receipt_says_survives_a_power_cut =>
        what_a_receipt_says_survives_a_power_cut(&f2fs());
    uml_an_open_of_a_file_that_moves_waits_for_the_checkpoint =>
        an_open_of_a_file_that_moves_waits_for_the_checkpoint(&f2fs());
    uml_mounts_without_flushes_are_refused => mounts_without_flushes_are_refused(&f2fs());
    uml_writers_on_the_same_file_see_their_own_bytes =>
        writers_on_the_same_file_see_their_own_bytes(&f2fs());
    uml_writers_of_other_files_do_not_scatter_it => writers_of_other_files_do_not_scatter_it(&f2fs());
    uml_a_request_to_end_while_a_group_moves_takes_effect_soon =>
        a_request_to_end_while_a_group_moves_takes_effect_soon();
    uml_what_others_have_written_does_not_delay_the_end =>
        what_others_have_written_does_not_delay_the_end();
    uml_a_nearly_full_disk_is_left_alone => a_nearly_full_disk_is_left_alone(&f2fs());
}

fn start_apply(plan: &Path, rate: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.arg("apply").arg(plan).args(["--quiet", "--rate", rate]);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// A new fragmented file in place of the last.
fn fresh(path: &Path, bytes: u64) {
    let _ = fs::remove_file(path);
    interleaved(path, bytes, &[4096], false).unwrap();
    rustix::fs::syncfs(File::open(path).unwrap()).unwrap();
}

fn kills_lose_nothing(image: &Image) {
    const SIZE: u64 = 4 * MIB;
    let mut random = Random::new(SEED);
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    let inodes = || rustix::fs::statvfs(image.path()).map(|s| s.f_files - s.f_ffree).unwrap();
    let before = inodes();
    let (mut kills, mut round) = (0, 0);
    while kills < 50 {
        fresh(&path, SIZE);
        write_plan(&plan(&[&path], Policy::Bypass), &plan_file);
        loop {
            let apply = start_apply(&plan_file, "max");
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            apply.signal(rustix::process::Signal::KILL);
            round += 1;
            if apply.wait().status.code().is_some() {
                break;
            }
            kills += 1;
            if kills == 50 {
                break;
            }
        }
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, round {round}");
    }
    println!("{kills} kills in {round} runs");
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
    fs::remove_file(&path).unwrap();
    image.sync();
    assert_eq!((inodes(), fs::read_dir(image.path()).unwrap().count()), (before, 0), "left behind");
}

fn power_cuts_lose_nothing(image: &Image) {
    const SIZE: u64 = 6 * MIB;
    let mut random = Random::new(SEED ^ 1);
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    let mut in_the_middle = 0;
    for cut in 0..10 {
        fresh(&path, SIZE);
        let before = extents(&path);
        write_plan(&plan(&[&path], Policy::Bypass), &plan_file);
        let apply = start_apply(&plan_file, "40MiB");
        // Other programs cause checkpoints at any time.
        let root = File::open(image.path()).unwrap();
        let (on, off) = std::sync::mpsc::channel::<()>();
        let checkpoints = std::thread::spawn(move || {
            while off.try_recv() == Err(TryRecvError::Empty) {
                let _ = rustix::fs::syncfs(&root);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let layout = || fragmend_scan::layout_of(File::open(&path).unwrap()).unwrap();
        let started = Instant::now();
        while layout().extents().len() as u64 == before && started.elapsed().as_secs() < 5 {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_micros(random.below(120_000)));
        cut_power(File::open(image.path()).unwrap()).unwrap();
        drop(on);
        let _ = (apply.wait(), checkpoints.join());
        image.remount();
        image.fsck();
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, cut {cut}");
        let after = extents(&path);
        assert!(after <= before, "seed {SEED:#x}, cut {cut}: {before} fragments, then {after}");
        in_the_middle += u32::from(after < before && after > 10);
    }
    println!("10 power cuts, {in_the_middle} with the file half moved on the disk");
    assert!(in_the_middle > 3, "only {in_the_middle} cuts hit the middle of a move");
}

fn what_a_receipt_says_survives_a_power_cut(image: &Image) {
    const SIZE: u64 = 12 * MIB;
    let path = image.path().join("file");
    fresh(&path, SIZE);
    let (summary, receipts) = apply(&plan(&[&path], Policy::WholeFile));
    let promised: u64 = receipts.iter().filter_map(|r| r.extents_after).sum();
    cut_power(File::open(image.path()).unwrap()).unwrap();
    assert_eq!(summary.moved_bytes, SIZE, "{summary:?}");
    image.remount();
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
    println!("{promised} fragments promised, longest step {:?}", summary.longest_step_seconds);
    assert!(extents(&path) <= promised, "{} fragments, {promised} promised", extents(&path));
}

/// A program that opens a file for writing between a move and its checkpoint waits for that, or gets an
/// error; and once the file is open, its layout survives a power cut.
fn an_open_of_a_file_that_moves_waits_for_the_checkpoint(image: &Image) {
    const SIZE: u64 = MIB;
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    fresh(&path, SIZE);
    let places =
        || fragmend_scan::layout_of(File::open(&path).unwrap()).unwrap().extents().to_vec();
    let before = places();
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--quiet", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "moved=stop");
    let apply = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let apply = apply.wait_until(is_stopped);
    assert!(places() != before, "nothing has moved yet");

    // Readers are not kept out; writers are.
    let mut quick = File::options();
    quick.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let turned_away = quick.open(&path).expect_err("nothing keeps others out");
    assert_eq!(turned_away.kind(), std::io::ErrorKind::WouldBlock, "{turned_away}");
    let opened = std::thread::spawn({
        let path = path.clone();
        move || File::options().write(true).open(path)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!opened.is_finished(), "nothing keeps others out of what no checkpoint has");
    let started = Instant::now();
    while !opened.is_finished() {
        apply.signal(rustix::process::Signal::CONT);
        assert!(started.elapsed() < Duration::from_secs(20), "no program is let in");
        std::thread::sleep(Duration::from_millis(2));
    }
    let file = opened.join().unwrap().unwrap();
    let after = places();
    cut_power(&file).unwrap();
    apply.signal(rustix::process::Signal::KILL);
    drop((apply.wait(), file));
    image.remount();
    image.fsck();
    assert!(after != before && places() == after, "let in before the checkpoint");
    assert!(is_intact(&path, SIZE).unwrap());
}

fn mounts_without_flushes_are_refused(image: &Image) {
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    fresh(&path, MIB);
    for option in ["nobarrier", "fsync_mode=nobarrier"] {
        image.unmount();
        image.mount_with(option);
        let before = extents(&path);
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        let apply = |further: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
            finish(command.args(["apply", "--quiet"]).arg(&plan_file).args(further))
        };
        let ended = apply(&[]);
        let why = format!("mounted with {option}");
        assert!(ended.stderr.contains(&why) && ended.stderr.contains("--force"), "{ended:?}");
        ended.expect(&[4]);
        assert_eq!(extents(&path), before, "{option}");
    }
    finish(
        Command::new(env!("CARGO_BIN_EXE_fragmend"))
            .args(["apply", "--force", "--quiet"])
            .arg(&plan_file),
    )
    .expect(&[0]);
    assert!(extents(&path) <= 2);
    image.unmount();
    image.mount_with("");
    image.fsck();
    assert!(is_intact(&path, MIB).unwrap());
}

fn writers_on_the_same_file_see_their_own_bytes(image: &Image) {
    const SIZE: u64 = 4 * MIB;
    let path = image.path().join("file");
    // As large file systems have it: in place while a file is synced (`F2FS_IPU_FSYNC`).
    let policy = Path::new("/sys/fs/f2fs").join(image.block_device().name()).join("ipu_policy");
    for (engine, direct, sync) in
        [("psync", 0, 0), ("psync", 1, 0), ("mmap", 0, 0), ("psync", 0, 1)]
    {
        fs::write(&policy, "16").unwrap();
        fresh(&path, SIZE);
        let plan = plan(&[&path], Policy::WholeFile);
        let size = format!("size={SIZE}");
        let what = [&size, "rw=randwrite", "bs=4k", "verify=crc32c", "randseed=7", "loops=3"];
        let how = [format!("ioengine={engine}"), format!("direct={direct}")];
        let how = how.into_iter().chain([format!("fdatasync={sync}")]).collect::<Vec<_>>();
        let checked = ["verify_backlog=256", "verify_fatal=1", "overwrite=1"];
        let all = what.into_iter().chain(how.iter().map(String::as_str)).chain(checked);
        let mut command = fio::command(&path, &all.collect::<Vec<_>>());
        let writer = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        std::thread::sleep(Duration::from_millis(300));
        let (summary, _) = apply_forced(&plan);
        let written = fio::parse(&writer.wait().expect(&[0])).write;
        assert!(written.bytes >= SIZE, "fio wrote {} bytes", written.bytes);
        println!(
            "{engine} direct={direct} fdatasync={sync}: {} bytes moved, {} ranges left alone, longest step {:.1} ms",
            summary.moved_bytes,
            summary.ranges_skipped,
            summary.longest_step_seconds * 1e3
        );
        // With a cold cache, the file contains what fio wrote last.
        image.fsck();
        fio::run(&path, &[&what[..], &["verify_only=1"]].concat());
    }
}

fn writers_of_other_files_do_not_scatter_it(image: &Image) {
    const SIZE: u64 = 8 * MIB;
    let path = image.path().join("file");
    // Some fragments are longer than a step.
    interleaved(&path, SIZE, &[640 << 10, 4096], false).unwrap();
    image.sync();
    let other = File::create(image.path().join("other")).unwrap();
    let (on, off) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let mut blocks = 0;
        while off.try_recv() == Err(TryRecvError::Empty) {
            (&other).write_all(&[7; 4096]).and_then(|()| other.sync_data()).unwrap();
            blocks += 1;
        }
        blocks
    });
    std::thread::sleep(Duration::from_millis(100));
    let (summary, receipts) = apply(&plan(&[&path], Policy::WholeFile));
    drop(on);
    let blocks = writer.join().unwrap();
    let fragments: u64 = receipts.iter().filter_map(|r| r.extents_after).sum();
    println!("{blocks} blocks written beside it, {fragments} fragments, {summary:?}");
    assert!(blocks > 0 && summary.moved_bytes == SIZE, "{blocks}, {summary:?}");
    // One for each segment of the log.
    assert!(fragments <= SIZE / (2 * MIB) + 1, "{receipts:?}");
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}

fn a_nearly_full_disk_is_left_alone(image: &Image) {
    const SIZE: u64 = 4 * MIB;
    let path = image.path().join("file");
    fresh(&path, SIZE);
    let made = plan(&[&path], Policy::WholeFile);
    let before = extents(&path);
    // Two files fill the disk in turns, until the log would continue in holes; then one is deleted.
    let names = ["stays", "goes"].map(|name| image.path().join(name));
    let fillers = names.each_ref().map(|path| File::create(path).unwrap());
    let device = image.block_device();
    let segments = || fragmend_sys::f2fs::segments(&device.name()).unwrap();
    let chunk = [9; 64 << 10];
    for at in (0..).map(|n| n * chunk.len() as u64) {
        if segments().free + 20 < segments().scattering_below {
            break;
        }
        for file in &fillers {
            file.write_all_at(&chunk, at).unwrap();
            cache::write_and_wait(file, at..at + chunk.len() as u64).unwrap();
        }
    }
    fs::remove_file(&names[1]).unwrap();
    image.sync();
    drop(fillers);
    assert!(segments().free > 40, "{:?}", segments());
    let free = rustix::fs::statvfs(image.path()).unwrap();
    assert!(free.f_bavail * free.f_frsize > 16 * SIZE);
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &path), [SkipReason::NoSpace], "{summary:?}");
    assert_eq!((summary.moved_bytes, extents(&path)), (0, before));
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}

/// `apply --json` of a plan for `path`, which is requested to end once `is_time`; returns how long that
/// lasted.
fn asked_to_end(
    slow_mount: &SlowMount,
    path: &Path,
    is_time: impl Fn(u32) -> bool,
) -> (Finished, Duration) {
    let plan_file = slow_mount.scratch().join("plan.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
    command.env("FRAGMEND_STOP_AT", "moved=stop");
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let running = running.wait_until(is_time);
    let asked = Instant::now();
    running.signal(Signal::TERM);
    let id = running.id();
    let goes_on = std::thread::spawn(move || {
        while asked.elapsed() < Duration::from_secs(120)
            && Path::new(&format!("/proc/{id}/fd/0")).exists()
        {
            let pid = rustix::process::Pid::from_raw(id as i32).filter(|_| is_stopped(id));
            pid.map(|pid| rustix::process::kill_process(pid, Signal::CONT));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let ended = running.wait();
    let took = asked.elapsed();
    goes_on.join().unwrap();
    slow_mount.gate().pace(Kind::Write, None);
    println!("{}: it took {took:?}: {ended:?}", path.display());
    assert!(ended.stdout.contains("\"interrupted\":true"), "{ended:?}");
    (ended, took)
}

fn a_request_to_end_while_a_group_moves_takes_effect_soon() {
    let slow_mount = SlowMount::new(&F2FS, 320 * MIB, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, 8 * MIB, &[4096], false).unwrap();
    slow_mount.sync();
    let mut made = plan(&[&path], Policy::WholeFile);
    let whole = made.files[0].ranges[0].clone();
    let part = |n: u64| PlannedRange { offset: n << 18, length: 1 << 18, ..whole.clone() };
    made.files[0].ranges = (0..32).map(part).collect();
    write_plan(&made, &slow_mount.scratch().join("plan.json"));
    slow_mount.gate().pace(Kind::Write, Some(8));
    let (ended, took) = asked_to_end(&slow_mount, &path, is_stopped);
    // A step, and a checkpoint.
    let moved = ended.stdout.matches("\"outcome\":\"moved\"").count();
    assert!(moved <= 1, "{moved} of a group of 8 moved, in {took:?}");
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

/// Linux before 6.5 does not report what is dirty; and a hole of a tebibyte is not checked page by page.
fn what_others_have_written_does_not_delay_the_end() {
    let slow_mount = SlowMount::new(&F2FS, 320 * MIB, "");
    let path = slow_mount.root().join("file");
    interleaved(&path, 24 * MIB, &[64 << 10], false).unwrap();
    slow_mount.sync();
    write_plan(&plan(&[&path], Policy::WholeFile), &slow_mount.scratch().join("plan.json"));
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    file.sync_all().unwrap();
    slow_mount.gate().pace(Kind::Write, Some(3));
    file.write_all_at(&vec![7; 24 << 20], 0).unwrap();
    drop(file);
    let since = Instant::now();
    let is_at_it =
        |id| since.elapsed() > Duration::from_millis(500) && is_handled(id, Signal::TERM);
    let (_, took) = asked_to_end(&slow_mount, &path, is_at_it);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// The variable with the path of the file that says when to cut, for the guest whose power is cut.
const SIGN: &str = "FRAGMEND_SIGN";

/// The whole machine stops at once: its processes, its page cache, its file system.
#[test]
fn uml_a_machine_that_stops_loses_nothing() {
    if guest::inside() {
        return a_machine_that_stops();
    }
    let mut random = Random::new(SEED ^ 2);
    let scratch = tempfile::tempdir().unwrap();
    let disk = scratch.path().join("disk.img");
    File::create(&disk).unwrap().set_len(320 * MIB).unwrap();
    F2FS.make(&disk, &[]);
    let test = || test::command("uml_a_machine_that_stops_loses_nothing");
    // How long a move lasts differs from machine to machine: at least three stops, and more until one hits it.
    let (mut in_the_middle, mut stop) = (0, 0);
    while stop < 3 || (in_the_middle == 0 && stop < 20) {
        let sign = scratch.path().join(format!("sign-{stop}"));
        let guest = Guest::new().disk(&disk).start(test().env(SIGN, &sign)).wait_for(&sign);
        // On a busy machine a move begins later.
        let longest = 250_000 * (1 + stop / 3);
        std::thread::sleep(Duration::from_micros(20_000 + random.below(longest)));
        drop(guest);
        F2FS.check(&disk).unwrap();
        let finished = Guest::new().disk(&disk).run(&test()).unwrap();
        println!("seed {:#x}, stop {stop}: {}", SEED ^ 2, finished.stdout);
        let text = finished.expect(&[0]);
        let fragments = text.split(" fragments").next().and_then(|t| t.split_whitespace().last());
        in_the_middle +=
            u32::from((10..2000).contains(&fragments.unwrap().parse::<u64>().unwrap()));
        stop += 1;
    }
    F2FS.check(&disk).unwrap();
    assert!(in_the_middle > 0, "no stop hit the middle of a move");
}

/// The part inside the guest: moves a file until the guest stops, or checks what was left.
fn a_machine_that_stops() {
    const SIZE: u64 = 8 * MIB;
    let mount = std::env::temp_dir().join("mount");
    fs::create_dir(&mount).unwrap();
    run("mount", ["-t".as_ref(), "f2fs".as_ref(), "/dev/ubda".as_ref(), mount.as_os_str()]);
    let path = mount.join("file");
    let Some(sign) = std::env::var_os(SIGN) else {
        assert!(is_intact(&path, SIZE).unwrap());
        println!("{} fragments", extents(&path));
        run("umount", [&mount]);
        return;
    };
    fresh(&path, SIZE);
    let made = plan(&[&path], Policy::Bypass);
    let root = File::open(&mount).unwrap();
    std::thread::spawn(move || {
        while rustix::fs::syncfs(&root).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    File::create(sign).unwrap();
    let slowly = Options { rate: Rate::BytesPerSecond(32 * MIB), ..Options::default() };
    apply_with(&made, &slowly);
    std::thread::sleep(Duration::from_secs(60));
}
