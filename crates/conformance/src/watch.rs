//! A file that is relocated without a run: the pace is the case's, and what the engine does between two pauses
//! is seen in the file's layout.

use crate::{BLOCK, Fixture, SIZE};
use fragmend_layout::{
    ByteRange, Fate, Layout, Movable, Pace, Settled, Skip, Target, Terms, Underway,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A step of a file of [`SIZE`], in bytes: a quarter of a quarter.
pub(crate) const STEP: u64 = SIZE / 16;

/// Where each block of a file is: its offset in the file, and on the device. All are bytes.
pub(crate) type Places = BTreeMap<u64, u64>;

/// The places of a file's blocks.
pub(crate) fn places(layout: &Layout) -> Places {
    let of_extent = |e: &fragmend_layout::Extent| {
        let (logical, physical) = (e.logical, e.physical);
        (0..e.length).step_by(BLOCK as usize).map(move |at| (logical + at, physical + at))
    };
    layout.extents().iter().flat_map(of_extent).collect()
}

/// Bytes of `range` that are in other places than before.
pub(crate) fn moved_bytes(before: &Places, after: &Places, range: ByteRange) -> u64 {
    let has_moved = |(offset, place): &(&u64, &u64)| before.get(offset) != Some(place);
    after.range(range.start..range.end).filter(has_moved).count() as u64 * BLOCK
}

/// A pause between two steps.
pub(crate) struct Pause {
    /// The steps that were asked for since the pause before, and the bytes that they were allowed together.
    pub steps: usize,
    pub allowed: u64,
    /// The bytes that the engine says that it has moved, or copied.
    pub reported: u64,
    /// Where the file's blocks are.
    pub places: Places,
}

/// A pace that allows steps of one length, and keeps what happens.
pub(crate) struct Watch {
    began: Instant,
    stop: AtomicBool,
    step: u64,
    /// After how many pauses the move is to end.
    stop_after: usize,
    steps: usize,
    allowed: u64,
    pub pauses: Vec<Pause>,
    /// The result of each target, and where the file's blocks were when it was reported.
    pub fates: Vec<(Fate, Places)>,
}

impl Watch {
    /// Allows steps of `step` bytes, and as many bytes in one go.
    pub fn new(step: u64) -> Self {
        Self {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            step,
            stop_after: usize::MAX,
            steps: 0,
            allowed: 0,
            pauses: Vec::new(),
            fates: Vec::new(),
        }
    }

    /// The same until the pause with this number, the first one being 1.
    pub fn stopping(step: u64, at_pause: usize) -> Self {
        Self { stop_after: at_pause, ..Self::new(step) }
    }

    /// Relocates these ranges of a file.
    ///
    /// # Errors
    /// As those of [`Movable::relocate`], or of opening the file.
    pub fn relocate(
        &mut self,
        fixture: &dyn Fixture,
        path: &Path,
        ranges: &[ByteRange],
        terms: &Terms,
    ) -> Result<Settled, Skip> {
        let (volume, file) = (fixture.volume(), fixture.identity(path));
        let layout = volume.layout(file, path)?;
        let target = |range: &ByteRange| Target {
            range: *range,
            fragments: layout.fragments(*range),
            anew: false,
        };
        let targets: Vec<Target> = ranges.iter().map(target).collect();
        let mut file: Box<dyn Movable + '_> = volume.open(file, path)?;
        file.need(ranges)?;
        file.relocate(&targets, terms, self)
    }
}

/// The places of all blocks of a file that is being relocated.
fn places_now(file: &mut dyn Underway) -> Places {
    places(&file.layout(ByteRange { start: 0, end: 1 << 40 }).expect("its layout"))
}

impl Pace for Watch {
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn longest_step(&self) -> u64 {
        self.step
    }

    /// They do in every other step.
    fn others_read(&self) -> bool {
        self.pauses.len() % 2 == 1
    }

    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange {
        let step = ByteRange::at(rest.start, self.step.max(least)).intersect(rest);
        (self.steps, self.allowed) = (self.steps + 1, self.allowed + step.len());
        step
    }

    fn in_one_go(&self, most: u64) -> u64 {
        most.min(self.step)
    }

    fn pause(&mut self, file: &mut dyn Underway, bytes: u64, _: Duration) -> Result<(), Skip> {
        let (steps, allowed) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.allowed));
        self.pauses.push(Pause { steps, allowed, reported: bytes, places: places_now(file) });
        if self.pauses.len() == self.stop_after {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn done(&mut self, file: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip> {
        assert_eq!(index, self.fates.len(), "results are in the order of the targets: {fate:?}");
        self.fates.push((fate, places_now(file)));
        Ok(())
    }
}
