//! Programs that permit opens and reads of files (fanotify permission events). The kernel opens the file for
//! such a program, which waits for that while the file is leased, and the holder of the lease waits for the
//! program as soon as it reads: so such files are left alone, and the receipt names the program.

mod support;

use fragmend_plan::Policy;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS_EXCHANGE};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Finished, Running};
use fragmend_testbed::tools::extents;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::rewrite::{FRAGMEND, killed_at, rewrite};
use support::{SIZE, fragmented, plan, write_plan};

/// Less than one such wait would last.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than a check needs, and less than a wait.
const SOON: Duration = Duration::from_secs(15);

const OPEN: u32 = 0x1_0000;
const ACCESS: u32 = 0x2_0000;
const ON_CHILD: u32 = 0x0800_0000;
const ON_DIRECTORY: u32 = 0x4000_0000;
const ON_MOUNT: u32 = 0x10;
const ON_FILE_SYSTEM: u32 = 0x100;

/// Permits all that is requested, one event after the other. Its name contains control characters.
const ALLOWS: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
libc.prctl(15, b'sc\n\x1b[2Jan')
group = libc.fanotify_init(4 | 1, 0)
how, mask = int(sys.argv[2]), int(sys.argv[3])
assert libc.fanotify_mark(group, 1 | how, mask, -100, sys.argv[1].encode()) == 0, ctypes.get_errno()
os.write(1, b'!')
while True:
    try:
        events = os.read(group, 4096)
        while events:
            length, _, _, _, _, fd, _ = struct.unpack('=IBBHQii', events[:24])
            events = events[length:]
            os.write(group, struct.pack('=iI', fd, 1))
            os.close(fd)
    except OSError: # There is nothing to open, or nobody waits any more.
        pass
";

fn listener(path: &Path, how: u32, mask: u32) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", ALLOWS]).arg(path).args([how.to_string(), mask.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let out = running.child().stdout.as_mut().expect("its output");
    std::io::Read::read_exact(out, &mut [0]).expect("it listens");
    running
}

/// Runs a command to its end, and ends it after [`PATIENCE`]; returns how long it lasted.
fn timed(command: &mut Command) -> (Finished, Duration) {
    let started = Instant::now();
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let pid = Pid::from_raw(running.id() as i32).expect("a process");
    let ended = std::sync::atomic::AtomicBool::new(false);
    let has_ended = || ended.load(std::sync::atomic::Ordering::Relaxed);
    let finished = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended() && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
            }
            if !has_ended() {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let finished = running.wait();
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        finished
    });
    (finished, started.elapsed())
}

fn native(image: &Image, path: &Path) -> Command {
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[path], Policy::WholeFile), &plan_file);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--json", "--rate", "max"]).arg(plan_file).stdin(Stdio::null());
    command
}

/// The receipt of the only range; checks that `apply` has ended soon.
fn receipt(command: &mut Command) -> Value {
    let (ended, took) = timed(command);
    assert!(took < SOON, "it took {took:?}: {ended:?}");
    let events = ended.stdout.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let ranges: Vec<Value> = events.filter(|event| event["event"] == "range").collect();
    assert_eq!(ranges.len(), 1, "{ended:?}");
    let expected = if ranges[0]["outcome"] == "moved" { 0 } else { 2 };
    assert_eq!(ended.status.code(), Some(expected), "{ended:?}");
    ranges.into_iter().next().unwrap()
}

fn names(detail: &Value, listener: &Running) {
    let detail = detail.as_str().expect("a reason");
    let who = format!(r"process {} (sc\n\u{{1b}}[2Jan)", listener.id());
    assert!(detail.contains(&who), "{detail} does not name {who}");
}

/// A file is left alone under each kind of mark, and moves beside marks on others.
fn is_left_alone(file_system: &'static FileSystem, how_to: fn(&Image, &Path) -> Command) {
    let image = Image::of(file_system, 320 << 20);
    let directory = image.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    let (path, other) = (fragmented(&image, "directory/file"), fragmented(&image, "other"));
    image.sync();
    let was = extents(&path);
    let both = OPEN | ACCESS;
    for (on, how, mask) in [
        (image.path(), ON_MOUNT, both),
        (image.path(), ON_FILE_SYSTEM, both),
        (&path, 0, both),
        (&directory, 0, both | ON_CHILD),
    ] {
        let mut command = how_to(&image, &path);
        let listener = listener(on, how, mask);
        let told = receipt(&mut command);
        assert_eq!(
            (&told["outcome"], &told["reason"]),
            (&"skipped".into(), &"busy".into()),
            "{told}"
        );
        names(&told["detail"], &listener);
        drop(listener);
        assert_eq!(extents(&path), was, "{told}");
    }
    // Marks on other files only, or on the directory itself, prevent no move.
    let _other = listener(&other, 0, both);
    let _directory = listener(&directory, 0, OPEN | ON_DIRECTORY);
    let told = receipt(&mut how_to(&image, &path));
    assert_eq!(told["outcome"], "moved", "{told}");
    assert!(is_intact(&path, SIZE).unwrap());
}

#[test]
fn loop_what_a_scanner_is_asked_about_is_left_alone_on_ext4() {
    is_left_alone(&EXT4, native);
}

#[test]
fn loop_what_a_scanner_is_asked_about_is_left_alone_by_a_rewrite() {
    is_left_alone(&EXT4, |image, path| rewrite(image, path, ""));
}

/// If no lease can be taken, data moves by sharing, which needs none.
#[test]
fn loop_a_scanner_keeps_xfs_from_exchanging_and_nobody_waiting() {
    let image = Image::of(&XFS_EXCHANGE, 320 << 20);
    let path = fragmented(&image, "file");
    let mut command = native(&image, &path);
    let listener = listener(image.path(), ON_MOUNT, OPEN | ACCESS);
    let told = receipt(&mut command);
    match told["outcome"].as_str() {
        Some("moved") => {
            assert_eq!(told["primitive"], "FIDEDUPERANGE", "{told}");
            names(&told["fallback"], &listener);
        }
        _ => names(&told["detail"], &listener),
    }
    drop(listener);
    assert!(is_intact(&path, SIZE).unwrap());
}

/// Records stay until no such program is left.
#[test]
fn loop_recover_says_whom_it_would_wait_for() {
    let image = Image::of(&EXT4, 320 << 20);
    let path: PathBuf = fragmented(&image, "file");
    image.sync();
    killed_at(&image, &path, "punched");
    let recover = || {
        let mut command = Command::new(FRAGMEND);
        command.args(["recover", "--json"]).arg(image.path()).stdin(Stdio::null());
        let (ended, took) = timed(&mut command);
        assert!(took < SOON, "it took {took:?}: {ended:?}");
        let told: Value = serde_json::from_str(&ended.stdout).unwrap();
        (told["records"][0].clone(), ended.status.code())
    };
    for (on, how) in [(image.path(), ON_MOUNT), (&path, 0)] {
        let listener = listener(on, how, OPEN | ACCESS);
        let (told, code) = recover();
        assert_eq!((&told["outcome"], code), (&"unreachable".into(), Some(5)), "{told}");
        names(&told["detail"], &listener);
    }
    let (told, code) = recover();
    assert_eq!((&told["outcome"], code), (&"restored".into(), Some(0)), "{told}");
    assert!(is_intact(&path, SIZE).unwrap());
}
