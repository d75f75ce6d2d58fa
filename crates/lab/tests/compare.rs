//! The comparison of all remedies, small: every remedy has its row, what it states adds up, and what the remedies promise holds.

use fragmend_lab::compare::loads::{Load, Parts};
use fragmend_lab::compare::page::page;
use fragmend_lab::compare::remedies::{Act, Remedy};
use fragmend_lab::compare::report::{Comparison, Measured, Table};
use fragmend_lab::compare::{Choice, compare, picture};
use fragmend_lab::presets;

fn compared(load: Load, drive: &str, remedies: &[Remedy], parts: u64) -> Comparison {
    let setup = presets::named(drive).unwrap();
    let choice = Choice {
        loads: vec![load],
        drives: vec![(drive.to_owned(), setup)],
        remedies: remedies.to_vec(),
        seed: 42,
        parts: Parts::new(parts),
        jobs: None,
    };
    compare(&choice, &|_| {})
}

fn of(table: &Table, remedy: Remedy) -> &Measured {
    let home = table.rows.iter().find(|row| row.remedy == remedy.name()).unwrap();
    home.measured.as_ref().unwrap_or_else(|| panic!("{home:?}"))
}

/// One part in so many of the usual size is enough for what is asserted.
const PARTS: u64 = 4;

#[test]
fn every_remedy_has_a_row_and_keeps_what_it_promises() {
    let comparison = compared(Load::Fileserver, "ufs-2.0", &Remedy::ALL, PARTS);
    let [table] = &comparison.tables[..] else { panic!("one load, one drive") };
    for remedy in Remedy::ALL {
        let rows = table.rows.iter().filter(|row| row.remedy == remedy.name());
        assert!(rows.clone().count() > 0, "{} has no row", remedy.name());
        for row in rows {
            assert!(row.measured.is_some() != row.not_applicable.is_some(), "{row:?}");
        }
    }
    let indef = table.rows.iter().find(|row| row.remedy == "indef").unwrap();
    assert!(indef.not_applicable.as_ref().is_some_and(|why| why.contains("zones")), "{indef:?}");

    let [nothing, whole, picked, joined] =
        [Remedy::Nothing, Remedy::WholeFile, Remedy::Fragpicker, Remedy::JanusdL]
            .map(|remedy| of(table, remedy));
    assert_eq!((nothing.gain_percent, nothing.moved_bytes), (0.0, 0));
    assert!(whole.gain_percent > 1.0 && joined.gain_percent > 0.0, "{whole:?} {joined:?}");
    assert!(whole.programmed_bytes >= whole.moved_bytes as i64, "{whole:?}");
    assert!(picked.moved_bytes <= whole.moved_bytes, "{picked:?} {whole:?}");
    assert!(joined.programmed_bytes * 3 < whole.programmed_bytes, "{joined:?} {whole:?}");
    let gain = of(table, Remedy::Gain);
    assert!(gain.on_front || gain.beaten.is_some(), "{gain:?}");
    assert!(gain.foreseen_percent.is_some());
    for (row, measured) in table.kinds().into_iter().flat_map(|kind| table.measured_on(kind)) {
        let cuts = measured.power_cuts;
        assert_eq!(cuts.is_none(), row.remedy == "nothing", "{row:?}");
        assert!(cuts.is_none_or(|cuts| cuts.cuts >= 64 && cuts.lost == 0), "{row:?}");
        let places = Remedy::ALL
            .iter()
            .any(|remedy| remedy.name() == row.remedy && matches!(remedy.act(), Act::Place(_)));
        assert!(cuts.is_none_or(|cuts| places || cuts.moved_bytes > 0), "{row:?}");
    }
    assert!(comparison.is_safe());

    let text = page(&comparison);
    assert!(text.contains("`indef` does not apply: only drives with zones"), "{text}");
    assert!(Remedy::ALL.iter().all(|remedy| text.contains(&format!("`{}`", remedy.name()))));
    let dir = tempfile::tempdir().unwrap();
    for plot in picture::of(&comparison) {
        plot.draw(dir.path()).unwrap();
    }
    let drawn = std::fs::read_to_string(dir.path().join("compare-fileserver-ufs-2.0-ext4.svg"));
    assert!(drawn.unwrap().contains("fragpicker"));
}

#[test]
fn a_cell_is_the_same_whatever_is_compared_beside_it() {
    let one = compared(Load::Sqlite, "nvmevirt-fast24", &[Remedy::Fragpicker], 8);
    let two =
        compared(Load::Sqlite, "nvmevirt-fast24", &[Remedy::WholeFile, Remedy::Fragpicker], 8);
    let [one, two] = [&one, &two].map(|comparison| of(&comparison.tables[0], Remedy::Fragpicker));
    let figures = |one: &Measured| (one.read_after, one.programmed_bytes, one.slowdown_percent);
    assert_eq!(figures(one), figures(two));
}
