//! Whether a plan makes sense in itself: known devices, whole blocks, order, no overlap. This is checked file
//! by file, so that a plan need not be held in memory.
//!
//! A file is known by its identity. If it is listed again, perhaps under another name, the plan is still
//! accepted: of the further entries only the ranges behind all that were listed before are used, so that no
//! byte is asked for twice.

use crate::file::{Device, PlannedFile};
use fragmend_layout::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

/// Checks one file after the other, and adds up what they ask for.
pub(crate) struct Checker {
    /// Block sizes by device, in bytes.
    blocks: BTreeMap<u64, u64>,
    /// The end of the last range of each file, in bytes.
    seen: HashMap<FileId, u64>,
    totals: Totals,
}

/// What a plan asks for, counted without its summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of files.
    pub files: u64,
    /// Number of ranges in them.
    pub ranges: u64,
    /// Bytes in the ranges.
    pub bytes: u64,
    /// Device numbers of the files.
    pub devices: BTreeSet<u64>,
    /// The deepest directory that contains all files; empty where there is none.
    pub root: PathBuf,
    /// Ranges that were left out because they begin before the end of an earlier entry of the same file.
    pub listed_twice: u64,
}

impl Totals {
    /// Counts one more file.
    pub(crate) fn add(&mut self, f: &PlannedFile) {
        self.add_entry(f, true);
    }

    fn add_entry(&mut self, f: &PlannedFile, first: bool) {
        let path = f.path.to_path().unwrap_or_default();
        if self.files == 0 {
            self.root = path.parent().unwrap_or(&path).to_owned();
        }
        while !path.starts_with(&self.root) && self.root.pop() {}
        self.files += u64::from(first);
        self.ranges += f.ranges.len() as u64;
        self.bytes = f.ranges.iter().fold(self.bytes, |sum, r| sum.saturating_add(r.length));
        self.devices.insert(f.file.device);
    }
}

impl Checker {
    /// A checker for files on these devices.
    ///
    /// # Errors
    /// What is wrong with a device.
    pub fn new(devices: &[Device]) -> Result<Self, String> {
        let blocks: BTreeMap<u64, u64> =
            devices.iter().map(|d| (d.device, d.block_bytes)).collect();
        for (device, block) in &blocks {
            if !block.is_power_of_two() || !(512..=1 << 20).contains(block) {
                return Err(format!(
                    "device {device} has an impossible block size of {block} bytes"
                ));
            }
        }
        Ok(Self { blocks, seen: HashMap::new(), totals: Totals::default() })
    }

    /// Checks the next file, and leaves in it only the ranges behind those that were listed before: perhaps
    /// none.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn file(&mut self, f: &mut PlannedFile) -> Result<(), String> {
        let path = &f.path.path;
        let Some(block) = self.blocks.get(&f.file.device) else {
            return Err(format!("{path:?} is on device {} that is not listed", f.file.device));
        };
        if f.path.to_path().is_none_or(|p| !p.is_absolute()) {
            return Err(format!("{path:?} is not an absolute path"));
        }
        let mut end = 0;
        for r in &f.ranges {
            let at = format_args!("{path:?}: the range at {} of {} bytes", r.offset, r.length);
            if r.length == 0 || r.offset % block != 0 || r.length % block != 0 {
                return Err(format!("{at} is not in whole blocks of {block} bytes"));
            }
            if r.offset < end {
                return Err(format!("{at} overlaps the one before it or is out of order"));
            }
            end = r.offset.checked_add(r.length).ok_or_else(|| format!("{at} has no end"))?;
            if f.size.checked_next_multiple_of(*block).is_none_or(|size| end > size) {
                return Err(format!("{at} is beyond the file's size of {} bytes", f.size));
            }
        }
        let first = !self.seen.contains_key(&f.file);
        let before = self.seen.entry(f.file).or_default();
        let listed = f.ranges.len();
        f.ranges.retain(|r| r.offset >= *before);
        *before = end.max(*before);
        self.totals.listed_twice += (listed - f.ranges.len()) as u64;
        if first || !f.ranges.is_empty() {
            self.totals.add_entry(f, first);
        }
        Ok(())
    }

    /// What all files ask for.
    pub fn totals(self) -> Totals {
        self.totals
    }
}
