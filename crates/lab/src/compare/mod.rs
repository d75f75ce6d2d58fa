//! All remedies side by side, each on its own copy of one aged image (`fragmend lab compare`).
//!
//! | module | its job |
//! |---|---|
//! | [`loads`] | what ages an image, what is read of it, what runs beside a mover |
//! | [`remedies`] | what there is, and where it applies |
//! | [`image`] | a drive with a file system that a load has aged |
//! | [`probed`] | what the probe of a file measures of those that were read |
//! | [`act`] | carries out a remedy |
//! | [`measure`] | what a remedy brings, writes and costs |
//! | [`safety`] | what power cuts do to it |
//! | [`pareto`] | which remedies no other one beats, and why the others are beaten |
//! | [`advice`] | what to choose when, as it follows from the table |
//! | [`report`], [`page`], [`picture`] | the results as a document, as Markdown, as pictures |
//!
//! Planner and mover are the production ones. The planner knows of a drive what the production probe measures of it. A cell, one remedy on one
//! image, follows from the seed alone, so that cells run in parallel.

pub mod act;
pub mod advice;
pub mod image;
pub mod loads;
pub mod measure;
pub mod page;
pub mod pareto;
pub mod picture;
pub mod probed;
pub mod remedies;
pub mod report;
pub mod safety;

use crate::measured::profile;
use crate::run::run_all;
use crate::setup::{DriveKind, Setup};
use fragmend_layout::{ParallelUnits, schema};
use fragmend_simfs::error::Error;
use image::{Drive, Kind, Recipe};
use loads::{Load, Parts};
use measure::{Raw, WINDOW_NS, Written, alone, measure};
use remedies::{Act, Remedy};
use report::{Comparison, Measured, Row, Table};
use safety::{Safety, safety};
use std::collections::{BTreeMap, BTreeSet};

/// The drives that are compared by default: a phone's, an SSD for servers, one with zones.
pub const DRIVES: [&str; 3] = ["ufs-2.0", "nvmevirt-fast24", "femu-indef"];
/// Zones of a zoned drive at least: the log-structured file system keeps a few of them free.
const LEAST_ZONES: u64 = 40;
/// The load must make as many operations alone in the time of a remedy that a slow-down is stated.
const LEAST_OPERATIONS: u64 = 50;

/// What is compared.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The loads.
    pub loads: Vec<Load>,
    /// The drives, by name.
    pub drives: Vec<(String, Setup)>,
    /// The remedies. The images without a remedy are measured in any case.
    pub remedies: Vec<Remedy>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// How large it is.
    pub parts: Parts,
    /// How many cells run in parallel; one per core without it.
    pub jobs: Option<usize>,
}

/// One remedy on one image, by the numbers of load and drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    load: usize,
    drive: usize,
    kind: Kind,
    remedy: Remedy,
}

/// What can be done at the same time, one after the other.
enum Job {
    Measure(Cell),
    Cut(Remedy, Kind, bool),
}

enum Done {
    Measured(Cell, Result<Raw, Error>),
    Cut((Remedy, Kind, bool), Safety),
}

/// Compares; calls `step` when another one of the parts is done, with the number of all of them.
pub fn compare(choice: &Choice, step: &(dyn Fn(u64) + Sync)) -> Comparison {
    fragmend_sys::memory::keep_freed();
    let drives = drives(choice);
    let cells = cells(choice);
    let zoned = |drive: usize| matches!(choice.drives[drive].1.drive, DriveKind::Zoned { .. });
    let primitives: BTreeSet<(Remedy, Kind, bool)> = cells
        .iter()
        .filter(|cell| cell.remedy != Remedy::Nothing)
        .map(|cell| (cell.remedy, cell.kind, zoned(cell.drive)))
        .collect();
    let cuts = primitives.into_iter().map(|(remedy, kind, zoned)| Job::Cut(remedy, kind, zoned));
    let jobs: Vec<Job> = cells.iter().copied().map(Job::Measure).chain(cuts).collect();
    let total = jobs.len() as u64;
    let recipe = |cell: &Cell| Recipe {
        load: choice.loads[cell.load],
        drive: &drives[&(cell.load, cell.drive)],
        kind: cell.kind,
        parts: choice.parts,
        seed: choice.seed,
    };
    let done = run_all(&jobs, choice.jobs, |job| {
        let done = match job {
            Job::Measure(cell) => Done::Measured(*cell, measure(&recipe(cell), cell.remedy)),
            Job::Cut(remedy, kind, zoned) => {
                Done::Cut((*remedy, *kind, *zoned), safety(*remedy, *kind, *zoned, choice.seed))
            }
        };
        step(total);
        done
    });
    let (mut raws, mut safeties) = (BTreeMap::new(), BTreeMap::new());
    for one in done {
        match one {
            Done::Measured(cell, raw) => drop(raws.insert(cell, raw)),
            Done::Cut(key, safety) => drop(safeties.insert(key, safety)),
        }
    }
    let alone = alone_of(choice, &raws, &recipe);
    let found = Found { choice, raws, alone, safeties };
    let pairs = (0..choice.loads.len())
        .flat_map(|load| (0..choice.drives.len()).map(move |drive| (load, drive)));
    let tables = pairs.map(|(load, drive)| found.table(load, drive, &drives)).collect();
    let (schema_version, scale) = (schema::DOCUMENT, choice.parts.get());
    Comparison { schema_version, seed: choice.seed, scale, tables }
}

/// The drives, as small as each load needs them, and probed.
fn drives(choice: &Choice) -> BTreeMap<(usize, usize), Drive> {
    let loads = 0..choice.loads.len();
    let pairs: Vec<(usize, usize)> =
        loads.flat_map(|load| (0..choice.drives.len()).map(move |drive| (load, drive))).collect();
    let made = run_all(&pairs, choice.jobs, |(load, drive)| {
        let (name, setup) = &choice.drives[*drive];
        let mut bytes = choice.loads[*load].drive_bytes(choice.parts);
        let mut units = None;
        if let DriveKind::Zoned { drive, .. } = &setup.drive {
            let geometry = &drive.geometry;
            let dies = geometry.channels * geometry.dies_per_channel;
            let zone = geometry.pages_per_block * geometry.flash_page_bytes * dies;
            bytes = bytes.max(LEAST_ZONES * u64::from(zone));
            // InDeF's host knows its zones: the chip of each page follows from its address.
            let unit_bytes = geometry.stripe_unit_bytes.into();
            units = Some(ParallelUnits { units: dies, unit_bytes });
        }
        let setup = setup.clone().of_bytes(bytes);
        let mut profile = profile(name, &setup, choice.seed);
        profile.parallel_units = units;
        Drive { name: name.clone(), setup, profile }
    });
    pairs.into_iter().zip(made).collect()
}

/// The cells of all loads and drives. The image without a remedy is there for each file system that a remedy is tried on.
fn cells(choice: &Choice) -> BTreeSet<Cell> {
    let mut cells = BTreeSet::new();
    for (load, of_load) in choice.loads.iter().enumerate() {
        for (drive, (_, setup)) in choice.drives.iter().enumerate() {
            for remedy in choice.remedies.iter().copied().filter(|one| *one != Remedy::Nothing) {
                for kind in remedy.tried_on(*of_load, &setup.drive).unwrap_or_default() {
                    cells.insert(Cell { load, drive, kind, remedy });
                    cells.insert(Cell { load, drive, kind, remedy: Remedy::Nothing });
                }
            }
        }
    }
    cells
}

/// Operations of the load alone on each image, by time.
type Alone = BTreeMap<(usize, usize, Kind), BTreeMap<u64, u64>>;

fn alone_of<'a>(
    choice: &Choice,
    raws: &BTreeMap<Cell, Result<Raw, Error>>,
    recipe: &(impl Fn(&Cell) -> Recipe<'a> + Sync),
) -> Alone {
    let mut wanted: BTreeMap<(usize, usize, Kind), BTreeSet<u64>> = BTreeMap::new();
    for (cell, raw) in raws {
        if let Ok(Raw { beside: Ok((_, ns)), .. }) = raw
            && cell.remedy != Remedy::Nothing
        {
            let times = wanted.entry((cell.load, cell.drive, cell.kind)).or_default();
            times.extend([*ns, WINDOW_NS]);
        }
    }
    let wanted: Vec<_> = wanted.into_iter().collect();
    let counted = run_all(&wanted, choice.jobs, |((load, drive, kind), times)| {
        let (load, drive, kind) = (*load, *drive, *kind);
        let times: Vec<u64> = times.iter().copied().collect();
        let recipe = recipe(&Cell { load, drive, kind, remedy: Remedy::Nothing });
        let counts = alone(&recipe, &times).unwrap_or_default();
        times.into_iter().zip(counts).collect()
    });
    wanted.into_iter().map(|(image, _)| image).zip(counted).collect()
}

/// All that was measured.
struct Found<'a> {
    choice: &'a Choice,
    raws: BTreeMap<Cell, Result<Raw, Error>>,
    alone: Alone,
    safeties: BTreeMap<(Remedy, Kind, bool), Safety>,
}

impl Found<'_> {
    fn table(&self, load: usize, drive: usize, drives: &BTreeMap<(usize, usize), Drive>) -> Table {
        let of_load = self.choice.loads[load];
        let of_drive = &drives[&(load, drive)];
        let mut rows = Vec::new();
        for kind in [Kind::Ext4, Kind::Btrfs, Kind::F2fs] {
            let cells = self
                .raws
                .keys()
                .filter(|cell| (cell.load, cell.drive, cell.kind) == (load, drive, kind));
            let mut measured = Vec::new();
            for cell in cells {
                match self.measured(cell) {
                    Ok(one) => measured.push((cell.remedy, one)),
                    Err(why) => rows.push(not_applicable(cell.remedy, Some(kind), why)),
                }
            }
            rows.extend(judged(measured, kind));
        }
        for remedy in &self.choice.remedies {
            if let Err(why) = remedy.tried_on(of_load, &of_drive.setup.drive) {
                rows.push(not_applicable(*remedy, None, why.to_owned()));
            }
        }
        let mut table = Table {
            load: of_load.name().to_owned(),
            about: of_load.about().to_owned(),
            drive: of_drive.name.clone(),
            drive_bytes: of_drive.setup.capacity_bytes(),
            rows,
            advice: Vec::new(),
        };
        table.advice = advice::of(&table);
        table
    }

    /// What was measured of a cell, against the image without a remedy.
    fn measured(&self, cell: &Cell) -> Result<Measured, String> {
        let failed = |error: &Error| format!("it could not be measured: {error}");
        let raw = self.raws[cell].as_ref().map_err(failed)?;
        let without =
            self.raws[&Cell { remedy: Remedy::Nothing, ..*cell }].as_ref().map_err(failed)?;
        let prevents = matches!(cell.remedy.act(), Act::Place(_));
        let before = if prevents { without.mbs[0] } else { raw.mbs[0] };
        let none = Written { programmed_bytes: Some(0), erases: Some(0.0), host_bytes: 0 };
        let (of, less) = if prevents { (raw.aged, without.aged) } else { (raw.written, none) };
        let host = of.host_bytes as i64 - less.host_bytes as i64;
        let programmed = of.programmed_bytes.zip(less.programmed_bytes);
        let programmed = programmed.map_or(host, |(of, less)| of as i64 - less as i64);
        let erases = of.erases.zip(less.erases).map(|(of, less)| of - less);
        let is_zoned = matches!(self.choice.drives[cell.drive].1.drive, DriveKind::Zoned { .. });
        let percent = |before: f64, after: f64| (after / before - 1.0) * 100.0;
        Ok(Measured {
            read_before: before,
            read_after: raw.mbs[1],
            gain_percent: percent(before, raw.mbs[1]),
            foreseen_percent: raw.foreseen.map(|[before, after]| percent(after, before)),
            moved_bytes: raw.moved_bytes,
            host_written_bytes: host,
            programmed_bytes: programmed,
            erases_per_block: erases,
            seconds: if prevents { 0.0 } else { raw.ns as f64 / 1e9 },
            slowdown_percent: self.slowdown(cell, raw),
            power_cuts: self.safeties.get(&(cell.remedy, cell.kind, is_zoned)).copied(),
            on_front: false,
            beaten: None,
        })
    }

    fn slowdown(&self, cell: &Cell, raw: &Raw) -> Option<f64> {
        let (operations, ns) = raw.beside.ok()?;
        let alone = *self.alone.get(&(cell.load, cell.drive, cell.kind))?.get(&ns)?;
        (alone >= LEAST_OPERATIONS).then(|| (1.0 - operations as f64 / alone as f64) * 100.0)
    }
}

fn not_applicable(remedy: Remedy, file_system: Option<Kind>, why: String) -> Row {
    let (remedy, not_applicable) = (remedy.name().to_owned(), Some(why));
    Row { remedy, file_system, measured: None, not_applicable }
}

/// The rows of one image, each with whether it is on the front.
fn judged(measured: Vec<(Remedy, Measured)>, kind: Kind) -> Vec<Row> {
    let all: Vec<pareto::Point<'_>> = measured.iter().map(|(remedy, one)| (*remedy, one)).collect();
    let beaten: Vec<_> = all.iter().map(|one| pareto::beaten(*one, &all)).collect();
    let row = |((remedy, one), beaten): ((Remedy, Measured), Option<report::Beaten>)| Row {
        remedy: remedy.name().to_owned(),
        file_system: Some(kind),
        measured: Some(Measured { on_front: beaten.is_none(), beaten, ..one }),
        not_applicable: None,
    };
    measured.into_iter().zip(beaten).map(row).collect()
}
