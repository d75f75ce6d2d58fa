//! Marks: what is known to be durable, logged as soon as it is known. A mark comes after the writes that it
//! is about, so a cut behind the mark must find them. Marks may come late, which promises less; they never
//! come early.
//!
//! A mark is written to a file that the disk's server offers beside the disk. The write returns when the mark
//! is in the log.

use fragmend_testbed::replay::Aligned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A fact that holds from its position in the log on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// Requests to the disk are recorded.
    Recording,
    /// Files are being moved.
    Moving,
    /// No files are moved any more.
    AtRest,
    /// The bytes `from..to` of file `tag` have at least this version.
    Synced {
        /// Which file.
        tag: u32,
        /// First byte.
        from: u64,
        /// Byte behind the last.
        to: u64,
        /// The version of the last write there.
        version: u16,
    },
    /// File `tag` has at least this size.
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
        /// Later writes have a higher version.
        version: u16,
    },
    /// The bytes `from..to` of file `tag` are about to be written. Promises nothing.
    Writing {
        /// Which file.
        tag: u32,
        /// First byte.
        from: u64,
        /// Byte behind the last.
        to: u64,
        /// Their version.
        version: u16,
    },
    /// The size of file `tag` is within these bounds from now on.
    Sizes {
        /// Which file.
        tag: u32,
        /// Smallest size.
        least: u64,
        /// Largest size.
        most: u64,
    },
    /// A commit of the whole file system begins.
    Committing,
    /// Everything before the last [`Mark::Committing`] is durable.
    Committed,
    /// A receipt reports that bytes of file `tag` were moved. Promises nothing.
    Moved {
        /// Which file.
        tag: u32,
        /// How many.
        bytes: u64,
    },
    /// All that has moved of file `tag` so far is durable, and its move is held up: see
    /// [`crate::apply`].
    Halfway {
        /// Which file.
        tag: u32,
    },
    /// The move of file `tag` goes on.
    Released {
        /// Which file.
        tag: u32,
    },
}

/// Bytes of an encoded mark: its JSON in a sector, padded with zeroes.
pub const MARK_BYTES: usize = 512;

/// Writes marks to the log.
pub struct Marks {
    to: File,
    sector: Mutex<Aligned>,
}

impl Marks {
    /// Opens the file for marks beside a disk.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let to = File::options().write(true).custom_flags(direct).open(path)?;
        Ok(Self { to, sector: Mutex::new(Aligned::new(MARK_BYTES)) })
    }

    /// Sends a mark to the disk's server, and waits until it is logged.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn write(&self, mark: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(mark)?;
        let mut sector = self.sector.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = sector.bytes();
        bytes.fill(0);
        let room = bytes.get_mut(..text.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        room.copy_from_slice(&text);
        self.to.write_all_at(bytes, 0)
    }
}

/// The text in a sector that [`Marks::write`] wrote.
pub fn text_in(sector: &[u8]) -> String {
    let end = sector.iter().position(|b| *b == 0).unwrap_or(sector.len());
    String::from_utf8_lossy(&sector[..end]).into_owned()
}
