//! The lines of text: what is watched, the load, the plan or its run, the keys.

use crate::run::{Offer, Phase, Progress};
use crate::state::{Period, Recorder, Scan, State};
use crate::theme::Theme;
use fragmend_layout::{CostSource, ObservedLoad, printable};
use fragmend_plan::Summary;
use fragmend_report::{Unit, human};
use ratatui::text::{Line, Span};

fn bytes(value: u64) -> String {
    human(value as f64, Unit::Bytes)
}

fn seconds(value: f64) -> String {
    human(value, Unit::Seconds)
}

/// What is watched, and what is known of its files.
pub fn title(state: &State, theme: Theme) -> Line<'static> {
    let files = match state.scan {
        Scan::Running(files) => format!("reading layouts: {files} files  "),
        Scan::Done { files, fragmented } => format!("{fragmented} of {files} files fragmented  "),
    };
    // The path last: it may be longer than the line.
    Line::from(vec![
        Span::styled("fragmend top  ", theme.strong()),
        Span::raw(files),
        Span::raw(state.title.clone()),
    ])
}

/// What disks do, the pressure, and what recording costs.
pub fn load(state: &State, theme: Theme) -> Line<'static> {
    let period = match (&state.recorder, &state.period) {
        (Recorder::Failed(why), _) => {
            let text = format!("not recording: {}", printable(why));
            return Line::styled(text, theme.alert());
        }
        (Recorder::Attaching, _) => return "attaching the recorder ...".into(),
        (Recorder::Attached, None) => return "recording ...".into(),
        (Recorder::Attached, Some(period)) => period,
    };
    let pressure = match state.pressure {
        Some(share) => format!("psi io {:.0} %", share * 100.0),
        None => "psi io not reported".into(),
    };
    let disks = period.loads.iter().map(|load| disk(load, period));
    let disks: Vec<String> = [pressure].into_iter().chain(disks).collect();
    let mut spans: Vec<Span<'_>> = Vec::new();
    spans.extend(warning(period).map(|text| Span::styled(text, theme.alert())));
    spans.push(Span::raw(disks.join("; ")));
    spans.into()
}

/// A disk: requests a second, the mean time of each, and how many were in flight on average (Little's law). Reads are counted by
/// the disk itself; times, and writes, were seen while it was watched.
fn disk(load: &ObservedLoad, period: &Period) -> String {
    let of = |write: bool| {
        let of_kind = load.requests.iter().filter(|r| r.write == write);
        of_kind.fold((0u64, 0u64), |(count, ns), r| {
            (count.saturating_add(r.count), ns.saturating_add(r.total_ns))
        })
    };
    let (reads, writes) = (of(false), of(true));
    let name = printable(&load.name);
    let counted = load.counted_reads.map(|reads| reads as f64 / period.seconds);
    if period.watched <= 0.0 {
        let reads = counted.map_or("?".into(), |rate| human(rate, Unit::Count));
        return format!("{name}: {reads} r/s");
    }
    let part = |(count, ns): (u64, u64), rate: f64, name: &str| {
        let each = human(ns as f64 / count.max(1) as f64 / 1e9, Unit::Seconds);
        let each = if count == 0 { String::new() } else { format!(" of {each}") };
        format!("{} {name}{each}", human(rate, Unit::Count))
    };
    let watched = |count: u64| count as f64 / period.watched;
    let read = part(reads, counted.unwrap_or(watched(reads.0)), "r/s");
    let written = part(writes, watched(writes.0), "w/s");
    let in_flight = reads.1.saturating_add(writes.1) as f64 / 1e9 / period.watched;
    format!("{name}: {read}, {written}, depth {in_flight:.1}")
}

/// What is not seen of the period.
fn warning(period: &Period) -> Option<String> {
    let mut parts = Vec::new();
    if period.lost > 0 {
        parts.push(format!("{} accesses lost; ", period.lost));
    }
    if period.places < 0.9995 {
        parts.push(format!("{:.1} % of places seen; ", period.places * 100.0));
    }
    (!parts.is_empty()).then(|| parts.concat())
}

/// The plan, or the run: three lines at most.
pub fn plan(state: &State, theme: Theme, width: u16) -> Vec<Line<'static>> {
    if state.phase != Phase::Idle {
        return progress(&state.progress, state.phase, theme, width);
    }
    let Some(offer) = &state.offer else {
        return vec![Line::from(vec![
            Span::styled("plan: ", theme.strong()),
            Span::raw("not yet; it is made from what programs read from the device"),
        ])];
    };
    let verdict = printable(&offer.plan.summary.verdict).to_string();
    let head = Span::styled("plan: ", theme.strong());
    vec![Line::from(vec![head, Span::raw(verdict)]), Line::raw(basis(offer))]
}

/// What the predictions are made from.
fn basis(offer: &Offer) -> String {
    let recorded = seconds(offer.recorded.as_secs_f64());
    format!("(predicted for what was recorded in {recorded}, {})", costs(&offer.plan.summary))
}

/// Where the costs come from.
pub fn costs(summary: &Summary) -> &'static str {
    match summary.cost_source {
        Some(CostSource::Probed) => "by costs that were probed",
        Some(CostSource::Observed) => "by costs that were observed meanwhile",
        Some(CostSource::Guessed) => "by costs that are guessed: see fragmend probe",
        None => "by costs that are not known",
    }
}

fn progress(progress: &Progress, phase: Phase, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let Progress { total, done, moved, .. } = *progress;
    let cells = usize::from(width.saturating_sub(2)).min(60);
    let full = (done as u128 * cells as u128).checked_div(total.into()).unwrap_or(0) as usize;
    let bar = format!("[{}{}]", "#".repeat(full), ".".repeat(cells - full));
    let pace = progress.pace().map_or("-".into(), |pace| format!("{}/s", human(pace, Unit::Bytes)));
    let left = match (phase, progress.left()) {
        (Phase::Running, Some(left)) => format!(", {} left", seconds(left)),
        _ => String::new(),
    };
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    vec![
        Line::from(vec![
            Span::styled(format!("{}: ", phase.name()), theme.strong()),
            Span::raw(format!("{} of {} done, {} moved", bytes(done), bytes(total), bytes(moved))),
        ]),
        Line::raw(format!("{bar} {}", human(share, Unit::Share))),
        Line::raw(format!("pace {pace}{left}")),
    ]
}

/// The last thing that a person should read.
pub fn notice(state: &State, theme: Theme) -> Line<'static> {
    if state.quitting {
        return Line::styled("ending at the next safe point ...", theme.alert());
    }
    Line::styled(printable(&state.notice).to_string(), theme.alert())
}

/// The keys that do something now.
pub fn keys(state: &State, theme: Theme) -> Line<'static> {
    let run: &[(&str, &str)] = match state.phase {
        Phase::Idle => &[("s", "start")],
        Phase::Running => &[("p", "pause"), ("x", "stop")],
        Phase::Pausing => &[("x", "stop")],
        Phase::Paused => &[("r", "resume"), ("x", "stop")],
        Phase::Stopping => &[],
    };
    let always = [("o", "sort"), ("up/down", "select"), ("?", "help"), ("q", "quit")];
    let mut spans = Vec::new();
    for (key, what) in run.iter().chain(&always) {
        spans.push(Span::styled((*key).to_owned(), theme.strong()));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    spans.into()
}
