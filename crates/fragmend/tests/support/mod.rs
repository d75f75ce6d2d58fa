//! What the tests of the migration share: plans made in this process, applied in this process.

#![allow(dead_code)] // each test file uses its part

use fragmend::gather;
use fragmend_apply::{Event, Options, Receipt, Summary};
use fragmend_layout::SkipReason;
use fragmend_plan::{Plan, Policy, Settings};
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

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
