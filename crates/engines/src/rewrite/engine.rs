//! Rewriting in place, with a durable copy first: for file systems that have FIEMAP and can punch
//! holes, but have no way of their own to move data. Only where it is asked for.
//!
//! A range of the file (F) is copied; then F is leased and compared with the copy, which becomes a
//! record (R) in the journal; then F is punched, allocated anew, written, read back; then R goes.
//! What is on the disk if power fails or the process is killed after step
//!
//! 1. *copied*: F as it was; an unfinished `.part`. `recover` removes it. So it does after
//! 2. *leased*: nobody else has F open, and F still is what was copied.
//! 3. *sealed* (R written, synced, read back, renamed, directory synced): F as it was, and R.
//!    `recover` finds F whole and removes R.
//! 4. *punched*, 5. *allocated*, 6. *half written*, 7. *written*: each block of the range holds
//!    its old bytes where it was, or is a hole, or unwritten, or holds the same bytes in its new
//!    place, whatever of that has reached the disk. `recover` writes the holes and the unwritten
//!    blocks from R, makes them durable, compares, and removes R. Anything else in the range was
//!    put there by somebody else, and is not touched.
//! 8. *synced*, 9. *compared*: F has every byte for good, and R. `recover` removes R.
//! 10. *removed*: F alone.
//!
//! R outlives every instant at which F may lack a byte: it is durable before the punch, and its
//! removal begins after F was synced and read back. That is worth what the file systems promise:
//! `ground.rs` says which are taken.
//!
//! Before F is synced, copied, or a page of it dropped, the page cache is compared with the device (`refused.rs`):
//! what the device has refused is nowhere else, and F is left alone then.
//!
//! F is leased before R is sealed, so that from there to the end of the process every change to F
//! is ours. Each is noted (`note.rs`), which tells `recover` a hole that was left from one that
//! the owner made afterwards.
//!
//! Signals and limits. From the seal to the end of step 10 no signal ends, stops or interrupts this
//! thread (`sys/src/signals.rs`), but `SIGKILL` and `SIGSTOP`. Memory and file size are made sure of
//! before the punch (`limits.rs`).
//!
//! Space. Between punch and allocation others may take what was freed. Therefore the donor's space
//! for the range is freed just before, so that at least twice what is needed is free, and a
//! reserve of the same size, and then all that the donor has left, are given up only when that was
//! not enough. If others take all of it, the record stays, and `recover` can do its work as soon
//! as there is space again.
//!
//! Who is kept out. The write lease is granted only while nobody else has F open: no reader, no
//! writer, no mapping, no swap file, no running program. Who opens or truncates F during steps 2
//! to 10, also as root, waits until they are done; who opens it with `O_NONBLOCK` is turned away.
//! The kernel ends such waiting after `lease-break-time`; a system where that is short is refused.
//! If a device hangs for so long, or this process is frozen, who waited may see zeroes. The lease is
//! asked for before the punch, and before and after each piece of at most 256 KiB that is written;
//! once it is lost nothing more is written, and the record stays for `recover` to look into. So
//! what others write then stays, but for what one call that was held up behind the question takes:
//! one piece, or, if it is the punch, the range.
//!
//! Nothing is opened by its path between the lease and its end: a directory above the mount may be
//! somebody's, who could put a pipe there.
//! If this process is killed, its lease goes: until `recover` has run, the range may read as zeroes.
//!
//! What makes a program privileged, and writing takes away, is looked for when F is opened and again
//! before the first change of it; capabilities that somebody sets later are kept (`privileges.rs`).
//!
//! While F is leased this thread's I/O is not of the idle class, which schedulers serve last.
//!
//! The time of modification is put back if it lies between the first step and now: somebody who
//! sets it by path in just that moment, without opening the file, is not noticed.

use super::journal::{DIRECTORY, ELSEWHERE, Journal, JournalError, directory, held_by_nobody_else};
use super::mover::{self, Rewriting};
use super::{ground, probe};
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::{Engine, Mover};
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::fs_id::FsId;
use fragmend_sys::mounts::{self, Mount};
use fragmend_sys::signals;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The engine of any local file system that passes the probe.
pub(crate) struct Rewrite {
    shared: Rc<Shared>,
}

/// What all files of one file system have in common.
pub(super) struct Shared {
    pub(super) mount: PathBuf,
    /// The top of it, held open.
    pub(super) root: OwnedFd,
    pub(super) fs: FsId,
    journal_path: PathBuf,
    journal: RefCell<Option<Rc<Journal>>>,
    /// A range could not be put back: nothing more is punched until it was.
    pub(super) broken: Cell<bool>,
}

impl Rewrite {
    /// Tries on an unnamed file what rewriting needs, and looks for records that were left.
    ///
    /// # Errors
    /// What is missing, or what to do first.
    pub fn new(mount: &Mount, journal: Option<&Path>) -> Result<Self, String> {
        ground::for_files(mount)?;
        // A limit of file sizes is an error then, and not the end of the process.
        signals::no_end_by_file_size().map_err(|e| e.to_string())?;
        let root = directory(&mount.point).map_err(|e| e.to_string())?;
        let dev = rustix::fs::fstat(&root).map_err(|e| e.to_string())?.st_dev;
        if dev != mount.dev {
            return Err(format!("{}: another file system is there", mount.point.display()));
        }
        let fs = FsId::of(&root).map_err(|e| e.to_string())?;
        let journal_path = match journal {
            Some(dir) => elsewhere(dir, &fs, mount)?,
            None => {
                ground::for_records(mount)?;
                mount.point.join(DIRECTORY)
            }
        };
        probe::probe(&root)?;
        let journal = Journal::open(&journal_path).map_err(|e| e.to_string())?;
        journal.as_ref().map_or(Ok(()), Journal::make_fit).map_err(|e| e.to_string())?;
        let open = journal.as_ref().map(Journal::records).transpose();
        let open = open.map_err(|e| format!("{}: {e}", journal_path.display()))?;
        if let Some(open) = open.filter(|records| !records.is_empty()) {
            let where_to = match journal_path.parent().filter(|p| *p != mount.point) {
                Some(dir) => format!("--journal {}", dir.display()),
                None => mount.point.display().to_string(),
            };
            return Err(format!(
                "{} ranges of an interrupted rewrite are not recovered yet; run: fragmend recover {where_to}",
                open.len()
            ));
        }
        let shared = Shared {
            mount: mount.point.clone(),
            root,
            fs,
            journal_path,
            journal: RefCell::new(journal.map(Rc::new)),
            broken: Cell::new(false),
        };
        Ok(Self { shared: Rc::new(shared) })
    }
}

/// The journal of a file system in a directory that was named.
///
/// # Errors
/// Why its records would not be safe there, or could not be told from another file system's.
fn elsewhere(dir: &Path, fs: &FsId, files: &Mount) -> Result<PathBuf, String> {
    let named = |e: std::io::Error| format!("{}: {e}", dir.display());
    let dir = dir.canonicalize().map_err(named)?;
    ground::for_records_of(&mounts::of_path(&dir).map_err(named)?, files)?;
    held_by_nobody_else(&dir).map_err(|e| e.to_string())?;
    if fs.uuid == [0; 16] {
        return Err("this kernel does not tell the file system's UUID, by which its records could be told from others'; leave out --journal".into());
    }
    Ok(dir.join(format!("{ELSEWHERE}{}", fs.name())))
}

impl Shared {
    pub(super) fn journal(&self) -> Result<Rc<Journal>, Skip> {
        let mut journal = self.journal.borrow_mut();
        if journal.is_none() {
            let made = Journal::create(&self.journal_path);
            let made = made.map_err(|e| Skip::new(SkipReason::Failed, format!("journal: {e}")))?;
            *journal = Some(Rc::new(made));
        }
        let journal = Rc::clone(journal.as_ref().expect("made above"));
        self.lies_there(&journal).map_err(|why| Skip::new(SkipReason::Failed, why))?;
        // Nobody else is at work here, so these were left by a process that died.
        let drafts = journal.drafts().map_err(skip_of)?;
        journal.remove_drafts(&drafts).map_err(skip_of)?;
        Ok(journal)
    }

    /// Whether a journal at the top of the mount is one: what its path leads to may change.
    fn lies_there(&self, journal: &Journal) -> Result<(), String> {
        let at_top = self.journal_path.parent() == Some(&self.mount);
        if at_top && !journal.is_beside(&self.root) {
            Err(JournalError::Misplaced(self.journal_path.clone()).to_string())
        } else {
            Ok(())
        }
    }

    /// What to say once a range could not be put back.
    pub(super) fn needs_recovery(&self, why: impl std::fmt::Display) -> Skip {
        self.broken.set(true);
        let detail = format!("{why}; its bytes are safe in {}", self.journal_path.display());
        Skip::new(SkipReason::NeedsRecovery, detail)
    }
}

impl Engine for Rewrite {
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        if self.shared.broken.get() {
            return Err(Skip::new(SkipReason::NeedsRecovery, "first run: fragmend recover"));
        }
        mover::is_plain(file)?;
        let shared = Rc::clone(&self.shared);
        Ok(Box::new(Rewriting::new(shared)))
    }
}
