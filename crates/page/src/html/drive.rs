//! Free space by the length of its runs, and what reads cost on a device.

use super::chart::{Axis, Chart, Group, MOST_SERIES, Series, bars};
use super::text::{bytes, figures_table, shown};
use crate::done::name_of;
use crate::report::{FreePart, PageReport};
use fragmend_device::profile::Profile;
use fragmend_report::scan::RunStep;
use fragmend_report::{Unit, human};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Free space; nothing if none was recorded, and no scan should have it.
pub fn free_space(report: &PageReport) -> Option<Markup> {
    if report.free_space.is_empty() {
        let scanned = !report.scans.is_empty();
        return scanned
            .then(|| html! { p { "Free space was not recorded by the scans of this report." } });
    }
    Some(html! { @for part in &report.free_space { (free(part)) } })
}

fn free(part: &FreePart) -> Markup {
    let space = &part.space;
    let group =
        |step: &RunStep| (bytes(step.from_bytes), vec![step.runs as f64, step.bytes as f64]);
    let groups: Vec<Group> = space.free_run_distribution.iter().map(group).collect();
    let series = [("runs", Unit::Count), ("bytes in them", Unit::Bytes)];
    html! {
        h3 { bdi { (space.path.printable()) } ", " (shown(&space.file_system)) " (" bdi { (part.input) } ")" }
        @match (&space.figures, &space.not_known) {
            (Some(f), _) => {
                p { (bytes(f.free_bytes)) " are free, in " (human(f.free_runs as f64, Unit::Count)) " runs; the longest has " (bytes(f.longest_free_run_bytes)) "." }
                (bars("Free runs by length: each step ends below twice its first value", "from", &series, &groups).unwrap_or_default())
                (figures_table("This free space", f))
            }
            (None, why) => p.warning { "Its free space is not known: " (shown(why.as_deref().unwrap_or("the scan does not say why"))) }
        }
    }
}

/// Profiles; nothing if there is none.
pub fn section(report: &PageReport) -> Option<Markup> {
    (!report.profiles.is_empty())
        .then(|| html! { @for profile in &report.profiles { (one(profile)) } })
}

fn one(profile: &Profile) -> Markup {
    let dies = match (profile.die_granularity_bytes, profile.stripe_bytes) {
        (Some(granularity), Some(stripe)) => format!(
            "A die gets {} before the next die's turn, and all dies together {}: {} dies work side by side.",
            bytes(granularity),
            bytes(stripe),
            stripe / granularity.max(1)
        ),
        (Some(granularity), None) => {
            format!(
                "A die gets {} before the next die's turn; the stripe cannot be told.",
                bytes(granularity)
            )
        }
        _ => format!(
            "Its dies cannot be told{}.",
            profile.cannot_tell.map(|why| format!(" ({})", name_of(&why))).unwrap_or_default()
        ),
    };
    html! {
        h3 { bdi { (shown(&profile.device.name)) } " (" (name_of(&profile.device.kind)) ")" }
        p { (dies) }
        @match profile.caveat() {
            Ok(None) => {}
            Ok(Some(why)) | Err(why) => p.warning { (shown(&why)) }
        }
        (by_length(profile).unwrap_or_default())
        (by_depth(profile).unwrap_or_default())
        (at_intervals(profile).unwrap_or_default())
        (figures_table("This profile", profile))
    }
}

fn axis(title: &str, unit: Unit) -> Axis {
    Axis { title: title.into(), unit, is_logarithmic: true }
}

/// Some of many, the first and the last among them.
fn some<T>(all: Vec<T>) -> Vec<T> {
    let count = all.len();
    let is_chosen = |at: usize| {
        count <= MOST_SERIES || (0..MOST_SERIES).any(|n| n * (count - 1) / (MOST_SERIES - 1) == at)
    };
    all.into_iter().enumerate().filter(|(at, _)| is_chosen(*at)).map(|(_, one)| one).collect()
}

fn by_length(profile: &Profile) -> Option<Markup> {
    let mut depths: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
    for cost in profile.costs.reads() {
        let point = (cost.request_bytes as f64, cost.burst_ns as f64 / 1e9);
        depths.entry(cost.in_flight).or_default().push(point);
    }
    let series =
        |(depth, points)| Series { name: format!("{depth} in flight"), points, has_line: true };
    let chart = Chart {
        title: "How long requests last that are issued together, by their length".into(),
        x: axis("length of each request", Unit::Bytes),
        y: axis("until the last is done", Unit::Seconds),
        series: some(depths.into_iter().map(series).collect()),
    };
    chart.draw()
}

fn by_depth(profile: &Profile) -> Option<Markup> {
    let mut lengths: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for cost in profile.costs.reads().iter().filter(|cost| cost.interval_ns > 0) {
        let per_second = cost.request_bytes as f64 / (cost.interval_ns as f64 / 1e9);
        lengths
            .entry(cost.request_bytes)
            .or_default()
            .push((f64::from(cost.in_flight), per_second));
    }
    let series = |(length, points)| Series { name: bytes(length), points, has_line: true };
    let chart = Chart {
        title: "Bytes read in a second, by requests in flight".into(),
        x: axis("requests in flight", Unit::Count),
        y: axis("bytes a second", Unit::Bytes),
        series: some(lengths.into_iter().map(series).collect()),
    };
    chart.draw()
}

fn at_intervals(profile: &Profile) -> Option<Markup> {
    let points = profile.intervals.iter();
    let points = points.map(|at| (at.distance_bytes as f64, at.mb_per_second * 1e6)).collect();
    let chart = Chart {
        title: "Bytes read in a second at intervals: it falls where reads meet on a die".into(),
        x: axis("from one read to the next", Unit::Bytes),
        y: Axis { title: "bytes a second".into(), unit: Unit::Bytes, is_logarithmic: false },
        series: vec![Series { name: "reads".into(), points, has_line: true }],
    };
    chart.draw()
}
