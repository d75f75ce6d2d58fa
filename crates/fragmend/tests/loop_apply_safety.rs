//! No byte is lost: not by a power cut, a kill -9, writers on the same file, or a full disk.

mod support;

use fragmend_apply::{Options, Rate};
use fragmend_crash::after::AfterCut;
use fragmend_crash::cut::Cut;
use fragmend_crash::marks::Mark;
use fragmend_crash::scenario::{self, Scenario};
use fragmend_crash::slow::SlowMount;
use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_scan::layout_of;
use fragmend_sys::shutdown::cut_power;
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS, XFS_EXCHANGE};
use fragmend_testbed::fragment::{alternating, compressible, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use fragmend_testbed::{aging, fio, random::Random};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{apply, apply_forced, apply_with, plan, readable_by_all, reasons, write_plan};

const MIB: u64 = 1 << 20;
const FRAGMEND: &str = env!("CARGO_BIN_EXE_fragmend");

/// Random instants repeat with this seed; a failure names its round.
const SEED: u64 = 0x00F2_A63D;

/// Starts `fragmend apply` on a plan file.
fn start_apply(plan: &Path, extra: &[&str]) -> Running {
    let mut command = Command::new(FRAGMEND);
    command.arg("apply").arg(plan).arg("--quiet").args(extra);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// `trees` are the blocks that trees may need while a file is half moved; Btrfs keeps each of their nodes twice.
fn kills_lose_nothing_and_leave_nothing(file_system: &'static FileSystem, kills: u32, trees: u64) {
    let image = Image::of(file_system, 512 * MIB);
    let (rounds, half) = kill_repeatedly(&image, kills, trees);
    let name = file_system.name;
    println!("{name}: {kills} kills in {rounds} runs, {half} while the file was moving");
    assert!(half > kills / 6, "{name}: only {half} of at least {kills} kills hit a move");
}

#[test]
fn loop_200_kills_on_ext4_lose_nothing_and_leave_nothing() {
    kills_lose_nothing_and_leave_nothing(&EXT4, 200, 64);
}

#[test]
fn loop_60_kills_on_xfs_lose_nothing_and_leave_nothing() {
    kills_lose_nothing_and_leave_nothing(&XFS, 60, 64);
}

#[test]
fn loop_60_kills_on_xfs_with_exchange_lose_nothing_and_leave_nothing() {
    kills_lose_nothing_and_leave_nothing(&XFS_EXCHANGE, 60, 64);
}

#[test]
fn loop_60_kills_on_btrfs_lose_nothing_and_leave_nothing() {
    kills_lose_nothing_and_leave_nothing(&BTRFS, 60, 256);
}

/// Kills `apply` at random instants; returns the number of runs, and of the kills after which the
/// file was moved in part.
fn kill_repeatedly(image: &Image, wanted: u32, trees: u64) -> (u32, u32) {
    const SIZE: u64 = 6 * MIB;
    let mut random = Random::new(SEED);
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    let (mut kills, mut round, mut half) = (0, 0, 0);
    let free = || rustix::fs::statvfs(image.path()).unwrap().f_bfree;
    let names = || fs::read_dir(image.path()).unwrap().count();
    let others = names();
    // Some file systems free an orphan's blocks later, in the background.
    let is_free_again = |before: u64| {
        let deadline = Instant::now() + Duration::from_secs(10);
        while free() + trees < before {
            assert!(Instant::now() < deadline, "{} of {before} blocks free", free());
            image.sync();
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    image.sync();
    let at_first = free();
    // How long a whole run lasts, so that kills hit its middle: at first measured, then as kills come too late or in time. The first
    // one may be far slower than the others.
    let mut usual: Option<Duration> = None;
    // On a busy machine more kills are needed to hit it as often.
    while kills < wanted || half <= wanted / 6 && kills < 3 * wanted {
        // A new fragmented file whenever the last one is mended.
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(image.path().join("file.dummy"));
        interleaved(&path, SIZE, &[4096], true).unwrap();
        image.sync();
        let before = free();
        write_plan(&plan(&[&path], Policy::Bypass), &plan_file);
        let mut fragments = extents(&path);
        loop {
            let started = Instant::now();
            let apply = start_apply(&plan_file, &["--rate", "max"]);
            let Some(whole) = usual else {
                apply.wait().expect(&[0]);
                usual = Some(started.elapsed());
                break;
            };
            let mut instant = random.below(1000);
            if image.is(&BTRFS) {
                // All of a range is copied first, and only then does any of it move.
                instant = instant.max(random.below(1000)).max(random.below(1000));
            }
            let slept = whole.mul_f64(instant as f64 / 1000.0);
            std::thread::sleep(slept);
            apply.signal(rustix::process::Signal::KILL);
            let finished = apply.wait();
            round += 1;
            if finished.status.code().is_some() {
                usual = Some(slept);
                break;
            }
            usual = Some(whole.mul_f64(1.05));
            kills += 1;
            let left = extents(&path);
            half += u32::from(left < fragments && left > 4);
            fragments = left;
            if kills % 10 == 0 {
                assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, round {round}");
            }
            if kills == wanted {
                break;
            }
        }
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, round {round}");
        // No donor is left behind: its blocks are free again, and there is no name of it.
        assert_eq!(names(), others + 2, "the file and its dummy");
        is_free_again(before);
    }
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
    // A donor of a single range, left by each kill, would be many times what trees need.
    fs::remove_file(&path).unwrap();
    fs::remove_file(image.path().join("file.dummy")).unwrap();
    is_free_again(at_first);
    (round, half)
}

#[test]
fn loop_power_cuts_lose_nothing() {
    const SIZE: u64 = 24 * MIB;
    let mut random = Random::new(SEED ^ 1);
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    let plan_file = image.scratch().join("plan.json");
    let mut in_the_middle = 0;
    for cut in 0..25 {
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(image.path().join("file.dummy"));
        interleaved(&path, SIZE, &[4096], true).unwrap();
        image.sync();
        let before = extents(&path);
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        // Most are aimed at a move that has begun, and lasts for seconds.
        let aimed = cut % 5 > 0;
        let apply = start_apply(&plan_file, &["--rate", if aimed { "6M" } else { "max" }]);
        // Another program's fsync commits the journal at any time, half done moves included.
        let other = File::create(image.path().join("other")).unwrap();
        let commits = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&commits);
        let committed = std::thread::spawn(move || {
            while (&other).write_all(b"x").and_then(|()| other.sync_all()).is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let until = |done: &dyn Fn() -> bool| {
            let patience = Instant::now() + Duration::from_secs(60);
            while !done() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        if aimed {
            until(&|| extents(&path) < before - 8);
            let seen = commits.load(Ordering::SeqCst);
            until(&|| commits.load(Ordering::SeqCst) > seen + 1);
        }
        std::thread::sleep(Duration::from_micros(5_000 + random.below(150_000)));
        cut_power(File::open(image.path()).unwrap()).unwrap();
        let _ = (apply.wait(), committed.join());
        // The journal is replayed, and the file system is whole.
        image.remount();
        image.fsck();
        assert!(is_intact(&path, SIZE).unwrap(), "seed {SEED:#x}, cut {cut}");
        let after = extents(&path);
        assert!(after <= before, "seed {SEED:#x}, cut {cut}: {before} fragments, then {after}");
        in_the_middle += u32::from(after < before && after > 10);
        let _ = fs::remove_file(image.path().join("other"));
    }
    println!("25 power cuts, {in_the_middle} with the file half moved on the disk");
    assert!(in_the_middle > 5, "only {in_the_middle} cuts hit the middle of a move");
}

#[test]
fn loop_what_a_receipt_says_survives_a_power_cut() {
    const SIZE: u64 = 48 * MIB;
    let image = Image::ext4(256 * MIB);
    let path = image.path().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    image.sync();
    let plan = plan(&[&path], Policy::WholeFile);
    let (summary, _) = apply(&plan);
    cut_power(File::open(image.path()).unwrap()).unwrap();
    assert_eq!(summary.moved_bytes, SIZE, "{summary:?}");
    image.remount();
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
    assert!(extents(&path) <= 6, "{} fragments", extents(&path)); // one for each range
}

/// One `apply` on a recorded disk, which is cut at the instant at which `apply` has ended. The file's layout
/// after the cut is the one that it had then.
fn receipts_survive(scenario: &Scenario) {
    let mut slow = SlowMount::new(scenario.file_system, scenario.bytes, "");
    let path = slow.root().join("file");
    if scenario.file_system.options.contains("compress") {
        alternating(&path, 2 * MIB, 16 << 10, compressible).unwrap();
    } else {
        interleaved(&path, 2 * MIB, &[4096], true).unwrap();
    }
    slow.sync();
    let wanted = fs::read(&path).unwrap();
    // Without the flag of shared extents, which may still change: XFS frees a donor in the background.
    let places = |path: &Path| -> Vec<[u64; 3]> {
        let layout = layout_of(File::open(path).unwrap()).unwrap();
        layout.extents().iter().map(|e| [e.logical, e.physical, e.length]).collect()
    };
    let plan_file = slow.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    slow.record();
    let before = places(&path);
    // Not in this process, which serves the disk.
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
    let said = finish(&mut command).expect(&[0, 2]);
    slow.mark(&Mark::AtRest);
    for by in scenario.expects.iter().take(1) {
        assert!(said.contains(by), "{}: {said}", scenario.name);
    }
    let after = places(&path);
    assert!(
        after.len() * 8 <= before.len(),
        "{}: {} fragments: {said}",
        scenario.name,
        after.len()
    );
    // Btrfs would mistake a copy of itself for the same file system.
    slow.unmount();
    let (base, log) = slow.recorded().unwrap();
    let at_rest = log.marks().map(Result::unwrap).find(|(_, mark)| mark.contains("AtRest"));
    let (position, _) = at_rest.expect("its mark");
    for seed in 1..=4 {
        let cut = Cut { position, seed, honest: true };
        let left = AfterCut::new(scenario.file_system, (&base, &log), scenario.atom, cut);
        let path = left.root().join("file");
        assert!(fs::read(&path).unwrap() == wanted, "{} {cut:?}: other bytes", scenario.name);
        let now = places(&path);
        let lost =
            format!("{} {cut:?}: {} fragments, then {}", scenario.name, after.len(), now.len());
        assert!(now == after, "{lost}");
    }
}

/// A test for each row, so that a failure names it.
macro_rules! receipts_survive {
    ($($test:ident => $row:literal;)*) => {
        $(#[test] fn $test() { receipts_survive(scenario::named($row).unwrap()) })*
    };
}

receipts_survive! {
    loop_what_a_receipt_says_survives_a_power_cut_on_xfs => "xfs";
    loop_what_a_receipt_says_survives_a_power_cut_on_xfs_exchange => "xfs-exchange";
    loop_what_a_receipt_says_survives_a_power_cut_on_xfs_rmap => "xfs-rmap";
    loop_what_a_receipt_says_survives_a_power_cut_on_btrfs => "btrfs";
    loop_what_a_receipt_says_survives_a_power_cut_on_btrfs_zstd => "btrfs-zstd";
}

fn writers_on_the_same_file_see_their_own_bytes(file_system: &'static FileSystem) {
    const SIZE: u64 = 32 * MIB;
    for (engine, direct) in [("psync", 0), ("psync", 1), ("mmap", 0), ("io_uring", 1)] {
        let image = Image::of(file_system, 512 * MIB);
        let path = image.path().join("file");
        interleaved(&path, SIZE, &[4096], true).unwrap();
        let plan = plan(&[&path], Policy::WholeFile);
        let size = format!("size={SIZE}");
        let mut command = fio::command(
            &path,
            &[
                &size,
                &format!("ioengine={engine}"),
                &format!("direct={direct}"),
                "rw=randwrite",
                "bs=4k",
                "verify=crc32c",
                "verify_backlog=256",
                "verify_fatal=1",
                "loops=3",
                "overwrite=1",
                "randseed=7",
            ],
        );
        let writer = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        std::thread::sleep(Duration::from_millis(300));
        let (summary, receipts) = apply_forced(&plan);
        let ranges: usize = plan.files.iter().map(|f| f.ranges.len()).sum();
        assert_eq!(receipts.len(), ranges, "every range has its receipt");
        let written = fio::parse(&writer.wait().expect(&[0])).write;
        assert!(written.bytes >= SIZE, "fio wrote {} bytes", written.bytes);
        println!(
            "{}, {engine} direct={direct}: {} bytes moved, {} left alone, longest step {:.1} ms",
            file_system.name,
            summary.moved_bytes,
            summary.ranges_skipped,
            summary.longest_step_seconds * 1e3
        );
        // With a cold cache, the file contains what fio wrote last.
        image.fsck();
        fio::run(
            &path,
            &[
                &size,
                "rw=randwrite",
                "bs=4k",
                "verify=crc32c",
                "verify_only=1",
                "randseed=7",
                "loops=3",
            ],
        );
    }
}

#[test]
fn loop_writers_on_the_same_file_see_their_own_bytes_on_ext4() {
    writers_on_the_same_file_see_their_own_bytes(&EXT4);
}

#[test]
fn loop_writers_on_the_same_file_see_their_own_bytes_on_xfs() {
    writers_on_the_same_file_see_their_own_bytes(&XFS);
}

#[test]
fn loop_writers_on_the_same_file_see_their_own_bytes_on_xfs_with_exchange() {
    writers_on_the_same_file_see_their_own_bytes(&XFS_EXCHANGE);
}

#[test]
fn loop_writers_on_the_same_file_see_their_own_bytes_on_btrfs() {
    writers_on_the_same_file_see_their_own_bytes(&BTRFS);
}

#[test]
fn loop_an_appending_and_a_truncating_program_go_on() {
    let image = Image::ext4(256 * MIB);
    let log = image.path().join("log");
    let shrinking = image.path().join("shrinking");
    interleaved(&log, 8 * MIB, &[4096], true).unwrap();
    interleaved(&shrinking, 8 * MIB, &[4096], true).unwrap();
    let made = plan(&[&log, &shrinking], Policy::Bypass);
    // Bounded by time and by bytes: on a fast machine two seconds fill the disk.
    let script = "import os,sys,time\n\
        a=os.open(sys.argv[1],os.O_WRONLY|os.O_APPEND);t=os.open(sys.argv[2],os.O_WRONLY)\n\
        end=time.time()+2;n=0\n\
        while time.time()<end and n<200000:\n os.write(a,n.to_bytes(8,'little')*64);n+=1\n \
        os.ftruncate(t,max(4<<20,(8<<20)-n*1000)) if n%8==0 else None\nprint(n)";
    let mut command = Command::new("python3");
    command.args(["-c", script]).args([&log, &shrinking]).stdout(Stdio::piped());
    let program = Running::start(&mut command);
    std::thread::sleep(Duration::from_millis(200));
    let (summary, _) = apply_forced(&made);
    let rounds: u64 = program.wait().expect(&[0]).trim().parse().unwrap();
    assert!(summary.ranges_moved > 0, "{summary:?}");
    image.fsck();
    let bytes = fs::read(&log).unwrap();
    assert_eq!(bytes.len() as u64, 8 * MIB + rounds * 512);
    let mut want = vec![0; 8 << 20];
    fragmend_testbed::fragment::content(0, &mut want);
    assert_eq!(bytes[..8 << 20], want);
    for (n, record) in bytes[8 << 20..].chunks(8).enumerate() {
        assert_eq!(record, (n as u64 / 64).to_le_bytes(), "record {n}");
    }
    let left = fs::read(&shrinking).unwrap();
    assert_eq!(left[..4 << 20], want[..4 << 20]);
    let intact = left.iter().zip(&want).all(|(a, b)| a == b);
    assert!(intact, "what truncation left is as it was");
}

#[test]
fn loop_a_full_disk_loses_nothing() {
    let image = Image::ext4(64 * MIB);
    let path = image.path().join("file");
    interleaved(&path, 8 * MIB, &[4096], true).unwrap();
    let made = plan(&[&path], Policy::WholeFile);
    // Full to the last block, including those that are reserved for root.
    let filler = aging::fill_up(&image.path().join("filler"));
    let default = apply(&made).0;
    assert_eq!(reasons(&default, &path), [SkipReason::FreeSpaceFloor], "{default:?}");
    let no_floor =
        Options { free_floor_bytes: Some(0), rate: Rate::Unlimited, ..Options::default() };
    let (summary, _) = apply_with(&made, &no_floor);
    let why = reasons(&summary, &path);
    assert!(why == [SkipReason::FreeSpaceFloor] || why == [SkipReason::NoSpace], "{summary:?}");
    assert_eq!(summary.moved_bytes, 0);
    drop(filler);
    image.fsck();
    assert!(is_intact(&path, 8 * MIB).unwrap());
}

/// `apply` by another user than root, for setpriv(1).
const AS_OWNER: [&str; 6] =
    ["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND, "apply", "--json"];

/// Makes that user the owner.
fn give_away(paths: [&Path; 2]) {
    for path in paths {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
}

#[test]
fn loop_an_owner_needs_no_privilege() {
    let image = Image::ext4(128 * MIB);
    let dir = image.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let (path, foreign) = (dir.join("file"), dir.join("foreign"));
    for file in [&path, &foreign] {
        interleaved(file, 4 * MIB, &[4096], true).unwrap();
    }
    give_away([&dir, &path]);
    image.sync();
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&dir], Policy::WholeFile), &plan_file);
    readable_by_all(&plan_file);
    let text = finish(Command::new("setpriv").args(AS_OWNER).arg(&plan_file)).expect(&[2]);
    assert!(text.contains("\"reason\":\"permission_denied\""), "{text}");
    let (own, other) = (extents(&path), extents(&foreign));
    assert!(own <= 2 && other > 100, "own {own}, foreign {other}");
    assert!(is_intact(&path, 4 * MIB).unwrap() && is_intact(&foreign, 4 * MIB).unwrap());
}

/// ext4's copies are locked in memory while the disk may refuse them; a process that may lock little moves little
/// at once, and one that may lock none moves nothing.
#[test]
fn loop_an_owner_may_be_allowed_to_lock_little_memory() {
    for (limit, moves) in [(0, false), (16 << 10, true), (64 << 10, true)] {
        let image = Image::ext4(128 * MIB);
        let dir = image.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let path = dir.join("file");
        interleaved(&path, MIB, &[4096], true).unwrap();
        give_away([&dir, &path]);
        image.sync();
        let plan_file = image.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
        readable_by_all(&plan_file);
        let mut command = Command::new("prlimit");
        command.arg(format!("--memlock={limit}")).arg("setpriv").args(AS_OWNER);
        command.arg("--rate=max").arg(&plan_file);
        let text = finish(&mut command).expect(if moves { &[0] } else { &[2, 4 | 2] });
        assert_eq!(text.contains("ulimit -l"), !moves, "{limit}: {text}");
        assert_eq!(extents(&path) <= 2, moves, "{limit}: {text}");
        assert!(is_intact(&path, MIB).unwrap());
    }
}
