//! What the experiments of InDeF have in common: the simulated F2FS on the zones of the emulator's drive, its monitor, and the production
//! planner and mover, which moves data through the host or in the drive. Reads are direct calls of 256 KiB, as in all of the paper's
//! experiments (section IV), where a call that is longer than the file's rest is the rest.

use crate::bed::{self, carry_out, plan};
use crate::loads::read_whole;
use crate::presets;
use crate::setup::DriveKind;
use fragmend_layout::{FileAccesses, FileId, SkipReason, Volume};
use fragmend_plan::{Plan, Settings as Planning, Survey};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::monitor::Monitor;
use fragmend_simfs::segments::{LogStructured, Primitive, Settings};

/// Bytes of a request.
pub const CALL: u64 = 256 << 10;
/// Bytes of a flash page, which is a stripe unit of a zone, and chips.
pub const PAGE: u64 = 16 << 10;
pub const CHIPS: u32 = 16;
/// More bytes than the monitor needs for anything here.
const MONITOR: usize = 64 << 20;

/// An empty file system on the emulator's drive, of which one part in `parts` is there.
///
/// # Panics
/// So small a drive has too few zones.
pub fn formatted(parts: u32) -> LogStructured {
    let setup = presets::named("femu-indef").expect("a preset");
    let DriveKind::Zoned { drive, .. } = &setup.drive else { unreachable!("it has zones") };
    let geometry = &drive.geometry;
    let zones = u64::from(geometry.blocks_per_plane / parts);
    let zone_bytes = u64::from(geometry.pages_per_block)
        * u64::from(geometry.flash_page_bytes)
        * u64::from(CHIPS);
    let zone_blocks = Some((zone_bytes / u64::from(geometry.mapping_unit_bytes)) as u32);
    let setup = setup.of_bytes(zones * zone_bytes);
    let machine = bed::machine(&setup);
    LogStructured::format(&machine, &Settings { zone_blocks, ..Settings::default() })
        .expect("a drive that is large enough")
}

/// What reading files has brought.
pub struct Reads {
    /// MB/s of all of them together.
    pub mbs: f64,
    /// What the monitor saw of them.
    pub seen: Vec<FileAccesses>,
}

/// Reads files whole, one after the other, on an idle drive with an empty page cache.
///
/// # Panics
/// One of them is gone.
pub fn read(fs: &LogStructured, files: &[FileId]) -> Reads {
    let machine = fs.machine();
    fs.drop_caches();
    fs.set_monitor(Some(Monitor::new(MONITOR)));
    machine.wait_until_idle();
    let (began, mut bytes) = (machine.now_ns(), 0);
    for file in files {
        bytes += read_whole(fs, *file, CALL, Access::Direct).expect("the drive reads").read_bytes;
    }
    let mbs = bytes as f64 / (machine.now_ns() - began) as f64 * 1e3;
    let monitor = fs.set_monitor(None).expect("the monitor");
    let identify = |inode| files.iter().copied().find(|file| file.inode == inode);
    Reads { mbs, seen: monitor.accesses(fs.block_bytes(), identify) }
}

/// What a policy chooses of the files that were seen.
///
/// # Panics
/// They cannot be surveyed.
pub fn planned(fs: &LogStructured, seen: Vec<FileAccesses>, settings: &Planning) -> Plan {
    plan(Survey::of(fs, Some(seen)).expect("all files"), settings)
}

/// What a run of the mover did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Bytes of files that it moved.
    pub bytes: u64,
    /// How long it lasted.
    pub ns: u64,
    /// For how long the chips were busy, of the time that all of them had, in per cent.
    pub busy_percent: f64,
}

/// Bytes that a plan moves.
pub fn planned_bytes(plan: &Plan) -> u64 {
    plan.files.iter().flat_map(|file| &file.ranges).map(|range| range.length).sum()
}

/// Moves what was planned, on an idle drive with an empty page cache and without a pause.
///
/// # Panics
/// A range of the plan was not moved, though it is in several fragments.
pub fn moved(fs: &LogStructured, plan: &Plan, primitive: Primitive) -> Moved {
    let machine = fs.machine();
    fs.set_primitive(primitive).expect("a drive with zones");
    fs.drop_caches();
    machine.wait_until_idle();
    let busy = || machine.drive(|drive| drive.busy_ns().iter().sum::<u64>());
    let (began, before) = (machine.now_ns(), busy());
    let summary = carry_out(plan, machine, || Box::new(fs.clone()));
    let contiguous = summary.skipped_by_reason.get(&SkipReason::AlreadyContiguous).copied();
    let skipped = summary.ranges_skipped - contiguous.unwrap_or(0) + summary.ranges_left;
    assert_eq!(skipped, 0, "{summary:?}");
    let ns = machine.now_ns() - began;
    let busy_percent = (busy() - before) as f64 / (ns * u64::from(CHIPS)) as f64 * 100.0;
    Moved { bytes: summary.moved_bytes, ns, busy_percent }
}
