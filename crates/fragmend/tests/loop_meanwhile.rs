//! What others do to a file at a known instant of its move: the mover stops itself there, the change
//! is made, and the mover continues.

mod support;

use fragmend_engines::primitive::COMMIT_RANGE;
use fragmend_layout::ByteRange;
use fragmend_plan::{Plan, PlannedRange, Policy};
use fragmend_scan::fiemap::layout_of;
use fragmend_sys::backoff::Backoff;
use fragmend_sys::lease::Lease;
use fragmend_sys::xfs::open_without_times;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_ZSTD, EXT4, FileSystem, MAY_BE_SHARED, XFS, XFS_EXCHANGE,
};
use fragmend_testbed::file_system::{XFS_EXCHANGE_ALONE, XFS_RMAP};
use fragmend_testbed::fragment::{content, interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Finished, Running, a_program_waits, finish};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::btrfs::{btrfs, squeezed};
use support::rewrite::is_stopped;
use support::{SIZE, fragmented, plan, write_plan};

const DISK: u64 = 320 << 20;
const BLOCK: u64 = 4096;
const AT: u64 = SIZE / 2;
const NEW: &[u8; 16] = b"written meantime";

/// A mover of one file that stops itself at a step each time it reaches it.
struct Stopping {
    running: Option<Running>,
    id: u32,
}

impl Stopping {
    fn at(image: &Image, file: &Path, step: &str) -> Self {
        Self::applying(image, &plan(&[file], Policy::WholeFile), step)
    }

    fn applying(image: &Image, plan: &Plan, step: &str) -> Self {
        let to = image.scratch().join("plan.json");
        let _ = fs::remove_file(&to);
        write_plan(plan, &to);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.args(["apply", "--json", "--rate", "max", "--free-floor", "0"]).arg(&to);
        command.env("FRAGMEND_STOP_AT", format!("{step}=stop"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running::start(&mut command);
        let id = running.id();
        Self { running: Some(running), id }
    }

    /// Waits until it is stopped.
    fn stands(mut self) -> Self {
        self.running = self.running.map(|running| running.wait_until(is_stopped));
        self
    }

    /// Continues it until it is stopped once more.
    fn stands_again(self) -> Self {
        kill_process(Pid::from_raw(self.id.cast_signed()).unwrap(), Signal::CONT).unwrap();
        self.stands()
    }

    /// Waits until this opener waits for its lease, which it cannot release while it is stopped.
    fn is_waited_for<T>(&self, path: &Path, opener: &JoinHandle<T>) {
        let began = Instant::now();
        while !a_program_waits(self.id, path) {
            let may_come = began.elapsed() < Duration::from_secs(20) && !opener.is_finished();
            assert!(may_come, "no lease");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues it to its end; returns the receipts.
    fn end(self) -> Vec<Value> {
        let running = self.running.expect("it runs");
        let ending = std::thread::spawn(move || -> Finished { running.wait() });
        let started = Instant::now();
        let id = Pid::from_raw(self.id.cast_signed()).unwrap();
        while !ending.is_finished() {
            if is_stopped(self.id) {
                let _ = kill_process(id, Signal::CONT);
            }
            assert!(started.elapsed() < Duration::from_secs(60), "it hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        let lines = ending.join().unwrap().expect(&[0, 2]);
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == "range").collect()
    }
}

/// The content that [`fragmented`] writes, with `bytes` at `at`.
fn expected(at: u64, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![0; SIZE as usize];
    content(0, &mut all);
    all[at as usize..][..bytes.len()].copy_from_slice(bytes);
    all
}

/// Checks that the file contains `bytes`, with a warm and with a cold cache.
fn holds(image: &Image, path: &Path, bytes: &[u8], told: &[Value]) {
    for round in ["warm", "cold"] {
        let found = fs::read(path).unwrap();
        let differ = (0..bytes.len().max(found.len())).find(|n| found.get(*n) != bytes.get(*n));
        assert_eq!(differ, None, "{round}: first wrong byte of {}; {told:?}", path.display());
        image.fsck();
    }
}

fn text<'a>(receipt: &'a Value, key: &str) -> &'a str {
    receipt[key].as_str().unwrap_or_default()
}

/// A program that has the file open by its handle, as libhandle opens files, writes without setting
/// its times: a sample does not show that.
#[test]
fn loop_what_is_written_without_times_stays() {
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let file = File::open(&path).unwrap();
        let top = File::open(image.path()).unwrap();
        let writer = File::from(open_without_times(&top, &file, OFlags::RDWR).unwrap());
        drop(file);
        let before = path.metadata().unwrap();
        let mover = Stopping::at(&image, &path, "filled");
        let has_reflink = file_system.name == XFS_EXCHANGE.name;
        // Where nothing can be shared, the file is left alone, and no step is reached.
        let mover = if has_reflink { mover.stands() } else { mover };
        writer.write_all_at(NEW, AT).unwrap();
        writer.sync_all().unwrap();
        let receipts = mover.end();
        drop((writer, top));
        let after = path.metadata().unwrap();
        assert_eq!((after.mtime(), after.mtime_nsec()), (before.mtime(), before.mtime_nsec()));
        holds(&image, &path, &expected(AT, NEW), &receipts);
        let told = &receipts[0];
        if has_reflink {
            assert_eq!(text(told, "primitive"), "FIDEDUPERANGE", "{told}");
            assert_eq!(text(told, "fallback"), MAY_BE_SHARED[0], "{told}");
        } else {
            assert_eq!(text(told, "reason"), "busy", "{told}");
        }
    }
}

/// The same where whole files are swapped: no program is kept out while they are copied. Also for bytes that
/// are written into a hole.
#[test]
fn loop_what_is_written_without_times_is_not_swapped_away() {
    const HOLE: u64 = SIZE / 4;
    for (at, closes) in [(AT, true), (AT, false), (HOLE, true)] {
        let image = Image::of(&XFS_RMAP, DISK);
        let path = fragmented(&image, "file");
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, HOLE, BLOCK).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let mover = Stopping::at(&image, &path, "filled").stands();
        let (file, top) = (File::open(&path).unwrap(), File::open(image.path()).unwrap());
        let before = path.metadata().unwrap();
        let writer = File::from(open_without_times(&top, &file, OFlags::RDWR).unwrap());
        drop(file);
        writer.write_all_at(NEW, at).unwrap();
        writer.sync_all().unwrap();
        assert_eq!(path.metadata().unwrap().ctime_nsec(), before.ctime_nsec());
        let open = (!closes).then_some(writer);
        let receipts = mover.end();
        drop((open, top));
        let mut bytes = expected(HOLE, &[0; BLOCK as usize]);
        bytes[at as usize..][..NEW.len()].copy_from_slice(NEW);
        holds(&image, &path, &bytes, &receipts);
        assert!(receipts.iter().all(|told| text(told, "reason") == "busy"), "{receipts:?}");
    }
}

/// A program that opens the file while it is exchanged waits for a step at most, and what it writes then,
/// without times, stays: whether it keeps the file open, so that the rest is shared, or closes it, so that
/// the file is sampled anew.
#[test]
fn loop_a_program_that_opens_it_meanwhile_is_let_in() {
    for (file_system, step, closes) in [
        (&XFS_EXCHANGE, "sampled", false),
        (&XFS_EXCHANGE, "filled", false),
        (&XFS_EXCHANGE, "filled", true),
        (&XFS_EXCHANGE_ALONE, "filled", false),
        (&XFS_EXCHANGE_ALONE, "filled", true),
    ] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let (top, by_handle) = (File::open(image.path()).unwrap(), path.clone());
        let mover = Stopping::at(&image, &path, step).stands();
        let opener = std::thread::spawn(move || {
            let file = OpenOptions::new().read(true).write(true).open(by_handle).unwrap();
            let writer = File::from(open_without_times(&top, &file, OFlags::RDWR).unwrap());
            writer.write_all_at(NEW, AT).unwrap();
            (!closes).then_some((file, writer))
        });
        mover.is_waited_for(&path, &opener);
        let receipts = mover.end();
        let open = opener.join().unwrap();
        drop(open);
        holds(&image, &path, &expected(AT, NEW), &receipts);
        let fallback = text(&receipts[0], "fallback");
        let has_reflink = file_system.name == XFS_EXCHANGE.name;
        assert!(closes || !has_reflink || fallback == MAY_BE_SHARED[0], "{receipts:?}");
    }
}

/// If a program opens the file before the last turn, which is the partial block at its end, that is sampled
/// anew.
#[test]
fn loop_a_last_block_that_is_not_whole_is_sampled_as_well() {
    // The first turn, and a byte.
    const ODD: u64 = (128 << 10) + 1;
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        let image = Image::of(file_system, DISK);
        let path = image.path().join("file");
        interleaved(&path, ODD, &[4096], true).unwrap();
        image.sync();
        let mover = Stopping::at(&image, &path, "moved").stands();
        // Another process: what this one has open, a child of another test has open until its `exec`.
        let opener = std::thread::spawn({
            let path = path.clone();
            move || run("sh", ["-c".as_ref(), ": < \"$0\"".as_ref(), path.as_os_str()])
        });
        mover.is_waited_for(&path, &opener);
        let receipts = mover.end();
        opener.join().unwrap();
        println!("{}: {receipts:?}", file_system.name);
        assert_eq!(text(&receipts[0], "outcome"), "moved", "{receipts:?}");
        assert_eq!(text(&receipts[0], "primitive"), COMMIT_RANGE, "{receipts:?}");
        assert!(is_intact(&path, ODD).unwrap());
        image.fsck();
    }
}

/// GNU tar opens files with `O_NONBLOCK`, and leaves out those that it cannot open.
#[test]
fn loop_an_open_that_does_not_wait_fails_beside_an_exchange_only() {
    for (file_system, opens) in [(&XFS_EXCHANGE, false), (&XFS, true), (&BTRFS, true)] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let mover = Stopping::at(&image, &path, "filled").stands();
        let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(opened.is_ok(), opens, "{}: {opened:?}", file_system.name);
        drop(opened);
        mover.end();
    }
}

/// A hole that is punched into a range that is being moved is not written anew as data.
#[test]
fn loop_a_hole_that_is_punched_meanwhile_stays() {
    const HOLE: u64 = 256 << 10;
    let file_systems: [&FileSystem; 5] = [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_EXCHANGE_ALONE, &BTRFS];
    for file_system in file_systems {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let allocated = || path.metadata().unwrap().blocks() * 512;
        let before = allocated();
        let mover = Stopping::at(&image, &path, "staged").stands();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, how, AT, HOLE).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let receipts = mover.end();
        holds(&image, &path, &expected(AT, &vec![0; HOLE as usize]), &receipts);
        // A smaller tree frees another block.
        assert!(allocated() <= before - HOLE, "{}: {receipts:?}", file_system.name);
        assert_eq!(text(&receipts[0], "outcome"), "skipped", "{receipts:?}");
        assert_eq!(text(&receipts[0], "reason"), "layout_changed", "{receipts:?}");
    }
}

/// Between two turns the file shares nothing with the donor: a program that overwrites it in place needs no
/// new space, which a full disk or a quota would refuse.
#[test]
fn loop_what_was_shared_is_the_files_own_at_once() {
    for file_system in [&XFS, &BTRFS] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let mut halves = plan(&[&path], Policy::WholeFile);
        let all = halves.files[0].ranges[0].clone();
        let half = |n| PlannedRange { offset: n * SIZE / 2, length: SIZE / 2, ..all.clone() };
        halves.files[0].ranges = vec![half(0), half(1)];
        let mover = Stopping::applying(&image, &halves, "filled").stands().stands_again();
        let was = layout_of(File::open(&path).unwrap()).unwrap();
        let shared = was.shared_bytes(ByteRange { start: 0, end: SIZE });
        assert!(shared == 0, "{}: {shared} bytes", file_system.name);
        let receipts = mover.end();
        holds(&image, &path, &expected(0, &[]), &receipts);
        assert!(receipts.iter().all(|told| text(told, "outcome") == "moved"), "{receipts:?}");
    }
}

/// Whatever others write to its ranges: the daemon's budget rests on that.
#[test]
fn loop_a_move_beside_a_writer_writes_no_more_than_twice_its_bytes() {
    const RANGE: u64 = 512 << 10;
    let image = Image::of(&XFS, DISK);
    let path = fragmented(&image, "file");
    let mut plan = plan(&[&path], Policy::WholeFile);
    plan.files[0].ranges[0].length = RANGE;
    let mover = Stopping::applying(&image, &plan, "filled");
    let proc = |what: &str| fs::read_to_string(format!("/proc/{}/{what}", mover.id)).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let (mut new, mut written) = (0u8, 0);
    while !proc("stat").contains(") Z ") {
        if is_stopped(mover.id) {
            // Each turn succeeds at last.
            new = new.wrapping_add(1);
            if !new.is_multiple_of(5) {
                file.write_all_at(&[new; RANGE as usize], 0).unwrap();
            }
            kill_process(Pid::from_raw(mover.id.cast_signed()).unwrap(), Signal::CONT).unwrap();
        }
        let count = proc("io").lines().find_map(|l| l.strip_prefix("wchar: ")?.parse().ok());
        written = count.map_or(written, |count: u64| count.max(written));
        std::thread::sleep(Duration::from_millis(2));
    }
    // What it prints counts as well.
    let most = 2 * RANGE + (32 << 10);
    assert!(written > RANGE && written <= most, "{written} of {most}: {:?}", mover.end());
}

/// Data that becomes shared between the check and the move stays shared, with every primitive.
#[test]
fn loop_what_comes_to_be_shared_meanwhile_stays_shared() {
    for file_system in [&XFS, &XFS_EXCHANGE, &BTRFS, &BTRFS_ZSTD] {
        let image = Image::of(file_system, DISK);
        let path = if file_system.name == BTRFS_ZSTD.name {
            squeezed(&image, "file")
        } else {
            fragmented(&image, "file")
        };
        let (before, other) = (fs::read(&path).unwrap(), image.path().join("other"));
        let mover = Stopping::at(&image, &path, "staged").stands();
        run("cp", ["--reflink=always".as_ref(), path.as_os_str(), other.as_os_str()]);
        let receipts = mover.end();
        image.sync();
        let was = layout_of(File::open(&path).unwrap()).unwrap();
        let own = was.extents().iter().filter(|e| !e.kind.is_shared()).count();
        assert_eq!(own, 0, "{}: {receipts:?}", file_system.name);
        assert_eq!(text(&receipts[0], "reason"), "shared", "{receipts:?}");
        assert_eq!(receipts[0]["moved_bytes"], 0, "{receipts:?}");
        holds(&image, &path, &before, &receipts);
    }
}

/// One `apply` at a time, also where subvolumes have device numbers of their own; one plan may contain
/// several.
#[test]
fn loop_subvolumes_of_one_file_system_are_mended_one_at_a_time() {
    let image = Image::of(&BTRFS, DISK);
    let paths = ["one", "two"].map(|name| {
        btrfs(&["subvolume", "create"], &[&image.path().join(name)]);
        fragmented(&image, &format!("{name}/file"))
    });
    let mover = Stopping::at(&image, &paths[0], "staged").stands();
    let to = image.scratch().join("both.json");
    write_plan(&plan(&[&paths[0], &paths[1]], Policy::WholeFile), &to);
    let mut second = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    second.args(["apply", "--rate", "max", "--free-floor", "0"]);
    write_plan(&plan(&[&paths[1]], Policy::WholeFile), &image.scratch().join("two.json"));
    let refused = finish(second.arg(image.scratch().join("two.json")));
    let told = mover.end();
    assert!(refused.stderr.contains("another fragmend is at work there"), "{}", refused.stderr);
    assert_eq!(text(&told[0], "outcome"), "moved", "{told:?}");
    let mut both = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    finish(both.args(["apply", "--rate", "max", "--free-floor", "0"]).arg(&to)).expect(&[0]);
    assert_eq!(layout_of(File::open(&paths[1]).unwrap()).unwrap().extents().len(), 1);
}

/// A range that was truncated is not reported as moved.
#[test]
fn loop_a_file_that_is_cut_off_meanwhile_has_not_moved() {
    let exchange = (&XFS_EXCHANGE, "staged");
    for (file_system, step) in [(&XFS, "moved"), (&XFS_RMAP, "filled"), exchange] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let mover = Stopping::at(&image, &path, step).stands();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        let receipts = mover.end();
        assert_eq!(text(&receipts[0], "outcome"), "skipped", "{receipts:?}");
        assert_ne!(text(&receipts[0], "reason"), "failed", "{receipts:?}");
        assert_eq!(path.metadata().unwrap().len(), 0);
        image.fsck();
    }
}

/// A copy of a real program, in fragments.
fn program(image: &Image) -> PathBuf {
    let path = image.path().join("program");
    let bytes = fs::read("/bin/true").unwrap();
    let size = (bytes.len() as u64).next_multiple_of(BLOCK).max(256 << 10);
    interleaved(&path, size, &[4096], true).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    image.sync();
    path
}

/// A lease, once no child that another test has just started has the file open for an instant before its `exec`.
fn leased<T>(take: impl FnMut() -> std::io::Result<T>) -> T {
    let is_open = |e: &std::io::Error| e.kind() == std::io::ErrorKind::WouldBlock;
    Backoff::new(Duration::from_millis(1), 10).retry(is_open, take).unwrap()
}

/// A lease that another program holds is not even broken, and a dry run opens no file for writing.
#[test]
fn loop_leases_of_others_are_not_broken() {
    for file_system in [&EXT4, &XFS, &XFS_EXCHANGE, &BTRFS] {
        let image = Image::of(file_system, DISK);
        let path = fragmented(&image, "file");
        let to = image.scratch().join("plan.json");
        write_plan(&plan(&[&path], Policy::WholeFile), &to);
        let apply = |more: &[&str]| -> Value {
            let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
            let done =
                finish(command.args(["apply", "--json"]).args(more).arg(&to)).expect(&[0, 2]);
            let mut events = done.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
            events.find(|event| event["event"] == "range").unwrap()
        };
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let lease = leased(|| Lease::take(&file));
        for more in [&["--dry-run"][..], &[]] {
            let told = apply(more);
            assert!(!lease.is_wanted(), "{} {more:?}", file_system.name);
            assert_eq!(text(&told, "reason"), "leased", "{told}");
        }
        drop(lease);
        drop(file);
        let file = File::open(&path).unwrap();
        let lease = leased(|| Lease::take_read(&file));
        let told = apply(&["--dry-run"]);
        assert!(!lease.is_wanted(), "{}", file_system.name);
        assert_eq!(text(&told, "outcome"), "would_move", "{told}");
        // A primitive that needs it open for writing leaves it alone; the others do not break the lease.
        let told = apply(&[]);
        assert!(!lease.is_wanted(), "{}", file_system.name);
        let shares = [XFS.name, BTRFS.name].contains(&file_system.name);
        assert_eq!(text(&told, "outcome") == "moved", shares, "{told}");
        assert!(shares || text(&told, "reason") == "leased", "{told}");
    }
}

/// Where sharing needs no writable descriptor, a program can be started while its file moves.
#[test]
fn loop_a_program_can_be_started_while_it_is_shared() {
    for file_system in [&XFS, &BTRFS] {
        let image = Image::of(file_system, DISK);
        let path = program(&image);
        let mover = Stopping::at(&image, &path, "filled").stands();
        let ran = Command::new(&path).status();
        let receipts = mover.end();
        assert!(ran.as_ref().is_ok_and(|s| s.success()), "{}: {ran:?}", file_system.name);
        assert_eq!(text(&receipts[0], "outcome"), "moved", "{receipts:?}");
    }
}

/// `/run`, which contains the locks, may be another one in another mount namespace.
#[test]
fn loop_another_run_directory_does_not_let_two_mend_at_once() {
    for file_system in [&EXT4, &BTRFS] {
        let image = Image::of(file_system, DISK);
        let paths = ["one", "two"].map(|name| fragmented(&image, name));
        let to = image.scratch().join("two.json");
        write_plan(&plan(&[&paths[1]], Policy::WholeFile), &to);
        let mover = Stopping::at(&image, &paths[0], "staged").stands();
        let elsewhere = || {
            let script = "mount -t tmpfs none /run && exec \"$0\" apply --rate max \"$1\"";
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_fragmend")]).arg(&to);
            finish(&mut command)
        };
        let refused = elsewhere();
        let was = layout_of(File::open(&paths[1]).unwrap()).unwrap().extents().len();
        mover.end();
        assert!(was > 1 && refused.status.code() == Some(4), "{refused:?}");
        assert!(refused.stderr.contains("another fragmend is at work there"), "{refused:?}");
        elsewhere().expect(&[0, 2]);
        let was = layout_of(File::open(&paths[1]).unwrap()).unwrap().extents().len();
        assert_eq!(was, 1, "{}", file_system.name);
    }
}
