//! The stages as another program calls them: one hands to the next, each reports how far it is, and
//! nothing is printed.

use fragmend_apply::{Event as Moved, Options, Rate};
use fragmend_engines::Choice;
use fragmend_engines::begin::Wanted;
use fragmend_engines::engine::volume_for;
use fragmend_pipeline::{
    Error, Event, Recording, Survey, apply, can_move, plan, survey, unobserved,
};
use fragmend_plan::{Policy, Settings, Why};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use fragmend_trace::record;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SIZE: u64 = 8 << 20;

fn image_with_files() -> (Image, Vec<PathBuf>, PathBuf) {
    let image = Image::ext4(256 << 20);
    // Costs are guessed as those of a disk, whatever the one under the image is: each break is waited for.
    image.set_queue("rotational", "1");
    let file = image.path().join("file");
    interleaved(&file, SIZE, &[4096], true).unwrap();
    image.sync();
    let paths = vec![image.path().to_owned()];
    (image, paths, file)
}

#[test]
fn loop_from_a_recording_to_receipts() {
    let (image, paths, file) = image_with_files();
    let fragmented = extents(&file);
    let options = Options { rate: Rate::Unlimited, ..Options::default() };
    can_move(&paths, &Wanted::default()).unwrap();

    // Once the recording reports that it watches, this reads something, and ends it when that was seen.
    let stop = AtomicBool::new(false);
    let (request, reads) = (128 << 10, SIZE / (128 << 10));
    let watching = AtomicU64::new(0);
    let mut recording = Recording::new(paths.clone(), Duration::from_secs(60), None).unwrap();
    let recorded = recording.run(&stop, &|event| match event {
        Event::Watching => {
            watching.fetch_add(1, Ordering::Relaxed);
            // By another process: what this one reads is not recorded.
            let (from, at_once) = (format!("if={}", file.display()), format!("bs={request}"));
            run("dd", [&from, "of=/dev/null", &at_once, "iflag=direct", "status=none"]);
        }
        Event::Recorded(progress) => {
            stop.fetch_or(progress.events >= reads, Ordering::Relaxed);
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(watching.into_inner(), 1);
    assert!(recorded.unwrap().events() >= reads);

    let settings = Settings::default();
    let (to_survey, surveyed) = (AtomicU64::new(0), AtomicU64::new(0));
    let planned = || {
        let survey = survey(Some(recording.trace(false)?), &paths, &|event| match event {
            Event::ToSurvey(files) => to_survey.store(files, Ordering::Relaxed),
            Event::Surveyed(files) => drop(surveyed.fetch_add(files, Ordering::Relaxed)),
            other => panic!("{other:?}"),
        })?;
        Ok::<_, Error>(plan(survey, &settings))
    };
    let before = planned().unwrap();
    assert!(before.summary.worth, "{}", before.summary.verdict);
    assert_eq!((to_survey.into_inner(), surveyed.into_inner()), (1, 1));

    let mut receipts = 0;
    let summary =
        apply(&before, &Wanted::default(), &options, &AtomicBool::new(false), |event: Moved| {
            receipts += u64::from(matches!(event, Moved::Range(_)));
        });
    assert_eq!((summary.unwrap().ranges_moved, receipts), (before.summary.ranges, receipts));
    assert_eq!(receipts, before.summary.ranges);
    assert!(extents(&file) < fragmented / 10, "{} of {fragmented}", extents(&file));
    let again = survey(Some(recording.trace(false).unwrap()), &paths, &unobserved).unwrap();
    let after = plan(again, &settings).summary;
    assert_eq!((after.ranges, after.requests_before), (0, before.summary.requests_after));
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap());
}

/// Reads a cached file again and again, and then a part of another one past the cache, in some milliseconds.
const BURST: &str = "
import mmap, os, sys, time
cached = os.open(sys.argv[1] + '/file', os.O_RDONLY)
for _ in range(40):
    for at in range(0, 8 << 20, 131072): os.pread(cached, 131072, at)
direct, pages = os.open(sys.argv[1] + '/other', os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 16384)
time.sleep(0.1)
for at in range(0, 1 << 20, 16384): os.preadv(direct, [pages], at)
time.sleep(0.1)
";

/// A sixty-fourth of all places is recorded at a time. That the others were read from the cache is not said where the
/// device has done more reads than were recorded.
#[test]
fn loop_a_burst_that_was_not_recorded_is_not_said_to_come_from_the_cache() {
    let (image, paths, file) = image_with_files();
    interleaved(&image.path().join("other"), SIZE, &[4096], true).unwrap();
    image.sync();
    std::fs::read(&file).unwrap();
    let output = image.scratch().join("trace");
    let planned = |places_shift: u32, code: &str| {
        let _ = std::fs::remove_file(&output);
        let mut options = record::Options::new(&output, paths.clone());
        (options.overhead, options.places_shift) = (None, places_shift);
        let (stop, mut begun) = (AtomicBool::new(false), false);
        let recorded = record::record(&options, &stop, &mut |_| {
            if !std::mem::replace(&mut begun, true) {
                run("python3", ["-c", code, image.path().to_str().unwrap()]);
                stop.store(true, Ordering::Relaxed);
            }
        });
        let rows = recorded.unwrap().rows;
        let trace = fragmend_trace::read(&output, &fragmend_trace::Filter::default()).unwrap();
        let survey = survey(Some(trace), &paths, &unobserved).unwrap();
        let direct = survey.files.iter().flat_map(|f| &f.accesses).filter(|a| a.direct).count();
        let summary = plan(survey, &Settings::default()).summary;
        println!("{rows} rows, {direct} of them direct: {}", summary.verdict);
        (summary, direct)
    };
    let alone = BURST.replace("0, 1 << 20", "0, 0");
    for shift in [0, 6] {
        assert_eq!(planned(shift, &alone).0.why, Some(Why::AllFromCache));
    }
    let (whole, direct) = planned(0, BURST);
    assert_eq!((whole.worth, direct), (true, 64), "{}", whole.verdict);
    // The place of the burst is in turn a sixty-fourth of the time.
    let unseen = (0..3).map(|_| planned(6, BURST)).find(|(_, direct)| *direct == 0);
    let (unseen, _) = unseen.expect("one burst that was not recorded");
    assert_eq!(unseen.why, Some(Why::NotSeenEnough), "{}", unseen.verdict);
    assert!(unseen.verdict.contains("1.6 % of all places"), "{}", unseen.verdict);
}

/// What is planned for a mounted file system as a volume is what is planned for its mount point.
#[test]
fn loop_a_volume_is_planned_for_as_its_mount_is() {
    let (image, paths, _) = image_with_files();
    std::fs::write(image.path().join("whole"), [1; 8192]).unwrap();
    image.sync();
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let by_path = plan(survey(None, &paths, &unobserved).unwrap(), &settings);
    let mount = fragmend_sys::mounts::of_path(image.path()).unwrap();
    let volume = volume_for(&mount, &Choice::Native, false).unwrap();
    let of_volume = plan(Survey::of(&*volume, None).unwrap(), &settings);
    assert!(by_path.summary.ranges > 0);
    assert_eq!(of_volume, by_path);
}

#[test]
fn loop_a_stage_that_cannot_go_on_says_why() {
    let (image, paths, _) = image_with_files();
    let gone = vec![image.path().join("gone")];
    let missing = |error: Error| matches!(error, Error::Path { path, .. } if path == gone[0]);
    assert!(missing(survey(None, &gone, &unobserved).unwrap_err()));
    assert!(missing(can_move(&gone, &Wanted::default()).unwrap_err()));
    // Before it has recorded there is no trace, and after that its path is known.
    let kept = image.scratch().join("trace.parquet");
    let recording = Recording::new(paths.clone(), Duration::from_secs(1), Some(&kept)).unwrap();
    assert!(matches!(recording.trace(false), Err(Error::Trace(_))));

    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(memory.path().join("file"), [1; 8192]).unwrap();
    let memory = vec![memory.path().to_owned()];
    assert!(matches!(can_move(&memory, &Wanted::default()), Err(Error::Refused(_))));

    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let made = plan(survey(None, &paths, &unobserved).unwrap(), &settings);
    image.unmount();
    let refused = apply(
        &made,
        &Wanted::default(),
        &Options::default(),
        &AtomicBool::new(false),
        |_: Moved| {},
    );
    assert!(matches!(refused, Err(Error::Unready(_))), "{refused:?}");
}

/// The directory belongs to another user, who puts another trace in the place of the one that was kept.
#[test]
fn loop_what_is_put_in_the_place_of_a_kept_trace_is_not_planned_from() {
    let (image, paths, _) = image_with_files();
    let record = |name: &str, to_read: &str| {
        let (kept, to_read) = (image.scratch().join(name), image.path().join(to_read));
        let mut recording =
            Recording::new(paths.clone(), Duration::from_secs(60), Some(&kept)).unwrap();
        let stop = AtomicBool::new(false);
        recording
            .run(&stop, &|event| {
                if matches!(event, Event::Watching) {
                    run("cat", [&to_read]);
                    stop.store(true, Ordering::Relaxed);
                }
            })
            .unwrap();
        (recording, kept)
    };
    std::fs::write(image.path().join("ours"), [1; 8192]).unwrap();
    std::fs::write(image.path().join("theirs"), [1; 8192]).unwrap();
    let (ours, kept) = record("ours.parquet", "ours");
    let (_, theirs) = record("theirs.parquet", "theirs");
    std::fs::rename(theirs, &kept).unwrap();
    for _ in 0..2 {
        let trace = ours.trace(false).unwrap();
        let paths: Vec<_> = trace.files.iter().filter_map(|f| f.path.clone()).collect();
        assert_eq!(paths, [image.path().join("ours")]);
    }
    std::fs::remove_file(kept).unwrap();
    assert_eq!(ours.trace(false).unwrap().files.len(), 1);
}
