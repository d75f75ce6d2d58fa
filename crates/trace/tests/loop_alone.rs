//! Recordings that no other test may run beside: of a call whose file is not known, any recording counts it; and a
//! recording that ends beside another lasts longer.

mod support;

use fragmend_testbed::image::Image;
use fragmend_trace::record::{DEFAULT_MAX_RANGES, Options, Summary, record};
use fragmend_trace::{Filter, read};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::{image_with_file, python, traced};

static ALONE: Mutex<()> = Mutex::new(());

/// Another thread closes the descriptor while the call is in flight: of which file it was is not known then.
#[test]
fn loop_files_that_are_closed_during_a_call_are_counted() {
    let _alone = ALONE.lock();
    let image = image_with_file(64 << 20);
    let work = || {
        python(
            "
import os, sys, threading
f = os.open(sys.argv[1] + '/f', os.O_RDONLY)
buffer = bytearray(64 << 20)
reading = False
def close(g):
    while not reading: pass
    os.close(g)
for _ in range(50):
    g, reading = os.dup(f), False
    thread = threading.Thread(target=close, args=[g])
    thread.start()
    # The other thread goes on when this one lets go of the interpreter, for the call.
    reading = True
    try: os.preadv(g, [buffer], 0)
    except OSError: os.pread(f, 1, 0)
    thread.join()
",
            &[image.path()],
        );
    };
    // A program elsewhere on the machine may have closed one, too: then it is tried again.
    let mut all = Vec::new();
    let summary = loop {
        let (summary, _) = traced(&image, |_| {}, work);
        all.push((summary.rows, summary.meta.unplaced));
        if summary.rows + summary.meta.unplaced == 50 {
            break summary;
        }
        assert!(all.len() < 3, "{all:?}");
    };
    println!("{} of 50 were closed meanwhile", summary.meta.unplaced);
    assert!(summary.meta.unplaced > 0, "nothing was tried");
}

/// Opens and reads each file below a directory.
const READ_ALL: &str = "
import os, sys
for directory, _, files in os.walk(sys.argv[1]):
    for name in files:
        f = os.open(directory + '/' + name, os.O_RDONLY)
        os.pread(f, 1, 0)
        os.close(f)
";

/// How late a recording ended.
#[derive(Debug)]
struct Late {
    elapsed: Duration,
    /// Of this process, in which nothing else runs.
    processor: Duration,
}

fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

/// Records the load, folded, until it is stopped; returns how late it ended.
fn folded(image: &Image, options: &Options) -> (Summary, Late) {
    let (stop, (begun, begins)) = (AtomicBool::new(false), mpsc::channel());
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            record(options, &stop, &mut |_| {
                let _ = begun.send(());
            })
        });
        begins.recv().expect("it records");
        python(READ_ALL, &[image.path()]);
        let (stopped, used) = (Instant::now(), processor_time());
        stop.store(true, Ordering::Relaxed);
        let summary = recorder.join().expect("no panic").expect("it records");
        (summary, Late { elapsed: stopped.elapsed(), processor: processor_time() - used })
    })
}

/// A folded recording reads its ranges, and looks its files up, when it has ended. A busy machine may delay that, so what is counted
/// is processor time; that lookups end after a while shows by the files that were not looked up.
#[test]
fn loop_a_folded_recording_of_many_files_ends_within_a_second() {
    const FILES: u64 = 100_000;
    let _alone = ALONE.lock();
    let image = Image::ext4_with(1 << 30, &["-N", "120000"], "");
    for n in 0..FILES {
        let directory = image.path().join((n / 1000).to_string());
        if n.is_multiple_of(1000) {
            std::fs::create_dir(&directory).unwrap();
        }
        std::fs::write(directory.join(n.to_string()), "x").unwrap();
    }
    let output = image.scratch().join("trace.parquet");
    let mut options = Options::new(&output, vec![image.path().to_owned()]);
    options.overhead = None;
    options.max_ranges = Some(DEFAULT_MAX_RANGES);
    // Only if the load fails.
    options.duration = Some(Duration::from_secs(300));
    let (summary, late) = folded(&image, &options);
    let trace = read(&output, &Filter::default()).expect("the trace is readable");
    assert_eq!((summary.files, trace.files.len() as u64, summary.meta.lost), (FILES, FILES, 0));
    println!("{late:?}, {} not looked up", summary.meta.files_not_looked_up);
    assert!(summary.meta.files_not_looked_up < FILES);
    assert!(late.processor < Duration::from_secs(1), "{late:?}");
    assert!(late.elapsed < Duration::from_secs(10), "{late:?}");
}
