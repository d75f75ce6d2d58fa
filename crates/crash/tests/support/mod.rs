//! What the tests of power cuts under load share.

use fragmend_crash::choose_cuts::choose;
use fragmend_crash::inspect::CutResults;
use fragmend_crash::record::Recording;
use fragmend_crash::scenario::{self, Scenario};
use fragmend_crash::soak::Row;
use std::path::Path;

pub const SOAK: &str = env!("CARGO_BIN_EXE_soak");

fn row(name: &str) -> &'static Scenario {
    scenario::named(name).unwrap_or_else(|| panic!("no row {name}"))
}

/// Makes one recording of a scenario, with the load of a seed, and inspects `cuts` cuts of it.
fn cut(name: &str, cuts: usize, seed: u64) -> (Row, String) {
    let (mut result, mut said) = (Row::default(), String::new());
    let cuts = |recording: &Recording| choose(recording, cuts, seed);
    result.add_recording(row(name), seed, cuts, Path::new(SOAK), |what| what.clone_into(&mut said));
    println!("{}", Row::COLUMNS.join(" | "));
    println!("{}\n{said}", result.cells().join(" | "));
    (result, said)
}

/// Nothing is lost, although moves were under way.
pub fn loses_nothing(name: &str, cuts: usize, seed: u64) {
    let (row, said) = cut(name, cuts, seed);
    assert_eq!((row.results.losses.len(), row.results.cuts), (0, cuts as u64), "{said}");
    assert_eq!(row.unexpected(self::row(name)), Vec::<String>::new());
    // Others have used what moved.
    let counts = &row.moves.later_use;
    assert!(counts.changes >= 40 && counts.syncs.values().sum::<u64>() >= 20, "{counts:?}");
    assert!(row.moves.ranges >= 30, "only {} ranges were moved", row.moves.ranges);
    let writes_anew = !self::row(name).whole_files && !self::row(name).in_guest;
    assert!(row.moves.anew > 0 || !writes_anew, "no contiguous range was moved");
    assert!(row.moves.failed.is_empty(), "has no better reason: {:?}", row.moves.failed);
    // Each time that a file's move was held up, what had moved was flushed.
    assert!(row.flushes >= 24 && row.operations > row.flushes, "{row:?}");
    // A quarter of the cuts falls where a file must be half moved, if files ever are.
    let CutResults { under_way, halfway, half_moved, not_halfway, .. } = &row.results;
    let least = if self::row(name).whole_files { under_way } else { halfway };
    assert!(*least >= cuts as u64 / 4 && half_moved >= halfway, "{row:?}");
    assert!(not_halfway.is_empty(), "not half moved, although that was synced: {not_halfway:?}");
    assert!(row.results.files >= row.results.cuts * 17, "{row:?}");
}

/// A test for each engine that is on the host or in a guest, so that a failure names it.
#[macro_export]
macro_rules! engines {
    (in_guest: $in_guest:literal; $($test:ident => $row:literal, $cuts:literal, $seed:literal;)*) => {
        $(#[test] fn $test() { loses_nothing($row, $cuts, $seed) })*

        #[test]
        fn every_engine_has_300_cuts() {
            let mut cuts = std::collections::BTreeMap::new();
            $(*cuts.entry($row).or_insert(0) += $cuts;)*
            let engines = fragmend_crash::scenario::ENGINES.iter();
            let engines = engines.filter(|engine| engine.in_guest == $in_guest);
            assert_eq!(cuts, engines.map(|engine| (engine.name, 300)).collect());
        }
    };
}

/// The controls with the same load, on the host or in a guest.
pub fn lose_nothing_alone(in_guest: bool) {
    for scenario in scenario::ALONE.iter().filter(|scenario| scenario.in_guest == in_guest) {
        let (row, said) = cut(scenario.name, 30, 1);
        assert!(row.results.losses.is_empty(), "{said}");
        assert_eq!((row.moves.ranges, row.results.half_moved), (0, 0));
    }
}
