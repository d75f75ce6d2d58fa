//! What a stage reports while it runs.

use fragmend_trace::record::Progress;

/// The progress of a stage.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The recorder is attached: accesses are seen from now on. Reported once.
    Watching,
    /// What was recorded so far; reported about ten times a second.
    Recorded(&'a Progress),
    /// The number of files that will be surveyed.
    ToSurvey(u64),
    /// The number of further files that have been surveyed. Any thread may report it.
    Surveyed(u64),
    /// Recorded reads that are about to be repeated, to measure what they cost.
    ToReplay(Replayed),
    /// The number of further reads that were repeated.
    Replayed(u64),
}

/// How much is repeated on each layout, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Reads of one round.
    pub reads: u64,
    /// Bytes of one round.
    pub bytes: u64,
    /// Rounds.
    pub rounds: u32,
    /// Reads that were recorded.
    pub recorded_reads: u64,
    /// What would have been repeated, too.
    pub left_out: LeftOut,
}

/// What is not repeated, because its files have vanished or changed since they were surveyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Files.
    pub files: u64,
    /// Their reads of one round.
    pub reads: u64,
}

/// Receives the events.
pub type Observer<'a> = dyn Fn(Event<'_>) + Sync + 'a;

/// An observer that ignores all events.
pub fn unobserved(_: Event<'_>) {}
