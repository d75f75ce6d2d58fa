//! Whether a plan makes sense in itself: known devices, whole blocks, order, no overlap. File by
//! file, so that a plan need not be held to be looked at.

use crate::file::{Device, PlannedFile};
use fragmend_layout::FileId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

/// Looks at one file after the other, and adds up what they ask for.
pub(crate) struct Checker {
    /// Block sizes by device, in bytes.
    blocks: BTreeMap<u64, u64>,
    seen: HashSet<FileId>,
    totals: Totals,
}

/// What a plan asks for, whatever its summary says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Ranges in them.
    pub ranges: u64,
    /// Bytes in the ranges.
    pub bytes: u64,
    /// Device numbers of the files.
    pub devices: BTreeSet<u64>,
    /// The deepest directory that holds them all; empty where there is none.
    pub root: PathBuf,
}

impl Totals {
    /// Counts one more file.
    pub(crate) fn add(&mut self, f: &PlannedFile) {
        let path = f.path.to_path().unwrap_or_default();
        if self.files == 0 {
            self.root = path.parent().unwrap_or(&path).to_owned();
        }
        while !path.starts_with(&self.root) && self.root.pop() {}
        self.files += 1;
        self.ranges += f.ranges.len() as u64;
        self.bytes = f.ranges.iter().fold(self.bytes, |sum, r| sum.saturating_add(r.length));
        self.devices.insert(f.file.device);
    }
}

impl Checker {
    /// For files on these devices.
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
        Ok(Self { blocks, seen: HashSet::new(), totals: Totals::default() })
    }

    /// The next file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn file(&mut self, f: &PlannedFile) -> Result<(), String> {
        let path = &f.path.path;
        let Some(block) = self.blocks.get(&f.file.device) else {
            return Err(format!("{path:?} is on device {} that is not listed", f.file.device));
        };
        if f.path.to_path().is_none_or(|p| !p.is_absolute()) {
            return Err(format!("{path:?} is not an absolute path"));
        }
        if !self.seen.insert(f.file) {
            return Err(format!("{path:?} is listed twice"));
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
                return Err(format!("{at} lies beyond the file's size of {} bytes", f.size));
            }
        }
        self.totals.add(f);
        Ok(())
    }

    /// What all files ask for.
    pub fn totals(self) -> Totals {
        self.totals
    }
}
