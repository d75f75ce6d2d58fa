//! Compares the tables in memory with each other: each block is free, held, left, or a file's.

use super::{Kind, State};
use crate::files::File;
use crate::ranges::RangeSet;
use fragmend_flash::command::Units;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) fn range(units: Units) -> Range<u64> {
    u64::from(units.start)..u64::from(units.end())
}

/// Adds blocks to a set in which none of them may be.
pub(crate) fn add_once(set: &mut RangeSet, units: Units, whose: &str) -> Result<(), String> {
    let before = set.len();
    set.insert(range(units));
    if set.len() - before != u64::from(units.count) {
        return Err(format!("{units:?}, which are {whose}, are also another's"));
    }
    Ok(())
}

impl<K: Kind> State<K> {
    /// Compares the files that the last commit has put on the drive with those in memory.
    pub fn compare_files(&self, stored: &BTreeMap<u64, File>) -> Result<(), String> {
        let here = self.files.each().count();
        if stored.len() != here {
            return Err(format!("{} files are on the drive, and {here} in memory", stored.len()));
        }
        for (inode, file) in self.files.each() {
            let stored = stored.get(&inode).ok_or_else(|| format!("inode {inode} is missing"))?;
            let same = (&stored.path, stored.generation, stored.stored_size, &stored.map)
                == (&file.path, file.generation, file.stored_size, &file.map);
            if !same {
                return Err(format!("{} differs on the drive", file.path.display()));
            }
        }
        Ok(())
    }

    pub fn check(&self) -> Result<(), String> {
        if let Some(error) = &self.failed {
            return Err(error.to_string());
        }
        self.files.check()?;
        let all = Units::new(0, self.machine.blocks());
        let mut used = RangeSet::default();
        for run in self.space.free_within(all) {
            add_once(&mut used, run, "free")?;
        }
        if used.len() != self.space.free() {
            return Err(format!("{} blocks are free and not {}", used.len(), self.space.free()));
        }
        for run in &self.changes.freed {
            add_once(&mut used, *run, "freed")?;
        }
        let mut owned = RangeSet::default();
        let mut owners = self.owners.clone();
        for (_, file) in self.files.each() {
            for piece in file.map.pieces() {
                // All owners but the last one are taken off.
                for run in owners.remove(piece.units()) {
                    add_once(&mut owned, run, &file.path.display().to_string())?;
                }
            }
            for place in file.leaves.places() {
                add_once(&mut owned, Units::new(place, 1), "a leaf")?;
            }
        }
        if owners != crate::owners::Owners::default() {
            return Err("blocks have more owners than files have them".into());
        }
        for part in owned.ranges() {
            let run = Units::new(part.start as u32, (part.end - part.start) as u32);
            add_once(&mut used, run, "a file's")?;
        }
        if self.changes.is_empty() { K::check(self) } else { Ok(()) }
    }
}
