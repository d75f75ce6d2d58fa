//! From a survey and settings to a plan: analyse, choose, explain, decide whether it is worth it.

use crate::between::Between;
use crate::bounded::Bounds;
use crate::choose::by_file;
use crate::chosen::Chosen;
use crate::costs::{Costs, OneMore, Timed};
use crate::curve::{CurvePoint, curve};
use crate::depth::Observed;
use crate::explain::entries;
use crate::file::{Device, FORMAT, Plan, Summary};
use crate::fit;
use crate::fragments::Bill;
use crate::in_order::one_thread;
use crate::input::{Basis, Policy, Settings};
use crate::losses::{self, FileLoss};
use crate::outlook::{Outlook, weigh};
use crate::parallel;
use crate::requests::{self, Request, Shape};
use crate::select::iodp::{self, Places, Priorities};
use crate::select::{Analysed, Candidate, segments};
use crate::slow::{self, Losses};
use crate::source::LARGEST_FILE;
use crate::survey::{Survey, SurveyedFile};
use crate::turns;
use crate::unseen;
use crate::verdict::{Case, Thinned, judge};
use crate::ways::{Head, Ways};
use crate::wear::wear;
use fragmend_layout::{
    ByteRange, CostSource, FileId, FsKind, Layout, ObservedLoad, ParallelUnits, SegmentTable,
    schema,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The least bytes of a place that a recorder takes ([`Part`](crate::Part)).
const LEAST_PLACE: u64 = 1 << 20;
/// The most reasons that a summary has why costs are not those of a better source: a file system may have any number of
/// subvolumes, each a device.
const MOST_NOTES: usize = 4;
/// Why the ways between reads are not counted on a disk.
const NO_ORDER: &str = "the order of the accesses is not known, so that the way from one read to the next is not counted";
/// The same, where most of what the disk did between the reads of a trace is not in it.
const OTHERS: &str = "other programs read the disk meanwhile, so that the way from one read to the next is not known, and not counted";
/// The longest planned range, in bytes.
pub const LONGEST_RANGE: u64 = 8 << 20;

/// The part of a surveyed file that is kept once it has been analysed.
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// Which one.
    pub file: FileId,
    /// Its size in bytes.
    pub size: u64,
    block_bytes: u64,
    /// The part of its layout that is shared with others: it shows how much space a copy of its own would need.
    pub shared: Layout,
}

impl Kept {
    /// The blocks that the file had when its size was read: it may have grown while its extents were read, or
    /// may have space behind its end.
    fn within(&self) -> ByteRange {
        ByteRange { start: 0, end: self.size.next_multiple_of(self.block_bytes) }
    }
}

/// Adds to what is noted of the costs.
fn add_note(summary: &mut Summary, note: &str) {
    let notes = summary.cost_note.take().into_iter().chain([note.to_owned()]);
    summary.cost_note = Some(notes.collect::<Vec<_>>().join("; "));
}

/// Makes the plan for a survey, whose [`Survey::devices`] must list every device of its files. Deterministic:
/// files are planned in the order of their identity.
pub fn make(survey: Survey, settings: &Settings) -> Plan {
    with_curve(survey, settings, false).0
}

/// The same, with the curve of bytes against time if `wanted`: it needs as long again as the plan.
pub fn with_curve(survey: Survey, settings: &Settings, wanted: bool) -> (Plan, Vec<CurvePoint>) {
    let Made { plan, curve, .. } = made(survey, settings, Beside { curve: wanted, losses: false });
    (plan, curve)
}

/// The same, with what each file loses, whether or not anything of it is to be moved.
pub fn with_losses(survey: Survey, settings: &Settings) -> (Plan, Vec<FileLoss>) {
    let Made { plan, losses, .. } = made(survey, settings, Beside { curve: false, losses: true });
    (plan, losses)
}

/// What is wanted beside a plan.
struct Beside {
    curve: bool,
    losses: bool,
}

/// A plan, and what was wanted beside it.
struct Made {
    plan: Plan,
    curve: Vec<CurvePoint>,
    losses: Vec<FileLoss>,
}

fn made(survey: Survey, settings: &Settings, wanted: Beside) -> Made {
    let thinned = Thinned::of(&survey);
    let place_bytes = survey.part.map_or(LEAST_PLACE, |part| part.place_bytes.max(LEAST_PLACE));
    let Survey { mut files, devices, left_alone, misses, loads, ordered, .. } = survey;
    merge_same(&mut files);
    let cleaning = cleaning(&files, &survey.segments, settings);
    let traced = misses || files.iter().any(|f| !f.accesses.is_empty());
    let basis = Basis::of(traced, misses, settings.assume_cold);
    let accesses = files.iter().flat_map(|f| &f.accesses).map(|a| u64::from(a.count)).sum();
    let one_thread = one_thread(&files, basis, ordered);
    let mut costs = costs_of(&devices, &loads, &survey.timed, &one_thread, settings);
    let units = units_of(&devices, settings.policy);
    // Accesses and extents need most of the memory: they are freed file by file.
    let both = parallel::map_owned(files, |file| {
        let costs = costs[&file.layout.file.device].clone();
        let units = units.get(&file.layout.file.device).copied();
        analyse(file, basis, settings, costs, units)
    });
    let (kept, mut analysed): (Vec<Kept>, Vec<Analysed>) = both.into_iter().unzip();
    let others = Observed { loads, recorded: survey.recorded, misses }.enter(
        &mut costs,
        &kept,
        &mut analysed,
    );
    analysed.iter_mut().filter(|f| !f.slow.is_empty()).for_each(|f| f.slow = slow::weigh(f));

    let spaces = address_spaces(&devices);
    let between = Between::of(&mut analysed, |i| spaces[&kept[i].file.device]);
    let cleaned = cleaning.as_ref().map(|cleaning| cleaning.figures.clone());
    let chosen = cleaning.map(|cleaning| Chosen::of_segments(cleaning, analysed.len()));
    let Chosen { ranges, over_budget_bytes, cold, left_to_chance } =
        chosen.unwrap_or_else(|| Chosen::of(&mut analysed, &between, settings, place_bytes));
    let curve = if wanted.curve { curve(&analysed, &between) } else { Vec::new() };
    let mut moves = moves(&ranges, &kept, &analysed);
    let outlooks = parallel::map(kept.len(), |i| outlook(&analysed[i], &cold[i]));
    let losses = if wanted.losses { losses::of(&kept, &analysed, &outlooks) } else { Vec::new() };
    let mut summary = Summary {
        accesses,
        over_budget_bytes,
        basis: Some(basis),
        left_shared_bytes: left_shared(&kept, &analysed, settings),
        segments: cleaned,
        priorities: priorities(&analysed, settings),
        ..sum_up(&kept, &analysed, &between, &outlooks, &cold, &moves)
    };
    unseen::enter(&mut summary, &analysed, &moves);
    sources(&mut summary, &devices, &costs, &kept, &outlooks);
    if basis.is_traced() && costs.values().any(|c| c.seeks()) {
        note_order(&mut summary, ordered, others);
    }
    was_timed(&mut summary, survey.timed);
    let beside = analysed.iter().map(unseen::outlook).chain([between.outlook(&analysed)]);
    let case = Case {
        outlook: beside.chain(outlooks).sum(),
        basis,
        min_gain_s_per_gib: summary.min_gain_s_per_gib,
        left_out: left_alone.len() as u64 + survey.unread,
        thinned,
        left_to_chance,
    };
    let file_systems_bytes = devices.iter().map(|d| d.total_bytes).sum();
    judge(&mut summary, &case, file_systems_bytes);
    if !summary.worth && settings.policy == Policy::Gain {
        nothing_moves(&mut summary, &mut moves);
    }
    let mut plan = Plan {
        format: FORMAT.into(),
        schema_version: schema::PLAN_FILE,
        settings: settings.clone(),
        devices,
        summary,
        files: entries(kept, analysed, moves, (traced, settings.policy)),
        left_alone,
    };
    let wear = |plan: &Plan| wear(&survey.drives, &plan.files, settings.rated_writes_bytes);
    (plan.summary.rated_share, plan.summary.wear) = wear(&plan);
    if fit::fit(&mut plan, LARGEST_FILE) {
        // They were of all files.
        plan.summary.segments = None;
        judge(&mut plan.summary, &case, file_systems_bytes);
        (plan.summary.rated_share, plan.summary.wear) = wear(&plan);
    }
    Made { plan, curve, losses }
}

/// What moves out of segments, by the policy for them.
fn cleaning(
    files: &[SurveyedFile],
    tables: &BTreeMap<u64, SegmentTable>,
    settings: &Settings,
) -> Option<segments::Choice> {
    let is_wanted = settings.policy == Policy::Segments;
    is_wanted.then(|| segments::choose(files, tables, settings.budget_bytes))
}

/// What priorities were made of, by the policy for them.
fn priorities(analysed: &[Analysed], settings: &Settings) -> Option<Priorities> {
    let is_wanted = settings.policy == Policy::Iodp;
    is_wanted.then(|| iodp::choose(analysed, settings.truncated()).1)
}

/// One replay of a file's requests, cold ones too.
fn outlook(file: &Analysed, cold: &[Request]) -> Outlook {
    let mut outlook = file.crossings().outlook();
    outlook += weigh(file, cold, |_| {});
    outlook += Outlook::of_ways(Bill::way(file.ways.now_ns()), file.ways_ns(&file.runs));
    outlook += file.slow.outlook();
    outlook
}

/// What reads cost on each device, one after the other.
fn costs_of(
    devices: &[Device],
    loads: &BTreeMap<u64, ObservedLoad>,
    timed: &Timed,
    one_thread: &BTreeSet<u64>,
    settings: &Settings,
) -> BTreeMap<u64, Arc<Costs>> {
    let of = |d: &Device| {
        let costs = Costs::of(d, loads.get(&d.device), settings);
        let one_more = timed.one_more.get(&d.device).copied();
        let one_thread = one_thread.contains(&d.device);
        (d.device, Arc::new(Costs { one_more, one_thread, ..costs }))
    };
    devices.iter().map(of).collect()
}

/// Of each device of which they are known, the units that work side by side, where they are asked for.
fn units_of(devices: &[Device], policy: Policy) -> BTreeMap<u64, ParallelUnits> {
    let wanted = devices.iter().filter(|_| policy == Policy::Iodp);
    wanted.filter_map(|d| Some((d.device, d.profile.parallel_units?))).collect()
}

/// Of each device, the first whose places are the same: the subvolumes of a Btrfs have a number each.
fn address_spaces(devices: &[Device]) -> BTreeMap<u64, u64> {
    let mut first = BTreeMap::new();
    let of = |d: &Device| match d.file_system {
        FsKind::Btrfs => *first.entry((d.profile.name.clone(), d.total_bytes)).or_insert(d.device),
        _ => d.device,
    };
    devices.iter().map(of).zip(devices).map(|(space, d)| (d.device, space)).collect()
}

/// Puts into the summary where its costs come from.
fn sources(
    summary: &mut Summary,
    devices: &[Device],
    costs: &BTreeMap<u64, Arc<Costs>>,
    kept: &[Kept],
    outlooks: &[Outlook],
) {
    let certainty = |source: CostSource| match source {
        CostSource::Guessed => 0,
        CostSource::Observed => 1,
        CostSource::Probed => 2,
    };
    summary.cost_source = costs.values().map(|c| c.model.source).min_by_key(|s| certainty(*s));
    let notes = devices.iter().flat_map(|d| {
        let name = &d.profile.name;
        let observed = costs[&d.device].undetermined;
        let observed =
            observed.map(|why| format!("what {name} answered does not say what reads cost: {why}"));
        let probed =
            d.profile.cost_note.as_ref().map(|why| format!("{name} was probed, but {why}"));
        [probed, observed]
    });
    let notes: Vec<String> = notes.flatten().take(MOST_NOTES).collect();
    summary.cost_note = (!notes.is_empty()).then(|| notes.join("; "));
    summary.min_gain_s_per_gib = costs.values().map(|c| c.min_gain_s_per_gib).fold(0.0, f64::max);
    summary.depth_seen = !costs.is_empty() && costs.values().all(|c| c.depth_seen);
    let (mut depth, mut weight) = (0.0, 0.0);
    for (file, outlook) in kept.iter().zip(outlooks) {
        depth += costs[&file.file.device].depth * outlook.now.seconds();
        weight += outlook.now.seconds();
    }
    summary.depth = if weight > 0.0 {
        depth / weight
    } else {
        costs.values().map(|c| c.depth).fold(1.0, f64::max)
    };
}

/// Puts into the summary why the ways between reads are not counted.
fn note_order(summary: &mut Summary, ordered: bool, others: bool) {
    match (ordered, others) {
        (false, _) => add_note(summary, NO_ORDER),
        (true, true) => add_note(summary, OTHERS),
        (true, false) => {}
    }
}

/// Puts into the summary what one more request costs where the data is, or why that is not known.
fn was_timed(summary: &mut Summary, timed: Timed) {
    if let Some(why) = timed.why_not {
        add_note(summary, &format!("the recorded reads could not be timed: {why}"));
    }
    if let Some(OneMore { ns, reads }) = timed.one_more.into_values().next() {
        (summary.one_more_request_ns, summary.timed_reads) = (Some(ns), Some(reads));
    }
}

/// Corrects a plan that moves nothing after all.
fn nothing_moves(summary: &mut Summary, moves: &mut [Vec<ByteRange>]) {
    moves.iter_mut().for_each(Vec::clear);
    (summary.bytes_to_move, summary.ranges, summary.files) = (0, 0, 0);
    (summary.space_cost_bytes, summary.slow_bytes) = (0, 0);
    summary.requests_after = summary.requests_before;
    summary.seconds_after = summary.seconds_before;
    summary.unseen_seconds_saved = 0.0;
    (summary.seconds_saved, summary.saved_share, summary.file_system_share) = (0.0, 0.0, 0.0);
}

/// The ranges to move of each file, in file order.
fn moves(chosen: &[Candidate], files: &[Kept], analysed: &[Analysed]) -> Vec<Vec<ByteRange>> {
    let cut = |c: &Candidate| {
        let c = *c;
        let (file, block) = (&analysed[c.file], files[c.file].block_bytes);
        let steps = short(c.range.intersect(files[c.file].within()), file, block);
        steps.into_iter().filter(|r| !r.is_empty()).map(move |range| Candidate { range, ..c })
    };
    let cut: Vec<Candidate> = chosen.iter().flat_map(cut).collect();
    by_file(files.len(), &cut)
}

/// The summary of the moves, without a verdict.
fn sum_up(
    files: &[Kept],
    analysed: &[Analysed],
    between: &Between,
    outlooks: &[Outlook],
    cold: &[Vec<Request>],
    moves: &[Vec<ByteRange>],
) -> Summary {
    let after = |i: usize| after(&analysed[i], outlooks[i].now, &cold[i], &moves[i]);
    let (mut after, mut before): (Bill, Bill) =
        (parallel::map(files.len(), after).into_iter().sum(), outlooks.iter().map(|o| o.now).sum());
    before += Bill::way(between.now_ns());
    after += Bill::way(between.after_ns(analysed, moves));
    let space_cost = |(file, moves): (&Kept, &Vec<ByteRange>)| -> u64 {
        moves.iter().map(|range| file.shared.shared_bytes(*range)).sum()
    };
    let whole = |file: &&Analysed| !file.breaks.is_empty();
    let whole = analysed.iter().filter(whole).flat_map(|file| &file.runs).map(|r| r.len());
    let slow = |(file, moves): (&Analysed, &Vec<ByteRange>)| -> u64 {
        moves.iter().filter(|range| file.slow_place(**range).is_some()).map(|r| r.len()).sum()
    };
    Summary {
        slow_bytes: analysed.iter().zip(moves).map(slow).sum(),
        space_cost_bytes: files.iter().zip(moves).map(space_cost).sum(),
        bytes_to_move: moves.iter().flatten().map(|m| m.len()).sum(),
        ranges: moves.iter().map(|m| m.len() as u64).sum(),
        files: moves.iter().filter(|m| !m.is_empty()).count() as u64,
        files_considered: files.len() as u64,
        requests_before: before.requests,
        requests_after: after.requests,
        seconds_before: before.seconds(),
        seconds_after: after.seconds(),
        whole_file_bytes: whole.sum(),
        ..Summary::default()
    }
}

/// What one replay costs once `moves` are contiguous, if it costs `before` now.
fn after(file: &Analysed, before: Bill, cold: &[Request], moves: &[ByteRange]) -> Bill {
    if moves.is_empty() {
        return before;
    }
    let (fragments, limit) = (file.fragments_after(moves), file.limits.max_request);
    let mut clock = file.costs.clock();
    let requests = fragments.replay(&file.requests, limit, &mut clock);
    let beside = file.ways_ns(moves) + file.slow.after_ns(moves);
    requests + fragments.replay(cold, limit, &mut clock) + Bill::way(beside)
}

/// Sorts the files by their identity, and joins the entries of each into one, under its first name: a file that was
/// renamed while files were listed may have been seen under both names.
fn merge_same(files: &mut Vec<SurveyedFile>) {
    files.sort_by(|a, b| (a.layout.file, &a.path).cmp(&(b.layout.file, &b.path)));
    files.dedup_by(|again, first| {
        let same = again.layout.file == first.layout.file;
        if same {
            first.accesses.append(&mut again.accesses);
            first.ranks.append(&mut again.ranks);
            first.recorded.append(&mut again.recorded);
        }
        same
    });
}

/// Bytes on the device that files share with others, if they are fragmented, or slow in one fragment; none where that does
/// not matter.
fn left_shared(kept: &[Kept], analysed: &[Analysed], settings: &Settings) -> u64 {
    if settings.unshare {
        return 0;
    }
    let everything = ByteRange { start: 0, end: u64::MAX };
    let is_fine = |file: &Analysed| file.breaks.is_empty() && file.slow.is_empty();
    let left = kept.iter().zip(analysed).filter(|(_, analysed)| !is_fine(analysed));
    left.map(|(file, _)| file.shared.shared_bytes(everything)).sum()
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

fn analyse(
    file: SurveyedFile,
    basis: Basis,
    settings: &Settings,
    costs: Arc<Costs>,
    units: Option<ParallelUnits>,
) -> (Kept, Analysed) {
    let SurveyedFile { path, layout, accesses, ranks, recorded, slow, .. } = file;
    let SurveyedFile { block_bytes, limits, window, .. } = file;
    let shape = Shape { file_size: layout.size, block: block_bytes, window };
    let mut head = Head::new(costs.seeks(), &ranks);
    let bounds = Bounds::of(&layout, window);
    let turns = turns::of(&accesses, &recorded, shape, &bounds, basis);
    drop(recorded);
    let requests = if basis.is_traced() {
        requests::of(accesses, shape, &bounds, basis, costs.one_thread, &mut head)
    } else {
        requests::sequential(&layout, shape)
    };
    let ways = Ways::of(head, &layout, &costs);
    let mut analysed =
        Analysed::of(requests, &layout, limits, block_bytes, settings.unshare, costs);
    (analysed.apart, analysed.ways) = (settings.policy == Policy::Gain, ways);
    analysed.turns = turns;
    analysed.slow = Losses::new(slow, &layout);
    analysed.places = units.map(|units| Places::of(&layout, units));
    let (file, size, shared) = (layout.file, layout.size, layout.shared());
    (Kept { path, file, size, block_bytes, shared }, analysed)
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
                has_other_names: false,
                layout,
                accesses: Vec::new(),
                ranks: Vec::new(),
                recorded: Vec::new(),
                slow: Vec::new(),
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
