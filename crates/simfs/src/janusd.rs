//! janusd on the host (sections 4.1 and 4.2), for a file system whose drive remaps and spreads: janusdL joins files in fragments by remaps,
//! janusdP has the drive spread files that are read often. janusd is both.
//!
//! janusdL is the production planner and mover on a file system that moves by exclusive remaps. janusdP moves nothing that a file system
//! knows of: the drive writes the same addresses anew, and a power cut finds the old copies or the new ones of the same data.

use crate::error::Error;
use crate::file_system::FileSystem;
use crate::inplace::InPlace;
use crate::machine::Machine;
use fragmend_apply::{Options, Rate, Summary, Volumes};
use fragmend_flash::command::{Command, Units};
use fragmend_layout::{ExtentKind, FileId, Layout, Measures, Volume};
use fragmend_plan::{Policy, Settings, Survey};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// How many of the most-read files janusdP looks at (section 4.2).
pub const MOST_READ: usize = 50;
/// The degree of physical fragmentation from which on it has a file spread, in thousandths (section 4.2).
pub const PHYSICAL_PER_MILLE: u32 = 500;

/// Joins all files whose degree of logical fragmentation is higher than `degree`; 1 is that of a file without fragmentation. Returns what
/// the mover reports, or `None` if there is no such file.
///
/// # Errors
/// The files cannot be listed, or the run was refused.
pub fn join_files(files: &InPlace, degree: f64) -> Result<Option<Summary>, Error> {
    let failed = |why: String| Error::Damaged(why);
    let mut survey = Survey::of(files, None).map_err(|skip| failed(skip.to_string()))?;
    survey.files.retain(|file| Measures::of(&file.layout, &file.limits, |_, _| ()).dof() > degree);
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let plan = fragmend_plan::make(survey, &settings);
    let Some(device) = plan.devices.first().filter(|_| !plan.files.is_empty()) else {
        return Ok(None);
    };
    let volume: Box<dyn Volume> = Box::new(files.clone());
    let volumes = Volumes::from([(device.device, volume)]);
    let options = Options { rate: Rate::Unlimited, free_floor_bytes: Some(0), ..Options::DEFAULT };
    let (machine, stop) = (files.machine().clone(), AtomicBool::new(false));
    fragmend_apply::apply(&plan, volumes, &machine, &options, &stop, &mut |_| ())
        .map(Some)
        .map_err(|error| failed(error.to_string()))
}

/// How often files were read: the daemon's counts of section 4.2.
#[derive(Clone, Debug, Default)]
pub struct Reads(BTreeMap<FileId, u64>);

impl Reads {
    /// Counts a read of a file.
    pub fn count(&mut self, file: FileId) {
        *self.0.entry(file).or_default() += 1;
    }

    /// The files that were read most often, the first of them first.
    pub fn most(&self, files: usize) -> Vec<FileId> {
        let mut all: Vec<(FileId, u64)> = self.0.iter().map(|(file, n)| (*file, *n)).collect();
        all.sort_by_key(|(file, reads)| (std::cmp::Reverse(*reads), *file));
        all.into_iter().take(files).map(|(file, _)| file).collect()
    }
}

/// What janusdP has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Files that it looked at.
    pub looked_at: u64,
    /// Those whose degree was high enough.
    pub files: u64,
    /// Blocks that the drive wrote anew.
    pub blocks: u64,
}

/// Has the drive spread those of the most-read files that are on too few of its dies. `page_blocks` is how many blocks a flash page has.
/// Files that are gone are none of these.
///
/// # Errors
/// A file cannot be written back, or the drive refuses.
pub fn spread_files(files: &InPlace, reads: &Reads, page_blocks: u32) -> Result<Spread, Error> {
    let mut done = Spread::default();
    for file in reads.most(usize::MAX) {
        if done.looked_at == MOST_READ as u64 {
            break;
        }
        match files.sync_file(file) {
            Err(Error::Gone | Error::Reused) => continue,
            synced => synced?,
        }
        let Ok(layout) = Volume::layout(files, file, Path::new("")) else { continue };
        let units = units_of(&layout, files.block_bytes());
        let machine = files.machine();
        let degree = machine.drive(|drive| drive.dof_p_per_mille(&units));
        done.looked_at += 1;
        if units.is_empty() || degree < PHYSICAL_PER_MILLE {
            continue;
        }
        done.files += 1;
        done.blocks += spread(machine, &units, page_blocks)?;
    }
    Ok(done)
}

/// Has the drive spread a file, whatever its degree; returns how many blocks it wrote anew.
///
/// # Errors
/// The file cannot be written back, or the drive refuses.
pub fn spread_file(files: &InPlace, file: FileId, page_blocks: u32) -> Result<u64, Error> {
    files.sync_file(file)?;
    let layout = Volume::layout(files, file, Path::new("")).map_err(|_| Error::Gone)?;
    let units = units_of(&layout, files.block_bytes());
    if units.is_empty() {
        return Ok(0);
    }
    spread(files.machine(), &units, page_blocks)
}

fn spread(machine: &Machine, units: &[Units], page_blocks: u32) -> Result<u64, Error> {
    machine.command(&Command::PhysicalDefragment(pages_of(units, page_blocks)))?;
    Ok(units.iter().map(|units| u64::from(units.count)).sum())
}

/// Where the data of a file is.
fn units_of(layout: &Layout, block_bytes: u64) -> Vec<Units> {
    let data = layout.extents().iter().filter(|extent| extent.kind == ExtentKind::Data);
    let units = |bytes: u64| (bytes / block_bytes) as u32;
    data.map(|extent| Units::new(units(extent.physical), units(extent.length))).collect()
}

/// The same in runs that each fit into a flash page.
fn pages_of(units: &[Units], page_blocks: u32) -> Vec<Units> {
    let page = page_blocks.max(1);
    let pages = |units: &Units| {
        let Units { start, count } = *units;
        let firsts = (0..count).step_by(page as usize);
        firsts.map(move |first| Units::new(start + first, page.min(count - first)))
    };
    units.iter().flat_map(pages).collect()
}
