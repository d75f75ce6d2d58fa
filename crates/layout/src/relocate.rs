//! A file that is relocated, and what paces the relocation: what a caller asks for, when an engine may go on,
//! and what became of each range. How a file system moves data is left to the engine.

use crate::{ByteRange, Extent, Layout, Skip};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A file that is open for relocation.
///
/// A crash or a drop at any instant leaves every byte readable as it was.
pub trait Movable: Underway {
    /// The file's present path, if it has a name that can be found.
    fn path(&self) -> Option<PathBuf>;
    /// The present size, in bytes.
    fn size(&self) -> Result<u64, Skip>;
    /// Checks that a file may have this many bytes: a donor is a file, too.
    ///
    /// # Errors
    /// What limits it, and how to raise the limit.
    fn may_reach(&self, _bytes: u64) -> Result<(), Skip> {
        Ok(())
    }
    /// Checks that data that is stored like this can be moved.
    ///
    /// # Errors
    /// Why not.
    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip>;
    /// Checks that data which is contiguous already can be written anew ([`Target::anew`]).
    ///
    /// # Errors
    /// Why not.
    fn writes_anew(&self) -> Result<(), Skip> {
        Ok(())
    }
    /// Whether all ranges that are to move must be passed at once, also those that are in one extent: they
    /// change their places together or not at all.
    fn all_or_nothing(&self) -> bool {
        false
    }
    /// Bytes of new space that are needed to move `ranges` together, or why they cannot be moved so.
    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip>;
    /// Whether some of `range` is not on the device yet; `None` where that cannot be found out.
    fn is_dirty(&self, _range: ByteRange) -> Option<bool> {
        Some(false)
    }
    /// The offset in bytes where the next data begins, at `at` or after it; `None` where only a hole follows.
    fn next_data(&self, at: u64) -> Option<u64> {
        Some(at)
    }
    /// Writes back what of `range` is not on the device yet, and waits for that until `stop`, but not for what
    /// others write meanwhile. Nothing is promised.
    fn write_back(&self, _range: ByteRange, _stop: &AtomicBool) {}
    /// Finds new space for all of `targets` and moves them there, in this order; reports each one to `pace`
    /// when it is finished; then makes the moves durable, and frees the space that was left or not used. Before
    /// each step it asks `pace`. A target that is not reported to `pace` was not begun, because the run was to
    /// stop.
    ///
    /// # Errors
    /// There is no new space for all of them, or they cannot be moved at all: nothing has changed, and no
    /// target was reported to `pace`.
    fn relocate(
        &mut self,
        targets: &[Target],
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip>;
}

/// A file while some of it is being relocated.
pub trait Underway {
    /// The present layout of `range`.
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip>;
    /// Lets programs that wait for the file open it: they are kept out to protect what has moved, and are let
    /// in once that is durable.
    ///
    /// # Errors
    /// They stay kept out, or what has moved is not known to be durable.
    fn let_others_in(&mut self) -> Result<(), Skip> {
        Ok(())
    }
    /// The same for a wait of any length before the engine continues: from now on no program is kept out,
    /// whether it waits already or not.
    ///
    /// # Errors
    /// As those of [letting them in](Underway::let_others_in).
    fn release(&mut self) -> Result<(), Skip> {
        self.let_others_in()
    }
}

/// A range that is to be relocated, and how fragmented it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The range in bytes of the file: whole blocks, except at the end of the file.
    pub range: ByteRange,
    /// The number of fragments that it is in now: it moves only if it will be in fewer.
    pub fragments: u64,
    /// Whether it moves to a place in as many fragments, too: it is slow where it is, and is to be written anew in one
    /// go. What keeps its bytes safe in a crash does not depend on that: no engine's argument counts fragments, and each of
    /// its steps is that of any other move.
    pub anew: bool,
}

impl Target {
    /// Whether a place in so many fragments is better than the one it has.
    pub fn is_better_in(&self, fragments: u64) -> bool {
        fragments < self.fragments || self.anew && fragments == self.fragments
    }
}

/// What a relocation may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of free space on the volume that must be left.
    pub floor: u64,
    /// Whether data that is shared with others may move, too. If not, it stays, even if it becomes shared only
    /// meanwhile.
    pub unshare: bool,
}

/// Decides how fast a relocation may go, and receives what it reports.
pub trait Pace {
    /// Set once the run is to end. Whatever needs long checks it between its steps.
    fn stop(&self) -> &AtomicBool;
    /// The time, on a monotonic clock.
    fn now(&self) -> Duration;
    /// The longest step in bytes: its length while no other program uses the device.
    fn longest_step(&self) -> u64;
    /// Whether other programs read from the device at present.
    fn others_read(&self) -> bool {
        false
    }
    /// From now on the engine's own steps disturb others little, or no longer do: then no pauses are due for others.
    fn set_gentle(&mut self, _: bool) {}
    /// The next step of `rest`: from its start on, at least `least` bytes unless `rest` is shorter.
    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange;
    /// How many bytes may move in one go, at most `most`.
    fn in_one_go(&self, most: u64) -> u64;
    /// Called after a step of `bytes` that lasted `took`: waits for as long as is due, or until the run is to
    /// end. During a longer wait it lets others in.
    ///
    /// # Errors
    /// They could not be let in.
    fn pause(&mut self, file: &mut dyn Underway, bytes: u64, took: Duration) -> Result<(), Skip>;
    /// The target with this index is finished.
    ///
    /// # Errors
    /// Others should have been let in before a wait for the listener, and could not be.
    fn done(&mut self, file: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip>;
}

/// What became of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was left alone.
    Left {
        /// The number of fragments that it is in.
        fragments: u64,
        /// Why.
        skip: Skip,
    },
    /// It was begun.
    Begun(Moved),
}

/// How far the move of a range came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that changed their place; those that moved back count twice.
    pub bytes: u64,
    /// What moved them, as its header or manual names it (`EXT4_IOC_MOVE_EXT`), and how many bytes of them; the
    /// first one first.
    pub by: Vec<(&'static str, u64)>,
    /// Why the file system's first choice was not what moved them, if it was not.
    pub fallback: Option<String>,
    /// What else the file's owner should know, where it moved all the same.
    pub note: Option<String>,
    /// Longest time for which the file was locked against its writers at once.
    pub held: Duration,
    /// How long all of it lasted, pauses included.
    pub took: Duration,
    /// Why it ended before the end of the range, if something was in the way.
    pub skip: Option<Skip>,
    /// It ended because all is to end.
    pub interrupted: bool,
    /// It moves as a whole or not at all: no part of it has moved unless all has.
    pub whole: bool,
    /// It would have gone back, had it come out worse.
    pub returns: bool,
}

/// How a relocation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether what has moved is durable, and why that is not known.
    pub durable: Result<(), Skip>,
    /// The longest time for which others were kept out of the file at once, beside the times that were
    /// reported with its ranges.
    pub held: Duration,
}
