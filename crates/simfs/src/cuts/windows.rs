//! What a drive is doing when the power is cut: the window of the command before the cut.

use crate::machine::Recorded;
use fragmend_flash::command::{Command, LogAction, Units};
use std::collections::HashSet;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// Units are remapped.
    Remap,
    /// The defrag log is flushed.
    LogFlush,
    /// The completion flag is appended to it.
    LogCommit,
    /// The file system's journal is written, or flushed.
    JournalCommit,
    /// The defrag log is compacted meanwhile.
    Compaction,
    /// Garbage collection or wear levelling moves units meanwhile.
    Collection,
}

/// The cuts in a window.
#[derive(Debug, Default)]
pub struct InWindow {
    /// How many there were.
    pub cuts: u64,
    /// Distinct contents of the drive after them.
    pub states: HashSet<u64>,
    /// How many of them were followed by a disagreement.
    pub disagreements: u64,
}

impl Window {
    /// The windows that each of these commands opens; a command can do several things.
    pub fn of_each(commands: &[Recorded], journal: Option<Units>) -> Vec<Vec<Self>> {
        let mut in_journal = false;
        commands
            .iter()
            .map(|recorded| {
                let mut windows = Vec::new();
                match &recorded.command {
                    Command::Remap { .. } => windows.push(Self::Remap),
                    Command::DefragLog(LogAction::Flush) => windows.push(Self::LogFlush),
                    Command::DefragLog(LogAction::Commit) => windows.push(Self::LogCommit),
                    Command::Write { units, .. } => {
                        in_journal = journal.is_some_and(|journal| {
                            journal.start <= units.start && units.end() <= journal.end()
                        });
                    }
                    Command::Flush => {}
                    _ => in_journal = false,
                }
                let writes = matches!(recorded.command, Command::Write { .. } | Command::Flush);
                windows.extend((writes && in_journal).then_some(Self::JournalCommit));
                let done = &recorded.counters;
                windows.extend((done.log_compacted > 0).then_some(Self::Compaction));
                windows.extend((done.collected + done.levelled > 0).then_some(Self::Collection));
                windows
            })
            .collect()
    }
}
