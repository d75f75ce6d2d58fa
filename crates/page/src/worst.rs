//! The files that cost most: by the time that a plan would save, else by requests that a sequential read would save.

use crate::inputs::Inputs;
use fragmend_known::Known;
use fragmend_layout::{ByteRange, PathText, ScannedLayout};
use fragmend_report::scan::ScanFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most files that are listed.
pub const MOST_FILES: usize = 50;
/// Extents are drawn in so many parts at most, each of which may stand for several.
pub const MOST_PARTS: usize = 300;

/// A file that costs much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstFile {
    /// Where it is.
    #[serde(flatten)]
    pub path: PathText,
    /// What it is to its program, where a scan has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: WorstFigures,
    /// Its extents to scale, in the order of the file; empty where they are not in the inputs.
    pub parts: Vec<FilePart>,
}

/// The figures of a file, as far as the inputs have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstFigures {
    /// Seconds that mending it would save in one replay of what was recorded (predicted by the plan).
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds_saved: Option<f64>,
    /// Bytes that would be written for that.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes_to_move: Option<u64>,
    /// Size of the file.
    #[schemars(extend("x-unit" = "bytes"))]
    pub file_bytes: u64,
    /// Extents of data.
    pub extents: Option<u64>,
    /// The fewest extents that could hold the same data.
    pub ideal_extents: Option<u64>,
    /// Device requests to read everything once, sequentially.
    pub requests_now: Option<u64>,
    /// The same if every run of data were contiguous.
    pub requests_best: Option<u64>,
}

/// Extents that are drawn as one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FilePart {
    /// Where it begins, as a share of the file's size.
    #[schemars(extend("x-unit" = "share"))]
    pub from: f64,
    /// Where it ends.
    #[schemars(extend("x-unit" = "share"))]
    pub to: f64,
    /// Extents in it.
    pub extents: u64,
    /// Whether a part of it is to be moved.
    pub to_move: bool,
}

/// What a plan has for a file.
#[derive(Default)]
struct Planned {
    size: u64,
    seconds_saved: f64,
    bytes_to_move: u64,
    ranges: Vec<ByteRange>,
}

/// The worst files, the worst first, and how many there are in all: planned ones, and those in more extents than necessary.
pub fn worst(inputs: &Inputs) -> (Vec<WorstFile>, u64) {
    let planned = planned(inputs);
    let mut files: BTreeMap<&PathText, (Option<&Planned>, Option<&ScanFile>)> =
        planned.iter().map(|(path, planned)| (*path, (Some(planned), None))).collect();
    for file in inputs.scans.iter().flat_map(|scan| &scan.document.files) {
        let is_fragmented = file.figures.extents > file.figures.ideal_extents;
        if is_fragmented || planned.contains_key(&file.path) {
            // Of several scans, the first is as things were.
            files.entry(&file.path).or_default().1.get_or_insert(file);
        }
    }
    let all = files.len() as u64;
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by(|(_, a), (_, b)| {
        let saved = |of: Option<&Planned>| of.map_or(f64::NEG_INFINITY, |p| p.seconds_saved);
        let by_scan = |of: Option<&ScanFile>| {
            let figures = of.map(|file| &file.figures);
            let requests = figures.map(|f| f.requests_now.saturating_sub(f.requests_best));
            Reverse((requests, figures.map(|f| f.extents)))
        };
        saved(b.0).total_cmp(&saved(a.0)).then_with(|| by_scan(a.1).cmp(&by_scan(b.1)))
    });
    files.truncate(MOST_FILES);
    (files.into_iter().map(|(path, (planned, scanned))| one(path, planned, scanned)).collect(), all)
}

fn planned(inputs: &Inputs) -> BTreeMap<&PathText, Planned> {
    let mut files: BTreeMap<&PathText, Planned> = BTreeMap::new();
    for plan in &inputs.plans {
        let mut of_plan: BTreeMap<&PathText, Planned> = BTreeMap::new();
        // A file may have several entries.
        for file in &plan.document.files {
            let planned = of_plan.entry(&file.path).or_default();
            planned.size = file.size;
            for range in &file.ranges {
                planned.seconds_saved += range.seconds_saved;
                planned.bytes_to_move = planned.bytes_to_move.saturating_add(range.length);
                planned.ranges.push(range.range());
            }
        }
        // Of several plans, the first has a file.
        for (path, planned) in of_plan {
            files.entry(path).or_insert(planned);
        }
    }
    files.values_mut().for_each(|planned| planned.ranges.sort_unstable());
    files
}

fn one(path: &PathText, planned: Option<&Planned>, scanned: Option<&ScanFile>) -> WorstFile {
    let figures = scanned.map(|file| &file.figures);
    let bytes = figures.map(|f| f.bytes).or(planned.map(|p| p.size)).unwrap_or(0);
    let ranges = planned.map(|p| &p.ranges[..]).unwrap_or_default();
    let layout = scanned.and_then(|file| file.layout.as_ref());
    WorstFile {
        path: path.clone(),
        known: scanned.and_then(|file| file.known.clone()),
        figures: WorstFigures {
            seconds_saved: planned.map(|p| p.seconds_saved),
            bytes_to_move: planned.map(|p| p.bytes_to_move),
            file_bytes: bytes,
            extents: figures.map(|f| f.extents),
            ideal_extents: figures.map(|f| f.ideal_extents),
            requests_now: figures.map(|f| f.requests_now),
            requests_best: figures.map(|f| f.requests_best),
        },
        parts: layout.map(|layout| parts(layout, bytes, ranges)).unwrap_or_default(),
    }
}

/// The extents of a file of `bytes`. One that is too narrow to be drawn is joined to the one before it.
fn parts(layout: &ScannedLayout, bytes: u64, to_move: &[ByteRange]) -> Vec<FilePart> {
    let share = |at: u64| at.min(bytes) as f64 / bytes.max(1) as f64;
    let mut parts: Vec<FilePart> = Vec::new();
    for extent in layout.extents.iter().filter(|e| e.kind.is_addressed()) {
        let range = extent.range();
        let (from, to) = (share(range.start), share(range.end));
        let after = to_move.partition_point(|moved| moved.end <= range.start);
        let to_move = to_move.get(after).is_some_and(|moved| moved.overlaps(range));
        match parts.last_mut() {
            Some(last) if to - last.from < 1.0 / MOST_PARTS as f64 => {
                last.to = last.to.max(to);
                last.extents += 1;
                last.to_move |= to_move;
            }
            _ => parts.push(FilePart { from, to, extents: 1, to_move }),
        }
    }
    parts
}
