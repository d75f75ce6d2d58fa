//! Loads that any local user can put beside a recording: it ends in time all the same, and its trace
//! is whole.

mod support;

use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use fragmend_trace::record::{Options, Summary, record};
use fragmend_trace::{Filter, read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::image_with_file;

/// How much later than asked a recording may end: 1 to 2 s beside the flood alone, more on a busy machine, but well
/// before the flood ends.
const LATEST: Duration = Duration::from_secs(10);

/// Reads from 6,000 deleted files that are open, in turn, for 30 s at most.
const DELETED: &str = "
import os, resource, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.chdir(sys.argv[1])
files = []
for n in range(6000):
    name = f'{os.getpid()}-{n}'
    files.append(os.open(name, os.O_RDWR | os.O_CREAT))
    os.write(files[-1], b'x')
    os.unlink(name)
print('ready', file=sys.stderr, flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    for f in files: os.pread(f, 1, 0)
";

fn flood(image: &Image) -> Vec<Running> {
    let start = |_| {
        let mut command = Command::new("python3");
        command.args(["-c", DELETED]).arg(image.path()).stderr(Stdio::piped());
        Running::start(&mut command)
    };
    let started: Vec<_> = (0..4).map(start).collect();
    started.into_iter().map(|reader| reader.wait_until_it_says("ready")).collect()
}

/// Records beside the flood: for this long, or until it is stopped after that time. Returns how late
/// it ended.
fn lateness(time: Duration, stopped: bool) -> Duration {
    let image = image_with_file(1000);
    let output = image.scratch().join("trace.parquet");
    let mut options = Options::new(&output, vec![image.path().to_owned()]);
    options.overhead = None;
    options.duration = (!stopped).then_some(time);
    let (stop, mut begun) = (AtomicBool::new(false), None);
    let readers = flood(&image);
    let summary = std::thread::scope(|scope| {
        let mut on_progress = |_: &_| {
            begun.get_or_insert_with(|| {
                scope.spawn(|| {
                    std::thread::sleep(time);
                    stop.store(stopped, Ordering::Relaxed);
                });
                Instant::now()
            });
        };
        record(&options, &stop, &mut on_progress).expect("it records")
    });
    let lasted = begun.expect("it has begun").elapsed();
    drop(readers);
    let trace = read(&output, &Filter::default()).expect("the trace is readable");
    let rows: usize = trace.files.iter().map(|f| f.accesses.len()).sum();
    assert_eq!((rows as u64, trace.skipped), (summary.rows, 0));
    let Summary { meta, .. } = &summary;
    assert!(summary.rows > 0 && meta.files_without_path > 0);
    assert_eq!(summary.rows + meta.lost + meta.dropped, summary.events(), "{meta:?}");
    println!("{lasted:?} of {time:?}, {} accesses, {meta:?}", summary.events());
    lasted.saturating_sub(time)
}

#[test]
fn loop_a_recording_ends_when_its_time_is_over_whatever_is_read() {
    let late = lateness(Duration::from_secs(3), false);
    assert!(late < LATEST, "{late:?} late");
}

#[test]
fn loop_a_recording_ends_when_it_is_stopped_whatever_is_read() {
    let late = lateness(Duration::from_secs(3), true);
    assert!(late < LATEST, "{late:?} late");
}
