//! Rewriting and recovering where the whole machine is affected: one test at a time, in a program of
//! their own.

mod support;

use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::rewrite::{go_on, is_stopped, killed_at, outcomes, recover, rewrite, stopped_at};
use support::{SIZE, fragmented, write_plan};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
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

#[test]
fn loop_what_is_written_after_the_lease_was_lost_stays() {
    let _alone = alone();
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let _time = BreakTime::set("10");
    let holds =
        |word: &str| fs::read(&file).unwrap()[40_960..50_960] == *word.repeat(2000).as_bytes();
    let write = |word: &str| {
        let program = "import sys\nf=open(sys.argv[1],'r+b')\nf.seek(40960)\nf.write(sys.argv[2].encode()*2000)";
        let mut command = Command::new("python3");
        Running::start(command.args(["-c", program]).arg(&file).arg(word)).wait().expect(&[0]);
    };
    // As if the device had hung for longer than other programs wait: before the punch
    for (step, word) in [("leased", "newer"), ("sealed", "newly")] {
        let stopped = stopped_at(&image, &file, step);
        write(word);
        let written = file.metadata().unwrap().modified().unwrap();
        let ended = go_on(stopped);
        assert_eq!(ended.status.code(), Some(2), "{step}: {ended:?}");
        assert!(ended.stdout.contains("\"reason\":\"busy\"") && holds(word), "{step}: {ended:?}");
        assert_eq!(file.metadata().unwrap().modified().unwrap(), written, "{step}: {ended:?}");
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
    }
    // and after it.
    let stopped = stopped_at(&image, &file, "punched");
    write("later");
    let ended = go_on(stopped);
    assert_eq!(ended.status.code(), Some(6), "{ended:?}");
    assert!(ended.stdout.contains("it took too long") && holds("later"), "{ended:?}");
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
    assert!(holds("later"));
}

/// Time passes between the check of the lease and the write: a frozen process, a slow device.
#[test]
fn loop_a_lease_lost_in_the_middle_of_writing_ends_it() {
    let _alone = alone();
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let _time = BreakTime::set("10");
    let at = 300_000;
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
    let ended = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
    };
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
    use std::process::Stdio;
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
