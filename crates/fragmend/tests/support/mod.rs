//! What the tests of the migration share: plans made in this process, applied in this process.

#![allow(dead_code)] // each test file uses its part

pub mod rewrite;

use fragmend::gather;
use fragmend_apply::{Event, Options, Receipt, Summary};
use fragmend_layout::{FileId, SkipReason};
use fragmend_plan::{Plan, PlannedFile, Policy, Settings};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::tools::extents;
use indicatif::ProgressBar;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Size of the files that [`fragmented`] makes.
pub const SIZE: u64 = 1 << 20;

/// A file of [`SIZE`] in pieces of 4 KiB.
pub fn fragmented(image: &Image, name: &str) -> PathBuf {
    let path = image.path().join(name);
    interleaved(&path, SIZE, &[4096], true).expect("a fragmented file");
    assert!(extents(&path) > 100, "{}", extents(&path));
    path
}

/// The plan's one file, made to name something else.
pub fn redirected(plan: &Plan, path: &Path) -> Plan {
    let meta = path.symlink_metadata().unwrap();
    let generation = match meta.is_file() {
        true => fragmend_sys::inode::generation(File::open(path).unwrap()).unwrap(),
        false => 0,
    };
    let file = FileId { device: meta.dev(), inode: meta.ino(), generation };
    let entry = PlannedFile { path: path.into(), file, ..plan.files[0].clone() };
    Plan { files: vec![entry], ..plan.clone() }
}

/// A plan for everything fragmented below `paths`, without a trace.
pub fn plan(paths: &[&Path], policy: Policy) -> Plan {
    let paths: Vec<PathBuf> = paths.iter().map(|p| p.to_path_buf()).collect();
    let found = gather::walked(&paths, &ProgressBar::hidden()).expect("a walk");
    let settings = Settings { policy, ..Settings::default() };
    fragmend_plan::make(found.files, found.devices, found.left_alone, &settings)
}

/// Applies without pacing; gives the summary and every receipt.
pub fn apply(plan: &Plan) -> (Summary, Vec<Receipt>) {
    apply_with(plan, &Options { rate: fragmend_apply::Rate::Unlimited, ..Options::default() })
}

/// The same with other options.
pub fn apply_with(plan: &Plan, options: &Options) -> (Summary, Vec<Receipt>) {
    let mut receipts = Vec::new();
    let summary = fragmend_apply::apply(plan, options, &AtomicBool::new(false), |event| {
        if let Event::Range(receipt) = event {
            receipts.push(receipt);
        }
    });
    (summary.expect("nothing refuses"), receipts)
}

/// The reasons for which ranges of `path` were left alone.
pub fn reasons(summary: &Summary, path: &Path) -> Vec<SkipReason> {
    let of_path = |s: &&fragmend_apply::Skipped| s.path.to_path().as_deref() == Some(path);
    summary.skipped.iter().filter(of_path).map(|s| s.reason).collect()
}
