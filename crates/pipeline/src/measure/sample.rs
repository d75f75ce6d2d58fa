//! The reads of the device that were recorded, or a sample of them where they are many, and what is predicted for them.
//!
//! A sample consists of runs of consecutive reads of a file, drawn at random with a fixed seed, so that it is the same
//! each time. What is predicted for it is what the planner says of these reads, on the layouts as they are, and on the
//! same ones with the planned ranges contiguous; both at the depth at which they are replayed.

use super::reads::{self, InFlight, Read, Run, Source};
use super::{CouldNot, Moved, Rounds};
use fastrand::Rng;
use fragmend_apply::measurement::NotMeasured;
use fragmend_layout::{
    Access, ByteRange, Extent, FileId, Layout, ObservedLoad, Op, printable_path,
};
use fragmend_plan::{Bill, Device, OneMore, Plan, Policy, Settings, Survey, SurveyedFile, Timed};
use std::collections::{BTreeMap, HashMap};

/// Others may use the device by the so many-th part of what a round reads.
const OTHERS: u64 = 20;
/// Of so many reads, at least one request must be more than in contiguous files, or a model's error is taken for its cost.
const FEW: u64 = 4;
/// Reads in one piece last as long as when the device was probed, but for this factor.
const AS_PROBED: f64 = 1.15;
/// Reads count so often, so that each is a burst: there are more bursts then than any trace has requests.
const MANY: u64 = 1 << 40;
/// Reads that last as long as in contiguous files but for this share of the time are taken to last as long.
const MODEL: f64 = 0.05;
/// Rounds may differ by this share of their time, however little fragments cost.
const SMALL: f64 = 0.01;
/// A sample.
pub struct Sample {
    pub(super) files: Vec<SurveyedFile>,
    pub(super) runs: Vec<Run>,
    devices: Vec<Device>,
    loads: BTreeMap<u64, ObservedLoad>,
    settings: Settings,
    /// The planned ranges.
    moves: HashMap<FileId, Vec<ByteRange>>,
    /// What one more request costs, once that is known.
    one_more: BTreeMap<u64, OneMore>,
    /// All reads of the device that were recorded.
    pub(super) recorded: u64,
    /// Bytes of the reads that were data, and no hole, when they were replayed first.
    pub(super) data_bytes: u64,
}

impl Sample {
    /// Draws one from the survey that `plan` was made from.
    pub fn draw(survey: Survey, plan: &Plan, most_in_flight: u32) -> Self {
        let Survey { files, devices, loads, ordered, .. } = survey;
        let source = Source {
            files: &files,
            devices: &devices,
            basis: plan.summary.basis.unwrap_or_default(),
            ordered,
            depth: plan.summary.depth,
            most_in_flight,
        };
        let (runs, recorded) = reads::draw(&source, &mut Rng::with_seed(1));
        // What was seen is what matters here, not what would be chosen of it.
        let settings = Settings { policy: Policy::Gain, ..Settings::default() };
        let mut sample = Self {
            files,
            runs,
            devices,
            loads,
            settings,
            moves: HashMap::new(),
            one_more: BTreeMap::new(),
            recorded,
            data_bytes: 0,
        };
        sample.forget_accesses();
        sample.predict_for(plan, BTreeMap::new());
        sample
    }

    fn forget_accesses(&mut self) {
        self.files.iter_mut().for_each(|file| file.accesses = Vec::new());
    }

    /// Predicts from now on for the ranges of this plan, and with these costs of one more request.
    pub fn predict_for(&mut self, plan: &Plan, one_more: BTreeMap<u64, OneMore>) {
        let moves = plan.files.iter().map(|file| {
            let ranges = file.ranges.iter().map(|r| r.range()).collect();
            (file.file, ranges)
        });
        (self.moves, self.one_more) = (moves.collect(), one_more);
    }

    /// Predicts from now on for those ranges of this plan alone that were moved, if any was, by the same costs.
    pub fn predict_for_moved(&mut self, plan: &Plan, moved: &Moved) {
        if moved.ranges(plan) == 0 {
            return;
        }
        let moves = plan.files.iter().map(|file| {
            let ranges = file.ranges.iter().filter(|range| moved.has(&file.path, range));
            (file.file, ranges.map(|range| range.range()).collect())
        });
        self.moves = moves.collect();
    }

    /// What one more request of a read costs where the data is now, by the rounds on the present layout; by the device
    /// number of the file system.
    ///
    /// # Errors
    /// Where the costs were not probed, or the reads are of several file systems, or few of them cross a break; where others
    /// used the device, it is not as it was probed, or the rounds differ too much; and if what follows cannot be. Those of
    /// `control`, which times runs of reads in seconds, are passed on.
    pub(super) fn one_more(
        &self,
        rounds: &Rounds,
        control: impl FnOnce(&[Run]) -> Result<f64, CouldNot>,
    ) -> Result<BTreeMap<u64, OneMore>, CouldNot> {
        let unclear = |why: &str| CouldNot::new(NotMeasured::Unclear, why);
        let mut numbers: Vec<u64> = self.runs.iter().map(|run| run.device).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let [number] = numbers[..] else {
            return Err(unclear("the recorded reads are of several file systems"));
        };
        let device = self.devices.iter().find(|device| device.device == number);
        let knows = |device: &Device| device.profile.cost.knows_neighbours();
        if !device.is_some_and(knows) {
            return Err(unclear("what the device needs for contiguous data was not probed"));
        }
        if !device.is_some_and(|device| device.profile.cost.places_matter()) {
            return Err(unclear(
                "the device does one request at a time, wherever it keeps the data",
            ));
        }
        if rounds.others_bytes > self.data_bytes / OTHERS {
            return Err(unclear("other programs used the device meanwhile"));
        }
        let as_it_is = |file: &SurveyedFile| file.layout.clone();
        let now = self.bill(&self.runs, &as_it_is, BTreeMap::new());
        let contiguous = self.bill(&self.runs, &contiguous, BTreeMap::new());
        let reads = self.size().0;
        if now.requests.saturating_sub(contiguous.requests) < reads / FEW {
            return Err(unclear("too few of the reads cross a break"));
        }
        let in_one_piece = self.in_one_piece();
        let one_piece = self.bill(&in_one_piece, &as_it_is, BTreeMap::new());
        let ratio = control(&in_one_piece)? / one_piece.seconds();
        if !(1.0 / AS_PROBED..=AS_PROBED).contains(&ratio) {
            let why = format!(
                "reads in one piece last {ratio:.2} times as long as when the device was probed"
            );
            return Err(unclear(&why));
        }
        let seconds = rounds.median();
        let open = rounds.noise() * seconds;
        if open > (seconds - contiguous.seconds()).abs().max(seconds * SMALL) {
            return Err(unclear("the rounds differ by more than their fragments cost"));
        }
        // A model is not more exact than that.
        let differ = (seconds / contiguous.seconds() - 1.0).abs() > MODEL;
        let seconds = if differ { seconds } else { contiguous.seconds() };
        let one_more = OneMore::of(seconds, reads, now, contiguous);
        let one_more = one_more.ok_or_else(|| unclear("none of the reads crosses a break"))?;
        // A request costs no more than a read of its own, and saves no more.
        let alone_ns = one_piece.ns as f64 / reads.max(1) as f64 * in_flight(&in_one_piece);
        if one_more.ns.abs() > alone_ns {
            return Err(unclear("fragments would cost more than reads of their own"));
        }
        Ok(BTreeMap::from([(number, one_more)]))
    }

    /// The first part of each read that is in one piece on the device. Parts do not continue each other: what was in flight beside the
    /// read that it continues is alone.
    fn in_one_piece(&self) -> Vec<Run> {
        let piece = |read: &Read| {
            let first = self.files[read.file].layout.fragments_within(read.range).next();
            Read { range: first.map_or(read.range, |fragment| fragment.range), ..*read }
        };
        let alone = |in_flight| match in_flight {
            InFlight::AsRead => InFlight::Always(1),
            always @ InFlight::Always(_) => always,
        };
        let run = |run: &Run| Run {
            device: run.device,
            in_flight: alone(run.in_flight),
            reads: run.reads.iter().map(piece).collect(),
        };
        self.runs.iter().map(run).collect()
    }

    /// Whether what is predicted was fitted to the time of these reads.
    pub(super) fn is_fitted(&self) -> bool {
        !self.one_more.is_empty()
    }

    /// Reads and bytes of one round.
    pub fn size(&self) -> (u64, u64) {
        let reads = self.runs.iter().flat_map(|run| &run.reads);
        reads.fold((0, 0), |(n, bytes), read| (n + 1, bytes + read.range.len()))
    }

    /// Reads in flight at a time, on average.
    pub(super) fn in_flight(&self) -> f64 {
        in_flight(&self.runs)
    }

    /// Seconds that are predicted for a round, as the files are and with the planned ranges contiguous.
    pub fn predicted(&self) -> (f64, f64) {
        let as_it_is = |file: &SurveyedFile| file.layout.clone();
        (self.cost(&as_it_is), self.cost(&|file: &SurveyedFile| self.moved(file)))
    }

    /// The layout of a file with its planned ranges in one extent each, one after the other, a third of the file system
    /// away.
    fn moved(&self, file: &SurveyedFile) -> Layout {
        let none = Vec::new();
        let ranges = self.moves.get(&file.layout.file).unwrap_or(&none);
        let away = |d: &Device| (d.device == file.layout.file.device).then_some(d.total_bytes / 3);
        let away = self.devices.iter().find_map(away).unwrap_or(0);
        let mut moved = Layout::new(file.layout.file, file.layout.size);
        let mut parts: Vec<Extent> = Vec::new();
        for extent in file.layout.extents() {
            let mut at = extent.logical;
            let end = extent.range().end;
            let part = |from: u64, to: u64| Extent {
                logical: from,
                physical: extent.physical + (from - extent.logical),
                length: to - from,
                kind: extent.kind,
            };
            for range in ranges.iter().map(|r| r.intersect(extent.range())) {
                if range.is_empty() {
                    continue;
                }
                if at < range.start {
                    parts.push(part(at, range.start));
                }
                parts.push(part(range.start, range.end));
                at = range.end;
            }
            if at < end {
                parts.push(part(at, end));
            }
        }
        // The range that is being placed, and its beginning on the device.
        let mut target: Option<(ByteRange, u64)> = None;
        for mut part in parts {
            let planned = ranges.iter().find(|r| r.overlaps(part.range()));
            if let (Some(range), true) = (planned, part.kind.is_placed()) {
                let physical = match target {
                    Some((placed, physical)) if placed == *range => physical,
                    // A block lies between, so that two ranges are in two extents.
                    Some((last, physical)) => physical + last.len() + file.block_bytes,
                    None => part.physical + away,
                };
                target = Some((*range, physical));
                part.physical = physical + (part.logical - range.start);
            }
            moved.push(part);
        }
        moved
    }

    /// Seconds that the planner predicts for these reads on these layouts.
    fn cost(&self, layout: &dyn Fn(&SurveyedFile) -> Layout) -> f64 {
        self.bill(&self.runs, layout, self.one_more.clone()).seconds()
    }

    /// What the planner says of these reads on these layouts.
    fn bill(
        &self,
        runs: &[Run],
        layout: &dyn Fn(&SurveyedFile) -> Layout,
        one_more: BTreeMap<u64, OneMore>,
    ) -> Bill {
        let mut seen: Vec<(Vec<Access>, Vec<u32>)> = vec![Default::default(); self.files.len()];
        let mut rank = 0;
        for run in runs {
            // What the disk does between two runs is not known.
            rank += 1;
            for read in &run.reads {
                rank += 1;
                let (accesses, ranks) = &mut seen[read.file];
                accesses.push(access(read));
                ranks.push(rank);
            }
        }
        let used = self.files.iter().zip(seen).filter(|(_, (accesses, _))| !accesses.is_empty());
        // The depth is that of the replay: a read is a burst, and the others are in flight when it begins.
        let before: u64 = runs.iter().map(Run::in_flight_before).sum();
        let bursts: u64 = runs.iter().map(|run| run.reads.len() as u64).sum();
        let at_depth = |load: &ObservedLoad| ObservedLoad {
            read_bursts: bursts * MANY,
            bursts_before: Some(before * MANY),
            ..load.clone()
        };
        // What a disk did besides is not repeated.
        let alone = |number: &u64, load: ObservedLoad| {
            let seeks = |d: &Device| d.device == *number && !d.profile.cost.seeks().is_empty();
            let requests = if self.devices.iter().any(seeks) { Vec::new() } else { load.requests };
            ObservedLoad { requests, ..load }
        };
        let loads = self.loads.iter().map(|(n, load)| (*n, alone(n, at_depth(load)))).collect();
        let survey = Survey {
            files: used
                .map(|(file, (accesses, ranks))| SurveyedFile {
                    path: file.path.clone(),
                    has_other_names: false,
                    layout: layout(file),
                    accesses,
                    ranks,
                    recorded: Vec::new(),
                    slow: Vec::new(),
                    block_bytes: file.block_bytes,
                    limits: file.limits,
                    window: file.window,
                })
                .collect(),
            devices: self.devices.clone(),
            misses: true,
            // Only then they are those of one thread.
            ordered: runs.iter().all(|run| run.in_flight == InFlight::AsRead),
            loads,
            timed: Timed { one_more, why_not: None },
            ..Survey::default()
        };
        Bill::before(&fragmend_plan::make(survey, &self.settings).summary)
    }

    /// The file of an error, for people.
    pub(super) fn name(&self, file: usize) -> String {
        printable_path(&self.files[file].path).to_string()
    }
}

/// Reads of these runs in flight at a time, on average.
fn in_flight(runs: &[Run]) -> f64 {
    let all = runs.iter().map(|run| run.reads.len() as f64 * run.depth()).sum::<f64>();
    all / (runs.iter().map(|run| run.reads.len()).sum::<usize>() as f64).max(1.0)
}

/// A read as the trace has it.
fn access(read: &Read) -> Access {
    Access {
        offset: read.range.start,
        length: read.range.len() as u32,
        count: 1,
        thread: 0,
        op: if read.missed { Op::Miss } else { Op::Read },
        direct: !read.missed,
        windowed: false,
    }
}

/// The layout of a file if all of its data were in one extent but for its holes.
fn contiguous(file: &SurveyedFile) -> Layout {
    let mut layout = Layout::new(file.layout.file, file.layout.size);
    for extent in file.layout.extents() {
        let physical = if extent.kind.is_placed() { extent.logical } else { extent.physical };
        layout.push(Extent { physical, ..*extent });
    }
    layout
}

#[cfg(test)]
#[path = "sample_tests.rs"]
pub(super) mod tests;
