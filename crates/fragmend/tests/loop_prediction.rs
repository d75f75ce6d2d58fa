//! What a plan predicts that mending saves, beside the virtual time that it saves on drives which `fragmend lab serve`
//! serves. All loads on all drives: `cargo bench -p fragmend --bench prediction`, table in `docs/measurements.md`. That an
//! NVMe drive is left alone, and rightly so, is what the demo checks.

#[path = "support/prediction.rs"]
mod prediction;
#[path = "support/served.rs"]
mod served;

use prediction::{Bed, load};

/// How far the predicted time saved may be from the counted.
const BAND: f64 = 0.15;

#[test]
fn loop_a_card_saves_what_is_predicted() {
    let loads = ["random sizes, direct", "SQLite, range queries"].map(load);
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
