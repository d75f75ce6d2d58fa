//! The address space of a file system in cells: how much of each is free, metadata, data in its place, data of fragmented
//! files, data that a plan would move, data that was moved.
//!
//! A cell is a power of two of bytes, and there are at most [`MOST_CELLS`] in all maps of a page, so that a page of a
//! million extents is as large as one of ten thousand. Extents are added in constant time each, whatever they cover
//! ([`cells`]): a document may have a million that cover everything.
//!
//! What a plan or receipts name is marked where the scan has found it: a scan from before a run shows where the ranges
//! were, one from after it where they are.

mod cells;
mod marks;

use crate::inputs::{Inputs, Named};
use cells::Cells;
use fragmend_layout::{Extent, ExtentKind, PathText, SpaceKind, SpaceRun};
use fragmend_report::scan::{ScanFile, ScanReport};
use marks::Marks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most cells of all maps together. A power of four, so that a Hilbert curve fills a square.
pub const MOST_CELLS: usize = 1 << 14;
/// The most maps; if there are several, they share the cells.
pub const MOST_MAPS: usize = 4;
/// No cell is smaller, in bytes: file systems allocate so much at a time.
const SMALLEST_CELL: u64 = 4096;
/// The longest name that is kept for a cell, in characters of each of its two ends.
const LONGEST_END: usize = 60;

/// What the bytes of a cell are.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can be allocated.
    Free,
    /// The file system's own: inodes, trees, its journal.
    Metadata,
    /// Data of files that are in as few extents as can be.
    Used,
    /// Data of files that are in more.
    Fragmented,
    /// Data that a plan would move.
    ToMove,
    /// Data that was moved.
    Moved,
    /// Not in the inputs: files that were not scanned, free space or metadata that was not recorded.
    Unknown,
}

impl State {
    /// All of them, in the order in which figures have them.
    pub const ALL: [Self; 7] = [
        Self::Free,
        Self::Metadata,
        Self::Used,
        Self::Fragmented,
        Self::ToMove,
        Self::Moved,
        Self::Unknown,
    ];

    /// Its name on the page.
    pub fn words(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Metadata => "metadata",
            Self::Used => "used, in order",
            Self::Fragmented => "used, fragmented",
            Self::ToMove => "to be moved",
            Self::Moved => "moved",
            Self::Unknown => "not known",
        }
    }
}

/// Bytes of each state, in the order of [`State::ALL`].
pub type Shares = [u64; State::ALL.len()];

/// The map of one file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockMap {
    /// Which scan it is from.
    pub input: String,
    /// Number of the file system (`st_dev`).
    pub device: u64,
    /// Where it was mounted, if a scan of its space or a plan says so.
    pub mount: Option<PathText>,
    /// Bytes of the address space that is drawn.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Bytes of a cell.
    #[schemars(extend("x-unit" = "bytes"))]
    pub cell_bytes: u64,
    /// Whether free space and metadata were recorded.
    pub has_space: bool,
    /// Whether any metadata was reported: an XFS without `rmapbt=1` reports free space alone, and what is neither free nor of a
    /// scanned file is unknown there.
    pub has_metadata: bool,
    /// Ranges of a plan whose files the scan does not have: they are not on the map.
    pub ranges_elsewhere: u64,
    /// Bytes of all cells by state: free, metadata, used, fragmented, to_move, moved, unknown.
    pub totals: Shares,
    /// Names of files, for `cells`; long ones are shortened.
    pub names: Vec<String>,
    /// By address.
    pub cells: Vec<Cell>,
}

/// A cell of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The state that it is drawn in: to be moved or moved if any of it is, else what most of it is.
    pub state: State,
    /// The file that has most bytes in it, in `names`.
    pub file: Option<u32>,
    /// Bytes by state, in the order of `totals`.
    pub bytes: Shares,
}

/// The maps of all file systems that were scanned with layouts, and how many more there are than are drawn.
pub fn maps(inputs: &Inputs) -> (Vec<BlockMap>, u64) {
    let mut found: Vec<(&Named<ScanReport>, u64)> = Vec::new();
    for scan in &inputs.scans {
        let of_files = scan.document.files.iter().filter_map(|file| file.layout.as_ref());
        let systems = FileSystems::of(&scan.document);
        let of_files = of_files.map(|layout| systems.of_device(layout.device));
        let with_runs = scan.document.spaces.iter().filter(|space| space.runs.is_some());
        let of_spaces = with_runs.map(|space| space.device);
        let mut devices: Vec<u64> = of_files.chain(of_spaces).collect();
        devices.sort_unstable();
        devices.dedup();
        found.extend(devices.into_iter().map(|device| (scan, device)));
    }
    let more = found.len().saturating_sub(MOST_MAPS) as u64;
    found.truncate(MOST_MAPS);
    let most = if found.len() > 1 { MOST_CELLS / MOST_MAPS } else { MOST_CELLS };
    (found.into_iter().map(|(scan, device)| map(inputs, scan, device, most)).collect(), more)
}

/// By the device number of a file the number by which the space of its file system goes: subvolumes of a Btrfs share its
/// addresses.
struct FileSystems(BTreeMap<u64, u64>);

impl FileSystems {
    fn of(scan: &ScanReport) -> Self {
        let mut numbers = BTreeMap::new();
        for space in &scan.spaces {
            for device in [space.device].iter().chain(&space.further_devices) {
                numbers.entry(*device).or_insert(space.device);
            }
        }
        Self(numbers)
    }

    fn of_device(&self, device: u64) -> u64 {
        self.0.get(&device).copied().unwrap_or(device)
    }
}

fn map(inputs: &Inputs, scan: &Named<ScanReport>, device: u64, most: usize) -> BlockMap {
    let systems = FileSystems::of(&scan.document);
    let is_here = |number: u64| systems.of_device(number) == device;
    let on_device = |file: &&ScanFile| file.layout.as_ref().is_some_and(|l| is_here(l.device));
    let files: Vec<&ScanFile> = scan.document.files.iter().filter(on_device).collect();
    let space = scan.document.spaces.iter().find(|space| space.device == device);
    let figures = space.and_then(|space| space.figures.as_ref());
    let runs = space.and_then(|space| space.runs.as_deref());
    let planned = inputs.plans.iter().flat_map(|plan| &plan.document.devices);
    let planned = planned.into_iter().find(|planned| is_here(planned.device));
    let extents = files.iter().flat_map(|f| f.layout.iter().flat_map(|layout| &layout.extents));
    let end = extents.filter(|e| e.kind.is_placed()).map(Extent::physical_end).max();
    let known = [figures.map(|f| f.bytes), planned.map(|p| p.total_bytes), end];
    let mut cells = Cells::new(known.into_iter().flatten().max().unwrap_or(0), most, SMALLEST_CELL);

    let mut marks = Marks::of(inputs, is_here);
    for (number, file) in files.iter().enumerate() {
        add(&mut cells, number, file, &mut marks);
    }
    add_space(&mut cells, runs.unwrap_or_default());
    let (cells_found, owners) = cells.finish();
    let (names, numbers) = names(&files, &owners);
    let cell = |(bytes, owner): (&Shares, &Option<u32>)| Cell {
        state: drawn_as(bytes),
        file: owner.map(|owner| numbers[&owner]),
        bytes: *bytes,
    };
    let mut totals = Shares::default();
    for bytes in &cells_found {
        totals.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum = sum.saturating_add(*bytes));
    }
    BlockMap {
        input: scan.name.clone(),
        device,
        mount: space.map(|s| &s.path).or(planned.map(|planned| &planned.mount)).cloned(),
        bytes: cells.bytes(),
        cell_bytes: cells.cell_bytes(),
        has_space: runs.is_some(),
        has_metadata: totals[State::Metadata as usize] > 0,
        ranges_elsewhere: marks.not_found(),
        totals,
        names,
        cells: cells_found.iter().zip(&owners).map(cell).collect(),
    }
}

/// Adds the extents of a file, each in parts of one state.
fn add(cells: &mut Cells, number: usize, file: &ScanFile, marks: &mut Marks) {
    let Some(scanned) = &file.layout else { return };
    let is_fragmented = file.figures.extents > file.figures.ideal_extents;
    let plain = if is_fragmented { State::Fragmented } else { State::Used };
    let marked = marks.of_file(&file.path);
    cells.begin_file(number as u32);
    for extent in scanned.extents.iter().filter(|e| e.kind.is_placed()) {
        // A part of an encoded extent has the place of all of it.
        if let ExtentKind::Encoded { .. } = extent.kind {
            let state = marked.states(extent.range(), plain).map(|(_, state)| state).max();
            cells.add(extent.physical, extent.physical_end(), state.unwrap_or(plain));
            continue;
        }
        for (part, state) in marked.states(extent.range(), plain) {
            let start = extent.physical.saturating_add(part.start - extent.logical);
            cells.add(start, start.saturating_add(part.len()), state);
        }
    }
    cells.end_file();
}

fn add_space(cells: &mut Cells, runs: &[SpaceRun]) {
    for run in runs {
        let state = match run.kind {
            SpaceKind::Free => State::Free,
            SpaceKind::Metadata => State::Metadata,
        };
        cells.add(run.range.start, run.range.end, state);
    }
}

/// The state that a cell is drawn in.
fn drawn_as(bytes: &Shares) -> State {
    let of = |state: State| bytes[state as usize];
    let marked = [State::Moved, State::ToMove].into_iter().find(|state| of(*state) > 0);
    // Of equal shares, the one that matters more.
    marked.unwrap_or_else(|| {
        let others = State::ALL.into_iter().filter(|state| *state != State::Unknown);
        let most = others.max_by_key(|state| of(*state)).unwrap_or(State::Unknown);
        if of(most) == 0 { State::Unknown } else { most }
    })
}

/// The names of the files that own cells, and the number of each among them.
fn names(files: &[&ScanFile], owners: &[Option<u32>]) -> (Vec<String>, BTreeMap<u32, u32>) {
    let (mut names, mut numbers) = (Vec::new(), BTreeMap::new());
    for owner in owners.iter().flatten() {
        numbers.entry(*owner).or_insert_with(|| {
            names.push(short(&files[*owner as usize].path.printable()));
            names.len() as u32 - 1
        });
    }
    (names, numbers)
}

/// A name by its two ends.
fn short(name: &str) -> String {
    let length = name.chars().count();
    if length <= 2 * LONGEST_END {
        return name.to_owned();
    }
    let start = name.chars().take(LONGEST_END);
    let end = name.chars().skip(length - LONGEST_END);
    start.chain("...".chars()).chain(end).collect()
}

#[cfg(test)]
#[path = "../map_tests.rs"]
mod tests;
