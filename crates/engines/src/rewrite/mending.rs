//! One record and its file: what the file lacks is put back, and the record is ended.
//!
//! Other programs are kept out by a lease, the file is synced, its pages are dropped, and the device is read
//! (`place`). Whose the holes are is decided by the notes beside the record (`note`).

use super::leased::{KEEPS_ITS_TIME, Leased, Phase, Seen, State, is_others};
use super::limits::{self, Buffers};
use super::note::{Doubt, ModifiedBy, Noted, Noting, Ours, now_seconds};
use super::place::{Fill, Holder, Verdict, is_blank, judge, lease, put};
use super::privileges::Lost;
use super::record::Record;
use super::recover::{Closing, Prefer};
use super::recovered::{Recovered, RecoveryOutcome};
use super::unchanged::ends_as_recorded;
use super::{joined, refused};
use crate::point::{Point, reached};
use fragmend_layout::ByteRange;
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::signals::Undisturbed;
use rustix::io::Errno;
use std::io;

/// A record and its file.
pub(super) struct Mending<'a> {
    pub(super) closing: Closing<'a>,
    pub(super) record: &'a Record,
    pub(super) data: &'a [u8],
    pub(super) noting: Noting<'a>,
}

/// What a file lacks.
struct Missing {
    /// Bytes that the record has.
    parts: Vec<ByteRange>,
    /// What the rewrite has left, if these parts are holes that it made; or why that is not certain.
    ours: Result<Ours, NotOurs>,
}

/// Why it is for the user to decide what becomes of a file.
struct NotOurs {
    what: String,
    /// Whether that remains so, whatever a later run sees.
    lasts: bool,
}

impl Mending<'_> {
    /// Makes the file whole, if that is certain to be right, and ends its record.
    pub(super) fn mend(&self, recovered: Recovered) -> Recovered {
        if self.closing.sure.is_ok() || self.closing.options.dry_run {
            return self.mend_own(recovered);
        }
        // It may be another's: what a kill leaves is a note that claims nothing of that one.
        let (before, began) = (self.noting.notes().ok().flatten(), now_seconds());
        let noting = self.noting.of_another(before.as_ref(), began);
        let ended = Self { noting, ..*self }.mend_own(recovered);
        if let Some(before) = before
            && ended.outcome == RecoveryOutcome::SetAside
            && self.noting.notes().ok().flatten() != Some(before)
        {
            // Best effort: the record is kept in any case.
            let _ = self.noting.put_back(before, began);
        }
        ended
    }

    fn mend_own(&self, recovered: Recovered) -> Recovered {
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
        if options.prefer(&recovered.path).is_none()
            && let Some(at) = refused::elsewhere(target, self.record.range)
        {
            return recovered.ended(RecoveryOutcome::Failed, refused_elsewhere(at));
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
        let missing = match self.missing(alone) {
            Ok(Some(missing)) => missing,
            Ok(None) => return self.whole(recovered, leased),
            Err(why) => return recovered.ended(RecoveryOutcome::Failed, why),
        };
        // Existing data is overwritten only where the user has decided that.
        let ours = match (missing.ours, options.prefer(&recovered.path)) {
            (Err(_), Some(Prefer::File)) => {
                return self.closing.close(recovered, RecoveryOutcome::Discarded);
            }
            (Err(theirs), prefer) => {
                let noted = self.remember(&theirs);
                if prefer.is_none() {
                    let unnoted = noted.err().map(|e| format!("that cannot be noted: {e}"));
                    let what = joined([theirs.what].into_iter().chain(unnoted));
                    return self.undecided(recovered, &what.unwrap_or_default());
                }
                None
            }
            (Ok(ours), _) => Some(ours),
        };
        let bytes = missing.parts.iter().map(|part| part.len()).sum();
        let lease = match leased {
            None => {
                let recovered = Recovered { restored_bytes: bytes, ..recovered };
                return recovered.ended(RecoveryOutcome::WouldRestore, "");
            }
            Some(Ok(lease)) => lease,
            Some(Err(e)) => return not_leased(recovered, &e),
        };
        match self.put_back(&missing.parts, ours, &lease) {
            Ok(detail) => {
                let recovered = Recovered { restored_bytes: bytes, detail, ..recovered };
                self.closing.close(recovered, RecoveryOutcome::Restored)
            }
            Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(&e)),
        }
    }

    /// What the file lacks; `None` if it is whole.
    ///
    /// # Errors
    /// Why that is not known.
    fn missing(&self, alone: bool) -> Result<Option<Missing>, String> {
        let judged = judge(self.noting.file, self.record, self.data, alone);
        let changed = |what, lasts| {
            let ours = Err(NotOurs { what, lasts });
            Ok(Some(Missing { parts: vec![self.with_data()], ours }))
        };
        match judged.map_err(|e| e.to_string())? {
            Verdict::Whole => Ok(None),
            Verdict::Missing(blocks) => {
                let part = |block: &ByteRange| block.intersect(self.with_data());
                let parts: Vec<ByteRange> = blocks.iter().map(part).collect();
                let by = self.noting.modified_by(self.record).map_err(|e| e.to_string())?;
                let ours = match by {
                    ModifiedBy::Rewrite(ours) => Ok(ours),
                    ModifiedBy::Others | ModifiedBy::Unknown => {
                        let missing: u64 = parts.iter().map(|part| part.len()).sum();
                        let what = format!(
                            "it was modified after the rewrite, or may have been, and {missing} bytes of it are holes, which read as zeroes"
                        );
                        Err(NotOurs { what, lasts: by == ModifiedBy::Others })
                    }
                };
                Ok(Some(Missing { parts, ours }))
            }
            Verdict::Differs(at) => changed(format!("it holds other data at {at}"), true),
            Verdict::Refused(at) => changed(refused_at(at), false),
            Verdict::Resized(size) => {
                let was = self.record.size;
                changed(format!("it has {size} bytes now and had {was}"), true)
            }
        }
    }

    /// Notes that it is for the user to decide, before that is said: in another mounting or boot, where times count
    /// less exactly (`note.rs`), the holes could look like the rewrite's. If power fails before the note is durable,
    /// nobody has been told yet. Of a file that may not be the record's own nothing is noted.
    fn remember(&self, theirs: &NotOurs) -> io::Result<()> {
        if !theirs.lasts || self.closing.options.dry_run || self.closing.sure.is_err() {
            return Ok(());
        }
        let modified = Seen::now(self.noting.file)?.modified;
        self.noting.note(Noted::Others, Doubt::Content, modified)?;
        Ok(rustix::fs::fsync(self.noting.record)?)
    }

    /// Ends the record of a file that is whole. `leased` is `None` in a dry run.
    fn whole(&self, recovered: Recovered, leased: Option<io::Result<Lease>>) -> Recovered {
        match leased {
            Some(Err(e)) => not_leased(recovered, &e),
            Some(Ok(lease)) if !lease.is_held() => not_leased(recovered, &lost()),
            // Others are kept out until the record is gone.
            Some(Ok(lease)) => match self.settle_time(&lease) {
                Ok(detail) => {
                    let recovered = Recovered { detail, ..recovered };
                    self.closing.close(recovered, RecoveryOutcome::Whole)
                }
                Err(e) => recovered.ended(RecoveryOutcome::Failed, stays(&e)),
            },
            None => self.closing.close(recovered, RecoveryOutcome::Whole),
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

    /// Sets the time of modification of a file whose bytes are whole; returns what the user is told of it. What
    /// others change after it was found whole is theirs, and needs no record.
    ///
    /// # Errors
    /// Others may have the file open.
    fn settle_time(&self, lease: &Lease) -> io::Result<Option<String>> {
        let Ok(ModifiedBy::Rewrite(Ours { modified, is_certain: true })) =
            self.noting.modified_by(self.record)
        else {
            return Ok(Some(KEEPS_ITS_TIME.to_owned()));
        };
        let wanted = self.record.mtime;
        if modified == wanted {
            return Ok(None);
        }
        let seen = Seen { modified, ..Seen::now(self.noting.file)? };
        let state = State::of((self.record.range, Phase::Whole), seen, Some(wanted));
        let none = Lost::default();
        let leased = self.leased(lease, &none, &state, Some(self.record.size));
        let told = match leased.set_time() {
            Ok(()) => state.message(),
            Err(e) if is_others(&e) => leased.set_time_back(|| {
                let mut last = vec![0; self.record.block as usize];
                ends_as_recorded(self.noting.file, self.record, self.data, &mut last).is_ok()
            }),
            Err(e) => return Err(e),
        };
        // If it is not durable the time alone is another.
        let _ = rustix::fs::fsync(self.noting.file);
        leased.are_kept_out()?;
        Ok(told)
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
        match ours {
            // Until all is back, it stays the user's decision.
            None => state.add(Doubt::Content),
            Some(_) if !is_certain => state.add(Doubt::Time),
            Some(_) => {}
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

/// Said where a record stays because of an error.
fn stays(error: &io::Error) -> String {
    format!("{error}; the record stays, recover again")
}

fn refused_at(at: u64) -> String {
    format!("it holds other data at {at}, in memory only, because the disk has refused it")
}

/// Said where the range is not concerned, but a sync would consume the error that a program should get.
fn refused_elsewhere(at: u64) -> String {
    format!(
        "outside of the range it holds data at {at} in memory only, because the disk has refused it: have that written anew, then recover again; or recover with --prefer record, after which no other program is told of it"
    )
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
