//! The file, on a volume in memory; its defragmentation by the production planner and mover; and its throughput
//! on a drive that has played everything that was written.

use crate::file::FileOnDrive;
use crate::setup::Setup;
use fragmend_apply::{Options, Rate, Volumes, apply};
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::host::{Host, windows};
use fragmend_layout::{Access, FileAccesses, FileId, Op, Volume};
use fragmend_memory::{Memory, World};
use fragmend_plan::{PlannedRange, Policy, Settings, Survey, make};
use std::path::Path;
use std::rc::Rc;

/// Blocks of a call and of a large block; blocks from the end of a call to the next one, in strides.
pub const CALL: u32 = (128 << 10) / 4096;
const STRIDE: u32 = (288 << 10) / 4096;
/// Small blocks before each large one.
const SMALL: u32 = 32;
/// Blocks of the file of figures 8 and 9: whole turns of both the blocks and the strides. The paper's has 1 GB or
/// 400 MB; what is moved of it and what a call costs do not depend on that.
const FILE: u32 = 4 * (3328 << 10) / 4096;
/// How often all calls are made, so that updates fill the drive's buffer many times.
const ROUNDS: u32 = 8;
pub const BLOCK: u64 = 4096;
const DEVICE: u64 = 1;
const PATH: &str = "/memory/file";

/// What is called.
#[derive(Clone, Copy, Debug)]
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
        f64::from(CALL) * BLOCK as f64 / mbs
    }

    /// The first block of each call.
    fn starts(self) -> impl Iterator<Item = u32> {
        let step = if self.strides { CALL + STRIDE } else { CALL };
        (0..FILE).step_by(step as usize).filter(|start| start + CALL <= FILE)
    }

    /// The same, as they are recorded.
    fn recorded(self) -> Vec<Access> {
        let op = if self.updates { Op::Write } else { Op::Read };
        self.starts().map(|start| recorded(start, op)).collect()
    }
}

/// A call at this block of the file, as it is recorded.
pub fn recorded(start: u32, op: Op) -> Access {
    Access {
        offset: u64::from(start) * BLOCK,
        length: CALL * BLOCK as u32,
        count: 1,
        thread: 1,
        op,
        direct: true,
        windowed: false,
    }
}

/// The file on its volume, and the blocks of the device that were written, in order.
pub struct Synthetic {
    memory: Memory,
    world: Rc<World>,
    file: FileId,
    written: Vec<Units>,
}

impl Synthetic {
    /// The file of figures 8 and 9.
    pub fn new() -> Self {
        Self::of(FILE)
    }

    /// A file of so many blocks, whole turns, as it was written, in turns with a dummy file.
    pub fn of(blocks: u32) -> Self {
        let (mut places, mut dummy, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let (mut at, mut next) = (0, [1; SMALL as usize].into_iter().chain([CALL]).cycle());
        while places.len() < blocks as usize {
            let count = next.next().unwrap_or(1);
            places.extend((at..at + count).map(|place| Some(u64::from(place))));
            dummy.push(Some(u64::from(at + count)));
            written.extend([Units::new(at, count), Units::new(at + count, 1)]);
            at += count + 1;
        }
        let world = Rc::new(World::new());
        // As much is free as the file has, and what a run leaves free besides.
        let memory = Memory::new(&world, DEVICE, BLOCK, u64::from(at + 2 * blocks));
        let file = memory.add(Path::new(PATH), places.len() as u64 * BLOCK, &places);
        memory.add(Path::new("/memory/dummy"), dummy.len() as u64 * BLOCK, &dummy);
        Self { memory, world, file, written }
    }

    /// Moves what this policy chooses after these calls; returns the bytes that were moved.
    ///
    /// # Panics
    /// A range was not moved.
    pub fn defragment(&mut self, policy: Policy, calls: Calls) -> u64 {
        let seen = if policy.needs_trace() { calls.recorded() } else { Vec::new() };
        self.defragment_for(seen, &Settings { policy, ..Settings::default() })
    }

    /// Moves what is chosen with these settings after these accesses; returns the bytes that were moved.
    ///
    /// # Panics
    /// A range was not moved.
    pub fn defragment_for(&mut self, accesses: Vec<Access>, settings: &Settings) -> u64 {
        let path = Some(PATH.into());
        let seen = FileAccesses { path, accesses, ..FileAccesses::of(self.file) };
        let survey = Survey::of(&self.memory, Some(vec![seen])).expect("all files");
        let plan = make(survey, settings);
        let volume: Box<dyn Volume> = Box::new(self.memory.clone());
        let options = Options { rate: Rate::Unlimited, ..Options::DEFAULT };
        let volumes = Volumes::from([(DEVICE, volume)]);
        let summary = apply(&plan, volumes, &*self.world, &options, &self.world.stop, |_| {})
            .expect("the volume");
        let ranges: Vec<&PlannedRange> = plan.files.iter().flat_map(|file| &file.ranges).collect();
        assert_eq!(summary.ranges_moved, ranges.len() as u64, "{summary:?}");
        let now = self.blocks();
        for range in ranges {
            let (start, count) = (range.offset / BLOCK, range.length / BLOCK);
            self.written.extend(now.within(start as u32, count as u32));
        }
        summary.moved_bytes
    }

    /// The file's present blocks.
    fn blocks(&self) -> FileOnDrive {
        let layout = self.memory.layout(self.file, Path::new(PATH)).expect("its layout");
        let mut file = FileOnDrive::default();
        for extent in layout.extents() {
            let (start, count) = (extent.physical / BLOCK, extent.length / BLOCK);
            file.push(Units::new(start as u32, count as u32));
        }
        file
    }

    /// MB/s of these calls on a drive to which everything was written in the same order.
    pub fn play(&self, setup: &Setup, calls: Calls) -> f64 {
        self.play_at(setup, (0..ROUNDS).flat_map(|_| calls.starts()), calls.updates)
    }

    /// The same of calls at these blocks of the file, which read or update.
    pub fn play_at(&self, setup: &Setup, starts: impl Iterator<Item = u32>, updates: bool) -> f64 {
        let mut drive = setup.device();
        let mut host = self.written_to(setup, &mut *drive);
        let (start, file, mut bytes) = (host.now, self.blocks(), 0);
        for call in starts {
            let extents = file.within(call, CALL);
            let done = if updates { host.write(&extents, Hint::None) } else { host.read(&extents) };
            done.expect("a place of the drive");
            bytes += u64::from(CALL) * BLOCK;
        }
        host.flush().expect("a flush");
        bytes as f64 / (host.now - start) as f64 * 1e3
    }

    /// The seconds and the commands, for each GB, of discarding the file's blocks on such a drive.
    pub fn discard(&self, setup: &Setup) -> (f64, f64) {
        let file = self.blocks();
        let mut extents = file.within(0, file.units());
        extents.sort_unstable_by_key(|extent| extent.start);
        // Blocks of different parts of the file may follow each other.
        let mut by_place = FileOnDrive::default();
        extents.into_iter().for_each(|extent| by_place.push(extent));
        let mut drive = setup.device();
        let mut host = self.written_to(setup, &mut *drive);
        let start = host.now;
        for units in by_place.within(0, by_place.units()) {
            host.command(&Command::Trim(units)).expect("a place of the drive");
        }
        let gb = u64::from(file.units()) as f64 * BLOCK as f64 / 1e9;
        ((host.now - start) as f64 / 1e9 / gb, by_place.extents() as f64 / gb)
    }

    /// The host, once the drive is idle after everything was written to it.
    fn written_to<'a>(
        &self,
        setup: &'a Setup,
        drive: &'a mut dyn Device,
    ) -> Host<'a, dyn Device + 'a> {
        let mut host = Host::new(&setup.host, drive, 0);
        for units in self.written.iter().flat_map(|units| windows(&[*units], CALL)) {
            host.write(&units, Hint::None).expect("room");
        }
        host.flush().expect("a flush");
        host.wait_until_idle();
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_blocks_take_turns() {
        let file = Synthetic::new().blocks();
        assert_eq!(file.units(), FILE);
        assert_eq!(file.extents() as u32, FILE / (SMALL + CALL) * (SMALL + 1));
        assert_eq!(file.within(SMALL, CALL), [Units::new(2 * SMALL, CALL)]);
    }

    #[test]
    fn calls_are_in_one_fragment_after_the_ranges_that_they_chose_moved() {
        for calls in Calls::ALL {
            let mut file = Synthetic::new();
            file.defragment(Policy::Fragpicker, calls);
            let now = file.blocks();
            assert!(calls.starts().all(|start| now.within(start, CALL).len() == 1), "{calls:?}");
        }
    }
}
