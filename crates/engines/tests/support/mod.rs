//! What the tests of moving share: plans that are made and applied in this process.

#![allow(dead_code)] // each test file uses its part

pub mod btrfs;
pub mod conformance;
pub mod fixture;
pub mod pace;

use fragmend_apply::{Event, Options, Receipt, Summary};
use fragmend_conformance::with_receipts;
pub use fragmend_conformance::{SIZE, UNPACED};
use fragmend_engines::Choice;
use fragmend_engines::begin::{Opened, Wanted, open};
use fragmend_layout::{FileId, SkipReason};
use fragmend_pipeline::{survey, unobserved};
use fragmend_plan::{Plan, PlanSource, PlannedFile, Policy, Settings};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::Running;
use fragmend_testbed::tools::extents;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// The file system's own engine, with `--force`.
pub const FORCED: Wanted = Wanted { engine: Choice::Native, force: true };

/// A file of [`SIZE`] in extents of 4 KiB.
pub fn fragmented(image: &Image, name: &str) -> PathBuf {
    fragmented_of(image, name, SIZE)
}

/// A file of `bytes` bytes in extents of 4 KiB.
pub fn fragmented_of(image: &Image, name: &str, bytes: u64) -> PathBuf {
    let path = image.path().join(name);
    // While an allocation group is busy, XFS puts one of the two files into another.
    for _ in 0..5 {
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(image.path().join(format!("{name}.dummy")));
        interleaved(&path, bytes, &[4096], true).expect("a fragmented file");
        if extents(&path) > bytes / 4096 / 5 * 2 {
            image.sync();
            return path;
        }
    }
    panic!("{name} is in {} extents", extents(&path));
}

/// The identity of what is at a path.
pub fn identity(path: &Path) -> FileId {
    let meta = path.symlink_metadata().unwrap();
    let generation = if meta.is_file() {
        fragmend_sys::inode::generation(File::open(path).unwrap()).unwrap()
    } else {
        0
    };
    FileId { device: meta.dev(), inode: meta.ino(), generation }
}

/// The plan with another path and identity for its only file.
pub fn redirected(plan: &Plan, path: &Path) -> Plan {
    let entry = PlannedFile { path: path.into(), file: identity(path), ..plan.files[0].clone() };
    Plan { files: vec![entry], ..plan.clone() }
}

/// A plan for everything fragmented below `paths`, without a trace.
pub fn plan(paths: &[&Path], policy: Policy) -> Plan {
    plan_with(paths, &Settings { policy, ..Settings::default() })
}

/// The same with other settings.
pub fn plan_with(paths: &[&Path], settings: &Settings) -> Plan {
    let paths: Vec<PathBuf> = paths.iter().map(|p| p.to_path_buf()).collect();
    let survey = survey::walked(&paths, &unobserved).expect("a walk");
    fragmend_plan::make(survey, settings)
}

/// Writes a plan as `fragmend plan -o` does.
pub fn write_plan(plan: &Plan, to: &Path) {
    fragmend_pipeline::plan_file::write(plan, to).expect("a plan file");
}

thread_local! {
    /// What [`apply`] uses on this thread.
    static ENGINE: RefCell<Choice> = const { RefCell::new(Choice::Native) };
}

thread_local! {
    /// What may move data on this thread, by the names in receipts; nothing is asserted if empty.
    static PRIMITIVES: RefCell<&'static [&'static str]> = const { RefCell::new(&[]) };
}

/// Runs `cases`, in which only these primitives may move data, and none as a fallback.
pub fn with_primitives(names: &'static [&'static str], cases: impl FnOnce()) {
    let before = PRIMITIVES.replace(names);
    cases();
    PRIMITIVES.set(before);
}

/// Runs `cases` with another engine.
pub fn with_engine(engine: Choice, cases: impl FnOnce()) {
    let before = ENGINE.replace(engine);
    cases();
    ENGINE.set(before);
}

/// Applies without pacing; returns the summary and every receipt.
pub fn apply(plan: &dyn PlanSource) -> (Summary, Vec<Receipt>) {
    let engine = ENGINE.with_borrow(Clone::clone);
    apply_on(plan, &Wanted { engine, force: false }, &UNPACED)
}

/// The same with `--force`: also files that others have open on ext4, where a power cut could lose what they
/// sync.
pub fn apply_forced(plan: &dyn PlanSource) -> (Summary, Vec<Receipt>) {
    apply_on(plan, &FORCED, &UNPACED)
}

/// The file system's own engine, with other options.
pub fn apply_with(plan: &dyn PlanSource, options: &Options) -> (Summary, Vec<Receipt>) {
    apply_on(plan, &Wanted::default(), options)
}

/// Any engine, with any options.
pub fn apply_on(
    plan: &dyn PlanSource,
    wanted: &Wanted,
    options: &Options,
) -> (Summary, Vec<Receipt>) {
    with_receipts(|tell| run_on(plan, wanted, options, &AtomicBool::new(false), tell))
}

/// The same until `stop`, with each event for `tell` as it happens.
pub fn run_on(
    plan: &dyn PlanSource,
    wanted: &Wanted,
    options: &Options,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Summary {
    let opened = open(plan, wanted, !options.dry_run).expect("nothing refuses");
    let Opened { volumes, environment } = opened;
    let names = PRIMITIVES.with_borrow(|names| *names);
    let tell = |event: Event| {
        if let Event::Range(receipt) = &event
            && receipt.moved_bytes > 0
            && !names.is_empty()
        {
            let by = receipt.primitive.as_deref().expect("a receipt says what moved the data");
            assert!(names.contains(&by) && receipt.fallback.is_none(), "{names:?}: {receipt:?}");
        }
        tell(event);
    };
    let summary = fragmend_apply::apply(plan, volumes, &environment, options, stop, tell);
    summary.expect("the volumes are the plan's")
}

/// Lets every user read a plan, which is its owner's alone, and enter its directory.
pub fn readable_by_all(plan: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(plan, mode(0o644)).unwrap();
    std::fs::set_permissions(plan.parent().unwrap(), mode(0o755)).unwrap();
}

/// The reasons for which ranges of `path` were left alone.
pub fn reasons(summary: &Summary, path: &Path) -> Vec<SkipReason> {
    let of_path = |s: &&fragmend_apply::Skipped| s.path.to_path().as_deref() == Some(path);
    summary.skipped.iter().filter(of_path).map(|s| s.reason).collect()
}

/// Makes a file and its plan, calls `spoil`, applies, and checks that the file is left alone for
/// `reason`, with its bytes and its extents as they were.
pub fn left_alone(
    image: &Image,
    name: &str,
    reason: SkipReason,
    spoil: impl FnOnce(&Path),
) -> PathBuf {
    let path = fragmented(image, name);
    let plan = plan(&[&path], Policy::WholeFile);
    assert_eq!(plan.files.len(), 1, "{name}");
    spoil(&path);
    let places = |path: &Path| path.is_file().then(|| extents(path));
    let before = places(&path);
    let (summary, _) = apply(&plan);
    assert_eq!(reasons(&summary, &path), [reason], "{name}: {summary:?}");
    assert_eq!((summary.ranges_moved, summary.moved_bytes), (0, 0), "{name}");
    assert_eq!(places(&path), before, "{name}");
    path
}

/// A program that holds a file in some way until it is dropped; the path is an argument of `script`.
pub fn holder(path: &Path, script: &str) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let mut ready = [0];
    let out = running.child().stdout.as_mut().expect("its output");
    std::io::Read::read_exact(out, &mut ready).expect("the holder is ready");
    running
}
