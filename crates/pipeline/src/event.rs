//! What a stage reports while it is at work.

use fragmend_trace::record::Progress;

/// How far a stage is.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The recorder is attached: what is done from now on is seen. Reported once.
    Watching,
    /// What was recorded so far; about ten times a second.
    Recorded(&'a Progress),
    /// So many files are to be surveyed.
    ToSurvey(u64),
    /// So many more files have been surveyed. Any thread may report it.
    Surveyed(u64),
}

/// Receives the events.
pub type Observer<'a> = dyn Fn(Event<'_>) + Sync + 'a;

/// Nobody watches.
pub fn unobserved(_: Event<'_>) {}
