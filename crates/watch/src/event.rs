//! What the daemon reports: a [`Line`] of JSON each (`fragmend watch --json`), or a line of text for a log.

use crate::cause::Pattern;
use crate::schedule::Why;
use crate::status::Status;
use crate::store::Recurrence;
use fragmend_known::Known;
use fragmend_layout::{FsKind, PathText, printable};
use fragmend_report::{Unit, human};
use schemars::JsonSchema;
use serde::Serialize;

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon is at work.
    Start {
        /// Version of these events.
        schema_version: u32,
        /// Whether a rule lets data move.
        moves: bool,
    },
    /// Something that was found damaged was put aside.
    MovedAside {
        /// Where it is now.
        #[serde(flatten)]
        path: PathText,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing moves for a time.
    Held {
        /// Until then, RFC 3339.
        until: String,
        /// Why.
        why: String,
    },
    /// A recording has ended.
    Recorded {
        /// Accesses that were seen.
        accesses: u64,
        /// Accesses that were lost.
        lost: u64,
    },
    /// A plan was made.
    Planned {
        /// Files that are worth moving.
        files: u64,
        /// Ranges of them.
        ranges: u64,
        /// Bytes of them.
        bytes: u64,
        /// Seconds that moving them saves in one replay of the recording.
        seconds_saved: f64,
        /// Bytes of them that are queued to move.
        queued_bytes: u64,
        /// Bytes of ranges that may not move before there is new evidence.
        moved_before_bytes: u64,
        /// Bytes of ranges that are longer than the budget permits.
        too_long_bytes: u64,
    },
    /// A file that moving would help, and that is not moved.
    Advice {
        /// Which file.
        #[serde(flatten)]
        path: PathText,
        /// Bytes that would move.
        bytes: u64,
        /// Fragments that they are in.
        extents: u64,
        /// Seconds that this would save in one replay of the recording.
        seconds_saved: f64,
        /// Why it is not moved.
        why: String,
    },
    /// A file was fragmented again after it was mended.
    FragmentedAgain {
        /// Which file.
        #[serde(flatten)]
        path: PathText,
        /// How often.
        times: u32,
        /// The command name of the program that wrote most of it while it was watched.
        #[serde(skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        /// Its cgroup.
        #[serde(skip_serializing_if = "Option::is_none")]
        cgroup: Option<String>,
        /// How it was written.
        pattern: Pattern,
        /// What would prevent it.
        prevention: String,
    },
    /// A batch was moved, or tried.
    Moved {
        /// Which file.
        #[serde(flatten)]
        path: PathText,
        /// Ranges of the batch.
        ranges: u64,
        /// Ranges that are in fewer fragments now.
        ranges_moved: u64,
        /// Bytes that were written; metadata counts as the most that it can be.
        written_bytes: u64,
        /// The first reason why a range was left alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_alone: Option<String>,
    },
    /// Nothing is done until a time.
    Waiting {
        /// Until then, RFC 3339.
        until: String,
        /// For what.
        why: String,
    },
    /// The policy is being read again.
    Reloading,
    /// A changed policy applies from now on.
    Reloaded,
    /// A changed policy is wrong: the one before applies.
    PolicyRefused {
        /// What is wrong.
        why: String,
    },
    /// Something did not work; it is tried again in time.
    Failed {
        /// What, and why.
        what: String,
    },
    /// Counters and gauges, after each step.
    Status(Status),
    /// The daemon ends.
    End,
}

/// An event as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Line {
    /// What has happened.
    #[serde(flatten)]
    pub event: Event,
    /// What its file is to its program, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

impl Event {
    /// That a file was fragmented again.
    pub fn again(path: PathText, recurrence: &Recurrence, file_system: FsKind) -> Self {
        let (program, cgroup) = recurrence.program.clone().unzip();
        Self::FragmentedAgain {
            path,
            times: recurrence.times,
            program,
            cgroup: cgroup.flatten(),
            pattern: recurrence.pattern,
            prevention: recurrence.pattern.prevention(file_system).to_owned(),
        }
    }

    /// Waiting until a time.
    pub fn waiting(until: crate::Time, why: Why) -> Self {
        Self::Waiting { until: until.to_string(), why: why.in_words().to_owned() }
    }

    /// The file that it is about.
    pub fn file(&self) -> Option<&PathText> {
        match self {
            Self::Advice { path, .. }
            | Self::FragmentedAgain { path, .. }
            | Self::Moved { path, .. } => Some(path),
            _ => None,
        }
    }

    /// A line for a log, without control characters; `None` for what only programs read.
    pub fn in_words(&self) -> Option<String> {
        let bytes = |n: u64| human(n as f64, Unit::Bytes);
        let seconds = |s: f64| human(s, Unit::Seconds);
        let text = match self {
            Self::Start { moves: true, .. } => "watching; data moves by the rules".to_owned(),
            Self::Start { moves: false, .. } => {
                "watching; nothing moves, files are advised on".to_owned()
            }
            Self::MovedAside { path, why } => {
                format!("the store was no store ({why}); it is kept as {}", path.printable())
            }
            Self::Held { until, why } => format!("nothing moves until {until}: {why}"),
            Self::Recorded { accesses, lost } => {
                format!("recorded {accesses} accesses, {lost} lost")
            }
            Self::Planned { .. } => return self.planned(),
            Self::Advice { path, bytes: n, extents, seconds_saved, why } => format!(
                "{}: moving {} in {extents} fragments would save {} in one replay; not moved: {why}",
                path.printable(),
                bytes(*n),
                seconds(*seconds_saved)
            ),
            Self::FragmentedAgain { path, times, program, cgroup, pattern, prevention } => {
                let by = match (program, cgroup) {
                    (Some(program), Some(cgroup)) => format!(" by {program} in {cgroup}"),
                    (Some(program), None) => format!(" by {program}"),
                    (None, _) => String::new(),
                };
                format!(
                    "{}: fragmented again, {times} times by now; it is written{by} {}; what would prevent it: {prevention}",
                    path.printable(),
                    pattern.in_words()
                )
            }
            Self::Moved { path, ranges, ranges_moved, written_bytes, left_alone } => {
                let why = left_alone
                    .as_ref()
                    .map(|why| format!("; left alone: {why}"))
                    .unwrap_or_default();
                format!(
                    "{}: moved {ranges_moved} of {ranges} ranges, wrote {}{why}",
                    path.printable(),
                    bytes(*written_bytes)
                )
            }
            Self::Waiting { until, why } => format!("waiting until {until} for {why}"),
            Self::Reloading | Self::Status(_) => return None,
            Self::Reloaded => "the policy was read again, and applies".to_owned(),
            Self::PolicyRefused { why } => {
                format!("the policy has changed and is wrong; the one before still applies: {why}")
            }
            Self::Failed { what } => format!("failed: {what}"),
            Self::End => "ended; what has moved is safe and stays".to_owned(),
        };
        Some(printable(&text).to_string())
    }

    /// That a plan was made, in words.
    fn planned(&self) -> Option<String> {
        let Self::Planned {
            files,
            ranges,
            bytes,
            seconds_saved,
            queued_bytes,
            moved_before_bytes,
            too_long_bytes,
        } = self
        else {
            return None;
        };
        let size = |n: u64| human(n as f64, Unit::Bytes);
        let mut text = format!(
            "planned: {} in {ranges} ranges of {files} files would save {} in one replay; {} are queued to move",
            size(*bytes),
            human(*seconds_saved, Unit::Seconds),
            size(*queued_bytes)
        );
        if *moved_before_bytes > 0 {
            text += &format!(
                "; {} were moved before, and wait for new evidence",
                size(*moved_before_bytes)
            );
        }
        if *too_long_bytes > 0 {
            text += &format!(
                "; {} are in ranges longer than the budget permits",
                size(*too_long_bytes)
            );
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_event_with_what_its_file_is() {
        let event = Event::Failed { what: "x".into() };
        let known = Known { program: "SQLite".into(), what: "database".into(), advice: None };
        let line = |known| serde_json::to_value(Line { event: event.clone(), known }).unwrap();
        assert_eq!(line(None), serde_json::json!({ "event": "failed", "what": "x" }));
        assert_eq!(line(Some(known))["known"]["program"], "SQLite");
    }
}
