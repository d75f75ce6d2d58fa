//! The file, as it was written in turns with a dummy file on a simulated file system; its defragmentation by the production planner and
//! mover; and its throughput there.

use crate::bed::{self, Moved};
use crate::file::FileOnDrive;
use crate::setup::{DriveKind, Setup};
use fragmend_flash::command::{Command, Units};
use fragmend_layout::{Access as Seen, ByteRange, FileAccesses, FileId, Op};
use fragmend_plan::Settings;
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{self, LogStructured};
use std::path::Path;
use std::rc::Rc;

const BLOCK: u64 = 4096;
/// Bytes of a call and of a large block; bytes from the end of a call to the next one, in strides.
pub const CALL: u64 = 128 << 10;
const STRIDE: u64 = 288 << 10;
/// Small blocks before each large one.
const SMALL: u64 = 32;
/// Bytes of the file of figures 8 and 9: whole turns of both the blocks and the strides. The paper's has 1 GB or
/// 400 MB; what is moved of it and what a call costs do not depend on that, which a test holds at two lengths.
pub const FILE: u64 = 4 * (3328 << 10);
/// How often all calls are made, so that updates fill the drive's buffer many times.
const ROUNDS: u32 = 8;
/// Of a drive that writes in place, more than is used.
const DRIVE_BYTES: u64 = 16 << 30;
const PATH: &str = "file";

/// The file systems of figure 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// `inplace`. The paper places blocks with `fallocate` where other file systems would have them: nothing is reserved for files to grow.
    Ext4,
    /// `segments`, which updates in place what is written past the page cache, as the paper's does (section 5.2.1).
    F2fs,
    /// `cow`.
    Btrfs,
}

impl On {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "F2FS",
            Self::Btrfs => "Btrfs",
        }
    }

    fn format(self, machine: &Machine) -> Rc<dyn FileSystem> {
        match self {
            Self::Ext4 => {
                let options = inplace::Options::of(machine);
                let options = inplace::Options { reservation: false, ..options };
                Rc::new(InPlace::format(machine, &options).expect("room"))
            }
            Self::F2fs => {
                let settings = segments::Settings { in_place: true, ..Default::default() };
                Rc::new(LogStructured::format(machine, &settings).expect("room"))
            }
            Self::Btrfs => Rc::new(Cow::format(machine, &cow::Options::of(machine)).expect("room")),
        }
    }
}

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    strides: bool,
    updates: bool,
}

impl Calls {
    /// Reads in order and in strides, and updates.
    pub const ALL: [Self; 4] = [
        Self { strides: false, updates: false },
        Self { strides: true, updates: false },
        Self { strides: false, updates: true },
        Self { strides: true, updates: true },
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match (self.strides, self.updates) {
            (false, false) => "reads in order",
            (true, false) => "reads in strides",
            (false, true) => "updates in order",
            (true, true) => "updates in strides",
        }
    }

    /// Microseconds of a call at this throughput in MB/s.
    pub fn us(mbs: f64) -> f64 {
        CALL as f64 / mbs
    }

    fn op(self) -> Op {
        if self.updates { Op::Write } else { Op::Read }
    }

    /// The calls on a file of so many bytes.
    pub fn of(self, bytes: u64) -> Vec<ByteRange> {
        let step = if self.strides { CALL + STRIDE } else { CALL };
        let starts = (0..bytes).step_by(step as usize).filter(|start| start + CALL <= bytes);
        starts.map(|start| ByteRange::at(start, CALL)).collect()
    }
}

/// The file.
pub struct Synthetic {
    files: Rc<dyn FileSystem>,
    file: FileId,
    bytes: u64,
}

impl Synthetic {
    /// A file of so many bytes, whole turns, as it was written: every block with a call of its own, and after each of them a block of a
    /// dummy file.
    pub fn written(setup: &Setup, on: On, bytes: u64) -> Self {
        let mut setup = setup.clone();
        if let DriveKind::InPlace(drive) = &mut setup.drive {
            drive.bytes = drive.bytes.min(DRIVE_BYTES);
        }
        let files = on.format(&bed::machine(&setup));
        let [file, dummy] =
            [PATH, "dummy"].map(|path| files.create(Path::new(path)).expect("a new file"));
        let (mut at, mut between) = (0, 0);
        let mut next = [BLOCK; SMALL as usize].into_iter().chain([CALL]).cycle();
        while at < bytes {
            let count = next.next().unwrap_or(BLOCK);
            for (file, range) in
                [(file, ByteRange::at(at, count)), (dummy, ByteRange::at(between, BLOCK))]
            {
                files.write(file, range, Access::Direct).expect("room");
            }
            (at, between) = (at + count, between + BLOCK);
        }
        files.sync().expect("room");
        Self { files, file, bytes }
    }

    /// Moves what is chosen with these settings after these calls have been seen.
    pub fn defragment(&self, settings: &Settings, calls: Calls) -> Moved {
        self.defragment_for(settings, &calls.of(self.bytes), calls.op())
    }

    /// The same after any calls.
    ///
    /// # Panics
    /// A range was not moved.
    pub fn defragment_for(&self, settings: &Settings, calls: &[ByteRange], op: Op) -> Moved {
        let seen = |call: &ByteRange| Seen {
            offset: call.start,
            length: call.len() as u32,
            count: 1,
            thread: 1,
            op,
            direct: true,
            windowed: false,
        };
        let accesses = calls.iter().map(seen).collect();
        let seen = FileAccesses { accesses, ..FileAccesses::of(self.file) };
        bed::defragment_below(&self.files, PATH, vec![seen], settings)
    }

    /// MB/s of these calls, again and again.
    pub fn play(&self, calls: Calls) -> f64 {
        let once = calls.of(self.bytes);
        self.play_at((0..ROUNDS).flat_map(|_| once.iter().copied()), calls.op())
    }

    /// The same of any calls, until what they wrote is durable.
    pub fn play_at(&self, calls: impl Iterator<Item = ByteRange>, op: Op) -> f64 {
        let (machine, mut bytes) = (self.files.machine(), 0);
        machine.wait_until_idle();
        let began = machine.now_ns();
        for call in calls {
            let done = match op {
                Op::Write => self.files.write(self.file, call, Access::Direct),
                _ => self.files.read(self.file, call, Access::Direct),
            };
            done.expect("a call");
            bytes += call.len();
        }
        machine.flush().expect("a flush");
        bytes as f64 / (machine.now_ns() - began) as f64 * 1e3
    }

    /// The file's present blocks on the drive.
    fn blocks(&self) -> FileOnDrive {
        let layout = self.files.layout(self.file, Path::new(PATH)).expect("its layout");
        let mut file = FileOnDrive::default();
        for extent in layout.extents() {
            let (start, count) = (extent.physical / BLOCK, extent.length / BLOCK);
            file.push(Units::new(start as u32, count as u32));
        }
        file
    }

    /// The seconds and the commands, for each GB, of discarding the file's blocks.
    pub fn discard(&self) -> (f64, f64) {
        let file = self.blocks();
        let mut extents = file.within(0, file.units());
        extents.sort_unstable_by_key(|extent| extent.start);
        // Blocks of different parts of the file may follow each other.
        let mut by_place = FileOnDrive::default();
        extents.into_iter().for_each(|extent| by_place.push(extent));
        let machine = self.files.machine();
        machine.wait_until_idle();
        let began = machine.now_ns();
        for units in by_place.within(0, by_place.units()) {
            machine.command(&Command::Trim(units)).expect("a place of the drive");
        }
        let gb = self.bytes as f64 / 1e9;
        ((machine.now_ns() - began) as f64 / 1e9 / gb, by_place.extents() as f64 / gb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;
    use fragmend_plan::Policy;

    /// Bytes of a turn of small blocks and a large one.
    const TURN: u64 = SMALL * BLOCK + CALL;
    const ALL: [On; 3] = [On::Ext4, On::F2fs, On::Btrfs];

    fn written(on: On) -> Synthetic {
        Synthetic::written(&presets::named("optane").unwrap(), on, FILE)
    }

    #[test]
    fn small_and_large_blocks_take_turns() {
        for on in ALL {
            let file = written(on).blocks();
            assert_eq!(u64::from(file.units()) * BLOCK, FILE);
            let turns = FILE / TURN;
            // Of the log and the groups some ends fall into a large block.
            let extents = file.extents() as u64;
            assert!((turns * 33..turns * 33 + 20).contains(&extents), "{on:?}: {extents}");
            assert_eq!(file.within(SMALL as u32, 32).len(), 1);
        }
    }

    #[test]
    fn calls_are_in_one_fragment_after_the_ranges_that_they_chose_moved() {
        for on in ALL {
            for calls in Calls::ALL {
                let file = written(on);
                file.defragment(&bed::policy(Policy::Fragpicker), calls);
                let (now, blocks) = (file.blocks(), |bytes: u64| (bytes / BLOCK) as u32);
                let fragments = |call: &ByteRange| now.within(blocks(call.start), 32).len();
                let split = calls.of(FILE).iter().filter(|call| fragments(call) > 1).count();
                assert!(split <= 1, "{on:?} {calls:?}: {split} calls");
            }
        }
    }

    /// What the defragmenter of Btrfs moves that leaves extents of 128 KiB alone.
    #[test]
    fn windows_of_the_bypass_option_are_the_runs_of_small_blocks() {
        let file = written(On::Btrfs);
        let before = file.blocks();
        let moved = file.defragment(&bed::policy(Policy::Bypass), Calls::ALL[0]);
        assert_eq!(moved.bytes, FILE / 2);
        let (now, turn) = (file.blocks(), (TURN / BLOCK) as u32);
        for start in (0..now.units()).step_by(turn as usize) {
            assert_eq!(now.within(start, 32).len(), 1);
            assert_eq!(now.within(start + 32, 32), before.within(start + 32, 32));
        }
    }

    #[test]
    fn figures_do_not_depend_on_the_length_of_the_file() {
        let setup = presets::named("optane").unwrap();
        for calls in &Calls::ALL[..2] {
            let figures = |bytes| {
                let file = Synthetic::written(&setup, On::Ext4, bytes);
                let before = file.play(*calls);
                let moved = file.defragment(&bed::policy(Policy::Fragpicker), *calls);
                (before, file.play(*calls), moved.bytes as f64 / bytes as f64)
            };
            let (small, large) = (figures(FILE), figures(2 * FILE));
            for (small, large) in [(small.0, large.0), (small.1, large.1), (small.2, large.2)] {
                assert!((small / large - 1.0).abs() < 0.01, "{calls:?}: {small} and {large}");
            }
        }
    }
}
