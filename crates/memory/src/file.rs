//! A file of a disk in memory, open for relocation. The head of the crate explains how its parts move.

use crate::volume::Memory;
use fragmend_apply::drive::{self, ByPart, File, Job, Mover, Step, by_part};
use fragmend_layout::{
    ByteRange, Extent, FileId, Layout, Movable, Pace, Settled, Skip, SkipReason, Target, Terms,
    Underway,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The name of the primitive, for receipts.
const EXCHANGE: &str = "exchange";
/// How often a part is copied if other programs write to it meanwhile.
const TRIES: u32 = 3;

/// One file of the disk, and what moves it.
pub(crate) struct Open<'a> {
    file: MemoryFile<'a>,
    mover: Exchange<'a>,
}

/// One file of the disk.
#[derive(Clone, Copy)]
struct MemoryFile<'a> {
    memory: &'a Memory,
    id: FileId,
}

/// Moves a file part by part.
struct Exchange<'a> {
    memory: &'a Memory,
    donors: Vec<Donor>,
    /// Whether data that other files share may move.
    unshare: bool,
}

/// New space for a range.
struct Donor {
    range: ByteRange,
    places: Vec<Range<u64>>,
    /// Bytes of it that belong to the file already.
    taken: u64,
}

impl Donor {
    /// Its blocks, in the order of the range's.
    fn blocks(&self) -> impl Iterator<Item = u64> {
        self.places.iter().cloned().flatten()
    }
}

impl<'a> Open<'a> {
    pub fn new(memory: &'a Memory, id: FileId) -> Self {
        let mover = Exchange { memory, donors: Vec::new(), unshare: false };
        Self { file: MemoryFile { memory, id }, mover }
    }
}

impl File for MemoryFile<'_> {
    fn block_bytes(&self) -> u64 {
        self.memory.disk().block
    }

    fn layout(&self, range: ByteRange) -> Result<Layout, Skip> {
        self.memory.disk_mut().begin(0, 0)?;
        self.memory.map(self.id, range)
    }
}

impl MemoryFile<'_> {
    /// The blocks of a part: their numbers in the file, their present places and their new ones.
    fn pairs(&self, donor: &Donor, part: ByteRange) -> Result<Vec<(u64, u64, u64)>, Skip> {
        let disk = self.memory.disk();
        let file = disk.file(self.id)?;
        if file.size <= part.start || file.size.next_multiple_of(disk.block) < part.end {
            return Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"));
        }
        let first = donor.range.start / disk.block;
        let pair = |block: u64| {
            let to = donor.blocks().nth((block - first) as usize)?;
            Some((block, *file.map.get(&block)?, to))
        };
        let blocks = part.start / disk.block..part.end.div_ceil(disk.block);
        let pairs = blocks.map(pair).collect::<Option<Vec<_>>>();
        pairs.ok_or_else(|| Skip::new(SkipReason::LayoutChanged, "part of it holds no data now"))
    }

    /// Copies a part and exchanges it, again if another program writes to it meanwhile.
    fn relocate(&self, donor: &mut Donor, part: ByteRange, unshare: bool) -> Result<(), Skip> {
        for _ in 0..TRIES {
            let pairs = self.pairs(donor, part)?;
            let count = pairs.len() as u64;
            let mut disk = self.memory.disk_mut();
            disk.begin(count, 0)?;
            pairs.iter().for_each(|(_, from, to)| disk.copy(*from, *to));
            disk.begin(0, count)?;
            disk.write(pairs.iter().map(|(_, _, to)| *to));
            disk.begin(0, 0)?;
            drop(disk);
            let same = self.pairs(donor, part)? == pairs;
            let mut disk = self.memory.disk_mut();
            if !unshare && pairs.iter().any(|(_, from, _)| disk.is_shared(*from)) {
                return Err(Skip::new(SkipReason::Shared, "it is shared since it was looked at"));
            }
            if same && pairs.iter().all(|(_, from, to)| disk.alike(*from, *to)) {
                for (block, _, to) in pairs {
                    disk.exchange(self.id.inode, block, to);
                }
                donor.taken = part.end - donor.range.start;
                return Ok(());
            }
        }
        Err(Skip::new(SkipReason::Busy, "written to under the copy"))
    }
}

impl<'a> Mover for Exchange<'a> {
    type File = MemoryFile<'a>;

    /// Shared data is moved, too: the other files keep the old blocks.
    fn accepts(&self, _: &[Extent]) -> Result<(), Skip> {
        Ok(())
    }

    fn need(&mut self, _: &MemoryFile, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.memory.disk_mut().begin(0, 0)?;
        Ok(ranges.iter().map(|range| range.len()).sum())
    }

    /// Finds space for all ranges, or for none.
    fn stage(&mut self, _: &MemoryFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        let mut disk = self.memory.disk_mut();
        disk.begin(0, 0)?;
        let block = disk.block;
        let mut donors: Vec<Donor> = Vec::new();
        for range in ranges {
            match disk.allocate(range.len().div_ceil(block)) {
                Ok(places) => donors.push(Donor { range: *range, places, taken: 0 }),
                Err(skip) => {
                    donors.iter().for_each(|donor| disk.release(donor.blocks()));
                    return Err(skip);
                }
            }
        }
        self.donors = donors;
        Ok(self.donors.iter().map(|donor| donor.places.len() as u64).collect())
    }

    fn drive(&mut self, job: &Job<'_, MemoryFile<'a>>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    fn let_others_in(&mut self, _: &MemoryFile) -> Result<(), Skip> {
        self.memory.disk_mut().commit()
    }

    /// Commits what has moved, and releases what was not used.
    fn settle(&mut self, _: &MemoryFile) -> Result<(), Skip> {
        let mut disk = self.memory.disk_mut();
        let done = disk.commit();
        let block = disk.block;
        for donor in std::mem::take(&mut self.donors) {
            let used = donor.taken.div_ceil(block) as usize;
            disk.release(donor.blocks().skip(used).collect::<Vec<_>>());
        }
        done
    }
}

impl ByPart for Exchange<'_> {
    fn relocate(
        &mut self,
        file: &Self::File,
        index: usize,
        part: ByteRange,
        _: &AtomicBool,
    ) -> Step {
        let began = self.memory.now();
        if let Err(skip) = file.relocate(&mut self.donors[index], part, self.unshare) {
            return Step::none(skip);
        }
        let held = self.memory.now() - began;
        Step { moved: part.len(), by: Some(EXCHANGE), held, ..Step::default() }
    }
}

impl Underway for Open<'_> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        self.file.layout(range)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.mover.let_others_in(&self.file)
    }
}

impl Movable for Open<'_> {
    fn path(&self) -> Option<PathBuf> {
        Some(self.file.memory.disk().file(self.file.id).ok()?.path.clone())
    }

    fn size(&self) -> Result<u64, Skip> {
        Ok(self.file.memory.disk().file(self.file.id)?.size)
    }

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        self.mover.accepts(parts)
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.mover.need(&self.file, ranges)
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        // It needs the space that it has reported, whose limits the caller knows.
        terms: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        self.mover.unshare = terms.unshare;
        drive::relocate(&mut self.mover, &self.file, targets, pace, |_| ())
    }
}
