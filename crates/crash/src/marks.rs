//! What is known to be durable, said the moment it is known. A mark goes into the log behind the
//! writes that it speaks of, so a cut behind the mark must find them.
//!
//! Marks may come late, which promises less; they never come early.

use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// One thing that is durable from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
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
    /// So many bytes of a file were moved, says their receipt. Promises nothing.
    Moved {
        /// How many.
        bytes: u64,
    },
}

/// Where marks go.
pub trait Marks {
    /// Takes one.
    ///
    /// # Errors
    /// When nobody listens any more.
    fn mark(&mut self, mark: Mark) -> io::Result<()>;
}

/// A line of JSON for each.
impl<W: Write> Marks for W {
    fn mark(&mut self, mark: Mark) -> io::Result<()> {
        // One write a line: several writers share the stream.
        self.write_all(format!("{}\n", serde_json::to_string(&mark)?).as_bytes())?;
        self.flush()
    }
}
