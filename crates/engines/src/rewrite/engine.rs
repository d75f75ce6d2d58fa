//! Rewriting in place, with a durable copy first: for file systems that have FIEMAP and can punch holes, but
//! have no way of their own to move data. It is used only where it was asked for.
//!
//! A range of the file (F) is copied; then F is leased and compared with the copy, which becomes a record (R)
//! in the journal; then F is punched, allocated anew, written and read back; then R is removed. What is on the
//! disk if power fails or the process is killed after step
//!
//! 1. *copied*: F as it was; an unfinished `.part`, which `recover` removes. The same holds after
//! 2. *leased*: no other program has F open, and F still is what was copied.
//! 3. *sealed* (R written, synced, read back, renamed, directory synced): F as it was, and R. `recover` finds F
//!    whole and removes R.
//! 4. *punched*, 5. *allocated*, 6. *half written*, 7. *written*: each block of the range holds its old bytes
//!    in its old place, or is a hole, or unwritten, or holds the same bytes in its new place, whatever of that
//!    has reached the disk. `recover` writes the holes and the unwritten blocks from R, makes them durable,
//!    compares, and removes R. Anything else in the range was written by another program, and is not touched.
//! 8. *synced*, 9. *compared*: every byte of F is durable, and R is still there. `recover` removes R.
//! 10. *removed*: F alone.
//!
//! R outlives every instant at which F may lack a byte: it is durable before the punch, and its removal begins
//! after F was synced and read back. That holds only as far as the file systems keep what they promise;
//! `ground.rs` says which file systems are accepted.
//!
//! Before F is synced or copied, or a page of it is dropped, the page cache is compared with the device
//! (`refused.rs`): data that the device has refused is in the page cache alone, and then F is left alone.
//!
//! F is leased before R is sealed, so that from there every change to F is the rewrite's own, as long as the lease is
//! held. Each change is noted (`note.rs`). From the notes `recover` distinguishes a hole that the rewrite left
//! from one that the owner made afterwards.
//!
//! Signals and limits. From the seal to the end of step 10 no signal but `SIGKILL` and `SIGSTOP` ends, stops or
//! interrupts this thread (`sys/src/signals.rs`). Before the punch it is made sure that the memory is there and
//! that the limit on file sizes allows the range (`limits.rs`).
//!
//! Space. Between punch and allocation other programs may allocate the space that the punch freed. Therefore
//! the donor's space for the range is freed just before, so that at least twice what is needed is free. A
//! reserve of the same size, and then all that the donor has left, are released only when that was not enough.
//! The free space is looked at once more right before the punch. If other programs allocate all of it after
//! that, the allocation is tried again for some seconds, in which no other program can read the hole; then the
//! record stays, and `recover` can do its work as soon as there is space again.
//!
//! Other programs. The write lease is granted only while no other open file description of F exists: no reader,
//! no writer, no mapping, no swap file, no running program. A program that opens or truncates F during steps 2
//! to 10, also as root, waits until they are done; one that opens it with `O_NONBLOCK` gets `EWOULDBLOCK` at
//! once. The kernel ends such waiting after `lease-break-time`; on a system where that is short the engine
//! refuses to work. If a device hangs for that long, or this process is frozen, the programs that waited may
//! read zeroes. The lease is looked at before and after each change (`leased.rs`); a write is of at most 256 KiB;
//! once it is lost, nothing more is changed, and the record stays for `recover` to examine. So what other
//! programs write then stays, except where one call of this process was delayed after its check of the lease:
//! such a call overwrites what it covers: at most 256 KiB, or the time, or the range if it is the punch.
//!
//! Between taking the lease and releasing it, nothing is opened by its path: a directory above the mount may
//! belong to another user, who could put a pipe there. If this process is killed, its lease ends: until
//! `recover` has run, the range may read as zeroes.
//!
//! A write to a file clears what makes a program privileged. So that is looked for when F is opened and again
//! before its first change; capabilities that are set later are kept (`privileges.rs`).
//!
//! While F is leased this thread's I/O is not of the idle class, which schedulers serve last.
//!
//! The time of modification is put back, under the lease, if it is that of the last change that is known to be ours.

use super::journal::{DIRECTORY, ELSEWHERE, Journal, JournalError};
use super::mover::{self, Rewriting};
use super::parent::Parent;
use super::{ground, probe};
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::{Engine, Moves};
use fragmend_layout::{FsKind, Skip, SkipReason};
use fragmend_sys::fs_id::FsId;
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::root::Root;
use fragmend_sys::signals;
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The engine for any local file system that passes the probe.
pub(crate) struct Rewrite {
    shared: Rc<Shared>,
}

/// What all files of one file system have in common.
pub(super) struct Shared {
    pub(super) mount: PathBuf,
    /// Its top directory, held open.
    pub(super) root: OwnedFd,
    pub(super) fs: FsId,
    pub(super) kind: FsKind,
    /// Its block, in bytes, by which `recover` checks records.
    pub(super) block: u64,
    /// Where the journal is or is to be, and its name there.
    parent: Rc<Parent>,
    name: OsString,
    journal: RefCell<Option<Rc<Journal>>>,
    /// A range could not be put back: nothing more is punched until it has been.
    pub(super) broken: Cell<bool>,
}

impl Rewrite {
    /// Tries on an unnamed file whether the file system can do what rewriting needs, and looks for records that
    /// an earlier process left.
    ///
    /// # Errors
    /// What is missing, or what the user has to do first.
    pub fn new(mount: &Mount, root: &Root, journal: Option<&Path>) -> Result<Self, String> {
        ground::for_files(mount)?;
        // With this, exceeding the limit on file sizes is an error and does not end the process.
        signals::no_end_by_file_size().map_err(|e| e.to_string())?;
        let root = root.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
        let fs = FsId::of(&root).map_err(|e| e.to_string())?;
        let block = rustix::fs::fstatvfs(&root).map_err(|e| e.to_string())?.f_bsize;
        let journal_dir = journal;
        let (parent, name) = match journal_dir {
            Some(dir) => elsewhere(dir, &fs, mount)?,
            None => {
                ground::for_records(mount)?;
                ground::is_top(mount)?;
                let top = root.try_clone().map_err(|e| e.to_string())?;
                (Parent::opened(top, &mount.point), DIRECTORY.into())
            }
        };
        let parent = Rc::new(parent);
        probe::probe(&root)?;
        let journal = Journal::open(&parent, &name).map_err(|e| e.to_string())?;
        journal.as_ref().map_or(Ok(()), Journal::make_fit).map_err(|e| e.to_string())?;
        recovered(journal.as_ref(), || match journal_dir {
            Some(_) => format!("--journal {}", parent.path.display()),
            None => mount.point.display().to_string(),
        })?;
        if journal_dir.is_some() {
            // A file that lacks bytes may not be copied as it is.
            let top = Parent::opened(root.try_clone().map_err(|e| e.to_string())?, &mount.point);
            let at_top = match Journal::open(&Rc::new(top), OsStr::new(DIRECTORY)) {
                // It has no record of ours.
                Err(JournalError::Others { .. }) => None,
                opened => opened.map_err(|e| e.to_string())?,
            };
            recovered(at_top.as_ref(), || mount.point.display().to_string())?;
        }
        let shared = Shared {
            mount: mount.point.clone(),
            root,
            fs,
            kind: FsKind::from_name(&mount.fs_type),
            block,
            parent,
            name,
            journal: RefCell::new(journal.map(Rc::new)),
            broken: Cell::new(false),
        };
        Ok(Self { shared: Rc::new(shared) })
    }
}

/// Checks that a journal has no record of an interrupted rewrite.
///
/// # Errors
/// How many it has, and how to recover them, with the arguments `how`.
fn recovered(journal: Option<&Journal>, how: impl Fn() -> String) -> Result<(), String> {
    let Some(journal) = journal else { return Ok(()) };
    let listing = journal.listing().map_err(|e| format!("{}: {e}", journal.path().display()))?;
    match listing.records.names.len() as u64 + listing.records.more {
        0 => Ok(()),
        open => Err(format!(
            "{open} ranges of an interrupted rewrite are not recovered yet; run: fragmend recover {}",
            how()
        )),
    }
}

/// The journal of a file system in a directory that the user named.
///
/// # Errors
/// Why its records would not be safe there, or could not be told from another file system's.
fn elsewhere(dir: &Path, fs: &FsId, files: &Mount) -> Result<(Parent, OsString), String> {
    let named = |e: std::io::Error| format!("{}: {e}", dir.display());
    let dir = dir.canonicalize().map_err(named)?;
    ground::for_records_of(&mounts::of_path(&dir).map_err(named)?, files)?;
    let parent = Parent::named(&dir).map_err(|e| e.to_string())?;
    parent.held_by_nobody_else().map_err(|e| e.to_string())?;
    if fs.uuid == [0; 16] {
        return Err("this kernel does not tell the file system's UUID, by which its records could be told from others'; leave out --journal".into());
    }
    Ok((parent, format!("{ELSEWHERE}{}", fs.name()).into()))
}

impl Shared {
    pub(super) fn journal(&self) -> Result<Rc<Journal>, Skip> {
        let mut journal = self.journal.borrow_mut();
        if journal.is_none() {
            let made = Journal::create(&self.parent, &self.name);
            let made = made.map_err(|e| Skip::new(SkipReason::Failed, format!("journal: {e}")))?;
            *journal = Some(Rc::new(made));
        }
        let journal = Rc::clone(journal.as_ref().expect("made above"));
        self.is_in_place(&journal).map_err(|why| Skip::new(SkipReason::Failed, why))?;
        // No other process uses the journal, so these were left by one that died.
        let mut drafts = journal.listing().map_err(skip_of)?.drafts.names;
        drafts.retain(|name| journal.is_draft(name).unwrap_or(false));
        journal.remove_drafts(&drafts).map_err(skip_of)?;
        Ok(journal)
    }

    /// Whether a journal at the top of the mount is on this file system: the directory that its path leads to
    /// may change.
    fn is_in_place(&self, journal: &Journal) -> Result<(), String> {
        if self.keeps_records_here() && !journal.is_beside(&self.root) {
            Err(JournalError::Misplaced(self.journal_path()).to_string())
        } else {
            Ok(())
        }
    }

    /// Whether the journal is at the top of the file system, and uses its space.
    pub(super) fn keeps_records_here(&self) -> bool {
        self.parent.path == self.mount
    }

    fn journal_path(&self) -> PathBuf {
        self.parent.path.join(&self.name)
    }

    /// Refuses all further work once a range could not be put back, and returns the reason.
    pub(super) fn needs_recovery(&self, why: impl std::fmt::Display) -> Skip {
        self.broken.set(true);
        let detail = format!("{why}; its bytes are safe in {}", self.journal_path().display());
        Skip::new(SkipReason::NeedsRecovery, detail)
    }
}

impl Engine for Rewrite {
    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip> {
        if self.shared.broken.get() {
            return Err(Skip::new(SkipReason::NeedsRecovery, "first run: fragmend recover"));
        }
        mover::is_plain(file)?;
        let shared = Rc::clone(&self.shared);
        Ok(Box::new(Rewriting::new(shared)))
    }
}
