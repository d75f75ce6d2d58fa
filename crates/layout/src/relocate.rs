//! A file that moves, and whoever paces it: what a caller asks for, when an engine may go on, and what
//! became of each range. How a file system moves data is the engine's own affair.

use crate::{ByteRange, Extent, Layout, Skip};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A file that is open for relocation.
///
/// A crash or a drop at any instant leaves every byte readable as it was.
pub trait Movable: Underway {
    /// Where the file is now, if it has a name that can be found.
    fn path(&self) -> Option<PathBuf>;
    /// Size now, in bytes.
    fn size(&self) -> Result<u64, Skip>;
    /// Whether a file may have so many bytes: new space is a file's as well.
    ///
    /// # Errors
    /// What limits it, and how to raise that.
    fn may_reach(&self, _bytes: u64) -> Result<(), Skip> {
        Ok(())
    }
    /// Whether data that is stored like this can be moved.
    ///
    /// # Errors
    /// Why not.
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip>;
    /// Whether all ranges that are to move must be asked for at once, also those that are in one piece:
    /// they change their places together or not at all.
    fn all_or_nothing(&self) -> bool {
        false
    }
    /// Bytes of new space that moving `ranges` together takes, or why they cannot be moved so.
    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip>;
    /// Whether some of `range` is not on the device yet; `None` where that cannot be told.
    fn is_dirty(&self, _range: ByteRange) -> Option<bool> {
        Some(false)
    }
    /// Where the next data begins, at `at` or behind it; `None` where nothing but a hole follows. Bytes.
    fn next_data(&self, at: u64) -> Option<u64> {
        Some(at)
    }
    /// Writes out what of `range` is not on the device yet, and waits for that until `stop`; not for what others
    /// write meanwhile. Nothing is promised.
    fn write_back(&self, _range: ByteRange, _stop: &AtomicBool) {}
    /// Finds new space for all of `targets`, moves them there, in this order, and tells `pace` of each when it
    /// is done with; then makes that durable, and frees the space that was left or not used. It asks
    /// `pace` before each step. What `pace` is not told of was not begun, because it was to stop.
    ///
    /// # Errors
    /// There is no new space for all of them, or they cannot be moved at all: nothing has changed, and
    /// `pace` was told of none.
    fn relocate(
        &mut self,
        targets: &[Target],
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip>;
}

/// A file while some of it is being relocated.
pub trait Underway {
    /// Where `range` is now.
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip>;
    /// Whoever waits for the file, because he is kept out for the sake of what has moved, is let in once
    /// that is durable.
    ///
    /// # Errors
    /// They are kept out, or what has moved is not known to be durable.
    fn let_others_in(&mut self) -> Result<(), Skip> {
        Ok(())
    }
    /// The same where it may take any time until the engine goes on: nobody is kept out from now on, whether
    /// they wait already or not.
    ///
    /// # Errors
    /// As those of [letting them in](Underway::let_others_in).
    fn keep_nobody_out(&mut self) -> Result<(), Skip> {
        self.let_others_in()
    }
}

/// A range that is to be relocated, and what it must become better than.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Bytes of the file, whole blocks but for its end.
    pub range: ByteRange,
    /// In how many pieces it is now: it moves only if it comes to be in fewer.
    pub pieces: u64,
}

/// What a relocation may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// It may take the free space of the volume down to so many bytes, and not below.
    pub floor: u64,
    /// What others share may move, too. Else it may not, whoever comes to share it meanwhile.
    pub unshare: bool,
}

/// Who says how fast a relocation may go, and hears what it does.
pub trait Pace {
    /// Set once all is to end. What takes long looks at it between its steps.
    fn stop(&self) -> &AtomicBool;
    /// The time, on a clock that never goes back.
    fn now(&self) -> Duration;
    /// Bytes of the longest step, while nobody else is in the way.
    fn longest_step(&self) -> u64;
    /// The next step of `rest`: from its start on, no shorter than `least` bytes unless `rest` is.
    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange;
    /// As many of at most so many bytes as may move in one go.
    fn in_one_go(&self, most: u64) -> u64;
    /// A step of so many bytes is over, and took so long: waits for as long as is due, or until all is to
    /// end. In a longer wait others are let in.
    ///
    /// # Errors
    /// They could not be.
    fn pause(&mut self, file: &mut dyn Underway, bytes: u64, took: Duration) -> Result<(), Skip>;
    /// The target of this number is done with.
    ///
    /// # Errors
    /// Somebody is waited for, and others could not be let in.
    fn done(&mut self, file: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip>;
}

/// What became of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was left alone.
    Left {
        /// In how many pieces it is.
        pieces: u64,
        /// Why.
        skip: Skip,
    },
    /// It was begun.
    Begun(Moved),
}

/// How far the move of a range came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that changed their place; what went back counts twice.
    pub bytes: u64,
    /// What moved them, as its header or manual names it (`EXT4_IOC_MOVE_EXT`), and how many of them; the first one
    /// first.
    pub by: Vec<(&'static str, u64)>,
    /// Why the file system's first choice was not what moved them, if it was not.
    pub fallback: Option<String>,
    /// What else the file's owner should know, where it moved all the same.
    pub note: Option<String>,
    /// Longest time for which the file was locked against its writers at once.
    pub held: Duration,
    /// How long all of it took, pauses included.
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
    /// The longest time for which others were kept out of the file at once, beside what was told of its
    /// ranges.
    pub held: Duration,
}
