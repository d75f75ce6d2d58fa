//! The names in a journal: which are looked at, and which of them a rewrite can have made.

use rustix::fs::Dir;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// The most names of each kind that are looked at in one run: a rewrite leaves one, and a user who could write
/// to the disk may have put any number there, in a directory whose blocks are all the same one.
const MOST_NAMES: usize = 4096;

/// The most entries of any kind that are read: each needs time, and the kernel memory.
const MOST_ENTRIES: usize = 1 << 20;

/// How the name of an unfinished copy ends.
const DRAFT: &[u8] = b".part";
const RECORD: &[u8] = b".record";
/// How the name of a record ends whose file was not certain.
pub(super) const KEPT: &str = ".kept";

/// Names of one kind, sorted, and how many others there are.
#[derive(Debug, Default)]
pub struct Names {
    /// Those that are looked at.
    pub names: Vec<OsString>,
    /// How many were not noted.
    pub more: u64,
}

impl Names {
    fn add(&mut self, name: &OsStr) {
        if self.names.len() < MOST_NAMES {
            self.names.push(name.to_owned());
        } else {
            self.more += 1;
        }
    }
}

/// What a journal contains.
#[derive(Debug, Default)]
pub struct Listing {
    /// Records.
    pub records: Names,
    /// Copies that never became records.
    pub drafts: Names,
    /// Whether the directory has more entries than are read.
    pub cut: bool,
}

impl Listing {
    /// Reads a directory.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn of(dir: &OwnedFd) -> io::Result<Self> {
        let mut listing = Self::default();
        for (n, entry) in Dir::read_from(dir)?.enumerate() {
            if n >= MOST_ENTRIES {
                listing.cut = true;
                break;
            }
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name.ends_with(DRAFT) {
                listing.drafts.add(OsStr::from_bytes(name));
            } else if name.ends_with(RECORD) {
                listing.records.add(OsStr::from_bytes(name));
            }
        }
        listing.drafts.names.sort();
        listing.records.names.sort();
        Ok(listing)
    }
}

/// Whether a file of this name may be a copy or a record, in whatever directory.
pub(super) fn may_be_records(name: &OsStr) -> bool {
    [DRAFT, RECORD, KEPT.as_bytes()].iter().any(|ending| name.as_bytes().ends_with(ending))
}

/// Whether a copy of a rewrite can have this name: `INODE-START.part`, both in decimal.
pub(super) fn is_drafts(name: &OsStr) -> bool {
    let number = |text: &str| text.parse::<u64>().is_ok_and(|n| n.to_string() == text);
    let stem = name.as_bytes().strip_suffix(DRAFT).and_then(|stem| std::str::from_utf8(stem).ok());
    stem.and_then(|stem| stem.split_once('-')).is_some_and(|(a, b)| number(a) && number(b))
}
