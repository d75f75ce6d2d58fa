//! From records back to whole files.
//!
//! For each record: is it sound, which file is it of (`whose`), and what does the file lack? All of a record is
//! checked before its file is opened for writing. Only holes and unwritten blocks are written to, and only in a
//! file of the recorded size that was not modified after the rewrite (`note`). A record is removed once every
//! byte of its file is durable: other programs are kept out by a lease, the file is synced, its pages are
//! dropped, and the device is read (`place`). Where it is not certain that this is the record's own file, or its
//! only state, the record is set aside, and that is reported; so it is where the file is deleted.
//!
//! Ending at any instant is safe: as long as the record is there, the next run asks the same questions again,
//! and bytes are put back by the engine's own code (`place`), with the same notes.

use super::draft::read_data;
use super::ground;
use super::journal::{Journal, JournalError};
use super::leased::{Leased, Phase, Seen, State};
use super::limits::{self, Buffers};
use super::names::Listing;
use super::note::{Doubt, Noted, Noting, Ours, Session};
use super::place::{Fill, Holder, Verdict, is_blank, judge, lease, put};
use super::privileges::Lost;
use super::record::{BadRecord, LONGEST_RANGE, Record};
pub use super::recovered::{Recovered, RecoveryOutcome};
pub use super::whose::Serves;
use super::whose::{Home, RecordsFile};
use super::{joined, refused};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, PathText};
use fragmend_sys::handle;
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::signals::{self, Undisturbed};
use rustix::fs::OFlags;
use rustix::io::Errno;
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
    fn prefer(&self, file: &PathText) -> Option<Prefer> {
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
    let noting = Noting::of((&file, &record), &target, session);
    Mending { closing, record: &record, data: &data, noting }.mend(recovered)
}

/// Removes or sets aside a record that is not needed any more.
#[derive(Clone, Copy)]
struct Closing<'a> {
    journal: &'a Journal,
    name: &'a OsStr,
    /// Whether it is certain that the record's own file was found, or why not.
    sure: Result<(), &'static str>,
    options: &'a Options,
}

impl Closing<'_> {
    /// Removes the record, or sets it aside where it is not certain that it may be removed.
    fn close(&self, recovered: Recovered, outcome: RecoveryOutcome) -> Recovered {
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

/// A record and its file.
struct Mending<'a> {
    closing: Closing<'a>,
    record: &'a Record,
    data: &'a [u8],
    noting: Noting<'a>,
}

impl Mending<'_> {
    fn mend(&self, recovered: Recovered) -> Recovered {
        let options = self.closing.options;
        let target = self.noting.file;
        // Before this process consumes an error that the kernel reports once: the next opener should get it.
        match refused::other_than(target, self.record.range.start, self.data) {
            Ok(Some(at)) if options.prefer(&recovered.path).is_none() => {
                return self.undecided(recovered, &refused_at(at));
            }
            Ok(_) => {}
            Err(e) => return recovered.ended(RecoveryOutcome::Failed, e.to_string()),
        }
        // Writing back what others have just written may need long: most of it is done before they are kept out.
        let sync = || if options.dry_run { Ok(()) } else { rustix::fs::fsync(target) };
        if let Err(e) = sync() {
            return not_synced(recovered, e);
        }
        let _prompt = Prompt::begin();
        // Others are kept out from the first look until the record is gone.
        let leased = if options.dry_run { None } else { Some(lease(target)) };
        let alone = matches!(&leased, Some(Ok(_)));
        // After this sync the record is not needed for data in memory only, whatever becomes of the record.
        if let Err(e) = sync() {
            return not_synced(recovered, e);
        }
        let verdict = judge(target, self.record, self.data, alone);
        let (missing, ours) = match verdict {
            Ok(Verdict::Whole) => {
                return match leased {
                    Some(Err(e)) => not_leased(recovered, &e),
                    Some(Ok(lease)) if !lease.is_held() => not_leased(recovered, &lost()),
                    Some(Ok(lease)) => match self.settle_time(&lease) {
                        Ok(detail) => {
                            let recovered = Recovered { detail, ..recovered };
                            self.closing.close(recovered, RecoveryOutcome::Whole)
                        }
                        Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(&e)),
                    },
                    None => self.closing.close(recovered, RecoveryOutcome::Whole),
                };
            }
            Ok(Verdict::Missing(parts)) => match self.noting.ours(self.record) {
                Ok(Some(ours)) => (parts, Ok(ours)),
                Ok(None) => {
                    let missing: u64 = parts.iter().map(|part| part.len()).sum();
                    let what = format!(
                        "it was modified after the rewrite, or may have been, and {missing} bytes of it are holes, which read as zeroes"
                    );
                    (parts, Err(what))
                }
                Err(e) => return recovered.ended(RecoveryOutcome::Failed, e.to_string()),
            },
            Ok(Verdict::Differs(at)) => {
                (vec![self.record.range], Err(format!("it holds other data at {at}")))
            }
            Ok(Verdict::Refused(at)) => (vec![self.record.range], Err(refused_at(at))),
            Ok(Verdict::Resized(size)) => {
                let was = self.record.size;
                (vec![self.record.range], Err(format!("it has {size} bytes now and had {was}")))
            }
            Err(e) => return recovered.ended(RecoveryOutcome::Failed, e.to_string()),
        };
        // Existing data is overwritten only where the user has decided that.
        let ours = match (ours, options.prefer(&recovered.path)) {
            (Err(_), Some(Prefer::File)) => {
                return self.closing.close(recovered, RecoveryOutcome::Discarded);
            }
            (Err(what), None) => return self.undecided(recovered, &what),
            (ours, _) => ours.ok(),
        };
        let missing: Vec<ByteRange> =
            missing.iter().map(|part| part.intersect(self.with_data())).collect();
        let bytes = missing.iter().map(|part| part.len()).sum();
        let lease = match leased {
            None => {
                let recovered = Recovered { restored_bytes: bytes, ..recovered };
                return recovered.ended(RecoveryOutcome::WouldRestore, "");
            }
            Some(Ok(lease)) => lease,
            Some(Err(e)) => return not_leased(recovered, &e),
        };
        match self.put_back(&missing, ours, &lease) {
            Ok(detail) => {
                let recovered = Recovered { restored_bytes: bytes, detail, ..recovered };
                self.closing.close(recovered, RecoveryOutcome::Restored)
            }
            Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(&e)),
        }
    }

    /// Leaves a changed file alone, and names the two ways to decide.
    fn undecided(&self, recovered: Recovered, what: &str) -> Recovered {
        let what = if recovered.path.path.is_empty() {
            format!(
                "{what}; where it is now is not known: look for it with `find -inum {}`, then recover again",
                self.record.inode
            )
        } else {
            format!(
                "{what}; keep it as it is with --prefer file, or put the recorded bytes back with --prefer record"
            )
        };
        recovered.ended(RecoveryOutcome::Changed, what)
    }

    /// The part of the range for which the record has bytes.
    fn with_data(&self) -> ByteRange {
        ByteRange::at(self.record.range.start, self.data.len() as u64)
    }

    /// The file, to make changes under this lease.
    fn leased<'a>(
        &'a self,
        lease: &'a Lease,
        lost: &'a Lost,
        state: &'a State,
        size: Option<u64>,
    ) -> Leased<'a> {
        // Of which kind the file system is does not matter here.
        Leased { lease, noting: self.noting, lost, size, state, in_place: false }
    }

    /// Sets the time of modification of a file whose bytes are whole; returns what the user is told of it.
    ///
    /// # Errors
    /// Others may have come to the file.
    fn settle_time(&self, lease: &Lease) -> io::Result<Option<String>> {
        let ours = self.noting.ours(self.record).ok().flatten().filter(|ours| ours.is_certain);
        let Some(Ours { modified, .. }) = ours else { return Ok(Some(KEEPS_ITS_TIME.to_owned())) };
        let wanted = self.record.mtime;
        if modified == wanted {
            return Ok(None);
        }
        let seen = Seen { modified, ..Seen::now(self.noting.file)? };
        let state = State::of((self.record.range, Phase::Whole), seen, Some(wanted));
        let lost = Lost::default();
        let leased = self.leased(lease, &lost, &state, Some(self.record.size));
        leased.set_time()?;
        // If it is not durable the time alone is another.
        let _ = rustix::fs::fsync(self.noting.file);
        leased.alone()?;
        Ok(state.message())
    }

    /// Puts bytes back, and returns which properties of the file could not be kept, if any. `ours` is the time of
    /// modification that the rewrite has left; `None` where the user has decided that existing data is overwritten.
    fn put_back(
        &self,
        parts: &[ByteRange],
        ours: Option<Ours>,
        lease: &Lease,
    ) -> io::Result<Option<String>> {
        let (target, block) = (self.noting.file, self.record.block);
        limits::allow(self.with_data().end)?;
        let mut buffers = Buffers::allocate(self.data.len())?;
        let (range, data) = (self.record.range, self.data);
        let missing: Vec<_> = parts
            .iter()
            .map(|part| (part.start - range.start) as usize..(part.end - range.start) as usize)
            .collect();
        let _undisturbed = Undisturbed::begin();
        reached(Point::Judged);
        let (size, is_certain) = (self.record.size, ours.is_some_and(|ours| ours.is_certain));
        let seen = Seen::now(target)?;
        let (known, wanted, size) = match ours {
            Some(Ours { modified, .. }) => {
                let before = if is_certain { self.record.mtime } else { modified };
                (modified, Some(before), Some(size))
            }
            // The user has decided that the content changes: so does the time.
            None => (seen.modified, None, None),
        };
        let seen = Seen { modified: known, ..seen };
        let (state, lost) = (State::of((range, Phase::Empty), seen, wanted), Lost::default());
        if !is_certain {
            state.add(Doubt::Time);
        }
        let leased = self.leased(lease, &lost, &state, size);
        leased.alone()?;
        // From here on the notes are of this boot and this mounting; synced, so that a power cut leaves no
        // older note beside newer blocks.
        leased.note(Noted::Settled)?;
        rustix::fs::fsync(self.noting.record)?;
        buffers.release_spare();
        for part in parts {
            if ours.is_some() && !is_blank(target, part.align_outward(block.into()))? {
                return Err(io::Error::other("another program writes to it"));
            }
        }
        // All at once: each time that something is made durable others wait for it.
        let fill = Fill { range, data, block: block as usize, missing: &missing };
        put(leased, fill, &mut buffers.back, &mut NoneLeft)?;
        let kept = (ours.is_some() && !is_certain).then(|| KEEPS_ITS_TIME.to_owned());
        Ok(joined(kept.into_iter().chain(state.message()).chain(lost.message())))
    }
}

/// Said of a file whose time of modification may be the rewrite's or another program's.
const KEEPS_ITS_TIME: &str = "its time of modification stays as it is: it may be another program's";

/// Said where a record stays because of an error.
fn stays(error: &io::Error) -> String {
    format!("{error}; the record stays, recover again")
}

fn refused_at(at: u64) -> String {
    format!("it holds other data at {at}, in memory only, because the disk has refused it")
}

/// The outcome for a file of which it is not known what is on the disk.
fn not_synced(recovered: Recovered, error: Errno) -> Recovered {
    let what = format!("it cannot be synced: {error}; the record stays, recover again");
    recovered.ended(RecoveryOutcome::Failed, what)
}

/// The outcome for a file that could not be leased, or whose lease was lost.
fn not_leased(recovered: Recovered, error: &io::Error) -> Recovered {
    let what = match error.kind() {
        io::ErrorKind::WouldBlock => {
            "another program has it open; end that program, then recover again".into()
        }
        io::ErrorKind::ResourceBusy => format!("{error}, then recover again"),
        _ => format!("cannot be leased: {error}"),
    };
    recovered.ended(RecoveryOutcome::Unreachable, what)
}

/// The error of a lease that was lost.
fn lost() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

/// There is no space to free.
struct NoneLeft;

impl Holder for NoneLeft {}
