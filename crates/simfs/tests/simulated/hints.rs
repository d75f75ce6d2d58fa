//! The hints of data writes (FAST'24, section 4): which reach the drive, and which of them it cannot follow.

use crate::support::drives::{flash, path};
use fragmend_apply::{Options as Run, Rate, apply};
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::drive::Placement;
use fragmend_flash::host::{HostPath, SplitHints};
use fragmend_flash::ssd::Ssd;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_plan::{Policy, Settings as Planning, Survey, make};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Settings;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const BLOCK: u64 = 4096;

/// A file system that places a block when it is written, on a drive that heeds hints, and that is mounted so that it passes them on, or not.
struct Bed {
    machine: Machine,
    fs: InPlace,
}

impl Bed {
    fn new(hints: bool, path: HostPath) -> Self {
        let mut drive = flash(BLOCK as u32, 64, 32);
        drive.firmware.placement = Placement::DieAffine;
        let ssd = Ssd::with_content(&drive).expect("a drive");
        let machine = Machine::new(Box::new(ssd), true, path);
        let of_machine = Options::of(&machine);
        let settings = Settings { hints, delayed_allocation: false, ..of_machine.settings };
        let options = Options { settings, reservation: false, locality: false, ..of_machine };
        let fs = InPlace::format(&machine, &options).expect("a large drive");
        Self { machine, fs }
    }

    fn file(&self, name: &str) -> FileId {
        self.fs.create(Path::new(name)).expect("an inode")
    }

    fn write(&self, file: FileId, blocks: std::ops::Range<u64>, access: Access) {
        let range = ByteRange { start: blocks.start * BLOCK, end: blocks.end * BLOCK };
        self.fs.write(file, range, access).expect("space");
    }

    /// The places of a file, block by block.
    fn places(&self, file: FileId) -> Vec<u32> {
        let layout = self.fs.layout(file, Path::new("")).expect("a file");
        let extents = layout.extents().iter();
        let units = |from: u64, bytes: u64| (from / BLOCK) as u32..((from + bytes) / BLOCK) as u32;
        extents.flat_map(|extent| units(extent.physical, extent.length)).collect()
    }

    /// The hints of the writes that `run` makes, each with the first unit of its write.
    fn hints(&self, run: impl FnOnce()) -> Vec<(u32, Hint)> {
        self.machine.record_commands();
        run();
        let commands = self.machine.recorded_commands().into_iter();
        let hint = |command: Command| match command {
            Command::Write { units: Units { start, .. }, hint, .. } => Some((start, hint)),
            _ => None,
        };
        commands.filter_map(|recorded| hint(recorded.command)).collect()
    }

    /// Hints that the drive followed, and that it could not.
    fn followed(&self) -> (u64, u64) {
        let counters = self.machine.counters();
        (counters.hints_taken, counters.hints_lost)
    }
}

fn after(predecessor: u32) -> Hint {
    Hint::Append { predecessor }
}

/// Two files that are written in turns; a sync of one of them is returned with its hints.
#[test]
fn an_append_names_the_block_before_it_and_an_overwrite_is_one() {
    let bed = Bed::new(true, path());
    let (a, b) = (bed.file("a"), bed.file("b"));
    let first = bed.hints(|| bed.write(a, 0..4, Access::Direct));
    let at = bed.places(a);
    assert_eq!(first, [(at[0], Hint::None)], "a file's first block has no predecessor");
    bed.write(b, 0..4, Access::Direct);
    // Two extents, with another file's block between them, are two bios, and so is what is written anew.
    bed.write(a, 3..6, Access::Buffered);
    bed.write(b, 4..5, Access::Buffered);
    bed.write(a, 6..8, Access::Buffered);
    let hints = bed.hints(|| bed.fs.sync_file(a).expect("space"));
    let at = bed.places(a);
    let data: Vec<_> = hints.iter().filter(|(unit, _)| at.contains(unit)).copied().collect();
    let overwritten = (at[3], Hint::Overwrite);
    assert_eq!(data, [overwritten, (at[4], after(at[3])), (at[6], after(at[5]))]);
    let others: Vec<_> = hints.iter().filter(|(unit, _)| !at.contains(unit)).collect();
    let none = others.iter().filter(|(_, hint)| *hint == Hint::None).count();
    assert!(
        none >= 2 && none + 1 == others.len(),
        "b's block is ordered, journal and commit: {others:?}"
    );
    assert_eq!(bed.followed().1, 0);
}

#[test]
fn without_the_switch_there_are_none() {
    let bed = Bed::new(false, path());
    let a = bed.file("a");
    let hints = bed.hints(|| {
        bed.write(a, 0..4, Access::Direct);
        bed.write(a, 2..8, Access::Direct);
        bed.fs.sync().expect("space");
    });
    assert!(hints.len() > 3 && hints.iter().all(|(_, hint)| *hint == Hint::None), "{hints:?}");
    assert_eq!(bed.followed(), (0, 0));
}

#[test]
fn a_predecessor_that_was_freed_is_none_and_one_that_has_moved_is_named_where_it_is() {
    let bed = Bed::new(true, path());
    let (a, b) = (bed.file("a"), bed.file("b"));
    for block in 0..8 {
        bed.write(a, block..block + 1, Access::Direct);
        bed.write(b, block..block + 1, Access::Direct);
    }
    bed.fs.sync().expect("space");
    let before = bed.places(a);
    let planning = Planning { policy: Policy::WholeFile, ..Planning::default() };
    let plan = make(Survey::of(&bed.fs, None).expect("all files"), &planning);
    let volumes = plan
        .devices
        .iter()
        .map(|device| (device.device, Box::new(bed.fs.clone()) as Box<dyn Volume>));
    let run = Run { rate: Rate::Unlimited, ..Run::DEFAULT };
    let moving = bed.hints(|| {
        apply(&plan, volumes.collect(), &bed.machine, &run, &AtomicBool::new(false), |_| {})
            .expect("the volume of the plan");
    });
    let at = bed.places(a);
    assert!(at != before && at.is_sorted_by(|one, next| one + 1 == *next), "{at:?}");
    assert!(moving.iter().all(|(_, hint)| *hint == Hint::None), "a mover's copies: {moving:?}");
    let hints = bed.hints(|| bed.write(a, 8..9, Access::Direct));
    assert_eq!(hints[0].1, after(at[7]), "where it has moved to");
    assert_eq!(bed.followed().1, 0);

    let hole = ByteRange { start: 6 * BLOCK, end: 9 * BLOCK };
    bed.fs.punch(a, hole).expect("whole blocks");
    let hints = bed.hints(|| bed.write(a, 9..10, Access::Direct));
    assert_eq!(hints[0].1, Hint::None, "behind a hole");
    let reserved = ByteRange { start: 10 * BLOCK, end: 12 * BLOCK };
    bed.fs.allocate(a, reserved).expect("space");
    let hints = bed.hints(|| bed.write(a, 12..13, Access::Direct));
    assert_eq!(hints[0].1, Hint::None, "behind what was never written");
    assert_eq!(bed.followed().1, 0);
}

#[test]
fn a_predecessor_that_is_not_on_the_drive_yet_is_a_lost_hint() {
    let bed = Bed::new(true, path());
    let a = bed.file("a");
    bed.write(a, 0..2, Access::Buffered);
    let at = bed.places(a);
    let hints = bed.hints(|| bed.write(a, 2..3, Access::Direct));
    assert_eq!((hints, bed.followed()), (vec![(at[1] + 1, after(at[1]))], (0, 1)));
}

#[test]
fn hints_that_the_block_layer_makes_wrong_are_counted() {
    let split =
        HostPath { request_bytes: 4 * BLOCK as u32, split_hints: SplitHints::Repeated, ..path() };
    let bed = Bed::new(true, split);
    let a = bed.file("a");
    bed.write(a, 0..1, Access::Direct);
    let at = bed.places(a);
    let hints = bed.hints(|| bed.write(a, 1..9, Access::Direct));
    assert_eq!(hints, [(at[0] + 1, after(at[0])), (at[0] + 5, after(at[0]))]);
    assert_eq!(bed.machine.stale_hints(), 1);
}
