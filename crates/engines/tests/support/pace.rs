//! The pace of a file that is relocated without a run: it never pauses, and the fate of each range is kept.

use fragmend_layout::{ByteRange, Fate, Movable, Moved, Pace, Skip, Target, Terms, Underway};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

struct Unpaced<F> {
    others_read: bool,
    began: Instant,
    stop: AtomicBool,
    meanwhile: Option<F>,
    fates: Vec<Fate>,
}

impl<F: FnOnce()> Pace for Unpaced<F> {
    fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn longest_step(&self) -> u64 {
        u64::MAX
    }

    fn others_read(&self) -> bool {
        self.others_read
    }

    fn step(&mut self, rest: ByteRange, _: u64) -> ByteRange {
        rest
    }

    fn in_one_go(&self, most: u64) -> u64 {
        most
    }

    fn pause(&mut self, _: &mut dyn Underway, _: u64, _: Duration) -> Result<(), Skip> {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        Ok(())
    }

    fn done(&mut self, _: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip> {
        assert_eq!(index, self.fates.len(), "in order");
        self.fates.push(fate);
        Ok(())
    }
}

/// Relocates ranges of a file, as if each were in more fragments than it can be in afterwards, and calls
/// `meanwhile` after the first step: where all of a range is copied first, that is right after the copy of
/// the first one. Returns the result of each move.
///
/// # Errors
/// Nothing was staged.
pub fn relocate(
    file: &mut dyn Movable,
    ranges: &[ByteRange],
    meanwhile: impl FnOnce(),
) -> Result<Vec<Moved>, Skip> {
    relocate_as(file, ranges, false, meanwhile)
}

/// The same as beside other programs that read from the device.
///
/// # Errors
/// Nothing was staged.
pub fn relocate_gently(file: &mut dyn Movable, ranges: &[ByteRange]) -> Result<Vec<Moved>, Skip> {
    relocate_as(file, ranges, true, || {})
}

fn relocate_as(
    file: &mut dyn Movable,
    ranges: &[ByteRange],
    others_read: bool,
    meanwhile: impl FnOnce(),
) -> Result<Vec<Moved>, Skip> {
    let target = |range: &ByteRange| Target { range: *range, fragments: u64::MAX, anew: false };
    let targets: Vec<Target> = ranges.iter().map(target).collect();
    let moved = |fate| match fate {
        Fate::Begun(moved) => moved,
        Fate::Left { .. } => panic!("{fate:?}"),
    };
    Ok(relocate_targets(file, &targets, others_read, meanwhile)?.into_iter().map(moved).collect())
}

/// The same for targets that may be left alone.
///
/// # Errors
/// Nothing was staged.
pub fn relocate_targets(
    file: &mut dyn Movable,
    targets: &[Target],
    others_read: bool,
    meanwhile: impl FnOnce(),
) -> Result<Vec<Fate>, Skip> {
    let (began, stop) = (Instant::now(), AtomicBool::new(false));
    let meanwhile = Some(meanwhile);
    let mut pace = Unpaced { others_read, began, stop, meanwhile, fates: Vec::new() };
    let settled = file.relocate(targets, &Terms::default(), &mut pace)?;
    settled.durable.unwrap();
    Ok(pace.fates)
}
