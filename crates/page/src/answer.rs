//! All of a report in a sentence, and what a reader asks: is it bad, which files, what would it cost, what did it change.
//!
//! What is best known comes first: what was measured, what was moved, what a plan predicts, what a scan counts. Where the
//! inputs do not say something, the answer says so and names the verb that finds it out.

use crate::plans::PlanPart;
use crate::report::{MeasurementPart, PageReport, ScanPart};
use crate::worst::WorstFile;
use fragmend_apply::Summary as Moved;
use fragmend_layout::printable;
use fragmend_plan::Summary;
use fragmend_report::scan::NEGLIGIBLE;
use fragmend_report::{Unit, human};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Files that are named in an answer.
const NAMED: usize = 3;
/// Pauses are named from this share of a run's time on.
const NO_PAUSE: f64 = 0.01;

/// What the report says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// All of it in a sentence.
    pub sentence: String,
    /// How bad it is.
    pub is_it_bad: String,
    /// Which files it is about.
    pub which_files: String,
    /// What mending would cost, or has cost.
    pub what_would_it_cost: String,
    /// What has changed.
    pub what_did_it_change: String,
}

/// The answer of a report whose other parts are there.
pub(crate) fn answer(report: &PageReport) -> Answer {
    let plan = report.plans.first();
    let run = moved(report);
    let scan = report.scans.first();
    let measured = report.measurements.first();
    let sentence = measured
        .and_then(of_measurement)
        .or_else(|| run.map(|run| of_run(run, plan)))
        .or_else(|| plan.map(of_plan))
        .or_else(|| scan.map(of_scan))
        .or_else(|| of_drive(report))
        .or_else(|| of_lab(report));
    Answer {
        sentence: sentence.unwrap_or_else(|| {
            "The inputs say nothing of a file system: give a scan, a plan or receipts.".into()
        }),
        is_it_bad: is_it_bad(plan, run, scan),
        which_files: which_files(report),
        what_would_it_cost: cost(plan, run),
        what_did_it_change: change(run, runs(report).next().is_some(), measured),
    }
}

fn runs(report: &PageReport) -> impl Iterator<Item = &Moved> {
    report.runs.iter().filter_map(|run| run.summary.as_ref())
}

/// The run that the answer is about. One that has moved nothing leaves the answer to the plan.
pub(crate) fn moved(report: &PageReport) -> Option<&Moved> {
    runs(report).find(|run| run.ranges_moved > 0 && !run.dry_run)
}

fn bytes(n: u64) -> String {
    human(n as f64, Unit::Bytes)
}

fn count(n: u64) -> String {
    human(n as f64, Unit::Count)
}

fn seconds(s: f64) -> String {
    human(s, Unit::Seconds)
}

/// `part` of `whole` in per cent.
fn share(part: f64, whole: f64) -> String {
    human(if whole > 0.0 { part / whole } else { 0.0 }, Unit::Share)
}

/// A count with its noun.
fn of(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

fn of_measurement(part: &MeasurementPart) -> Option<String> {
    let m = &part.measurement;
    let (measured, predicted) = (m.measured?, m.predicted);
    if m.no_verdict.is_some() {
        let why = printable(&m.detail);
        return Some(format!("It was mended; whether that has helped cannot be told: {why}."));
    }
    let foreseen = predicted.map_or(String::new(), |predicted| {
        format!("; {} was predicted", seconds(predicted.seconds_saved))
    });
    let (saved, before) = (measured.seconds_saved, measured.seconds_before);
    Some(if saved > 0.0 {
        format!(
            "Mending has saved {} of {} that the same reads wait for the device ({}), as measured{foreseen}.",
            seconds(saved),
            seconds(before),
            share(saved, before)
        )
    } else {
        format!("Mending has saved no time, as measured{foreseen}.")
    })
}

fn of_run(run: &Moved, plan: Option<&PlanPart>) -> String {
    let foreseen = plan.map_or(String::new(), |plan| {
        let s = &plan.summary;
        format!(
            " The plan predicts {} less waiting for the device in each replay ({} of {}); that was not measured.",
            seconds(s.seconds_saved),
            share(s.seconds_saved, s.seconds_before),
            seconds(s.seconds_before)
        )
    });
    format!(
        "{} moved: {} from {} to {}.{foreseen}",
        bytes(run.moved_bytes),
        of(run.ranges_moved, "range", "ranges"),
        of(run.extents_before, "fragment", "fragments"),
        count(run.extents_after)
    )
}

fn of_plan(plan: &PlanPart) -> String {
    let s = &plan.summary;
    if !s.worth {
        let verdict = s.verdict.strip_prefix("not worth it: ").unwrap_or(&s.verdict);
        return format!("Leave it as it is: {}.", printable(verdict));
    }
    let rest = match s.whole_file_bytes.saturating_sub(s.bytes_to_move) {
        _ if s.over_budget_bytes > 0 => {
            format!("; {} more would be worth it, over the budget", bytes(s.over_budget_bytes))
        }
        0 => String::new(),
        rest => format!("; the rest of these files, {}, is not worth it", bytes(rest)),
    };
    format!(
        "Mending {} would save {} of the {} that one replay waits for the device ({}){rest}.",
        bytes(s.bytes_to_move),
        seconds(s.seconds_saved),
        seconds(s.seconds_before),
        share(s.seconds_saved, s.seconds_before)
    )
}

fn of_scan(scan: &ScanPart) -> String {
    let t = &scan.totals;
    if t.fragmented_files == 0 {
        return format!(
            "None of {} is fragmented: leave them as they are.",
            of(t.files, "file", "files")
        );
    }
    let f = &t.figures;
    let fragmented = format!(
        "{} of {} are fragmented; all are in {}, where {} would do",
        count(t.fragmented_files),
        of(t.files, "file", "files"),
        of(f.extents, "extent", "extents"),
        count(f.ideal_extents)
    );
    if t.saved_share() < NEGLIGIBLE {
        return format!(
            "{fragmented}: leave them as they are, unless one that is read much is among the worst."
        );
    }
    format!("{fragmented}. Whether that costs time, a scan alone cannot say.")
}

fn of_drive(report: &PageReport) -> Option<String> {
    let profile = report.profiles.first()?;
    let alone = profile.one_more_request.iter().find(|one| one.in_flight == 1)?;
    let name = printable(&profile.device.name);
    Some(if alone.ns > 0 {
        let time = seconds(alone.ns as f64 / 1e9);
        format!(
            "On {name}, each further request that a read is split into costs {time} with one in flight."
        )
    } else {
        format!("On {name}, a read that is split into more requests lasts no longer.")
    })
}

fn of_lab(report: &PageReport) -> Option<String> {
    let rows = || report.lab.iter().flat_map(|one| &one.rows).filter(|row| row.paper.is_some());
    report.lab.first()?;
    let within = rows().filter(|row| row.within).count() as u64;
    let all = of(rows().count() as u64, "figure", "figures");
    Some(format!("{} of {all} of the papers are repeated within their bands.", count(within)))
}

fn is_it_bad(plan: Option<&PlanPart>, run: Option<&Moved>, scan: Option<&ScanPart>) -> String {
    match (plan, scan) {
        (Some(plan), _) => time_lost(&plan.summary, run.is_some()),
        (None, Some(scan)) => {
            let t = &scan.totals.figures;
            format!(
                "Reading everything once needs {} to the device, and {} if all were contiguous. What that costs depends on what programs read: fragmend record sees it.",
                of(t.requests_now, "request", "requests"),
                count(t.requests_best)
            )
        }
        (None, None) => "Not in the inputs: fragmend plan says it.".into(),
    }
}

fn time_lost(s: &Summary, is_moved: bool) -> String {
    let verdict = if s.worth { "worth mending" } else { "not worth mending" };
    let (waits, can) = if is_moved { ("waited", "was to be") } else { ("waits", "would be") };
    format!(
        "A replay (all reads that were recorded, once more) {waits} {} for the device; {} of that ({}) {can} saved by the plan: {verdict} (a prediction).",
        seconds(s.seconds_before),
        seconds(s.seconds_saved),
        share(s.seconds_saved, s.seconds_before)
    )
}

fn which_files(report: &PageReport) -> String {
    if report.files.is_empty() {
        let has_any = !report.plans.is_empty() || !report.scans.is_empty();
        let known = "None: no file of the inputs is fragmented, or planned for.";
        return if has_any { known } else { "Not in the inputs: a scan or a plan file says it." }
            .into();
    }
    let named: Vec<String> = report.files.iter().take(NAMED).map(named).collect();
    let more = report.files_in_all.saturating_sub(named.len() as u64);
    let more = if more > 0 { format!(", and {} more", count(more)) } else { String::new() };
    format!("{}{more}.", named.join(", "))
}

fn named(file: &WorstFile) -> String {
    let f = &file.figures;
    let why = match (f.seconds_saved, f.extents, f.ideal_extents) {
        (Some(saved), _, _) => format!("{} in each replay", seconds(saved)),
        (None, Some(extents), Some(ideal)) => {
            format!("{} for {}", of(extents, "extent", "extents"), count(ideal))
        }
        _ => return file.path.printable(),
    };
    format!("{} ({why})", file.path.printable())
}

fn cost(plan: Option<&PlanPart>, run: Option<&Moved>) -> String {
    if let Some(run) = run {
        let pauses = match run.paused_seconds {
            paused if paused < NO_PAUSE * run.seconds => String::new(),
            paused => format!(", of which {} were pauses for others", seconds(paused)),
        };
        return format!(
            "{} were written and {} read, with what compares the copies; it lasted {}{pauses}.",
            bytes(run.written_bytes),
            bytes(run.read_bytes),
            seconds(run.seconds)
        );
    }
    let Some(plan) = plan else { return "Not in the inputs: fragmend plan says it.".into() };
    let s = &plan.summary;
    if s.ranges == 0 {
        return "Nothing: the plan moves nothing.".into();
    }
    let wear = s.rated_share.map_or(String::new(), |rated| {
        format!(", {} of what the drive is rated to be written", human(rated, Unit::Share))
    });
    format!(
        "{} would be written, in {} of {}: {} of the file systems{wear}.",
        bytes(s.bytes_to_move),
        of(s.ranges, "range", "ranges"),
        of(s.files, "file", "files"),
        human(s.file_system_share, Unit::Share)
    )
}

fn change(run: Option<&Moved>, has_run: bool, measured: Option<&MeasurementPart>) -> String {
    let Some(run) = run else {
        let none = "Nothing yet: the inputs have no receipts.";
        return if has_run { "Nothing: no range was moved." } else { none }.into();
    };
    let times = measured.and_then(|part| part.measurement.measured).map_or_else(
        || " Whether reads are quicker was not measured: fragmend auto does that.".to_owned(),
        |times| {
            let (before, after) = (seconds(times.seconds_before), seconds(times.seconds_after));
            format!(" The same reads last {after}, before {before} (measured).")
        },
    );
    format!(
        "{} moved, {} left alone: in {} before, in {} now.{times}",
        of(run.ranges_moved, "range", "ranges"),
        count(run.ranges_skipped),
        of(run.extents_before, "fragment", "fragments"),
        count(run.extents_after)
    )
}
