//! How data comes to its new place: the host copies it, or the drive remaps it (janusd, section 4).
//!
//! After a shared remap both places lead to the data, until the old one is trimmed after the commit: a cut at any instant finds the data
//! where the file refers to, and nothing else has to know of remaps.
//!
//! After one that is not shared only the new place does, and a discard of what is not committed in the drive's defrag log undoes it. So
//! the transaction is marked as one with remaps, and the log is flushed before it and committed after it. A mount asks the drive:
//!
//! - All is committed: nothing is to be done.
//! - If not, and the last transaction is marked, the power failed between that and the log's commit: the log is committed.
//! - If not, and it is not marked, the transaction of the remaps was not committed: they are discarded, and the file is where it was.
//!
//! So before the first remap of a transaction the last one must not be marked: if it is, one without remaps is committed. The paper rolls
//! the file system back in the second case, too; to go on needs no undoing of a committed journal.

use super::transfer::Transfer;
use super::{Kind, Omit, State};
use crate::error::Error;
use crate::extent_map::Piece;
use crate::machine::Machine;
use fragmend_flash::command::{Command, LogAction, Refused};

/// How data comes to its new place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Primitive {
    /// The host reads it and writes it there.
    #[default]
    Copy,
    /// The drive leads the new place to it, without moving it. What the drive refuses is copied.
    Remap {
        /// Whether the old place leads to it as well until it is trimmed.
        shared: bool,
    },
}

impl Primitive {
    /// Its name in receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy and exchange",
            Self::Remap { shared: true } => "shared remap and exchange",
            Self::Remap { shared: false } => "remap and exchange",
        }
    }
}

/// Which primitive has brought data to its new place, and why another one than was wanted.
pub(super) type Done = (Primitive, Option<Refused>);

/// The remaps that are not settled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remaps {
    /// Some are not in the drive's log yet.
    unflushed: bool,
    /// The transaction has some that are not shared.
    exclusive: bool,
    /// The last transaction is marked as one with remaps.
    is_marked: bool,
}

impl Remaps {
    /// Those after a mount whose last transaction is marked, or not.
    pub fn after(is_marked: bool) -> Self {
        Self { is_marked, ..Self::default() }
    }
}

/// What a mount does with remaps that the drive has not committed; `is_marked` says whether the last transaction has remaps.
pub(crate) fn settle(machine: &Machine, is_marked: bool) -> Result<(), Error> {
    match machine.command(&Command::DefragLog(LogAction::Check)) {
        // A drive without a log has remapped nothing.
        Err(Refused::Unsupported) => Ok(()),
        Ok(found) if found.committed => Ok(()),
        Ok(_) => {
            let action = if is_marked { LogAction::Commit } else { LogAction::Discard };
            machine.command(&Command::DefragLog(action))?;
            Ok(())
        }
        Err(refused) => Err(refused.into()),
    }
}

impl<K: Kind> State<K> {
    /// Brings data to its new place. It need not be durable: the commit's barriers come before anything refers to it.
    pub(super) fn transfer(&mut self, transfer: &Transfer) -> Result<Done, Error> {
        let primitive = self.settings.primitive;
        let Primitive::Remap { shared } = primitive else {
            self.copy(transfer)?;
            return Ok((Primitive::Copy, None));
        };
        if !shared && self.remaps.is_marked && self.settings.omit != Some(Omit::UnmarkBeforeRemap) {
            self.write_placed()?;
            self.commit_all()?;
        }
        let mut remapped = Ok(());
        let mut rest = Transfer { old: Vec::new(), new: Vec::new() };
        for (old, new) in pairs(transfer) {
            if remapped.is_ok() {
                remapped = self.remap(&old, &new, shared);
            }
            if remapped.is_err() {
                rest.old.push(old);
                rest.new.push(new);
            }
        }
        match remapped {
            Ok(()) => Ok((primitive, None)),
            Err(refused @ (Refused::NoPower | Refused::NoSpace)) => Err(refused.into()),
            // Without a mapping, the command, or space in the log: what is not remapped is copied.
            Err(refused) => {
                self.copy(&rest)?;
                Ok((Primitive::Copy, Some(refused)))
            }
        }
    }

    fn remap(&mut self, old: &Piece, new: &Piece, shared: bool) -> Result<(), Refused> {
        (self.remaps.unflushed, self.remaps.exclusive) = (true, self.remaps.exclusive || !shared);
        let remap = Command::Remap { from: old.units(), to: new.place, shared };
        self.machine.command(&remap).map(drop)
    }

    /// Before a commit: remaps are durable before it refers to their new places. Returns whether it is to be marked.
    pub(super) fn flush_remaps(&mut self) -> Result<bool, Error> {
        if std::mem::take(&mut self.remaps.unflushed)
            && self.settings.omit != Some(Omit::FlushOfRemaps)
        {
            self.machine.command(&Command::DefragLog(LogAction::Flush))?;
        }
        Ok(self.remaps.exclusive && self.settings.omit != Some(Omit::MarkOfRemaps))
    }

    /// After a commit: what it refers to is not undone any more, before the old places are trimmed and used.
    pub(super) fn commit_remaps(&mut self) -> Result<(), Error> {
        let exclusive = std::mem::take(&mut self.remaps.exclusive);
        if exclusive && self.settings.omit != Some(Omit::CommitOfRemaps) {
            self.machine.command(&Command::DefragLog(LogAction::Commit))?;
        }
        self.remaps.is_marked = exclusive;
        Ok(())
    }
}

/// The parts of what is written that are consecutive in both places.
fn pairs(transfer: &Transfer) -> Vec<(Piece, Piece)> {
    let mut pairs = Vec::new();
    for new in transfer.new.iter().filter(|piece| !piece.unwritten) {
        for old in transfer.old.iter().filter_map(|piece| piece.within(&new.blocks())) {
            pairs.extend(new.within(&old.blocks()).map(|new| (old, new)));
        }
    }
    pairs
}
