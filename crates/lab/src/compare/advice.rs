//! What to choose when: sentences that follow from a table by rules, so that none of them can say what was not measured.

use super::image::Kind;
use super::remedies::Remedy;
use super::report::{Measured, Row, Table};

/// A gain below this, in per cent, is no reason to move anything.
const NOTICED: f64 = 3.0;
/// What brings at least this share of the best gain is advised if it programs least of all that do.
const ENOUGH: f64 = 0.5;
/// A slow-down below this, in per cent, is not to be told from none.
const SLOWED: f64 = 1.0;

/// The advice of a table.
pub fn of(table: &Table) -> Vec<String> {
    table.kinds().into_iter().flat_map(|kind| on(table, kind)).collect()
}

fn remedy(row: &Row) -> Option<Remedy> {
    Remedy::ALL.into_iter().find(|remedy| remedy.name() == row.remedy)
}

/// A remedy and what was measured of it.
type Tried<'a> = (Remedy, &'a Measured);

/// The advice on one file system.
fn on(table: &Table, kind: Kind) -> Vec<String> {
    let rows = table.measured_on(kind);
    let tried: Vec<Tried<'_>> = rows
        .filter_map(|(row, measured)| Some((remedy(row)?, measured)))
        .filter(|(remedy, _)| *remedy != Remedy::Nothing)
        .collect();
    let Some(best) = best(&tried) else { return Vec::new() };
    let name = kind.name();
    if best.1.gain_percent < NOTICED {
        let (remedy, measured) = (best.0.name(), best.1);
        let gain = measured.gain_percent;
        return vec![format!("{name}: leave it. The best remedy, {remedy}, brings {gain:+.1} %.")];
    }
    let today: Vec<Tried<'_>> =
        tried.iter().copied().filter(|(remedy, _)| !remedy.needs_file_system()).collect();
    let mut advice = Vec::new();
    match cheapest(&today) {
        Some(one) if one.1.gain_percent >= NOTICED => {
            advice.push(format!("{name}, drives and kernels as they are: {}.", told(one)));
        }
        _ if !today.is_empty() => advice.push(format!(
            "{name}, drives and kernels as they are: leave it; nothing brings {NOTICED} %."
        )),
        _ => {}
    }
    if let Some(one) = cheapest(&tried).filter(|one| one.0.needs_file_system()) {
        let what = if one.0.needs_firmware() { "new firmware" } else { "another cleaner" };
        advice.push(format!("{name}, with {what}: {}.", told(one)));
    }
    advice.push(format!("{name}, the most: {}.", told(best)));
    if let Some((remedy, slowdown)) = gentlest(&tried, best.1.gain_percent) {
        let slows = if slowdown < SLOWED {
            "does not slow it".to_owned()
        } else {
            format!("slows it by {slowdown:.1} %, the least")
        };
        advice.push(format!("{name}, beside a load: {}, which {slows}.", remedy.name()));
    }
    if let Some((_, gain)) = tried.iter().find(|(remedy, _)| *remedy == Remedy::Gain) {
        advice.push(match &gain.beaten {
            None => format!("{name}: gain is on the front."),
            Some(beaten) if beaten.by == Remedy::Nothing.name() => {
                format!("{name}: gain is no better than no remedy: {}.", beaten.why)
            }
            Some(beaten) => format!("{name}: {} beats gain: {}.", beaten.by, beaten.why),
        });
    }
    advice
}

/// The one that gains most.
fn best<'a>(tried: &[Tried<'a>]) -> Option<Tried<'a>> {
    tried.iter().copied().max_by(|a, b| a.1.gain_percent.total_cmp(&b.1.gain_percent))
}

/// The one that programs least of those that bring enough of the best gain.
fn cheapest<'a>(tried: &[Tried<'a>]) -> Option<Tried<'a>> {
    let most = best(tried)?.1.gain_percent;
    let enough = tried.iter().copied().filter(|one| one.1.gain_percent >= most * ENOUGH);
    enough.min_by_key(|one| one.1.programmed_bytes).or_else(|| best(tried))
}

/// The one that slows the load least, in per cent, of those that bring enough of this gain.
fn gentlest(tried: &[Tried<'_>], most: f64) -> Option<(Remedy, f64)> {
    let enough = tried.iter().filter(|one| one.1.gain_percent >= most * ENOUGH);
    let slows = enough.filter_map(|(remedy, one)| Some((*remedy, one.slowdown_percent?)));
    slows.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn told((remedy, measured): Tried<'_>) -> String {
    let mib = measured.programmed_bytes as f64 / f64::from(1 << 20);
    format!("{}, {:+.1} % for {mib:.1} MiB programmed", remedy.name(), measured.gain_percent)
}

#[cfg(test)]
mod tests {
    use super::super::pareto::tests::measured;
    use super::*;

    fn table(rows: &[(Remedy, f64, i64)]) -> Table {
        let row = |(remedy, gain, bytes): &(Remedy, f64, i64)| Row {
            remedy: remedy.name().into(),
            file_system: Some(Kind::Ext4),
            measured: Some(measured(*gain, *bytes)),
            not_applicable: None,
        };
        Table {
            load: "a load".into(),
            about: String::new(),
            drive: "a drive".into(),
            drive_bytes: 1,
            rows: rows.iter().map(row).collect(),
            advice: Vec::new(),
        }
    }

    #[test]
    fn what_brings_nothing_is_not_advised() {
        let advice = of(&table(&[(Remedy::Nothing, 0.0, 0), (Remedy::WholeFile, 1.0, 1 << 20)]));
        assert_eq!(advice, ["ext4: leave it. The best remedy, whole-file, brings +1.0 %."]);
    }

    #[test]
    fn what_moves_nothing_is_not_on_the_front() {
        let all = [(Remedy::Nothing, 0.0, 0), (Remedy::WholeFile, 9.0, 1), (Remedy::Gain, 0.0, 0)];
        let mut table = table(&all);
        let measured = |row: &Row| row.measured.clone().expect("it was measured");
        let rows: Vec<Measured> = table.rows.iter().map(measured).collect();
        let points: Vec<_> = all.iter().map(|(remedy, ..)| *remedy).zip(&rows).collect();
        let beaten = super::super::pareto::beaten(points[2], &points);
        table.rows[2].measured = Some(Measured { beaten, ..rows[2].clone() });
        assert_eq!(
            of(&table).pop().expect("advice"),
            "ext4: gain is no better than no remedy: it finds nothing to move (+0.0 % against +0.0 %, 0.0 MiB programmed against 0.0 MiB)."
        );
    }

    #[test]
    fn the_cheapest_of_those_that_bring_half_of_the_best_is_advised() {
        let advice = of(&table(&[
            (Remedy::Nothing, 0.0, 0),
            (Remedy::WholeFile, 20.0, 100 << 20),
            (Remedy::Fragpicker, 19.0, 30 << 20),
            (Remedy::Gain, 10.0, 10 << 20),
            (Remedy::JanusdL, 18.5, 1 << 20),
        ]));
        assert_eq!(
            advice,
            [
                "ext4, drives and kernels as they are: gain, +10.0 % for 10.0 MiB programmed.",
                "ext4, with new firmware: janusdL, +18.5 % for 1.0 MiB programmed.",
                "ext4, the most: whole-file, +20.0 % for 100.0 MiB programmed.",
                "ext4: gain is on the front."
            ]
        );
    }
}
