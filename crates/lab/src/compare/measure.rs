//! Measures one remedy on one image: its load's reads before and after, what the host and the flash wrote for it, how long it lasted; and,
//! on a second copy of the image, how much less the load gets done beside it.
//!
//! A remedy that prevents moves nothing: its image is aged with it. Its reads are compared with those of the image that was aged without,
//! and so is what was written in all of the ageing.

use super::act::{Seen, act};
use super::image::{Drive, Image, Recipe};
use super::probed::slow_files;
use super::remedies::{Act, Remedy};
use crate::loads::beside::Beside;
use crate::loads::schedule::Programs;
use crate::loads::watched::Watched;
use crate::setup::DriveKind;
use fragmend_apply::Environment;
use fragmend_flash::counters::Counters;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use std::rc::Rc;

/// For so long the load works on an image whose remedy prevents.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// What was measured of a remedy on an idle machine, and beside the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw {
    /// MB/s of the load's reads, before and after it was carried out; a remedy that prevents is there before.
    pub mbs: [f64; 2],
    /// Bytes of files that it moved.
    pub moved_bytes: u64,
    /// Seconds of the reads that the planner foresaw, before and after.
    pub foreseen: Option<[f64; 2]>,
    /// What was written in all of the ageing.
    pub aged: Written,
    /// What was written for the remedy after it.
    pub written: Written,
    /// Nanoseconds until it was durable.
    pub ns: u64,
    /// Operations of the load beside it, and nanoseconds for which they were counted.
    pub beside: Result<(u64, u64), u64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Written {
    /// Bytes that the host wrote.
    pub host_bytes: u64,
    /// Bytes that the flash programmed, with the drive's own logs; `None` for drives without flash.
    pub programmed_bytes: Option<u64>,
    /// Erases of a block, on average over all blocks.
    pub erases: Option<f64>,
}

impl Written {
    fn of(drive: &Drive, counts: &Counters) -> Self {
        let unit = u64::from(drive.setup.unit_bytes());
        let host_bytes = counts.host_written * unit;
        let (DriveKind::Flash(flash) | DriveKind::Zoned { drive: flash, .. }) = &drive.setup.drive
        else {
            return Self { host_bytes, ..Self::default() };
        };
        let geometry = &flash.geometry;
        let planes = geometry.channels * geometry.dies_per_channel * geometry.planes_per_die;
        let logs = counts.log_programs + counts.journal_programs;
        let programmed =
            counts.flash_written() * unit + logs * u64::from(geometry.program_unit_bytes);
        let blocks = f64::from(planes * geometry.blocks_per_plane);
        Self {
            host_bytes,
            programmed_bytes: Some(programmed),
            erases: Some(counts.erases as f64 / blocks),
        }
    }
}

/// The image of a remedy, its load's reads seen once.
struct Ready {
    image: Image,
    files: Rc<dyn FileSystem>,
    seen: Seen,
    mbs: f64,
}

impl Ready {
    fn new(recipe: &Recipe<'_>, remedy: Remedy) -> Result<Self, Error> {
        let image = recipe.make(remedy.made())?;
        let files = image.files.shared();
        // In the first round, what the ageing has left to be done is done. A file system that is watched makes more calls than others,
        // so the second one is measured.
        let watched = Watched::new(&files);
        recipe.load.read(&watched)?;
        let mbs = read_mbs(recipe, &*files)?;
        image.machine.wait_until_idle();
        let mut seen = Seen { accesses: watched.take(), slow: Vec::new() };
        if remedy.probes_files() {
            let costs = &recipe.drive.profile.cost;
            seen.slow = slow_files(&*files, &seen.accesses, costs, recipe.seed)?;
        }
        Ok(Self { seen, image, files, mbs })
    }
}

fn read_mbs(recipe: &Recipe<'_>, files: &dyn FileSystem) -> Result<f64, Error> {
    let (done, ns) = recipe.load.read(files)?;
    Ok(done.read_bytes as f64 / ns.max(1) as f64 * 1e3)
}

/// Measures a remedy.
///
/// # Errors
/// The drive is too small for the load.
pub fn measure(recipe: &Recipe<'_>, remedy: Remedy) -> Result<Raw, Error> {
    let Ready { image, files, seen, mbs: before } = Ready::new(recipe, remedy)?;
    let machine = &image.machine;
    let (began, counted) = (machine.now_ns(), machine.counters());
    let acted = act(&image, remedy, seen)?;
    let ns = machine.now_ns() - began;
    machine.wait_until_idle();
    let written = Written::of(recipe.drive, &machine.counters().since(&counted));
    let aged = Written::of(recipe.drive, &counted);
    let after = read_mbs(recipe, &*files)?;
    drop((image, files));
    let beside = beside(recipe, remedy)?;
    let (moved_bytes, foreseen) = (acted.moved_bytes, acted.foreseen);
    Ok(Raw { mbs: [before, after], moved_bytes, foreseen, aged, written, ns, beside })
}

/// Operations of the load while the remedy works on another copy of the image, and for how long that was. An error is the time at which
/// the load itself had failed.
fn beside(recipe: &Recipe<'_>, remedy: Remedy) -> Result<Result<(u64, u64), u64>, Error> {
    if remedy == Remedy::Nothing {
        return Ok(Ok((0, 0)));
    }
    let Ready { image, files, seen, .. } = Ready::new(recipe, remedy)?;
    let machine = &image.machine;
    if matches!(remedy.act(), Act::Place(_)) {
        let counted = alone_on(recipe, &files, &[WINDOW_NS])?;
        return Ok(Ok((counted[0], WINDOW_NS)));
    }
    let programs = recipe.load.at_work(&*files, recipe.seed)?;
    let began = machine.now_ns();
    let running = Beside::start(files, programs);
    let acted = act(&image, remedy, seen);
    let _ = machine.now();
    let ns = machine.now_ns() - began;
    Ok(match (acted, running.tally()) {
        (Ok(_), Ok(tally)) => Ok((tally.operations, ns)),
        _ => Err(ns),
    })
}

/// Operations of the load alone, on the image without a remedy, in each of these times, which ascend.
///
/// # Errors
/// The drive is too small for the load.
pub fn alone(recipe: &Recipe<'_>, times_ns: &[u64]) -> Result<Vec<u64>, Error> {
    let Ready { files, .. } = Ready::new(recipe, Remedy::Nothing)?;
    alone_on(recipe, &files, times_ns)
}

fn alone_on(
    recipe: &Recipe<'_>,
    files: &Rc<dyn FileSystem>,
    times_ns: &[u64],
) -> Result<Vec<u64>, Error> {
    let mut programs: Programs = recipe.load.at_work(&**files, recipe.seed)?;
    let began = files.machine().now_ns();
    let count = |ns: &u64| {
        programs.run_until(&**files, began + ns)?;
        Ok(programs.tally().operations)
    };
    times_ns.iter().map(count).collect()
}
