//! From a survey and settings to a plan: analyse, choose, explain, decide whether it is worth it.

use crate::bounded::Bounds;
use crate::file::{Device, FORMAT, Plan, PlannedFile, PlannedRange, Summary};
use crate::fit;
use crate::fragments::Fragments;
use crate::input::{Policy, Settings};
use crate::merge;
use crate::requests::{self, Request, Shape};
use crate::select::{self, Analysed, Candidate};
use crate::source::{LARGEST_FILE, MOST_RANGES};
use crate::survey::{Survey, SurveyedFile};
use fragmend_layout::{ByteRange, FileId, Layout, schema};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Below this share of requests saved, mending is not worth it.
pub const WORTH_SHARE: f64 = 0.01;
/// The longest planned range, in bytes.
const LONGEST_RANGE: u64 = 8 << 20;

/// The part of a surveyed file that is kept once it has been analysed.
struct Kept {
    path: PathBuf,
    file: FileId,
    size: u64,
    block_bytes: u64,
    /// The part of its layout that is shared with others: it shows how much space a copy of its own would need.
    shared: Layout,
}

impl Kept {
    /// The blocks that the file had when its size was read: it may have grown while its extents were read, or
    /// may have space behind its end.
    fn within(&self) -> ByteRange {
        ByteRange { start: 0, end: self.size.next_multiple_of(self.block_bytes) }
    }
}

/// Makes the plan for a survey, whose [`Survey::devices`] must list every device of its files. Deterministic:
/// files are planned in the order of their identity.
pub fn make(survey: Survey, settings: &Settings) -> Plan {
    let Survey { mut files, devices, left_alone } = survey;
    files.sort_by(|a, b| (a.layout.file, &a.path).cmp(&(b.layout.file, &b.path)));
    merge_same(&mut files);
    let traced = files.iter().any(|f| !f.accesses.is_empty());
    let accesses = files.iter().flat_map(|f| &f.accesses).map(|a| u64::from(a.count)).sum::<u64>();
    // Accesses and extents need most of the memory: they are freed file by file.
    let (kept, mut analysed): (Vec<Kept>, Vec<Analysed>) =
        files.into_par_iter().map(|file| analyse(file, traced, settings.unshare)).unzip();
    let mut cold: Vec<Vec<Request>> = Vec::new();
    if settings.hot_fraction < 1.0 {
        cold = cool(&mut analysed, settings.hot_fraction);
    }
    cold.resize_with(kept.len(), Vec::new);

    let (chosen, over_budget_bytes) = choose(&analysed, settings);
    let mut moves = moves(&chosen, &kept, &analysed);
    let mut summary = Summary {
        accesses,
        over_budget_bytes,
        left_shared_bytes: if settings.unshare {
            0
        } else {
            kept.iter().zip(&analysed).map(|(f, a)| left_shared(f, a)).sum()
        },
        ..sum_up(&kept, &analysed, &cold, &moves)
    };
    judge(&mut summary, &devices, settings, traced);
    if !summary.worth && settings.policy == Policy::Gain {
        moves.iter_mut().for_each(Vec::clear);
        (summary.bytes_to_move, summary.ranges, summary.files) = (0, 0, 0);
        summary.space_cost_bytes = 0;
        summary.requests_after = summary.requests_before;
        (summary.saved_share, summary.file_system_share) = (0.0, 0.0);
    }
    let mut plan = Plan {
        format: FORMAT.into(),
        schema_version: schema::PLAN_FILE,
        settings: settings.clone(),
        devices,
        summary,
        files: entries(kept, analysed, moves, traced),
        left_alone,
    };
    if fit::fit(&mut plan, LARGEST_FILE) {
        judge(&mut plan.summary, &plan.devices, settings, traced);
    }
    plan
}

/// The ranges to move of each file, in file order.
fn moves(chosen: &[Candidate], files: &[Kept], analysed: &[Analysed]) -> Vec<Vec<ByteRange>> {
    let mut moves: Vec<Vec<ByteRange>> = vec![Vec::new(); files.len()];
    for c in chosen {
        let (file, block) = (&analysed[c.file], files[c.file].block_bytes);
        let range = c.range.intersect(files[c.file].within());
        moves[c.file].extend(short(range, file, block).into_iter().filter(|r| !r.is_empty()));
    }
    moves.par_iter_mut().for_each(|m| m.sort_unstable());
    moves
}

/// The summary of the moves, without a verdict.
fn sum_up(
    files: &[Kept],
    analysed: &[Analysed],
    cold: &[Vec<Request>],
    moves: &[Vec<ByteRange>],
) -> Summary {
    let outcome: Vec<FileRequests> = (0..files.len())
        .into_par_iter()
        .map(|i| FileRequests::of(&analysed[i], &cold[i], &moves[i]))
        .collect();
    let total = |figure: fn(&FileRequests) -> u64| outcome.iter().map(figure).sum::<u64>();
    let space_cost = |(file, moves): (&Kept, &Vec<ByteRange>)| -> u64 {
        moves.iter().map(|range| file.shared.shared_bytes(*range)).sum()
    };
    Summary {
        space_cost_bytes: files.iter().zip(moves).map(space_cost).sum(),
        bytes_to_move: moves.iter().flatten().map(|m| m.len()).sum(),
        ranges: moves.iter().map(|m| m.len() as u64).sum(),
        files: moves.iter().filter(|m| !m.is_empty()).count() as u64,
        files_considered: files.len() as u64,
        requests_before: total(|o| o.before),
        requests_after: total(|o| o.after),
        whole_file_bytes: total(|o| o.whole_file_bytes),
        ..Summary::default()
    }
}

/// The planned files. Those that save most come first, so that an interrupted apply has done the best part.
fn entries(
    files: Vec<Kept>,
    analysed: Vec<Analysed>,
    moves: Vec<Vec<ByteRange>>,
    traced: bool,
) -> Vec<PlannedFile> {
    // File by file, so that the memory of each analysis is freed before the next file is planned.
    let mut planned: Vec<(u64, PlannedFile)> = (files, analysed, moves)
        .into_par_iter()
        .filter(|(_, _, moves)| !moves.is_empty())
        .flat_map_iter(|(kept, analysed, moves)| {
            let ranges = explain(&analysed, &kept.shared, &moves, traced);
            let saved = ranges
                .iter()
                .map(|r| r.requests_before - r.requests_after.min(r.requests_before))
                .sum();
            let file = move |ranges: &[PlannedRange]| PlannedFile {
                path: kept.path.as_path().into(),
                file: kept.file,
                size: kept.size,
                ranges: ranges.to_vec(),
            };
            // No entry has more ranges than its reader accepts; a file may have several entries.
            let entries = ranges.chunks(MOST_RANGES).map(file).collect::<Vec<_>>();
            entries.into_iter().map(move |file| (saved, file))
        })
        .collect();
    planned.sort_by_key(|(saved, file)| (Reverse(*saved), file.file));
    planned.into_iter().map(|(_, file)| file).collect()
}

/// Joins the entries of each file into one, under its first name: a file that was renamed while files were
/// listed may have been seen under both names.
fn merge_same(files: &mut Vec<SurveyedFile>) {
    files.dedup_by(|again, first| {
        let same = again.layout.file == first.layout.file;
        if same {
            first.accesses.append(&mut again.accesses);
        }
        same
    });
}

/// Bytes on the device that a file shares with others, if it is fragmented.
fn left_shared(file: &Kept, analysed: &Analysed) -> u64 {
    let everything = ByteRange { start: 0, end: u64::MAX };
    if analysed.breaks.is_empty() { 0 } else { file.shared.shared_bytes(everything) }
}

/// Cuts a range into steps each of which can be moved, or left, by itself: an interrupted apply repeats at most
/// one of them, and needs a free extent for one of them only. The boundary of two steps may become a break, so
/// it is where the fewest accesses cross.
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

fn analyse(file: SurveyedFile, traced: bool, unshare: bool) -> (Kept, Analysed) {
    let SurveyedFile { path, layout, accesses, block_bytes, limits, window } = file;
    let shape = Shape { file_size: layout.size, block: block_bytes, window };
    let requests = if traced {
        requests::of(&accesses, shape, &Bounds::of(&layout, window))
    } else {
        requests::sequential(&layout, shape)
    };
    let analysed = Analysed::of(requests, &layout, limits, block_bytes, unshare);
    let (file, size, shared) = (layout.file, layout.size, layout.shared());
    (Kept { path, file, size, block_bytes, shared }, analysed)
}

/// Keeps the hottest fraction of all windows (FragPicker section 4.1.3) and returns, per file, the requests of
/// the others.
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
    let cut = |all: Vec<Candidate>| (bytes(&all), select::within_budget(all, budget));
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
        Policy::WholeFile => cut(select::whole_file::choose(files)),
        Policy::Bypass => cut(select::bypass::choose(files)),
        Policy::Fragpicker => cut(select::fragpicker::choose(files)),
    };
    let left_out = wanted.saturating_sub(bytes(&chosen));
    (chosen, left_out)
}

/// One file's part in the summary.
struct FileRequests {
    before: u64,
    after: u64,
    whole_file_bytes: u64,
}

impl FileRequests {
    fn of(file: &Analysed, cold: &[Request], moves: &[ByteRange]) -> Self {
        let cost = |fragments: &Fragments| {
            let limit = file.limits.max_request;
            fragments.replay_cost(&file.requests, limit) + fragments.replay_cost(cold, limit)
        };
        let before = cost(&file.fragments);
        let after = if moves.is_empty() { before } else { cost(&file.fragments.after(moves)) };
        let fragmented = !file.breaks.is_empty();
        let whole = if fragmented { file.runs.iter().map(|r| r.len()).sum() } else { 0 };
        Self { before, after, whole_file_bytes: whole }
    }
}

/// The planned ranges, each with its own figures and its reason.
fn explain(
    file: &Analysed,
    shared: &Layout,
    moves: &[ByteRange],
    traced: bool,
) -> Vec<PlannedRange> {
    let after = file.fragments.after(moves);
    moves
        .iter()
        .map(|range| {
            let fragments = file.fragments.count(*range);
            let requests = || touching(file, *range);
            let seen: u64 = requests().map(|r| r.seen).sum();
            let limit = file.limits.max_request;
            let (before, now) =
                (file.fragments.replay_cost(requests(), limit), after.replay_cost(requests(), limit));
            let saved = file.crossings().gain(*range).max(0) as f64;
            let per_mib = saved / (range.len() as f64 / f64::from(1 << 20));
            let reason = if traced {
                format!(
                    "seen {seen} times in {fragments} fragments; {saved:.0} requests saved, {per_mib:.0} per MiB moved"
                )
            } else {
                format!("{fragments} fragments")
            };
            PlannedRange {
                offset: range.start,
                length: range.len(),
                extents: fragments,
                seen: if traced { seen } else { 0 },
                requests_before: before,
                requests_after: now,
                space_cost_bytes: shared.shared_bytes(*range),
                reason,
            }
        })
        .collect()
}

/// The requests that touch `range`. They are sorted by their start, and the longest one limits how far to look
/// back.
fn touching(file: &Analysed, range: ByteRange) -> impl Iterator<Item = &Request> {
    let longest = file.longest_request;
    let first = file.requests.partition_point(|r| r.range.start + longest <= range.start);
    let rest = file.requests[first..].iter();
    rest.take_while(move |r| r.range.start < range.end).filter(move |r| r.range.overlaps(range))
}

/// Sets the shares, and the verdict on whether the plan is worth it.
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
            "not worth it: no range would save {} requests per MiB moved; {what} costs {before} requests as the files are",
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
            bytes => format!("; it would unshare {bytes} bytes, which needs as much space"),
        };
        format!(
            "worth it: {what} costs {before} requests now and {after} afterwards{seeks}{unshares}"
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{DeviceLimits, Extent, ExtentKind};

    #[test]
    fn a_file_that_grew_while_it_was_looked_at_has_a_plan_that_can_be_read() {
        for size in [1, 10_000, 12_288] {
            let id = FileId { device: 7, inode: 12, generation: 1 };
            let mut layout = Layout::new(id, size);
            for n in 0..8 {
                let (logical, physical) = (n * 4096, (100 - 2 * n) * 4096);
                layout.push(Extent { logical, physical, length: 4096, kind: ExtentKind::Data });
            }
            let file = SurveyedFile {
                path: "/mnt/log".into(),
                layout,
                accesses: Vec::new(),
                limits: DeviceLimits {
                    largest_extent: 1 << 27,
                    readahead: 1 << 17,
                    max_request: 1 << 20,
                },
                block_bytes: 4096,
                window: crate::readahead::Window::of(&fragmend_layout::DeviceProfile::unknown()),
            };
            let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
            let survey =
                Survey { files: vec![file], devices: vec![Device::example()], ..Survey::default() };
            let plan = make(survey, &settings);
            let ends: Vec<u64> = plan.files[0].ranges.iter().map(|r| r.offset + r.length).collect();
            assert_eq!(ends, [size.next_multiple_of(4096)]);
        }
    }
}
