//! What is known, said the moment it is known. A mark goes into the log behind the writes that it
//! speaks of, so a cut behind the mark must find them. Marks may come late, which promises less;
//! they never come early.
//!
//! Who says one writes it to a place that the disk's server offers beside the disk: a file, or in
//! a guest a second disk. The writing ends when the mark is in the log, wherever the writer runs.

use fragmend_testbed::replay::Aligned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One thing that holds from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// What reaches the disk is recorded.
    Recording,
    /// Files are being moved.
    Moving,
    /// Nobody moves files any more.
    AtRest,
    /// The bytes `from..to` of file `tag` have at least this version.
    Synced {
        /// Which file.
        tag: u32,
        /// First byte.
        from: u64,
        /// Byte behind the last.
        to: u64,
        /// Of the last write there.
        version: u16,
    },
    /// File `tag` has at least so many bytes.
    Grown {
        /// Which file.
        tag: u32,
        /// Its size.
        bytes: u64,
    },
    /// The bytes `from..to` of file `tag` may be zeroes from now on.
    Zeroing {
        /// Which file.
        tag: u32,
        /// First byte.
        from: u64,
        /// Byte behind the last.
        to: u64,
        /// What is written later has a higher one.
        version: u16,
    },
    /// File `tag` has at least and at most so many bytes from now on.
    Sizes {
        /// Which file.
        tag: u32,
        /// Smallest size.
        least: u64,
        /// Largest size.
        most: u64,
    },
    /// Everything is about to be committed.
    Committing,
    /// What was there when [`Mark::Committing`] was said last is durable.
    Committed,
    /// So many bytes of file `tag` were moved, says their receipt. Promises nothing.
    Moved {
        /// Which file.
        tag: u32,
        /// How many.
        bytes: u64,
    },
    /// All that was moved of file `tag` so far is durable, and its mover is held up: see
    /// [`crate::apply`].
    Halfway {
        /// Which file.
        tag: u32,
    },
    /// From here on the mover of file `tag` goes on.
    Released {
        /// Which file.
        tag: u32,
    },
}

/// Bytes of a mark on its way: it is written as a sector, with zeroes behind it.
pub const MARK_BYTES: usize = 512;

/// Where marks go.
pub struct Marks {
    to: File,
    sector: Mutex<Aligned>,
}

impl Marks {
    /// Opens the place beside a disk.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let to = File::options().write(true).custom_flags(direct).open(path)?;
        Ok(Self { to, sector: Mutex::new(Aligned::new(MARK_BYTES)) })
    }

    /// Says something to the disk's server, and waits until it has heard.
    ///
    /// # Errors
    /// When nobody listens any more.
    pub fn say(&self, what: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(what)?;
        let mut sector = self.sector.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = sector.bytes();
        bytes.fill(0);
        let room = bytes.get_mut(..text.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        room.copy_from_slice(&text);
        self.to.write_all_at(bytes, 0)
    }
}

/// The text in a sector that [`Marks::say`] wrote.
pub fn text_in(sector: &[u8]) -> String {
    let end = sector.iter().position(|b| *b == 0).unwrap_or(sector.len());
    String::from_utf8_lossy(&sector[..end]).into_owned()
}
