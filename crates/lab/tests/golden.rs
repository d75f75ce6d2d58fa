//! One seed has one result, bit for bit, on any machine and with any number of threads.
//!
//! `golden.txt` has every figure of every short experiment for seed 42, as the 64 bits of its value. After a change
//! that is meant to change figures, write it anew and check the difference: `GOLDEN=write cargo test -p
//! fragmend-lab --test golden`.

use fragmend_lab::experiments::short;
use fragmend_lab::run::run_all;
use std::fmt::Write;
use std::path::Path;

fn figures(jobs: usize) -> String {
    let mut text = String::new();
    for (report, _) in
        run_all(&short().collect::<Vec<_>>(), Some(jobs), |experiment| experiment.report(42))
    {
        for row in report.rows {
            assert!(row.within || row.reason.is_some(), "{}: {}", report.experiment, row.name);
            let (bits, ours) = (row.ours.to_bits(), row.ours);
            let _ = writeln!(text, "{bits:016x} {}: {} ({ours})", report.experiment, row.name);
        }
    }
    text
}

/// The file is written with one thread and compared with what more threads than cores find.
#[test]
fn the_same_bits_at_any_number_of_threads() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.txt");
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&file, figures(1)).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    let found = figures(5);
    for (golden, found) in golden.lines().zip(found.lines()) {
        assert_eq!(found, golden);
    }
    assert_eq!(found.lines().count(), golden.lines().count());
}

#[test]
fn another_seed_gives_other_figures_and_the_same_again() {
    let random = short().find(|experiment| experiment.name == "D-fig12").unwrap();
    let rows = |seed| random.report(seed).0.rows;
    assert_ne!(rows(1), rows(2));
    assert_eq!(rows(1), rows(1));
}
