//! What power cuts do to each remedy: a load of programs' calls that moves files by the remedy's primitive, on a small drive that keeps
//! content, is cut before every command, and what is mounted then is compared with what must be durable ([`fragmend_simfs::cuts`]).

use super::image::{Files, Kind};
use super::remedies::{Act, Moves, Remedy};
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::ssd::Ssd;
use fragmend_flash::zones::Zoned;
use fragmend_layout::Volume;
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::cuts::{Cuts, Kind as Cut, drives};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::janusd::spread_file;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{Cleaning, CopyOrder, LogStructured, Primitive, Settings, Victims};
use schemars::JsonSchema;
use serde::Serialize;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// What was found of one remedy on one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Safety {
    /// Power cuts.
    pub cuts: u64,
    /// Those after which something durable was lost, or the tables disagreed.
    pub lost: u64,
    /// Bytes that the load moved where it was not cut.
    pub moved_bytes: u64,
}

/// Steps of a load, and loads.
const STEPS: usize = 24;
const LOADS: u64 = 2;
/// When the power fails, after the command before: in the middle of a program (200 us).
const INSTANTS: [u64; 1] = [120_000];
/// One mount in two is cut off within so many commands.
const MOUNT_COMMANDS: u64 = 20;
/// Bytes of a block, and blocks of a flash page.
const BLOCK: u32 = 512;
const PAGE_BLOCKS: u32 = 4;
/// Pages of a block of the zoned drive, whose dies are four.
const ZONE_PAGES: u32 = 4;

/// Cuts a load with a remedy; `is_zoned`: on a drive with zones.
pub fn safety(remedy: Remedy, kind: Kind, is_zoned: bool, seed: u64) -> Safety {
    let cut = OfRemedy { remedy, kind, is_zoned, mounted: RefCell::default() };
    let machine: fn(u64) -> Machine = match (remedy.act(), is_zoned) {
        (_, true) => zoned,
        (Act::Place(Placement::FileAffine), _) => file_affine,
        (Act::Place(_), _) => die_affine,
        (Act::Janusd { .. } | Act::Plan(_, Moves::ByRemap), _) => with_log,
        _ => plain,
    };
    let found = Cuts {
        kind: &cut,
        machine,
        seeds: seed..seed + LOADS,
        steps: STEPS,
        instants: &INSTANTS,
        journal: None,
        mount_commands: MOUNT_COMMANDS,
        ends_early: false,
    }
    .run();
    let lost = found.disagreements.len() as u64;
    Safety { cuts: found.cuts, lost, moved_bytes: found.moved_bytes }
}

fn flash(placement: Placement) -> Machine {
    let mut drive: Drive = drives::flash(BLOCK, 16, 8);
    drive.firmware.placement = placement;
    let ssd = Ssd::with_content(&drive).expect("a consistent description");
    Machine::new(Box::new(ssd), true, drives::path())
}

fn plain(_: u64) -> Machine {
    flash(Placement::RoundRobin)
}

fn die_affine(_: u64) -> Machine {
    flash(Placement::DieAffine)
}

fn file_affine(_: u64) -> Machine {
    flash(Placement::FileAffine)
}

fn with_log(_: u64) -> Machine {
    Machine::new(Box::new(drives::written_with_short_log()), true, drives::path())
}

fn zoned(_: u64) -> Machine {
    let mut drive = drives::flash(BLOCK, 34, ZONE_PAGES);
    drive.geometry.over_provisioning_per_mille = 300;
    // What is no full program unit yet stays in the buffer, for each open zone.
    drive.buffer.bytes *= 8;
    drive.buffer.protected = true;
    let zoned = Zoned::new(&drive, 14, true).expect("a consistent description");
    Machine::new(Box::new(zoned), true, drives::path())
}

/// A file system with a remedy, that is cut.
struct OfRemedy {
    remedy: Remedy,
    kind: Kind,
    is_zoned: bool,
    /// What was mounted last.
    mounted: RefCell<Option<Files>>,
}

impl OfRemedy {
    fn in_place(&self, machine: &Machine) -> inplace::Options {
        let mut options = inplace::Options::of(machine);
        (options.blocks_per_group, options.journal_blocks, options.inodes) = (400, 32, 16);
        (options.reservation, options.locality) = (false, false);
        options.settings.delayed_allocation = false;
        let made = self.remedy.made();
        (options.settings.hints, options.primitive) = (made.placement.is_some(), made.primitive);
        options
    }

    fn cow(&self, machine: &Machine) -> cow::Options {
        let mut options = cow::Options::of(machine);
        options.settings.delayed_allocation = false;
        options.settings.hints = self.remedy.made().placement.is_some();
        options
    }

    fn segments(&self) -> Settings {
        let (background, order) = (Victims::FragmentationAware { candidates: 4 }, CopyOrder::Inode);
        let sorted = Cleaning { background, order, ..Cleaning::default() };
        let is_cleaned = self.remedy.act() == Act::Clean;
        Settings {
            segment_bytes: u64::from(16 * BLOCK),
            node_addresses: 8,
            zone_blocks: self.is_zoned.then_some(4 * PAGE_BLOCKS * ZONE_PAGES),
            cache_blocks: 64,
            dirty_blocks: 24,
            cleaning: if is_cleaned { sorted } else { Cleaning::default() },
            ..Settings::default()
        }
    }

    fn of(&self, machine: &Machine, mounts: bool) -> Result<Files, Error> {
        Ok(match self.kind {
            Kind::Ext4 => {
                let (make, options) =
                    (if mounts { InPlace::mount } else { InPlace::format }, self.in_place(machine));
                Files::InPlace(make(machine, &options)?)
            }
            Kind::Btrfs => {
                let (make, options) =
                    (if mounts { Cow::mount } else { Cow::format }, self.cow(machine));
                Files::Cow(make(machine, &options)?)
            }
            Kind::F2fs => {
                let make = if mounts { LogStructured::mount } else { LogStructured::format };
                let files = make(machine, &self.segments())?;
                if let Act::Plan(_, Moves::InDevice) = self.remedy.act() {
                    files.set_primitive(Primitive::InDevice)?;
                }
                Files::Segments(files)
            }
        })
    }
}

impl Cut for OfRemedy {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        self.of(machine, false)?;
        Ok(machine.flush()?)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        let files = self.of(machine, true)?;
        let shared = files.shared();
        self.mounted.replace(Some(files));
        Ok(shared)
    }

    fn moves_often(&self) -> bool {
        true
    }

    fn acts(&self) -> bool {
        matches!(self.remedy.act(), Act::Janusd { spreads: true, .. } | Act::Clean)
    }

    fn act(&self, fs: &dyn FileSystem) -> Result<u64, Error> {
        let block = fs.block_bytes();
        match (self.mounted.borrow().as_ref(), self.remedy.act()) {
            (Some(Files::InPlace(files)), Act::Janusd { spreads: true, .. }) => {
                let mut all = Vec::new();
                let listed = files.files(&mut |_: &Path, file| all.extend(file.ok()));
                listed.map_err(|skip| Error::Damaged(skip.to_string()))?;
                let each = all.into_iter().map(|file| spread_file(files, file, PAGE_BLOCKS));
                Ok(each.sum::<Result<u64, Error>>()? * block)
            }
            (Some(Files::Segments(files)), Act::Clean) => {
                let before = files.counts().blocks_copied;
                files.clean(1)?;
                Ok((files.counts().blocks_copied - before) * block)
            }
            _ => Ok(0),
        }
    }
}
