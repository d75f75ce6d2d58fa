//! From files and wishes to a plan: analyse, choose, explain, judge.

use crate::file::{
    Device, FORMAT, LeftAlone, Plan, PlannedFile, PlannedRange, SCHEMA_VERSION, Summary,
};
use crate::input::{FileInput, Policy, Settings};
use crate::merge;
use crate::pieces::Pieces;
use crate::readahead::Window;
use crate::requests::{self, Request, Shape};
use crate::select::{self, Analysed, Candidate};
use fragmend_layout::{ByteRange, Layout};
use rayon::prelude::*;
use std::cmp::Reverse;

/// Below this share of requests saved, mending is not worth it.
pub const WORTH_SHARE: f64 = 0.01;
/// No planned range is longer, in bytes.
const LONGEST_RANGE: u64 = 8 << 20;

/// Makes the plan. `devices` must list every device that `files` are on; `left_alone` is passed
/// through. Deterministic: files are planned in the order of their identity.
pub fn make(
    mut files: Vec<FileInput>,
    devices: Vec<Device>,
    left_alone: Vec<LeftAlone>,
    settings: &Settings,
) -> Plan {
    files.sort_by(|a, b| (a.layout.file, &a.path).cmp(&(b.layout.file, &b.path)));
    let traced = files.iter().any(|f| !f.accesses.is_empty());
    let accesses = files.iter().flat_map(|f| &f.accesses).map(|a| u64::from(a.count)).sum::<u64>();
    let mut cold: Vec<Vec<Request>> = Vec::new();
    let mut analysed: Vec<Analysed> =
        files.par_iter_mut().map(|file| analyse(file, traced, settings.unshare)).collect();
    if settings.hot_fraction < 1.0 {
        cold = cool(&mut analysed, settings.hot_fraction);
    }
    cold.resize_with(files.len(), Vec::new);

    let (chosen, over_budget_bytes) = choose(&analysed, settings);
    let mut moves: Vec<Vec<ByteRange>> = vec![Vec::new(); files.len()];
    for c in &chosen {
        moves[c.file].extend(short(c.range, &analysed[c.file], files[c.file].block_bytes));
    }
    moves.par_iter_mut().for_each(|m| m.sort_unstable());

    let outcome: Vec<Outcome> = (0..files.len())
        .into_par_iter()
        .map(|i| Outcome::of(&analysed[i], &cold[i], &moves[i]))
        .collect();
    let total = |of: fn(&Outcome) -> u64| outcome.iter().map(of).sum::<u64>();
    let shared = |of: fn(&FileInput, &[ByteRange]) -> u64| -> u64 {
        files.iter().zip(&moves).map(|(file, moves)| of(file, moves)).sum()
    };
    let mut summary = Summary {
        space_cost_bytes: shared(|file, moves| {
            moves.iter().map(|range| file.layout.shared_bytes(*range)).sum()
        }),
        left_shared_bytes: if settings.unshare { 0 } else { shared(|f, _| left_shared(f)) },
        bytes_to_move: moves.iter().flatten().map(|m| m.len()).sum(),
        ranges: moves.iter().map(|m| m.len() as u64).sum(),
        files: moves.iter().filter(|m| !m.is_empty()).count() as u64,
        files_considered: files.len() as u64,
        accesses,
        requests_before: total(|o| o.before),
        requests_after: total(|o| o.after),
        whole_file_bytes: total(|o| o.whole_file_bytes),
        over_budget_bytes,
        ..Summary::default()
    };
    judge(&mut summary, &devices, settings, traced);
    if !summary.worth && settings.policy == Policy::Gain {
        moves.iter_mut().for_each(Vec::clear);
        (summary.bytes_to_move, summary.ranges, summary.files) = (0, 0, 0);
        summary.space_cost_bytes = 0;
        summary.requests_after = summary.requests_before;
        (summary.saved_share, summary.file_system_share) = (0.0, 0.0);
    }
    let mut planned: Vec<(u64, PlannedFile)> = (0..files.len())
        .into_par_iter()
        .filter(|i| !moves[*i].is_empty())
        .map(|i| {
            let ranges = explain(&analysed[i], &files[i].layout, &moves[i], traced);
            let saved = ranges
                .iter()
                .map(|r| r.requests_before - r.requests_after.min(r.requests_before))
                .sum();
            let file = PlannedFile {
                path: files[i].path.as_path().into(),
                file: files[i].layout.file,
                size: files[i].layout.size,
                ranges,
            };
            (saved, file)
        })
        .collect();
    // What saves most comes first, so that an interrupted apply has done the best part.
    planned.sort_by_key(|(saved, file)| (Reverse(*saved), file.file));
    Plan {
        format: FORMAT.into(),
        schema_version: SCHEMA_VERSION,
        settings: settings.clone(),
        devices,
        summary,
        files: planned.into_iter().map(|(_, file)| file).collect(),
        left_alone,
    }
}

/// Bytes of a file that are shared, if it is fragmented.
fn left_shared(file: &FileInput) -> u64 {
    let everything = ByteRange { start: 0, end: u64::MAX };
    let fragmented = file.layout.breaks().next().is_some();
    if fragmented { file.layout.shared_bytes(everything) } else { 0 }
}

/// Cuts a range into steps that can each be done, or left, for itself: what an interrupted apply
/// has to do again is at most one of them, and so is the space that it must find in one piece.
/// Where two steps meet may become a break, so they meet where fewest accesses cross.
fn short(range: ByteRange, file: &Analysed, block: u64) -> Vec<ByteRange> {
    let mut rest = range;
    let mut steps = Vec::new();
    while rest.len() > LONGEST_RANGE {
        let latest = rest.start + LONGEST_RANGE;
        let half = ByteRange { start: rest.start + LONGEST_RANGE / 2, end: latest };
        let cut = file.crossings().quietest(half, block).unwrap_or(latest);
        steps.push(ByteRange { start: rest.start, end: cut });
        rest.start = cut;
    }
    steps.push(rest);
    steps
}

fn analyse(file: &mut FileInput, traced: bool, unshare: bool) -> Analysed {
    let shape = Shape {
        file_size: file.layout.size,
        block: file.block_bytes,
        window: Window {
            readahead: file.limits.readahead,
            max_request: file.limits.max_request,
            aligned: file.aligned_windows,
        },
    };
    // The accesses are the largest thing in memory: let go of them file by file.
    let accesses = std::mem::take(&mut file.accesses);
    let requests =
        if traced { requests::of(&accesses, shape) } else { requests::sequential(shape) };
    Analysed::of(requests, &file.layout, file.limits, file.block_bytes, unshare)
}

/// Keeps the hottest fraction of all windows (FragPicker section 4.1.3) and gives back, per
/// file, the requests of the others.
fn cool(files: &mut [Analysed], fraction: f64) -> Vec<Vec<Request>> {
    let mut heat: Vec<(Reverse<u64>, usize, usize)> = files
        .iter()
        .enumerate()
        .flat_map(|(i, f)| f.windows.iter().enumerate().map(move |(k, w)| (Reverse(w.seen), i, k)))
        .collect();
    heat.sort_unstable();
    let keep = (heat.len() as f64 * fraction.clamp(0.0, 1.0)).ceil() as usize;
    let mut hot: Vec<Vec<bool>> = files.iter().map(|f| vec![false; f.windows.len()]).collect();
    heat[..keep].iter().for_each(|(_, i, k)| hot[*i][*k] = true);
    files
        .iter_mut()
        .zip(hot)
        .map(|(file, hot)| {
            let part = |want: bool| -> Vec<Request> {
                let windows = file.windows.iter().zip(&hot).filter(|(_, h)| **h == want);
                windows.flat_map(|(w, _)| &file.requests[w.requests.clone()]).copied().collect()
            };
            let (kept, cold) = (part(true), part(false));
            file.windows = merge::windows(&kept);
            file.requests = kept;
            cold
        })
        .collect()
}

/// The chosen candidates, and the bytes of those that the budget left out.
fn choose(files: &[Analysed], settings: &Settings) -> (Vec<Candidate>, u64) {
    let bytes = |c: &[Candidate]| c.iter().map(|c| c.range.len()).sum::<u64>();
    let budget = settings.budget_bytes;
    let (wanted, chosen) = match settings.policy {
        Policy::Gain => {
            let price = select::gain::Price::per_mib(settings.min_gain_per_mib);
            let chosen = select::gain::choose(files, price, budget);
            let wanted = match budget {
                Some(_) => bytes(&select::gain::choose(files, price, None)),
                None => bytes(&chosen),
            };
            (wanted, chosen)
        }
        simple => {
            let all = match simple {
                Policy::WholeFile => select::whole_file::choose(files),
                Policy::Bypass => select::bypass::choose(files),
                _ => select::fragpicker::choose(files),
            };
            (bytes(&all), select::within_budget(all, budget))
        }
    };
    let left_out = wanted.saturating_sub(bytes(&chosen));
    (chosen, left_out)
}

/// One file's part in the summary.
struct Outcome {
    before: u64,
    after: u64,
    whole_file_bytes: u64,
}

impl Outcome {
    fn of(file: &Analysed, cold: &[Request], moves: &[ByteRange]) -> Self {
        let cost = |pieces: &Pieces| {
            let limit = file.limits.max_request;
            pieces.replay_cost(&file.requests, limit) + pieces.replay_cost(cold, limit)
        };
        let before = cost(&file.pieces);
        let after = if moves.is_empty() { before } else { cost(&file.pieces.after(moves)) };
        let fragmented = !file.breaks.is_empty();
        let whole = if fragmented { file.runs.iter().map(|r| r.len()).sum() } else { 0 };
        Self { before, after, whole_file_bytes: whole }
    }
}

/// Each range with its own figures and its reason.
fn explain(
    file: &Analysed,
    layout: &Layout,
    moves: &[ByteRange],
    traced: bool,
) -> Vec<PlannedRange> {
    let after = file.pieces.after(moves);
    moves
        .iter()
        .map(|range| {
            let extents = file.pieces.count(*range);
            let requests = || touching(file, *range);
            let seen: u64 = requests().map(|r| r.seen).sum();
            let limit = file.limits.max_request;
            let (before, now) =
                (file.pieces.replay_cost(requests(), limit), after.replay_cost(requests(), limit));
            let saved = file.crossings().gain(*range).max(0) as f64;
            let per_mib = saved / (range.len() as f64 / f64::from(1 << 20));
            let reason = if traced {
                format!(
                    "seen {seen} times in {extents} pieces; {saved:.0} requests saved, {per_mib:.0} per MiB moved"
                )
            } else {
                format!("{extents} pieces")
            };
            PlannedRange {
                offset: range.start,
                length: range.len(),
                extents,
                seen: if traced { seen } else { 0 },
                requests_before: before,
                requests_after: now,
                space_cost_bytes: layout.shared_bytes(*range),
                reason,
            }
        })
        .collect()
}

/// The requests that touch `range`: they are sorted by their start, and none is longer than the
/// longest.
fn touching(file: &Analysed, range: ByteRange) -> impl Iterator<Item = &Request> {
    let longest = file.longest_request;
    let first = file.requests.partition_point(|r| r.range.start + longest <= range.start);
    let rest = file.requests[first..].iter();
    rest.take_while(move |r| r.range.start < range.end).filter(move |r| r.range.overlaps(range))
}

/// Fills in the shares, and says whether it pays.
fn judge(summary: &mut Summary, devices: &[Device], settings: &Settings, traced: bool) {
    let saved = summary.requests_before.saturating_sub(summary.requests_after);
    let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    summary.saved_share = ratio(saved, summary.requests_before);
    summary.file_system_share =
        ratio(summary.bytes_to_move, devices.iter().map(|d| d.total_bytes).sum());
    summary.worth = summary.ranges > 0 && saved > 0 && summary.saved_share >= WORTH_SHARE;
    let what = if traced { "a replay of the trace" } else { "a sequential read of every file" };
    let (before, after) = (summary.requests_before, summary.requests_after);
    let rotational = devices.iter().any(|d| d.profile.rotational);
    summary.verdict = if summary.ranges == 0 && summary.over_budget_bytes > 0 {
        format!(
            "the budget fits nothing: {} bytes would be worth moving, range by range; raise --budget",
            summary.over_budget_bytes
        )
    } else if summary.files_considered == 0 {
        "not worth it: no file was considered".into()
    } else if summary.ranges == 0 && before == 0 {
        format!("not worth it: {what} costs no device request at all")
    } else if summary.ranges == 0 && settings.policy == Policy::Gain {
        format!(
            "not worth it: no range would save {} requests per MiB moved; {what} costs {before} requests as the files lie",
            settings.min_gain_per_mib
        )
    } else if summary.ranges == 0 {
        format!("not worth it: nothing that matters is fragmented; {what} costs {before} requests")
    } else if !summary.worth {
        format!(
            "not worth it: moving {} bytes would save only {saved} of {before} requests of {what}",
            summary.bytes_to_move
        )
    } else {
        let seeks = if rotational {
            "; the device seeks, where distance counts too: whole-file may do better"
        } else {
            ""
        };
        let unshares = match summary.space_cost_bytes {
            0 => String::new(),
            bytes => format!("; it would unshare {bytes} bytes, which takes as much space"),
        };
        format!(
            "worth it: {what} costs {before} requests now and {after} afterwards{seeks}{unshares}"
        )
    };
}
