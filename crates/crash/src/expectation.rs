//! What one file must hold, given what was durable: sizes, and for each unit of it the versions that it may have.

use crate::check::{Mismatch, OWN, compare};
use crate::content::{WORD, WordFound};
use crate::files::{Role, TestFile, floor};
use crate::later_use::BLOCK;
use crate::marks::Mark;
use crate::scenario::Promise;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of the unit for which versions are kept.
const UNIT: u64 = 512;

/// What must hold for a file of the run.
#[derive(Clone, Debug)]
pub(crate) struct FileExpectation<'a> {
    pub file: &'a TestFile,
    /// The oldest version that each unit of [`UNIT`] bytes may have.
    oldest: Vec<u16>,
    /// The version from which on each unit may be zeroes; 0 for never.
    zeroed: Vec<u16>,
    /// The newest version of which each unit's block was written, or was about to be.
    begun: Vec<u16>,
    /// The smallest size.
    pub least: u64,
    /// The largest size, of files that are truncated.
    pub most: u64,
    promise: Promise,
}

impl<'a> FileExpectation<'a> {
    /// What must hold before any mark.
    pub fn initial(file: &'a TestFile, promise: Promise) -> Self {
        Self {
            file,
            oldest: vec![0; file.bytes.div_ceil(UNIT) as usize],
            zeroed: Vec::new(),
            begun: Vec::new(),
            most: file.bytes,
            least: if file.role == Role::Truncated { floor(file.bytes) } else { file.bytes },
            promise,
        }
    }

    /// Takes a mark about this file into account, whose fact is durable.
    pub fn apply(&mut self, mark: Mark) {
        match mark {
            Mark::Synced { from, to, version, .. } => raise(&mut self.oldest, from, to, version),
            Mark::Zeroing { from, to, version, .. } => raise(&mut self.zeroed, from, to, version),
            Mark::Writing { from, to, version, .. } => {
                let (from, to) = (from / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
                raise(&mut self.begun, from, to, version);
            }
            Mark::Sizes { least, most, .. } => (self.least, self.most) = (least, most),
            Mark::Grown { bytes, .. } => self.least = self.least.max(bytes),
            _ => {}
        }
    }

    /// What is wrong with a file that holds `read` and may have one of these sizes. No promise allows bytes
    /// that this file never had in that place, except where it was never synced.
    pub fn check(&self, path: &Path, read: &[u8], sizes: &RangeInclusive<u64>) -> Vec<Mismatch> {
        let TestFile { name, tag, role, .. } = self.file;
        let of_unit =
            |versions: &[u16], at: u64| versions.get((at / UNIT) as usize).copied().unwrap_or(0);
        let oldest = |at: u64| of_unit(&self.oldest, at);
        let zeroed =
            |at: u64| of_unit(&self.zeroed, at) > 0 && of_unit(&self.zeroed, at) >= oldest(at);
        let floor = floor(self.file.bytes);
        let stale = self.promise.allows_stale_blocks();
        let allowed = |at: u64, found: WordFound| match (role, found) {
            (Role::Untouched, found) => found == WordFound::Version(0),
            // Behind the durable end nothing was promised.
            (Role::UsedLater, WordFound::Version(_) | WordFound::Zero) if at >= *sizes.start() => {
                true
            }
            (Role::UsedLater, _) if stale && at >= *sizes.start() => true,
            // A hole that is written to: its new block may be there before the data is.
            (Role::UsedLater, _)
                if stale && zeroed(at) && of_unit(&self.begun, at) > of_unit(&self.zeroed, at) =>
            {
                true
            }
            (
                Role::Buffered | Role::Direct | Role::Mapped | Role::UsedLater,
                WordFound::Version(v),
            ) => v >= oldest(at),
            (Role::UsedLater, WordFound::Zero) => zeroed(at),
            (Role::Buffered | Role::Direct | Role::Mapped | Role::UsedLater, _) => false,
            (Role::Appended, WordFound::Version(0)) => true,
            (Role::Appended, found) => {
                at + WORD > self.least && (stale || found == WordFound::Zero)
            }
            (Role::Truncated, WordFound::Version(v)) => v == 0 || at >= floor,
            (Role::Truncated, found) => {
                of_unit(&self.zeroed, at) > 0 && (stale || found == WordFound::Zero)
            }
        };
        let expected = |at: u64| match role {
            Role::UsedLater if zeroed(at) => format!("zeroes, or version {} or newer", oldest(at)),
            Role::Buffered | Role::Direct | Role::Mapped | Role::UsedLater => {
                format!("version {} or newer", oldest(at))
            }
            Role::Truncated if at >= floor => OWN.to_owned(),
            Role::Appended if at + WORD > self.least => OWN.to_owned(),
            Role::Untouched | Role::Appended | Role::Truncated => "version 0".to_owned(),
        };
        let mut wrong: Vec<Mismatch> =
            compare(name, *tag, read, &expected, allowed).into_iter().collect();
        let mut differs = |what: &str, expected: String, found: String| {
            let what = format!("{name}: {what}");
            wrong.push(Mismatch { what, offset: 0, bytes: 0, expected, found });
        };
        let size = read.len() as u64;
        let size_is_allowed = match role {
            Role::Untouched | Role::Buffered | Role::Direct | Role::Mapped => size == self.least,
            Role::UsedLater => sizes.contains(&size),
            Role::Appended => size >= self.least,
            Role::Truncated => size >= floor && size <= self.file.bytes,
        };
        if !size_is_allowed {
            differs("size", self.least.to_string(), size.to_string());
        }
        if let (Role::Untouched, Ok(meta)) = (role, path.metadata()) {
            let now = (meta.mode(), (meta.mtime(), meta.mtime_nsec()));
            let then = (self.file.mode, self.file.modified);
            let times = self.promise == Promise::ExceptTimes;
            let touched = times && now.0 == then.0 && now.1 > then.1;
            if now != then && !touched {
                differs("mode and modification time", format!("{then:?}"), format!("{now:?}"));
            }
        }
        wrong
    }
}

/// Raises the units of the bytes `from..to` to at least this version.
fn raise(versions: &mut Vec<u16>, from: u64, to: u64, version: u16) {
    let units = (from / UNIT) as usize..to.div_ceil(UNIT) as usize;
    versions.resize(versions.len().max(units.end), 0);
    versions[units].iter_mut().for_each(|known| *known = version.max(*known));
}
