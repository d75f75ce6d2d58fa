//! Relocation: data that was given a new place is copied there, or the drive remaps it (janusd, section 4.1), so that no data moves.
//!
//! **Shared remaps.** Old and new place lead to the data. The commit is: the log is flushed, the journal is committed, the old place is
//! trimmed. A cut leaves
//! - before the log's flush: the old place, which is valid and which the files refer to; the new one is free, whatever it holds;
//! - between flush and commit: the same, as both places are valid;
//! - after the commit: the new place, which leads to the data because the log was flushed before. The old one is trimmed after that alone.
//!
//! An ordinary flush does not write the log, so without the log's own flush the files would refer to places that lead to nothing.
//!
//! **Exclusive remaps**, the paper's. The old place is unmapped at once, and is valid again only if the drive discards the remap. The commit
//! has the order of the paper's figure 12: (1) the log is flushed; (2) the journal is committed, by a transaction that is marked; (3) the
//! log's completion flag is appended. No sync returns before (3), and what the transaction has freed is trimmed and allocated again only
//! after (3). A mount asks the drive first whether all is committed. A cut leaves
//! - before (1): nothing of the remaps, or a part of their entries if a compaction has written the log. The mount finds no marked
//!   transaction at the journal's end, discards, and the old places, which the files refer to, lead to their data again;
//! - between (1) and (2): the same;
//! - between (2) and (3): a marked transaction at the journal's end, and a log that is not committed. The mount moves the journal's tail
//!   behind the transaction without replaying it, durably, and discards then. All goes back together: the exchanges, and what other
//!   programs changed in the same transaction, whose syncs have not returned. What they wrote to new places goes with them, and the old
//!   content returns. Were it discarded first, a cut before the tail has moved would leave a log with nothing uncommitted in it, and the next
//!   mount would replay the transaction, whose new places lead to nothing;
//! - after (3): a log that is committed, so that the transaction is replayed as any other.
//!
//! What the paper leaves open:
//! - The check is of the whole log. Were new remaps made while the journal still ended with a marked transaction, a cut would undo that
//!   one, too, although it is committed. So another transaction, empty if need be, follows it before the next remap is sent.
//! - A block that is remapped twice before a commit, or a full log: all so far is committed, and the drive is asked once more. What it
//!   refuses then stays where it was, and what has been remapped before that belongs to the file already.
//! - Collection may move what is held or remapped at any time: the drive keeps both valid, as its own crash argument says.
//! - Several files, or parts of them, in one batch are in one transaction, and go forward or back together.

use super::transfer::Moving;
use super::{Kind, State};
use crate::error::Error;
use fragmend_flash::command::{Command, Refused};
use fragmend_layout::Skip;

/// How data comes to its new place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Primitive {
    /// The host reads it and writes it there.
    #[default]
    Copy,
    /// The same as ext4's own ioctl does it, which e4defrag calls (`mext_page_mkuptodate` in fs/ext4/move_extent.c of Linux 5.7): it waits
    /// for each block that is not in the page cache before it asks for the next one.
    CopyByBlock,
    /// The drive remaps it.
    Remap(Remap),
}

/// How the drive remaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// Whether the old place stays valid until it is trimmed.
    pub shared: bool,
    /// Whether the host copies what the drive refuses to remap. Otherwise it is left alone.
    pub or_copy: bool,
}

impl Remap {
    /// As in janusd: only the new place is valid, and what the drive refuses is left alone.
    pub const EXCLUSIVE: Self = Self { shared: false, or_copy: false };
}

impl Primitive {
    /// Its name in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy | Self::CopyByBlock => "copy and exchange",
            Self::Remap(Remap { shared: false, .. }) => "remap",
            Self::Remap(Remap { shared: true, .. }) => "shared remap",
        }
    }
}

/// What came of a relocation.
#[derive(Debug, Default)]
pub(super) struct Relocated {
    /// Blocks at the start of the part that are in their new place.
    pub blocks: u64,
    /// What has brought them there.
    pub by: Option<&'static str>,
    /// Why the host copied what the drive was to remap.
    pub fallback: Option<String>,
    /// Why the others are where they were.
    pub skip: Option<Skip>,
}

impl Relocated {
    /// All of these runs were copied.
    pub fn copied(runs: &[Moving]) -> Self {
        let blocks = blocks_of(runs);
        Self { blocks, by: Some(Primitive::Copy.name()), ..Self::default() }
    }
}

fn blocks_of(runs: &[Moving]) -> u64 {
    runs.iter().map(|run| u64::from(run.to.count)).sum()
}

impl<K: Kind> State<K> {
    /// Brings runs of a file, which are on the drive, to places that are held.
    pub(super) fn relocate(&mut self, inode: u64, runs: &[Moving]) -> Result<Relocated, Error> {
        let remap = match self.primitive {
            Primitive::Remap(remap) => remap,
            copying => {
                if copying == Primitive::CopyByBlock {
                    self.copy_what_is_read(inode, runs)?;
                } else {
                    self.copy(runs)?;
                }
                self.exchange(inode, runs)?;
                return Ok(Relocated::copied(runs));
            }
        };
        let (remapped, refused) = self.remap_runs(inode, runs, remap.shared)?;
        let by = (remapped > 0).then_some(self.primitive.name());
        let blocks = blocks_of(&runs[..remapped]);
        let Some(refused) = refused else {
            return Ok(Relocated { blocks, by, ..Relocated::default() });
        };
        if remapped > 0 || !remap.or_copy {
            // The mover goes on behind what was remapped, where a copy is all there is, or nothing.
            let skip = (!remap.or_copy).then(|| Error::Drive(refused).into());
            return Ok(Relocated { blocks, by, skip, ..Relocated::default() });
        }
        self.copy(runs)?;
        self.exchange(inode, runs)?;
        let fallback = Some(format!("the drive does not remap: {refused}"));
        Ok(Relocated { fallback, ..Relocated::copied(runs) })
    }

    /// Remaps runs one by one and exchanges each; returns how many, and why the next one was refused.
    pub(super) fn remap_runs(
        &mut self,
        inode: u64,
        runs: &[Moving],
        shared: bool,
    ) -> Result<(usize, Option<Refused>), Error> {
        for (done, run) in runs.iter().enumerate() {
            // What was never written reads as zeroes at either place.
            if !run.to.unwritten
                && let Err(error) = self.remap(run, shared)
            {
                return match error {
                    Refusal::Of(refused) => Ok((done, Some(refused))),
                    Refusal::Fatal(error) => Err(error),
                };
            }
            self.exchange(inode, std::slice::from_ref(run))?;
        }
        Ok((runs.len(), None))
    }

    fn remap(&mut self, run: &Moving, shared: bool) -> Result<(), Refusal> {
        let command = Command::Remap { from: run.old(), to: run.to.place, shared };
        if !shared {
            K::prepare_remap(self)?;
        }
        let mut done = self.machine.command(&command);
        if matches!(done, Err(Refused::LogFull | Refused::Uncommitted)) && self.changes.remapped {
            self.commit_in_place()?;
            if !shared {
                K::prepare_remap(self)?;
            }
            done = self.machine.command(&command);
        }
        match done {
            Ok(_) => {
                self.changes.remapped = true;
                self.changes.exclusively |= !shared;
                Ok(())
            }
            Err(Refused::NoPower) => Err(Refusal::Fatal(Refused::NoPower.into())),
            Err(refused) => Err(Refusal::Of(refused)),
        }
    }
}

/// Why a run was not remapped.
enum Refusal {
    /// The drive refused, and has done nothing.
    Of(Refused),
    /// What the remap needs before it failed, or the power is cut.
    Fatal(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}
