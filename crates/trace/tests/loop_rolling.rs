//! A recording that goes on: its periods together are what one recording of the same time has, and each has what was accessed
//! in it.

mod support;

use fragmend_testbed::image::Image;
use fragmend_testbed::measure::drop_pages;
use fragmend_trace::record::{Options, Rolled, Rolling, record, rolling};
use fragmend_trace::{FileAccesses, Filter, Joined, Op, Trace, TraceError, read};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use support::{accesses_of, image_with_file, python};

const PERIOD: Duration = Duration::from_millis(200);

/// The periods of a recording beside `work`, which is handed a receiver of the periods as they are reported.
fn rolled(
    image: &Image,
    configure: impl FnOnce(&mut Options),
    work: impl FnOnce(&mpsc::Receiver<Trace>),
) -> Vec<Trace> {
    let mut options = Options::new("the trace", vec![image.path().to_owned()]);
    options.overhead = None;
    configure(&mut options);
    let (stop, (begun, begins)) = (AtomicBool::new(false), mpsc::channel());
    let (send, periods) = mpsc::channel();
    let how = Rolling { period: PERIOD, ordered: true };
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            rolling(&options, how, &stop, &mut |report| match report {
                Rolled::Attached => begun.send(()).unwrap(),
                Rolled::Window(trace) => {
                    let _ = send.send((*trace).clone());
                    seen.push(*trace);
                }
            })
        });
        begins.recv_timeout(Duration::from_secs(60)).expect("it attaches");
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&periods)));
        stop.store(true, Ordering::Relaxed);
        recorder.join().expect("the recorder does not panic").expect("it records");
        done.expect("the work is done");
    });
    seen
}

/// How often each access was seen.
fn counted(file: &FileAccesses) -> BTreeMap<(u8, bool, u64, u32), u64> {
    let mut counts = BTreeMap::new();
    for a in &file.accesses {
        *counts.entry((a.op as u8, a.direct, a.offset, a.length)).or_default() +=
            u64::from(a.count);
    }
    counts
}

/// Reads, direct reads, misses and writes for more than a second, some of them several times.
const WORK: &str = "
import mmap, os, sys, time
f, direct = os.open(sys.argv[1], os.O_RDWR), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
os.posix_fadvise(f, 0, 0, os.POSIX_FADV_RANDOM)
page = mmap.mmap(-1, 4096)
for n in range(300):
    os.pread(f, 4096, n % 200 * 65536)
    os.preadv(direct, [page], n % 100 * 65536 + 8192)
    os.pwrite(f, b'x' * 512, n * 512)
    time.sleep(0.004)
";

#[test]
fn loop_periods_together_are_the_recording() {
    let image = image_with_file(32 << 20);
    let file = image.path().join("f");
    let output = image.scratch().join("trace.parquet");
    let mut whole = Options::new(&output, vec![image.path().to_owned()]);
    whole.overhead = None;
    // Whole, and a part of all places.
    for shift in [0, 1] {
        drop_pages(&file);
        whole.places_shift = shift;
        let stop = AtomicBool::new(false);
        let periods = rolled(
            &image,
            |options| options.places_shift = shift,
            |_| {
                let (begun, begins) = mpsc::channel();
                std::thread::scope(|scope| {
                    let recorder = scope.spawn(|| {
                        record(&whole, &stop, &mut |_| {
                            let _ = begun.send(());
                        })
                    });
                    begins.recv_timeout(Duration::from_secs(60)).expect("it attaches");
                    python(WORK, &[&file]);
                    stop.store(true, Ordering::Relaxed);
                    recorder.join().unwrap().expect("it records");
                });
            },
        );
        let expected = read(&output, &Filter::default()).unwrap();
        assert!(periods.len() >= 6, "{} periods", periods.len());
        let busy = periods.iter().filter(|trace| !trace.files.is_empty()).count();
        assert!(busy >= 5, "it was accessed in {busy} of {} periods", periods.len());
        let mut periods = periods.into_iter();
        let mut joined = Joined::new(periods.next().unwrap());
        periods.for_each(|trace| joined.add(trace));
        let all = joined.trace();
        assert_eq!((all.meta.lost, expected.meta.lost), (0, 0));
        assert_eq!(counted(accesses_of(all, "f")), counted(accesses_of(&expected, "f")));
        let places = |trace: &Trace| trace.meta.sampling.map(|sampling| sampling.places_ppm);
        let part = (shift == 1).then_some(500_000);
        assert_eq!((places(all), places(&expected)), (part, part));
        assert_eq!(all.ordered, shift == 0);
        assert!(all.meta.duration_ns > expected.meta.duration_ns, "it was recorded for longer");
        // It began before and ended later, in which time something else may have read the disk.
        let reads = |trace: &Trace| trace.meta.loads[0].reads();
        assert!(reads(all) >= reads(&expected) && reads(&expected) >= 300, "{}", reads(all));
        let total = |trace: &Trace| trace.meta.loads[0].counted_reads.unwrap();
        assert!(total(all) >= total(&expected) && total(&expected) >= 300);
    }
}

/// Reads two places directly.
const READ: &str = "
import mmap, os, sys
f, page = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for at in sys.argv[2:]: os.preadv(f, [page], int(at))
";

#[test]
fn loop_a_period_has_what_was_accessed_in_it() {
    let image = image_with_file(1 << 20);
    let file = image.path().join("f");
    let misses = |options: &mut Options| options.level = fragmend_trace::Level::Miss;
    let periods = rolled(&image, misses, |periods| {
        let wait = |that: fn(&Trace) -> bool| {
            let next = || periods.recv_timeout(Duration::from_secs(20)).expect("periods go on");
            while !that(&next()) {}
        };
        for at in [["0", "8192"], ["4096", "0"]] {
            python(READ, &[&file, at[0].as_ref(), at[1].as_ref()]);
            wait(|trace| !trace.files.is_empty());
            wait(|trace| trace.files.is_empty() && trace.meta.loads[0].reads() == 0);
        }
    });
    let busy: Vec<&Trace> = periods.iter().filter(|trace| !trace.files.is_empty()).collect();
    let [first, second] = busy[..] else { panic!("{} busy periods", busy.len()) };
    let seen = |trace: &Trace| -> Vec<(Op, u64, u32)> {
        let file = accesses_of(trace, "f");
        let both = file.accesses.iter().zip(&file.ranks);
        both.map(|(access, rank)| (access.op, access.offset, *rank)).collect()
    };
    assert_eq!(seen(first), [(Op::Read, 0, 1), (Op::Read, 8192, 2)]);
    assert_eq!(
        seen(second),
        [(Op::Read, 4096, 3), (Op::Read, 0, 4)],
        "in one order with the first"
    );
    assert_eq!(first.files[0].path.as_deref(), Some(&*file));
    for trace in busy {
        assert!(trace.meta.loads[0].reads() >= 2, "{:?}", trace.meta.loads);
        assert!(trace.meta.started_unix_ns > 0 && trace.meta.duration_ns > 0);
    }
}

#[test]
fn loop_it_is_not_folded_in_the_kernel() {
    let image = image_with_file(4096);
    let mut options = Options::new("the trace", vec![image.path().to_owned()]);
    options.max_ranges = Some(1000);
    let how = Rolling { period: PERIOD, ordered: false };
    let refused = rolling(&options, how, &AtomicBool::new(true), &mut |_| panic!("nothing begins"));
    assert!(matches!(refused, Err(TraceError::Request(why)) if why.contains("max_ranges")));
}
