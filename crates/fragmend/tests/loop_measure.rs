//! `plan --measure`: recorded reads are timed where the data is, or the plan says why not.

use fragmend_testbed::image::Image;
use fragmend_testbed::process::{self, Running, finish};
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::{Aligned, Mode, open};
use fragmend_testbed::tools::{Recording, extents, fragmend};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const KIB: u64 = 1 << 10;
const SIZE: u64 = 32 << 20;

/// A file of which every 16 KiB are elsewhere, as another is in between.
fn fragment(image: &Image) -> std::path::PathBuf {
    let [path, other] = ["file", "other"].map(|name| image.path().join(name));
    let files = [&path, &other].map(|path| File::create(path).unwrap());
    for at in (0..SIZE).step_by(16 << 10) {
        for file in &files {
            fallocate(file, FallocateFlags::empty(), at, 16 * KIB).unwrap();
        }
    }
    for at in (0..SIZE).step_by(1 << 20) {
        files[0].write_all_at(&[7; 1 << 20], at).unwrap();
    }
    image.sync();
    assert!(extents(&path) > 1000);
    path
}

fn read(path: &Path) {
    let (file, mut random) = (open(path, Mode::Direct).unwrap(), Random::new(3));
    let mut buffer = Aligned::new(128 << 10);
    for _ in 0..200 {
        file.read_exact_at(buffer.bytes(), random.below(SIZE / (128 * KIB)) * 128 * KIB).unwrap();
    }
}

/// Counts how often a file is opened from now on. It is closed in between: equal events that follow each other are one.
fn opens(path: &Path) -> impl FnOnce() -> usize {
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, path, WatchFlags::OPEN | WatchFlags::CLOSE).unwrap();
    move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        let events = std::iter::from_fn(|| events.next().ok().map(|event| event.events()));
        events.filter(|event| event.contains(ReadFlags::OPEN)).count()
    }
}

#[test]
fn loop_a_plan_says_whether_reads_were_timed() {
    let image = Image::ext4(256 << 20);
    let file = fragment(&image);
    let at = |name: &str| image.scratch().join(name);
    let run = |args: &[&str], paths: &[&Path]| {
        let mut command = Command::new(fragmend());
        command.env("FRAGMEND_PROFILES", at("profiles")).args(args).args(paths);
        finish(&mut command)
    };
    let trace = at("trace");
    let recording = Recording::start(&trace, &[image.path()]);
    read(&file);
    recording.finish();
    let trace_text = trace.to_str().unwrap();
    let plan = |measure: &[&str]| -> Value {
        let args = [&["plan", "--json", "-t", trace_text], measure].concat();
        serde_json::from_str(&run(&args, &[image.path()]).expect(&[0])).unwrap()
    };
    let note = |plan: &Value| plan["cost_note"].as_str().unwrap_or_default().to_owned();
    let could_not = "the recorded reads could not be timed";

    // Without a probe nothing is known to compare with; without the option nothing is timed.
    let guessed = plan(&["--measure"]);
    assert!(note(&guessed).contains("was not probed"), "{guessed}");
    assert!(guessed["timed_reads"].is_null() && !note(&plan(&[])).contains(could_not));

    run(&["probe", "--no-intervals", "--pace", "max", "--quiet"], &[image.path()]).expect(&[0]);
    // Nothing else writes then, as the journal does for a time of access; and a plan needs no more.
    let root = image.path().to_str().unwrap();
    process::run("mount", ["-o", "remount,ro", root]);
    let (before, watched) = (image.counters(), opens(&trace));
    let timed = plan(&["--measure"]);
    let done = image.counters() - before;
    assert_eq!(watched(), 1, "the trace is read once");
    assert!(done.read_bytes >= 3 * 200 * 128 * KIB, "three rounds: {done:?}");
    assert_eq!(done.writes, 0);
    // On a busy machine it may be unclear; then that is said, and nothing of it is used.
    match (timed["timed_reads"].as_u64(), timed["one_more_request_ns"].as_f64()) {
        (Some(reads), Some(_)) => {
            assert!(reads == 200 && !note(&timed).contains(could_not), "{timed}")
        }
        (None, None) => assert!(note(&timed).contains(could_not), "{timed}"),
        _ => panic!("{timed}"),
    }
    println!("{} {} {}", timed["timed_reads"], timed["one_more_request_ns"], note(&timed));

    // What is timed is what was recorded.
    run(&["plan", "--measure"], &[image.path()]).expect(&[8]);
}

/// A signal that comes once the reads are timed, while the plan is being made.
#[test]
fn loop_a_signal_after_the_timing_leaves_no_plan() {
    let image = Image::ext4(256 << 20);
    let file = fragment(&image);
    let [trace, plan] = ["trace", "plan"].map(|name| image.scratch().join(name));
    let recording = Recording::start(&trace, &[image.path()]);
    read(&file);
    recording.finish();
    let has_it_open = |process: u32| {
        let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == file))
    };
    // A signal that comes later than that leaves the plan, which may be there before the signal is sent.
    let stopped = (0..20).find_map(|_| {
        let mut command = Command::new(fragmend());
        command.env("FRAGMEND_PROFILES", image.scratch().join("profiles"));
        command.args(["plan", "--measure", "-t"]).arg(&trace).arg("-o").arg(&plan);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = Running::start(command).wait_until_it_says("replaying");
        while has_it_open(running.id()) {}
        running.signal(Signal::TERM);
        let ended = running.wait();
        let is_left = fs::remove_file(&plan).is_ok();
        assert_eq!(ended.status.code(), Some(if is_left { 0 } else { 16 }), "{ended:?}");
        (!is_left).then_some(ended)
    });
    let stopped = stopped.expect("a signal comes before the plan is there");
    let line = stopped.stderr.lines().last().unwrap_or_default();
    assert!(line.ends_with("stopped; no plan was written"), "{stopped:?}");
    assert_eq!(stopped.stdout, "");
}
