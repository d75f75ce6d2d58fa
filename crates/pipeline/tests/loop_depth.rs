//! How many reads were in flight follows from the recording, of any of its files, before and after they move.

use fragmend_apply::{Options, Rate};
use fragmend_engines::begin::Wanted;
use fragmend_pipeline::{apply, plan, survey, unobserved};
use fragmend_plan::{Policy, Settings};
use fragmend_testbed::fio;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use fragmend_trace::{Filter, record};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: u64 = 8 << 20;

/// Reads two files past the cache, one read at a time.
const ALONE: &str = "
import mmap, os, sys
pages = mmap.mmap(-1, 131072)
files = [os.open(sys.argv[1] + name, os.O_RDONLY | os.O_DIRECT) for name in ('/many', '/few')]
for n in range(4):
    for at in range(0, 8 << 20, 131072):
        for f in files: assert os.preadv(f, [pages], at) == 131072
";

/// Files of 8 MiB whose reads of 128 KiB are 32 requests, and one or two.
fn image() -> Image {
    let image = Image::ext4(256 << 20);
    interleaved(&image.path().join("many"), SIZE, &[4096], true).unwrap();
    interleaved(&image.path().join("few"), SIZE, &[128 << 10], true).unwrap();
    image.sync();
    image
}

/// Records what `work` does, whatever that costs; of a part of all places at a time if `places_shift` is not 0.
fn recorded(image: &Image, places_shift: u32, work: &dyn Fn()) -> PathBuf {
    let output = image.scratch().join("trace");
    let mut options = record::Options::new(&output, vec![image.path().to_owned()]);
    (options.overhead, options.places_shift) = (None, places_shift);
    let (stop, mut begun) = (AtomicBool::new(false), false);
    let summary = record::record(&options, &stop, &mut |_| {
        if !std::mem::replace(&mut begun, true) {
            work();
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(summary.unwrap().meta.lost, 0);
    output
}

/// The depth of a plan for what is below a path.
fn depth(trace: &Path, below: &Path) -> f64 {
    let trace = fragmend_trace::read(trace, &Filter::default()).unwrap();
    let survey = survey(Some(trace), &[below.to_owned()], &unobserved).unwrap();
    let summary = plan(survey, &Settings::default()).summary;
    assert!(summary.depth_seen, "{}", summary.verdict);
    summary.depth
}

#[test]
fn loop_one_recording_has_one_depth() {
    let image = image();
    let [many, few] = ["many", "few"].map(|name| image.path().join(name));
    let trace = recorded(&image, 0, &|| {
        drop(run("python3", ["-c", ALONE, image.path().to_str().unwrap()]))
    });
    let depths = || [image.path(), &many, &few].map(|path| depth(&trace, path));
    let before = depths();
    println!("{before:?}");
    let is_the_same = |depths: [f64; 3]| depths.iter().all(|d| (d - before[0]).abs() < 1e-9);
    assert!((1.0..1.3).contains(&before[0]) && is_the_same(before), "{before:?}");

    let read = fragmend_trace::read(&trace, &Filter::default()).unwrap();
    let survey = survey(Some(read), &[image.path().to_owned()], &unobserved).unwrap();
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let fragmented = extents(&many);
    let options = Options { rate: Rate::Unlimited, ..Options::default() };
    let stop = AtomicBool::new(false);
    apply(&plan(survey, &settings), &Wanted::default(), &options, &stop, |_| {}).unwrap();
    assert!(extents(&many) < fragmented / 10, "{} of {fragmented}", extents(&many));
    let after = depths();
    assert!(is_the_same(after), "{before:?}, {after:?}");
}

/// As many reads at a time as there are, in however many requests, and also where a fourth was recorded.
#[test]
fn loop_depth_is_how_many_read() {
    let image = image();
    let [many, few] = ["many", "few"].map(|name| image.path().join(name));
    let batches =
        ["ioengine=libaio", "iodepth=8", "iodepth_batch=8", "iodepth_batch_complete_min=8"];
    for (reads, load) in [
        (1.0, &["numjobs=1"][..]),
        (4.0, &["numjobs=4"]),
        (8.0, &["numjobs=8"]),
        (32.0, &["numjobs=32"]),
        // Each meets half of the others.
        (4.5, &batches),
    ] {
        for (file, places_shift) in [(&many, 0), (&few, 0), (&few, 2)] {
            // The disk has 128 requests: of more, a read waits for them in its middle, and is begun anew.
            if file == &many && reads > 1.0 {
                continue;
            }
            let args = ["rw=randread", "bs=128k", "direct=1", "size=8M", "time_based", "runtime=1"];
            let args = [&args[..], &["group_reporting"], load].concat();
            let once = || {
                let trace = recorded(&image, places_shift, &|| {
                    let _ = fio::run(file, &args);
                });
                let load = fragmend_trace::read_meta(&trace).unwrap().loads.remove(0);
                let (requests, bursts) = (load.reads(), load.read_bursts);
                let found = depth(&trace, file);
                println!("{reads}, 1/{}: {found:.2} ({requests} in {bursts})", 1 << places_shift);
                found
            };
            // On a busy machine, readers wait for the processor most of the time.
            let about = |found: &f64| (reads / 3.0..=reads * 1.5).contains(found);
            assert!((0..4).map(|_| once()).any(|found| about(&found)), "{reads} of {file:?}");
        }
    }
}
