//! How large the page of a million extents is, and how long a headless Chromium takes to open it and run its script: of
//! some openings, each in a browser of its own, the median and the longest.
//!
//! `cargo bench -p fragmend-page [-- OPENINGS]`; ends with 1 if a limit is not kept.

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use fragmend_testbed::browser::Browser;
use fragmend_testbed::scratch;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What an opening may take.
const LONGEST: Duration = Duration::from_secs(2);
/// What the page may be, in bytes.
const LARGEST: usize = 5_000_000;

fn main() -> ExitCode {
    let openings = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(7usize).max(1);
    let inputs = support::a_million_extents();
    let begun = Instant::now();
    let (report, page) = support::page(&inputs);
    let made = begun.elapsed();
    assert_eq!(report.scans[0].extents_placed, 1_000_000);
    let directory = scratch::directory("opening");
    let path = directory.path().join("report.html");
    std::fs::write(&path, &page).expect("a page");

    let mut took: Vec<Duration> = (0..openings)
        .map(|_| {
            let mut browser = Browser::start();
            let took = browser.open(&path);
            assert_eq!(browser.text("document.documentElement.dataset.ready"), "yes");
            took
        })
        .collect();
    took.sort_unstable();
    let (median, longest) = (took[openings / 2], took[openings - 1]);
    println!("| extents | page (bytes) | made in (s) | opened in (s), median | longest |");
    println!("|---:|---:|---:|---:|---:|");
    let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
    let [made, middle, last] = [made, median, longest].map(seconds);
    println!(
        "| {} | {} | {made} | {middle} | {last} |",
        report.scans[0].extents_placed,
        page.len()
    );
    ExitCode::from(u8::from(median >= LONGEST || page.len() >= LARGEST))
}
