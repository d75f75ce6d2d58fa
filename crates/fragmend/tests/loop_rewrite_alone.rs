//! Rewriting and recovering where the whole machine is affected: one test at a time, in a program of
//! their own.

mod support;

use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::tools::extents;
use fragmend_testbed::usage::Process;
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use support::rewrite::{
    go_on, go_on_throughout, is_stopped, kill, killed_at, outcomes, recover, recovering, rewrite,
    stopped_again, stopped_at, stopped_by,
};
use support::{SIZE, fragmented, write_plan};

/// Held by tests that may run at the same time, or by one that must not run beside others.
static MACHINE: RwLock<()> = RwLock::new(());

fn beside() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how long programs wait for a lease; restores the setting when it is dropped.
struct BreakTime(Undo, #[allow(dead_code)] Ticket);

impl BreakTime {
    fn set(seconds: &str) -> Self {
        let path = PathBuf::from("/proc/sys/fs/lease-break-time");
        let undo = Undo::Setting(path.clone(), fs::read_to_string(&path).unwrap());
        let ticket = cleanup::register(undo.clone());
        fs::write(path, seconds).unwrap();
        Self(undo, ticket)
    }
}

impl Drop for BreakTime {
    fn drop(&mut self) {
        self.0.run();
    }
}

/// While any of these exists, programs wait for a lease for ten seconds, the shortest time that is accepted.
struct TenSeconds(#[allow(dead_code)] RwLockReadGuard<'static, ()>);

/// How many there are, and the setting.
static TEN_SECONDS: Mutex<(usize, Option<BreakTime>)> = Mutex::new((0, None));

impl TenSeconds {
    fn set() -> Self {
        let shared = beside();
        let (users, time) = &mut *TEN_SECONDS.lock().unwrap_or_else(PoisonError::into_inner);
        *users += 1;
        time.get_or_insert_with(|| BreakTime::set("10"));
        Self(shared)
    }
}

impl Drop for TenSeconds {
    fn drop(&mut self) {
        let (users, time) = &mut *TEN_SECONDS.lock().unwrap_or_else(PoisonError::into_inner);
        *users -= 1;
        if *users == 0 {
            *time = None;
        }
    }
}

#[test]
fn loop_records_are_found_without_being_told_where() {
    let _alone = alone();
    // Recovering keeps every mounted file system busy for a moment: other tests could not unmount theirs.
    let images = [&EXT4, &XFS].map(|file_system| Image::of(file_system, 320 << 20));
    let files = images.each_ref().map(|image| {
        let file = fragmented(image, "file");
        killed_at(image, &file, "punched");
        file
    });
    // A dry run: the other file systems that are mounted here are not to be changed.
    let (told, code) = recover(&[&"--dry-run"]);
    for file in &files {
        let is_it = |r: &&serde_json::Value| r["path"].as_str() == file.to_str();
        let found = told["records"].as_array().unwrap().iter().find(is_it).unwrap();
        assert_eq!((found["outcome"].as_str(), code & 1), (Some("would_restore"), 1), "{told}");
    }
}

#[test]
fn loop_a_short_break_time_is_refused() {
    let _alone = alone();
    let image = Image::ext4(128 << 20);
    let file = fragmented(&image, "file");
    let _short = BreakTime::set("5");
    let refused = finish(&mut rewrite(&image, &file, ""));
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(refused.stderr.contains("lease-break-time is 5 s"), "{refused:?}");
}

/// As if the device had hung for longer than other programs wait.
#[test]
fn loop_what_is_written_after_the_lease_was_lost_stays() {
    let check = |step: &str| {
        let image = Image::ext4(320 << 20);
        let file = fragmented(&image, "file");
        let stopped = stopped_at(&image, &file, step);
        let program =
            "import sys\nf=open(sys.argv[1],'r+b')\nf.seek(40960)\nf.write(b'newer'*2000)";
        Running::start(Command::new("python3").args(["-c", program]).arg(&file))
            .wait()
            .expect(&[0]);
        let modified = || file.metadata().unwrap().modified().unwrap();
        let holds = || fs::read(&file).unwrap()[40_960..50_960] == *"newer".repeat(2000).as_bytes();
        let written = modified();
        let ended = go_on(stopped);
        let (told, code) = recover(&[&image.path()]);
        let what = format!("{step}: {ended:?} {told}");
        assert!(holds() && modified() == written, "{what}");
        if step == "punched" {
            assert_eq!((ended.status.code(), code), (Some(6), 1), "{what}");
            assert_eq!(outcomes(&told), ["changed"], "{what}");
            assert!(ended.stdout.contains("it took too long"), "{what}");
        } else {
            assert_eq!((ended.status.code(), outcomes(&told).len()), (Some(2), 0), "{what}");
            assert!(ended.stdout.contains("\"reason\":\"busy\""), "{what}");
        }
    };
    let _time = TenSeconds::set();
    std::thread::scope(|scope| {
        for step in ["leased", "sealed", "punched"] {
            scope.spawn(move || check(step));
        }
    });
}

/// The kernel has let another program in after a change, before that was noted: what this program makes of the file
/// counts as its own, and its time of modification stays.
#[test]
fn loop_what_others_do_before_a_change_is_noted_is_theirs() {
    // The first changes of a rewrite: whether space can be allocated, the time, the punch, the allocation.
    const TRIED: u32 = 1;
    const TIMED: u32 = 2;
    const PUNCHED: u32 = 3;
    const ALLOCATED: u32 = 4;
    const EMPTIED: &str = "f.truncate(0); f.truncate(size)";
    let cases = [
        ("changed", TRIED, "f.seek(70000); f.write(b'newer')"),
        // Right before the time is set over theirs, which is said.
        ("changing", TIMED, "f.seek(70000); f.write(b'newer')"),
        ("changed", PUNCHED, EMPTIED),
        ("changed", ALLOCATED, EMPTIED),
        // Right before the time is put back: their time is lost then, as that is one call.
        ("changing", 5, EMPTIED),
    ];
    let check = |file_system, step, changes, theirs: &str| {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let stopped = stopped_again(stopped_at(&image, &file, step), changes - 1);
        let program = format!(
            "import os,sys; f=open(sys.argv[1],'r+b'); size=os.fstat(f.fileno()).st_size; {theirs}; f.flush(); os.fsync(f.fileno())"
        );
        Running::start(Command::new("python3").args(["-c", &program]).arg(&file))
            .wait()
            .expect(&[0]);
        let modified = || file.metadata().unwrap().modified().unwrap();
        let (then, content) = (modified(), fs::read(&file).unwrap());
        let ended = go_on_throughout(stopped, || ());
        let (told, code) = recover(&[&image.path()]);
        let what = format!("{} {step} {changes}: {ended:?} {told}", file_system.name);
        assert!(fs::read(&file).unwrap() == content, "{what}");
        assert!(modified() == then || step == "changing", "{what}");
        if changes == TIMED {
            assert!(ended.stdout.contains("although others may have changed it since"), "{what}");
        }
        if changes <= TIMED {
            assert_eq!(
                (ended.status.code(), code, outcomes(&told).len()),
                (Some(2), 0, 0),
                "{what}"
            );
        } else {
            assert_eq!((ended.status.code(), code), (Some(6), 1), "{what}");
            assert_eq!(outcomes(&told), ["changed"], "{what}");
        }
    };
    let _time = TenSeconds::set();
    std::thread::scope(|scope| {
        for file_system in [&EXT4, &XFS] {
            for (step, changes, theirs) in cases {
                scope.spawn(move || check(file_system, step, changes, theirs));
            }
        }
    });
}

/// The kernel has let others in after the first change, whatever is noted later: what they punch is their hole if the
/// record stays by chance; and the time that this change has set is not put back, which is said.
#[test]
fn loop_that_others_were_let_in_is_not_forgotten() {
    let open = |file: &Path| run("sh", ["-c", ": >> \"$0\"", file.to_str().unwrap()]);
    let check = |file_system, step: &str, stops: u32, is_killed: bool| {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let before = file.metadata().unwrap().modified().unwrap();
        let then = if is_killed { ",leaving=stop" } else { "" };
        let stopped = stopped_by(&image, &file, &format!("{step}=stop{then}"));
        let stopped = stopped_again(stopped, stops - 1);
        open(&file);
        let what = format!("{} {step} {is_killed}", file_system.name);
        if is_killed {
            let leaves = stopped_again(stopped, 1);
            run("fallocate", ["-p", "-o", "65536", "-l", "131072", file.to_str().unwrap()]);
            let content = fs::read(&file).unwrap();
            kill(leaves);
            let (told, code) = recover(&[&image.path()]);
            assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{what}: {told}");
            assert!(fs::read(&file).unwrap() == content, "{what}: {told}");
        } else {
            let ended = go_on_throughout(stopped, || ());
            let is_told = ended.stdout.contains("its time of modification stays as it is");
            assert!(is_told && file.metadata().unwrap().modified().unwrap() > before, "{ended:?}");
            assert_eq!(ended.status.code(), Some(2), "{what}: {ended:?}");
            assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0, "{what}");
        }
    };
    let _time = TenSeconds::set();
    std::thread::scope(|scope| {
        for file_system in [&EXT4, &XFS] {
            // The second look is before the time is set.
            for (step, stops, is_killed) in
                [("changed", 1, true), ("changed", 1, false), ("looking", 2, false)]
            {
                scope.spawn(move || check(file_system, step, stops, is_killed));
            }
        }
    });
}

/// A time that is set by the file's path, for which nobody has to wait, is kept, and nothing else comes of it.
#[test]
fn loop_a_time_that_others_set_meanwhile_stays() {
    let _beside = beside();
    let image = Image::ext4(320 << 20);
    let (past, now) = ("2001-02-03 04:05:06.789", "now");
    let times = [
        ("sealed", past),
        ("punched", past),
        ("allocated", past),
        ("written", past),
        ("half-written", now),
        ("written", now),
    ];
    // Also before the look that follows a change: the punch, the allocation, a write.
    let changes = [3, 4, 5].map(|change| ("changed", past, change));
    let times = times.map(|(step, time)| (step, time, 1)).into_iter().chain(changes);
    for (number, (step, time, stops)) in times.enumerate() {
        let file = fragmented(&image, &format!("file{number}"));
        let stopped = stopped_again(stopped_at(&image, &file, step), stops - 1);
        run("touch", ["-d", time, file.to_str().unwrap()]);
        let modified = || file.metadata().unwrap().modified().unwrap();
        let then = modified();
        let ended = go_on_throughout(stopped, || ());
        assert_eq!(modified(), then, "{step}: {ended:?}");
        assert!(is_intact(&file, SIZE).unwrap(), "{step}: {ended:?}");
        let expected = if step == "sealed" { 2 } else { 0 };
        assert_eq!(ended.status.code(), Some(expected), "{step}: {ended:?}");
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
    }
}

/// `recover` finds a file whole, and is held up before it puts the time back, for longer than others wait: the record
/// stays, as what is in the file is theirs.
#[test]
fn loop_no_record_goes_once_others_were_let_in() {
    let check = |file_system| {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        // Before the fifth change, which puts the time back, all is written.
        kill(stopped_again(stopped_at(&image, &file, "changing"), 4));
        assert!(is_intact(&file, SIZE).unwrap());
        let stopped = recovering(&image, "changing");
        let write = "import sys; f=open(sys.argv[1],'r+b'); f.seek(70000); f.write(b'theirs')";
        Running::start(Command::new("python3").args(["-c", write]).arg(&file)).wait().expect(&[0]);
        let ended = go_on_throughout(stopped, || ());
        let what = format!("{}: {ended:?}", file_system.name);
        assert_eq!(ended.status.code(), Some(5), "{what}");
        assert!(ended.stdout.contains("others may have the file open"), "{what}");
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{what} {told}");
        assert_eq!(&fs::read(&file).unwrap()[70_000..70_006], b"theirs", "{what}");
    };
    let _time = TenSeconds::set();
    std::thread::scope(|scope| {
        for file_system in [&EXT4, &XFS] {
            scope.spawn(move || check(file_system));
        }
    });
}

/// A file may only grow from now on: its bytes are put back, its time cannot be, and that is said.
#[test]
fn loop_a_time_that_can_no_longer_be_put_back_is_told() {
    let _beside = beside();
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let before = file.metadata().unwrap().modified().unwrap();
    let stopped = stopped_at(&image, &file, "half-written");
    // By the file's path `chattr` would wait: file_setattr(2), Linux 6.17.
    let program = "import ctypes,os,struct,sys\nlibc=ctypes.CDLL(None,use_errno=True)\nb=ctypes.create_string_buffer(struct.pack('<QIIII',0x10,0,0,0,0))\nr=libc.syscall(469,-100,os.fsencode(sys.argv[1]),b,24,0)\nsys.exit(0 if r==0 else ctypes.get_errno())";
    let set = finish(Command::new("python3").args(["-c", program]).arg(&file));
    let ended = go_on_throughout(stopped, || ());
    assert!(is_intact(&file, SIZE).unwrap(), "{ended:?}");
    if set.status.code() == Some(rustix::io::Errno::NOSYS.raw_os_error()) {
        println!(
            "this kernel has no file_setattr: whether a time can no longer be put back was not tried"
        );
        return;
    }
    set.expect(&[0]);
    let after = file.metadata().unwrap().modified().unwrap();
    run("chattr", ["-a", file.to_str().unwrap()]);
    let is_told = ended.stdout.contains("its time of modification is another now");
    assert!(after != before && is_told, "{ended:?}");
}

/// Time passes between the check of the lease and the write: a frozen process, a slow device.
#[test]
fn loop_a_lease_lost_in_the_middle_of_writing_ends_it() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let _time = TenSeconds::set();
    // Before the last 256 KiB, which are written first.
    let at = 600_000;
    let stopped = stopped_at(&image, &file, "writing");
    let program = "import os,sys\nf=os.open(sys.argv[1],os.O_RDWR)\nos.pwrite(f,b'precious',int(sys.argv[2]))\nos.fsync(f)";
    let mut command = Command::new("python3");
    Running::start(command.args(["-c", program]).arg(&file).arg(at.to_string()))
        .wait()
        .expect(&[0]);
    let ended = go_on(stopped);
    let holds = || fs::read(&file).unwrap()[at..at + 8] == *b"precious";
    assert!(holds(), "what was synced meanwhile is gone: {ended:?}");
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(ended.stdout.contains("it took too long"), "{ended:?}");
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
    assert!(holds());
}

/// Moves a directory back when it is dropped.
struct Away(PathBuf, PathBuf);

impl Drop for Away {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        fs::rename(&self.1, &self.0).unwrap();
    }
}

/// A mount point cannot be renamed, but the directories above it can.
#[test]
fn loop_a_pipe_in_the_place_of_the_journal_keeps_nobody_waiting() {
    let _alone = alone();
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let stopped = stopped_at(&image, &file, "leased");
    let away = Away(image.scratch().to_owned(), image.scratch().with_extension("away"));
    fs::rename(&away.0, &away.1).unwrap();
    fs::create_dir_all(image.path()).unwrap();
    run("mkfifo", [image.path().join(".fragmend-rewrite")]);
    stopped.signal(Signal::CONT);
    let ended = |pid| Process::Id(pid).state() == Some('Z');
    let began = Instant::now();
    while !ended(stopped.id()) {
        assert!(began.elapsed().as_secs() < 10, "it waits for the pipe");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let ended = stopped.wait();
    drop(away);
    ended.expect(&[0, 2]);
    assert!(is_intact(&file, SIZE).unwrap() && extents(&file) == 1);
    assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
}

/// Continues a process that stops repeatedly, to its end.
fn go_on_to_the_end(mut stopped: Running) -> Finished {
    let started = Instant::now();
    while stopped.child().try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not end");
        stopped.signal(rustix::process::Signal::CONT);
        std::thread::sleep(Duration::from_millis(10));
    }
    stopped.wait()
}

/// As if the process had been frozen for longer than other programs wait: what has moved is committed
/// before anything else, and the receipt says so.
#[test]
fn loop_a_move_that_was_stopped_for_long_is_committed_first() {
    use std::os::unix::fs::FileExt;
    let _alone = alone();
    let image = Image::ext4(128 << 20);
    let path = fragmented(&image, "file");
    let _time = BreakTime::set("2");
    let plan_file = image.scratch().join("plan.json");
    write_plan(&support::plan(&[&path], fragmend_plan::Policy::WholeFile), &plan_file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["apply", "--json", "--rate", "max"]).arg(&plan_file);
    let command = command.env("FRAGMEND_STOP_AT", "moved=stop");
    let apply = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let apply = apply.wait_until(is_stopped);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let ended = go_on_to_the_end(apply);
    assert!(ended.stdout.contains("was stopped for so long"), "{ended:?}");
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let want = vec![b'!'; support::SIZE as usize];
    file.write_all_at(&want, 0).unwrap();
    file.sync_data().unwrap();
    fragmend_sys::shutdown::cut_power(fs::File::open(image.path()).unwrap()).unwrap();
    drop(file);
    image.remount();
    image.fsck();
    assert!(fs::read(&path).unwrap() == want, "what was synced is gone");
}
