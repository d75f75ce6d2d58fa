//! All of a report in a sentence, and what a reader asks: is it bad, which files, what would it cost, what did it change.
//!
//! What is best known comes first: what was measured, what was moved, what a plan predicts, what a scan counts. Where the
//! inputs do not say something, the answer says so and names the verb that finds it out.

use crate::done::name_of;
use crate::plans::PlanPart;
use crate::report::{MeasurementPart, PageReport, ScanPart};
use crate::worst::WorstFile;
use fragmend_apply::{Outcome, Summary as Moved};
use fragmend_layout::printable;
use fragmend_plan::{Basis, Summary};
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
    let run = run.as_ref();
    let scan = report.scans.first();
    let measured = report.measurements.first();
    let sentence = measured
        .and_then(of_measurement)
        .or_else(|| run.map(|run| of_run(run, report)))
        .or_else(|| cut_off(report))
        .or_else(|| plan.map(|plan| of_plan(plan, report.plans.len())))
        .or_else(|| scan.map(of_scan))
        .or_else(|| of_drive(report))
        .or_else(|| of_lab(report));
    Answer {
        sentence: sentence.unwrap_or_else(|| {
            "The inputs say nothing of a file system: give a scan, a plan or receipts.".into()
        }),
        is_it_bad: is_it_bad(plan, is_moved(report), scan),
        which_files: which_files(report),
        what_would_it_cost: cost(report, run),
        what_did_it_change: change(report, run, measured),
    }
}

fn runs(report: &PageReport) -> impl Iterator<Item = &Moved> {
    report.runs.iter().filter_map(|run| run.summary.as_ref())
}

/// What all runs that have moved ranges come to. One that has moved none leaves the answer to the plan.
fn moved(report: &PageReport) -> Option<Moved> {
    runs(report).filter(|run| has_moved(run)).cloned().reduce(both)
}

fn has_moved(run: &Moved) -> bool {
    run.ranges_moved > 0 && !run.dry_run
}

/// The figures of two runs that the answer names.
fn both(a: Moved, b: Moved) -> Moved {
    Moved {
        moved_bytes: a.moved_bytes.saturating_add(b.moved_bytes),
        written_bytes: a.written_bytes.saturating_add(b.written_bytes),
        read_bytes: a.read_bytes.saturating_add(b.read_bytes),
        ranges_moved: a.ranges_moved.saturating_add(b.ranges_moved),
        ranges_skipped: a.ranges_skipped.saturating_add(b.ranges_skipped),
        ranges_left: a.ranges_left.saturating_add(b.ranges_left),
        extents_before: a.extents_before.saturating_add(b.extents_before),
        extents_after: a.extents_after.saturating_add(b.extents_after),
        seconds: a.seconds + b.seconds,
        paused_seconds: a.paused_seconds + b.paused_seconds,
        ..a
    }
}

/// Whether anything was moved, by a run whose end is in the inputs or by one whose end is not.
pub(crate) fn is_moved(report: &PageReport) -> bool {
    moved(report).is_some() || cut_off(report).is_some()
}

/// What runs have moved whose end is not in the inputs.
fn cut_off(report: &PageReport) -> Option<String> {
    let cut = report.runs.iter().filter(|run| run.summary.is_none());
    let moved = cut.flat_map(|run| &run.outcomes).filter(|o| o.what == name_of(&Outcome::Moved));
    let (ranges, sum) = moved.fold((0_u64, 0_u64), |(ranges, sum), o| {
        (ranges.saturating_add(o.ranges), sum.saturating_add(o.bytes))
    });
    (ranges > 0).then(|| {
        format!(
            "{} of {} moved, as far as the receipts go: the end of the run is not in the inputs.",
            of(ranges, "range", "ranges"),
            bytes(sum)
        )
    })
}

/// Said of a report with the ends of other runs.
fn another_is_cut_off(report: &PageReport) -> &'static str {
    match cut_off(report) {
        Some(_) => {
            " That leaves out what another run has moved: the end of that is not in the inputs."
        }
        None => "",
    }
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

fn of_run(run: &Moved, report: &PageReport) -> String {
    let foreseen = report.plans.first().map_or(String::new(), |plan| {
        let s = &plan.summary;
        let from = match report.plans.len() as u64 {
            1 => "The plan".into(),
            plans => format!("The first of {} plans", count(plans)),
        };
        format!(
            " {from} predicts {} less waiting for the device in each replay ({} of {}); that was not measured.",
            seconds(s.seconds_saved),
            share(s.seconds_saved, s.seconds_before),
            seconds(s.seconds_before)
        )
    });
    let runs = runs(report).filter(|run| has_moved(run)).count() as u64;
    let in_all = if runs > 1 { format!(" in {} runs", count(runs)) } else { String::new() };
    let more = another_is_cut_off(report);
    format!(
        "{} moved{in_all}: {} from {} to {}.{more}{foreseen}",
        bytes(run.moved_bytes),
        of(run.ranges_moved, "range", "ranges"),
        of(run.extents_before, "fragment", "fragments"),
        count(run.extents_after)
    )
}

fn of_plan(plan: &PlanPart, plans: usize) -> String {
    let s = &plan.summary;
    let others = match plans as u64 {
        1 => String::new(),
        plans => format!(" That is the first of {} plans.", count(plans)),
    };
    if !s.worth {
        let verdict = s.verdict.strip_prefix("not worth it: ").unwrap_or(&s.verdict);
        return format!("Leave it as it is: {}.{others}", printable(verdict));
    }
    let rest = match s.whole_file_bytes.saturating_sub(s.bytes_to_move) {
        _ if s.over_budget_bytes > 0 => {
            format!("; {} more would be worth it, over the budget", bytes(s.over_budget_bytes))
        }
        0 => String::new(),
        rest => format!("; the rest of these files, {}, is not worth it", bytes(rest)),
    };
    format!(
        "Mending {} would save {} of the {} that one replay waits for the device ({}){rest}.{others}",
        bytes(s.bytes_to_move),
        seconds(s.seconds_saved),
        seconds(s.seconds_before),
        share(s.seconds_saved, s.seconds_before)
    )
}

fn of_scan(scan: &ScanPart) -> String {
    let t = &scan.totals;
    if t.files == 0 {
        return "No file was scanned: nothing is known of any.".into();
    }
    if t.fragmented_files == 0 {
        return format!(
            "None of {} is fragmented: leave {} as {}.",
            of(t.files, "file", "files"),
            if t.files == 1 { "it" } else { "them" },
            if t.files == 1 { "it is" } else { "they are" }
        );
    }
    let f = &t.figures;
    let fragmented = format!(
        "{} of {} {} fragmented; all are in {}, where {} would do",
        count(t.fragmented_files),
        of(t.files, "file", "files"),
        if t.fragmented_files == 1 { "is" } else { "are" },
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

fn is_it_bad(plan: Option<&PlanPart>, is_moved: bool, scan: Option<&ScanPart>) -> String {
    match (plan, scan) {
        (Some(plan), _) => time_lost(&plan.summary, is_moved),
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
    let replay = match s.basis {
        Some(Basis::SequentialRead) => "One read of the files (nothing was recorded)",
        _ => "A replay (all reads that were recorded, once more)",
    };
    format!(
        "{replay} {waits} {} for the device; {} of that ({}) {can} saved by the plan: {verdict} (a prediction).",
        seconds(s.seconds_before),
        seconds(s.seconds_saved),
        share(s.seconds_saved, s.seconds_before)
    )
}

fn which_files(report: &PageReport) -> String {
    if report.files.is_empty() {
        // A plan's summary counts its files, and does not name them.
        let is_known = report.plans.iter().all(|plan| plan.summary.files == 0);
        let has_any = !report.plans.is_empty() || !report.scans.is_empty();
        let known = "None: no file of the inputs is fragmented, or planned for.";
        return if has_any && is_known {
            known
        } else {
            "Not in the inputs: a scan or a plan file says it."
        }
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

fn cost(report: &PageReport, run: Option<&Moved>) -> String {
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
    let plan = report.plans.first();
    if cut_off(report).is_some() {
        return "Not in the inputs: the end of the run says it.".into();
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

fn change(report: &PageReport, run: Option<&Moved>, measured: Option<&MeasurementPart>) -> String {
    let Some(run) = run else {
        return match (cut_off(report), report.runs.is_empty()) {
            (Some(moved), _) => moved,
            (None, true) => "Nothing yet: the inputs have no receipts.".into(),
            (None, false) if runs(report).any(|run| run.interrupted && run.moved_bytes > 0) => {
                "No range as a whole: what had moved when it was stopped stays where it is.".into()
            }
            (None, false) => "Nothing: no range was moved.".into(),
        };
    };
    let times = measured.and_then(|part| part.measurement.measured).map_or_else(
        || " Whether reads are quicker was not measured: fragmend auto does that.".to_owned(),
        |times| {
            let (before, after) = (seconds(times.seconds_before), seconds(times.seconds_after));
            format!(" The same reads last {after}, before {before} (measured).")
        },
    );
    let more = another_is_cut_off(report);
    let left = match run.ranges_left {
        0 => String::new(),
        left => format!(", {} not reached or not finished", count(left)),
    };
    format!(
        "{} moved, {} left alone{left}: in {} before, in {} now.{more}{times}",
        of(run.ranges_moved, "range", "ranges"),
        count(run.ranges_skipped),
        of(run.extents_before, "fragment", "fragments"),
        count(run.extents_after)
    )
}
