//! From records back to whole files.
//!
//! For each record: is it sound, which file is it of (`whose`), and what does the file lack? All of a record is
//! checked before its file is opened for writing. Only holes and unwritten blocks are written to, and only in a
//! file of the recorded size that was not modified after the rewrite (`mending`). A record is removed once every
//! byte of its file is durable. Where it is not certain that this is the record's own file, or its
//! only state, the record is set aside, and that is reported; so it is where the file is deleted.
//!
//! Ending at any instant is safe: as long as the record is there, the next run asks the same questions again,
//! and bytes are put back by the engine's own code (`place`), with the same notes.

use super::draft::read_data;
use super::ground;
use super::journal::{Journal, JournalError};
use super::mending::Mending;
use super::names::Listing;
use super::note::{Noting, Session};
use super::record::{BadRecord, LONGEST_RANGE, Record};
pub use super::recovered::{Recovered, RecoveryOutcome};
pub use super::whose::Serves;
use super::whose::{Home, RecordsFile};
use fragmend_layout::{ByteRange, PathText};
use fragmend_sys::handle;
use fragmend_sys::signals;
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What to do with a file that was changed after its record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// Leave the file as it is and remove the record.
    File,
    /// Put the recorded bytes back over whatever is there.
    Record,
}

/// How to recover.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only look and report; change nothing.
    pub dry_run: bool,
    /// What to do with changed files, and the paths at or below which this holds.
    pub prefer: Option<(Prefer, Vec<PathBuf>)>,
}

impl Options {
    pub(super) fn prefer(&self, file: &PathText) -> Option<Prefer> {
        let path = file.to_path()?;
        let (prefer, below) = self.prefer.as_ref()?;
        below.iter().any(|dir| path.starts_with(dir)).then_some(*prefer)
    }
}

/// The most bytes of records that are examined in one journal, whatever their outcome: a rewrite leaves one record,
/// of at most 64 MiB, but a user who could write to the disk may have put any number there, which share blocks.
const MOST: u64 = 1 << 30;
/// The least that a record counts for: examining it, and removing it durably, needs time.
const LEAST: u64 = 1 << 20;

/// Recovers everything in one journal.
///
/// # Errors
/// When the journal cannot be used. What goes wrong with a single record is in its outcome.
pub fn recover(
    journal: &Path,
    serves: Serves<'_>,
    options: &Options,
    report: &mut dyn FnMut(Recovered),
) -> Result<(), JournalError> {
    let parent = Rc::new(serves.parent_of(journal)?);
    let name = journal.file_name().unwrap_or_default();
    let Some(journal) = Journal::open(&parent, name)? else { return Ok(()) };
    let io = |source| JournalError::Io { path: journal.path().to_owned(), source };
    // With this, exceeding the limit on file sizes is an error and does not end the process.
    signals::no_end_by_file_size().map_err(io)?;
    let Listing { drafts, records, cut } = journal.listing().map_err(io)?;
    let home = Home::of(&journal, serves)?;
    remove_drafts(&journal, drafts.names, options, report);
    let mut looked_at: u64 = 0;
    for name in records.names {
        if looked_at > MOST {
            let what = "not looked at: too many are before it; remove those that are of no use and still there, then recover again";
            let unknown = blank(&journal, &name, None, Path::new(""));
            report(unknown.ended(RecoveryOutcome::Unreachable, what));
            continue;
        }
        let recovered = one(&journal, &name, home.as_ref(), options);
        // It may claim any length.
        looked_at = looked_at.saturating_add(recovered.length.clamp(LEAST, LONGEST_RANGE));
        report(recovered);
    }
    let more = drafts.more + records.more;
    if more > 0 || cut {
        return Err(JournalError::TooMany { path: journal.path().to_owned(), more, cut });
    }
    Ok(())
}

/// Removes the copies that never became records, and leaves what is none.
fn remove_drafts(
    journal: &Journal,
    names: Vec<OsString>,
    options: &Options,
    report: &mut dyn FnMut(Recovered),
) {
    let unknown = |name: &OsStr| blank(journal, name, None, Path::new(""));
    let mut drafts = Vec::new();
    for name in names {
        match journal.is_draft(&name) {
            Ok(true) => drafts.push(name),
            Ok(false) => {
                let what = "no unfinished copy of a rewrite; see what it is and remove it";
                report(unknown(&name).ended(RecoveryOutcome::Foreign, what));
            }
            Err(e) => report(unknown(&name).ended(RecoveryOutcome::Failed, e.to_string())),
        }
    }
    let removed = if options.dry_run { Ok(()) } else { journal.remove_drafts(&drafts) };
    for name in drafts {
        report(match &removed {
            Ok(()) => unknown(&name).ended(RecoveryOutcome::NeverBegun, "its file was not touched"),
            Err(e) => unknown(&name).ended(RecoveryOutcome::Failed, e.to_string()),
        });
    }
}

fn blank(journal: &Journal, name: &OsStr, record: Option<&Record>, path: &Path) -> Recovered {
    let range = record.map_or(ByteRange { start: 0, end: 0 }, |r| r.range);
    Recovered {
        path: path.into(),
        record: journal.path().join(name).display().to_string(),
        offset: range.start,
        length: range.len(),
        outcome: RecoveryOutcome::Failed,
        restored_bytes: 0,
        detail: None,
    }
}

fn one(journal: &Journal, name: &OsStr, home: Option<&Home>, options: &Options) -> Recovered {
    let unknown = blank(journal, name, None, Path::new(""));
    let (file, record) = match journal.load(name, options.dry_run) {
        Ok(loaded) => loaded,
        Err(e) => return unknown.ended(RecoveryOutcome::Failed, e.to_string()),
    };
    let record = match record {
        Ok(record) => record,
        Err(bad @ BadRecord::Damaged) => {
            let what = format!("{bad}; check the file that it is of, then remove the record");
            return unknown.ended(RecoveryOutcome::Damaged, what);
        }
        Err(bad) => return unknown.ended(RecoveryOutcome::Foreign, bad.to_string()),
    };
    let recovered = blank(journal, name, Some(&record), record.path_below());
    let Some(home) = home.filter(|home| home.is_of(&record)) else {
        let what = "its file system is not the one that this journal serves, or is not mounted; mount it, then recover again";
        return recovered.ended(RecoveryOutcome::Foreign, what);
    };
    // All of the record is checked before anything is done with its file.
    if let Err(what) = record.check(home.block) {
        return recovered
            .ended(RecoveryOutcome::Damaged, format!("it says {what}; no rewrite made it"));
    }
    let recovered = Recovered { path: home.recorded_path(&record).as_path().into(), ..recovered };
    let sure = match () {
        () if !home.is_certain(&record) => {
            Err("this may be another disk than the one that was rewritten")
        }
        () if ground::snapshots(&home.mount) => Err("there may be other states of the file"),
        () => Ok(()),
    };
    let closing = Closing { journal, name, sure, options };
    let named = match home.find(&record) {
        Ok(RecordsFile::File(named)) => named,
        Ok(RecordsFile::Another) => {
            let sure = Err("its file is gone, or this is another state of its file system");
            return Closing { sure, ..closing }.close(recovered, RecoveryOutcome::SetAside);
        }
        Err(why) => return recovered.ended(RecoveryOutcome::Unreachable, why),
    };
    let path = home.path_of(&named, &record);
    let recovered =
        Recovered { path: path.as_deref().unwrap_or(Path::new("")).into(), ..recovered };
    let data = match read_data(&file, &record) {
        Ok(Some(data)) => data,
        Ok(None) => {
            let what = "its copy is damaged; check the file, then remove the record";
            return recovered.ended(RecoveryOutcome::Damaged, what);
        }
        Err(e) => return recovered.ended(RecoveryOutcome::Failed, format!("the record: {e}")),
    };
    let session = match Session::of(&journal.dir, &home.root) {
        Ok(session) => session,
        Err(e) => return recovered.ended(RecoveryOutcome::Failed, e.to_string()),
    };
    let how = if options.dry_run { OFlags::RDONLY } else { OFlags::RDWR };
    let target = match handle::reopen(&named, how | OFlags::NONBLOCK) {
        Ok(target) => target,
        Err(e) => {
            return recovered.ended(RecoveryOutcome::Unreachable, format!("cannot be opened: {e}"));
        }
    };
    let noting = Noting::of((&file, &record), &target, session).of_recovery();
    Mending { closing, record: &record, data: &data, noting }.mend(recovered)
}

/// Removes or sets aside a record that is not needed any more.
#[derive(Clone, Copy)]
pub(super) struct Closing<'a> {
    journal: &'a Journal,
    name: &'a OsStr,
    /// Whether it is certain that the record's own file was found, or why not.
    pub(super) sure: Result<(), &'static str>,
    pub(super) options: &'a Options,
}

impl Closing<'_> {
    /// Removes the record, or sets it aside where it is not certain that it may be removed.
    pub(super) fn close(&self, recovered: Recovered, outcome: RecoveryOutcome) -> Recovered {
        let stays = |e: io::Error| format!("its record stays: {e}");
        match (self.sure, self.options.dry_run) {
            (Ok(()), true) => recovered.ended(outcome, ""),
            (Err(why), true) => recovered.ended(RecoveryOutcome::SetAside, why),
            (Ok(()), false) => match self.journal.remove(self.name) {
                Ok(()) => recovered.ended(outcome, ""),
                Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(e)),
            },
            (Err(why), false) => match self.journal.set_aside(self.name) {
                Ok(kept) => {
                    let kept = kept.display();
                    let what = format!(
                        "{why}; the record is kept as {kept}: remove it, or rename it back and recover again where it belongs"
                    );
                    recovered.ended(RecoveryOutcome::SetAside, what)
                }
                Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(e)),
            },
        }
    }
}
