//! `fragmend lab serve`: real file systems on simulated drives, what that costs in virtual time, and how it ends.

use fragmend_crash::mount::Mount;
use fragmend_flash::command::{Command as DriveCommand, Units};
use fragmend_lab::{presets, raw};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fio;
use fragmend_testbed::process::{finish, run, try_run};
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::{Aligned, Mode, open};
use fragmend_testbed::scratch;
use fragmend_testbed::served::ServedDrive;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const UNIT: usize = 4096;

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..bytes / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

/// Whether the device is that of a drive in this directory: another test may have the next one on its node.
fn is_attached(node: &Path, directory: &Path) -> bool {
    let name = node.file_name().unwrap();
    let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
    fs::read_to_string(backing).is_ok_and(|file| Path::new(&file).starts_with(directory))
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(30), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_nothing_is_left(node: &Path, directory: &Path) {
    assert!(!is_attached(node, directory));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()));
    assert!(!directory.parent().unwrap().exists());
}

/// Makes a file system on a served drive, writes, reads it back after a remount, and removes what was written.
fn file_system_lives_on(file_system: &'static FileSystem, drive: &str) {
    const BYTES: usize = 12 << 20;
    let served = ServedDrive::start(&[drive, "--size", "512M"]);
    let (node, directory) = (served.node(), served.file(""));
    let dir = scratch::directory("lab");
    file_system.make(&node, &[]);
    let mount = || Mount::new(file_system, &node, dir.path(), "").unwrap();
    let mounted = mount();
    served.control("reset-stats").unwrap();
    let before = served.clock();
    let bytes = noise(7, BYTES);
    fs::write(dir.path().join("data"), &bytes).unwrap();
    rustix::fs::syncfs(File::open(dir.path()).unwrap()).unwrap();
    mounted.unmount();
    let written = served.stats();
    assert!(written["writes"]["bytes"].as_u64().unwrap() >= BYTES as u64, "{written}");
    assert!(written["flushes"]["requests"].as_u64().unwrap() >= 1, "{written}");
    assert!(written["device"]["host_written_units"].as_u64().unwrap() >= (BYTES / UNIT) as u64);
    assert!(served.clock() > before, "writing needs time");
    assert_eq!(written["failed"], 0, "{written}");

    let mounted = mount();
    served.control("reset-stats").unwrap();
    assert!(fs::read(dir.path().join("data")).unwrap() == bytes, "other bytes on {drive}");
    assert!(served.stats()["reads"]["bytes"].as_u64().unwrap() >= BYTES as u64);
    fs::remove_file(dir.path().join("data")).unwrap();
    rustix::fs::syncfs(File::open(dir.path()).unwrap()).unwrap();
    run("fstrim", [dir.path()]);
    let trimmed = served.stats()["discards"]["bytes"].as_u64().unwrap();
    assert!(trimmed >= BYTES as u64, "{trimmed} bytes were discarded");
    mounted.unmount();
    file_system.check(&node).unwrap();
    served.quit();
    assert_nothing_is_left(&node, &directory);
}

#[test]
fn loop_ext4_lives_on_a_served_drive() {
    file_system_lives_on(&EXT4, "nvme-b");
}

#[test]
fn loop_xfs_lives_on_a_served_drive() {
    file_system_lives_on(&XFS, "sata-a");
}

#[test]
fn loop_btrfs_lives_on_a_served_drive() {
    file_system_lives_on(&BTRFS, "microsd");
}

/// Units of the first `units` in a random order.
fn scattered(units: u32) -> Vec<Units> {
    let mut all: Vec<Units> = (0..units).map(|unit| Units::new(unit, 1)).collect();
    Random::new(11).shuffle(&mut all);
    all
}

fn fill(node: &Path, units: u32) {
    let size = format!("size={}", u64::from(units) * UNIT as u64);
    fio::run(node, &["rw=write", "bs=1M", "direct=1", &size]);
}

/// Reads whole units one after the other; returns how long that lasted in virtual time.
fn read_one_by_one(served: &ServedDrive, reads: &[Units]) -> u64 {
    let file = open(&served.node(), Mode::Direct).unwrap();
    let mut buffer = Aligned::new(UNIT);
    let before = served.clock();
    for units in reads {
        file.read_exact_at(buffer.bytes(), u64::from(units.start) * UNIT as u64).unwrap();
    }
    served.clock() - before
}

/// Random reads of 4 KiB on a served flash drive, and the same in the simulation alone, one by one; then many at a
/// time.
#[test]
fn loop_reads_cost_what_the_model_says() {
    const FILLED: u32 = 4096;
    const READS: u32 = 500;
    let served = ServedDrive::start(&["nvme-b", "--size", "256M"]);
    fill(&served.node(), FILLED);
    // What is buffered is programmed meanwhile.
    served.rest(Duration::from_secs(10));
    let reads = &scattered(FILLED)[..READS as usize];
    let setup = presets::named("nvme-b").unwrap();
    let model = |depth, count: usize| {
        let drive = raw::preconditioned(&setup, FILLED);
        raw::read(drive, scattered(FILLED).into_iter().take(count), depth, 0)
    };
    // Something else may read the device meanwhile, as udev does: then it is tried again.
    let undisturbed = || {
        served.control("reset-stats").unwrap();
        let ours = read_one_by_one(&served, reads);
        (served.stats()["reads"]["requests"] == READS).then_some(ours)
    };
    let ours = (0..5).find_map(|_| undisturbed()).expect("nothing else reads it for a moment");
    let alone = model(1, READS as usize);
    assert!(ours.abs_diff(alone) * 100 <= alone, "{ours} ns, and {alone} in the model");

    let size = format!("size={}", u64::from(FILLED) * UNIT as u64);
    let job = ["rw=randread", "bs=4k", "direct=1", "ioengine=io_uring", "iodepth=32", &size];
    let undisturbed = || {
        served.control("reset-stats").unwrap();
        let before = served.clock();
        fio::run(&served.node(), &job);
        let (ours, stats) = (served.clock() - before, served.stats());
        // Beside other programs, fio may not keep all 32 in flight.
        let deep = stats["in_flight_mean"].as_f64().is_some_and(|mean| mean > 30.5);
        (stats["reads"]["requests"] == FILLED && deep).then_some((ours, stats))
    };
    let (ours, stats) = (0..20).find_map(|_| undisturbed()).expect("nothing else reads it");
    let many = model(32, FILLED as usize);
    assert!(ours.abs_diff(many) * 10 <= many, "{ours} ns, and {many} in the model");
    assert!(many * 10 < model(1, FILLED as usize), "dies work in parallel");
    assert_eq!(stats["in_flight_max"], 32, "{stats}");
    served.quit();
}

/// Reads of a drive that was never written need no die, until it is filled; a discard undoes that.
#[test]
fn loop_a_filled_drive_reads_from_its_dies() {
    let served = ServedDrive::start(&["nvme-b", "--size", "256M"]);
    let reads = &scattered(4096)[..50];
    let unwritten = read_one_by_one(&served, reads);
    let (before, stats) = (served.clock(), served.stats());
    assert_eq!(stats["device"]["pages_read"], 0, "{stats}");
    served.control("fill").unwrap();
    assert_eq!(served.clock(), before, "no time passes");
    let filled = read_one_by_one(&served, reads);
    assert!(filled >= unwritten + 50 * 3600, "{filled} ns, and {unwritten} before");
    let stats = served.stats();
    assert_eq!(
        (&stats["device"]["pages_read"], &stats["writes"]["requests"]),
        (&50.into(), &0.into())
    );
    run("blkdiscard", [served.node()]);
    assert_eq!(read_one_by_one(&served, reads), unwritten);
    served.quit();
}

/// A memory card does one command at a time, however many it is sent.
#[test]
fn loop_a_card_does_one_command_at_a_time() {
    const READS: usize = 200;
    let served = ServedDrive::start(&["microsd", "--size", "64M"]);
    let reads = &scattered(16384)[..READS];
    let setup = presets::named("microsd").unwrap();
    let mut card = setup.device();
    let model = reads
        .iter()
        .fold(0, |at, units| card.submit(at, &DriveCommand::Read(*units)).unwrap().done_ns);
    let ours = read_one_by_one(&served, reads);
    assert!(ours.abs_diff(model) * 100 <= model, "{ours} ns, and {model} in the model");
    served.control("reset-stats").unwrap();
    let before = served.clock();
    let job = ["rw=randread", "bs=4k", "direct=1", "ioengine=io_uring", "iodepth=32", "size=64M"];
    fio::run(&served.node(), &[&job[..], &["number_ios=200"]].concat());
    let (each, alone) = ((served.clock() - before) / READS as u64, model / READS as u64);
    assert!(each.abs_diff(alone) * 50 <= alone, "{each} ns each, and {alone} one by one");
    assert_eq!(served.stats()["in_flight_max"], 32);
    served.quit();
}

/// The same load lasts equally long in virtual time, whatever else the machine does; but what reads every block device
/// of the machine, as `mkfs.btrfs` does, is load of the drive, and fio has not always eight reads in flight on a busy machine: so
/// some of the runs may be disturbed.
#[test]
fn loop_virtual_time_is_the_same_each_time() {
    let served = ServedDrive::start(&["nvme-a", "--size", "256M"]);
    fill(&served.node(), 16384);
    served.rest(Duration::from_secs(10));
    let job = ["rw=randread", "bs=16k", "direct=1", "ioengine=io_uring", "iodepth=8", "size=64M"];
    let lasted = || {
        let before = served.clock();
        fio::run(&served.node(), &[&job[..], &["number_ios=600", "randrepeat=1"]].concat());
        served.clock() - before
    };
    let alike = |some: &[u64]| (some[3] - some[0]) * 33 <= some[0];
    let mut all: Vec<u64> = Vec::new();
    while !all.windows(4).any(alike) {
        assert!(all.len() < 40, "{all:?}");
        all.push(lasted());
        all.sort_unstable();
    }
    served.quit();
}

#[test]
fn loop_paced_requests_really_last() {
    const READS: usize = 30;
    // A read of 4 KiB from the card lasts 587 us, and 80 more where its part of the map must be loaded.
    let least = Duration::from_micros(587 * READS as u64);
    for (paced, factor) in [("--paced", 1), ("--paced=4", 4)] {
        let served = ServedDrive::start(&["microsd", "--size", "64M", paced]);
        assert_eq!(served.report["mode"], "paced");
        assert_eq!(served.report["factor"].as_f64(), Some(f64::from(factor)));
        let started = Instant::now();
        let virtual_ns = read_one_by_one(&served, &scattered(16384)[..READS]);
        let real = started.elapsed();
        assert!(real >= least * factor && real < least * factor * 20, "{real:?} with {paced}");
        assert!(virtual_ns >= least.as_nanos() as u64, "{virtual_ns} ns");
        // The clock goes as real time does, also with nothing in flight.
        let outer = Instant::now();
        let before = served.clock();
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        let inner = inner.elapsed();
        let passed = Duration::from_nanos((served.clock() - before) * u64::from(factor));
        let slack = Duration::from_micros(1);
        let is_between = passed + slack >= inner && passed <= outer.elapsed() + slack;
        assert!(is_between, "{passed:?}, at least {inner:?}");
        let stats = served.stats();
        let latency = stats["reads"]["latency_ns"].as_u64().unwrap();
        assert!(latency >= least.as_nanos() as u64, "{stats}");
        assert!(served.control("rest 1").is_err() && served.control("settle 1").is_err());
        served.quit();
    }
}

/// A write of less than a unit is a read-modify-write.
#[test]
fn loop_sectors_may_be_smaller_than_units() {
    let served = ServedDrive::start(&["hdd", "--size", "1G", "--sector-size", "512"]);
    let queue = Path::new("/sys/block").join(served.node().file_name().unwrap()).join("queue");
    let setting = |name: &str| fs::read_to_string(queue.join(name)).unwrap().trim().to_owned();
    assert_eq!((setting("logical_block_size"), setting("rotational")), ("512".into(), "1".into()));
    assert_eq!(
        (setting("read_ahead_kb"), setting("write_cache")),
        ("128".into(), "write back".into())
    );
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    let node = options.read(true).write(true).custom_flags(direct).open(served.node()).unwrap();
    let mut sector = Aligned::new(512);
    sector.bytes().fill(9);
    node.write_all_at(sector.bytes(), 4096 + 512).unwrap();
    assert_eq!(served.stats()["device"]["merged_writes"], 1);
    let mut unit = Aligned::new(UNIT);
    node.read_exact_at(unit.bytes(), 4096).unwrap();
    let sum: u32 = unit.bytes().iter().map(|b| u32::from(*b)).sum();
    assert_eq!((sum, unit.bytes()[512]), (512 * 9, 9));
    drop(node);
    served.quit();
}

#[test]
fn loop_control_files_answer_afresh_and_refuse_what_they_do_not_know() {
    let served = ServedDrive::start(&["nvme-b", "--size", "64M"]);
    let mut clock = File::open(served.file("clock")).unwrap();
    let mut text = String::new();
    clock.read_to_string(&mut text).unwrap();
    served.rest(Duration::from_millis(7));
    clock.rewind().unwrap();
    let mut later = String::new();
    clock.read_to_string(&mut later).unwrap();
    let number = |text: &str| text.trim_end().parse::<u64>().unwrap();
    assert_eq!(number(&later) - number(&text), 7_000_000);
    assert_eq!(served.stats()["elapsed_ns"], number(&later));
    served.control("reset-stats\n").unwrap();
    let stats = served.stats();
    assert_eq!((&stats["elapsed_ns"], &stats["clock_ns"]), (&0.into(), &number(&later).into()));
    let shown = fs::read_to_string(served.file("control")).unwrap();
    for command in ["quit", "reset-stats", "fill", "rest", "settle"] {
        assert!(shown.contains(command), "{shown}");
    }
    let invalid = Some(rustix::io::Errno::INVAL.raw_os_error());
    for wrong in ["", "stop", "quit now", "rest", "rest -1", "rest 1.5", "settle 2000000", "\u{e9}"]
    {
        if wrong.is_empty() {
            continue;
        }
        assert_eq!(served.control(wrong).unwrap_err().raw_os_error(), invalid, "{wrong}");
    }
    for name in ["clock", "stats"] {
        assert!(fs::write(served.file(name), "1").is_err());
    }
    // The size of the disk stays, and nothing is written behind its end.
    let disk = File::options().write(true).open(served.file("disk")).unwrap();
    assert!(disk.set_len(1).is_err() && disk.write_at(&[1; UNIT], 64 << 20).is_err());
    drop((disk, clock));
    served.quit();
}

#[test]
fn loop_a_signal_ends_it_once_nothing_uses_the_device() {
    let mut served = ServedDrive::start(&["nvme-b", "--size", "256M"]);
    let (node, directory) = (served.node(), served.file(""));
    let dir = scratch::directory("lab");
    EXT4.make(&node, &[]);
    let mounted = Mount::new(&EXT4, &node, dir.path(), "").unwrap();
    let bytes = noise(3, 4 << 20);
    fs::write(dir.path().join("data"), &bytes).unwrap();
    for _ in 0..2 {
        served.signal(Signal::INT);
        std::thread::sleep(Duration::from_millis(1300));
        assert!(served.runs(), "it must not end while it is mounted");
    }
    run("sync", ["-f".as_ref(), dir.path().as_os_str()]);
    let mut read = Aligned::new(bytes.len());
    open(&dir.path().join("data"), Mode::Direct).unwrap().read_exact_at(read.bytes(), 0).unwrap();
    assert!(read.bytes() == &bytes[..], "the drive has other bytes");
    mounted.unmount();
    let said = served.ended();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let where_it_is = format!("is still mounted at {}", dir.path().display());
    assert!(said.stderr.matches(&where_it_is).count() >= 2, "{said:?}");
    assert_nothing_is_left(&node, &directory);
    // A program that has it open is named, too.
    let mut served = ServedDrive::start(&["microsd", "--size", "64M"]);
    let (node, directory) = (served.node(), served.file(""));
    let held = File::open(&node).unwrap();
    served.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(served.runs());
    drop(held);
    let said = served.ended();
    let who = format!("open in process {} (", std::process::id());
    assert!(said.stderr.contains(&who) && said.status.code() == Some(0), "{said:?}");
    assert_nothing_is_left(&node, &directory);
}

#[test]
fn loop_a_killed_server_blocks_nobody() {
    let served = ServedDrive::start(&["nvme-b", "--size", "256M"]);
    let (node, directory) = (served.node(), served.file(""));
    let dir = scratch::directory("lab");
    EXT4.make(&node, &[]);
    let mounted = Mount::new(&EXT4, &node, dir.path(), "").unwrap();
    fs::write(dir.path().join("data"), noise(3, 4 << 20)).unwrap();
    served.signal(Signal::KILL);
    let ended = served.ended();
    assert_eq!(ended.status.code(), None, "{ended:?}");
    // What is dirty cannot be written any more, which is an error and no wait.
    let synced = try_run("timeout", ["20", "sync", "-f", dir.path().to_str().unwrap()]);
    assert!(synced.unwrap_err().contains("rror"), "it was not written");
    drop(mounted);
    assert!(is_attached(&node, &directory), "a killed process detaches nothing");
    run(
        "timeout",
        ["--kill-after=5", "30", concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tidy")],
    );
    wait_until("it is detached", || !is_attached(&node, &directory));
    assert_nothing_is_left(&node, &directory);
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    let ended = finish(command.args(["lab", "serve"]).args(args));
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{ended:?}");
    (ended.status.code(), ended.stderr)
}

#[test]
fn what_cannot_be_served_is_said_in_a_line() {
    for (args, said) in [
        (&["nvme-x"][..], "no drive is named nvme-x"),
        (&["femu-indef"], "a zoned drive takes writes at its write pointers only"),
        (&["nvme-b", "--size", "0"], "--size 0: say whole units of 4096 bytes"),
        (&["nvme-b", "--size", "5000"], "at most the 12041846784 bytes of the drive"),
        (&["nvme-b", "--size", "1T"], "a larger one needs a file of its own"),
        (&["nvme-b", "--sector-size", "768"], "say a power of two from 512 to 4096"),
        (&["nvme-b", "--sector-size", "8192"], "say a power of two from 512 to 4096"),
    ] {
        let (code, text) = refused(args);
        assert_eq!(code, Some(8), "{text}");
        assert!(text.contains(said), "{text}");
    }
    for wrong in ["--paced=0", "--paced=-1", "--paced=fast", "--paced=inf", "--size=many"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        let ended = finish(command.args(["lab", "serve", "nvme-b", wrong]));
        assert_eq!(ended.status.code(), Some(8), "{wrong}: {ended:?}");
    }
}

/// In a directory of another user, that user could have the drive's files mounted anywhere.
#[test]
fn loop_a_directory_that_others_control_is_refused() {
    let dir = scratch::directory("lab");
    let theirs = dir.path().join("theirs");
    let below = theirs.join("below");
    fs::create_dir_all(&below).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
    for place in [&theirs, &below] {
        let place = place.to_str().unwrap();
        let (code, said) = refused(&["nvme-b", "--size", "1M", "--dir", place]);
        assert_eq!(code, Some(4), "{said}");
        let theirs = theirs.to_str().unwrap();
        assert!(said.contains(&format!("{theirs}: another user may rename")), "{said}");
    }
    assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
}

#[test]
fn loop_what_is_missing_is_said_in_a_line() {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(env!("CARGO_BIN_EXE_fragmend")).args(["lab", "serve", "nvme-b"]);
    let ended = finish(&mut command);
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains("a block device needs root and loop devices"), "{ended:?}");
    let (code, said) = refused(&["nvme-b", "--dir", "/no/such/place"]);
    assert!(code == Some(4) && said.contains("/no/such/place: "), "{said}");
    let (code, said) = refused(&["nvme-b", "--dir", "/proc"]);
    assert!(code == Some(4) && said.contains("name another directory with --dir"), "{said}");
}

/// Nobody could be told its node.
#[test]
fn loop_a_drive_that_cannot_be_named_is_not_left() {
    let dir = scratch::directory("lab");
    for form in [&[][..], &["--json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(["lab", "serve", "nvme-b", "--size", "1M", "--dir"]).arg(dir.path());
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = command.args(form).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(4) && said.lines().count() == 1, "{said}");
        assert!(said.contains("No space left"), "{said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let attached = run("losetup", ["--noheadings", "--output", "BACK-FILE"]);
        assert!(!attached.contains(dir.path().to_str().unwrap()), "{attached}");
    }
}

/// The report and the statistics have the form of their schemas.
#[test]
fn loop_documents_have_what_their_schemas_require() {
    let dir = scratch::directory("lab");
    let place = dir.path().to_str().unwrap();
    let served = ServedDrive::start(&["optane", "--size", "64M", "--dir", place]);
    assert!(served.file("disk").starts_with(dir.path()));
    for (name, document) in
        [("lab-serve", served.report.clone()), ("lab-serve-stats", served.stats())]
    {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
        let text = fs::read(path.join(format!("{name}.schema.json"))).unwrap();
        let schema: Value = serde_json::from_slice(&text).unwrap();
        for required in schema["required"].as_array().unwrap() {
            assert!(document.get(required.as_str().unwrap()).is_some(), "{required}: {document}");
        }
        assert_eq!(document["schema_version"], 1);
    }
    served.quit();
}
