//! What a plan predicts that mending saves, beside the virtual time that it saves on drives which `fragmend lab serve`
//! serves. All loads on all drives: `cargo bench -p fragmend --bench prediction`, table in `docs/measurements.md`.

#[path = "support/prediction.rs"]
mod prediction;
#[path = "support/served.rs"]
mod served;

use prediction::{Bed, load};

/// How far the predicted time saved may be from the counted.
const BAND: f64 = 0.15;
/// Runs of a fragmented and a mended file that differ by less are the same.
const SAME: f64 = 0.03;

#[test]
fn loop_a_card_saves_what_is_predicted() {
    let loads =
        ["random sizes, direct", "zipfian 16 KiB, direct, depth 4", "SQLite, range queries"];
    let loads = loads.map(load);
    let bed = Bed::new("microsd", &loads);
    for load in loads {
        let outcome = bed.run(load);
        println!("{}: {:+.1} %, {outcome:?}", load.name, 100.0 * outcome.error());
        assert!(outcome.moved_bytes > 0 && outcome.why.is_none(), "{outcome:?}");
        assert!(outcome.difference() > 0.2, "mending saves much on a card: {outcome:?}");
        assert!(outcome.error().abs() < BAND, "{}: {outcome:?}", load.name);
    }
    bed.quit();
}

#[test]
fn loop_an_nvme_drive_is_left_alone_and_rightly_so() {
    let loads = ["random 128 KiB, direct, depth 32"].map(load);
    let bed = Bed::new("nvme-b", &loads);
    for load in loads {
        let outcome = bed.run(load);
        println!("{}: {outcome:?}", load.name);
        assert!(outcome.requests_before > 500, "it is fragmented: {outcome:?}");
        assert_eq!(outcome.moved_bytes, 0, "{}: {outcome:?}", load.name);
        assert!(outcome.why.is_some(), "{outcome:?}");
        assert!(outcome.fragments[1] * 10 < outcome.fragments[0], "it was mended: {outcome:?}");
        assert!(outcome.difference().abs() < SAME, "{}: {outcome:?}", load.name);
    }
    bed.quit();
}
