//! A file of a disk in memory, open for relocation. The head of the crate explains how its parts move.

use crate::volume::Memory;
use fragmend_layout::{
    ByteRange, Extent, Fate, FileId, Layout, Movable, Moved, Pace, Settled, Skip, SkipReason,
    Target, Terms, Underway,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The name of the primitive, for receipts.
const EXCHANGE: &str = "exchange";
/// How often a part is copied if other programs write to it meanwhile.
const TRIES: u32 = 3;

/// One file of the disk.
pub(crate) struct Open<'a> {
    memory: &'a Memory,
    id: FileId,
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
        Self { memory, id }
    }

    /// Finds space for all targets, or for none.
    fn stage(&self, targets: &[Target]) -> Result<Vec<Donor>, Skip> {
        let mut disk = self.memory.disk_mut();
        disk.begin(0, 0)?;
        let block = disk.block;
        let mut donors: Vec<Donor> = Vec::new();
        for Target { range, .. } in targets {
            match disk.allocate(range.len().div_ceil(block)) {
                Ok(places) => donors.push(Donor { range: *range, places, taken: 0 }),
                Err(skip) => {
                    donors.iter().for_each(|donor| disk.release(donor.blocks()));
                    return Err(skip);
                }
            }
        }
        Ok(donors)
    }

    /// Copies a part and exchanges it, again if another program writes to it meanwhile.
    fn relocate_part(&self, donor: &mut Donor, part: ByteRange) -> Result<(), Skip> {
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

    /// Moves a range until something prevents it, or the run is to end.
    fn relocate_range(
        &mut self,
        donor: &mut Donor,
        pace: &mut dyn Pace,
        undurable: &mut Option<Skip>,
    ) -> Moved {
        let began = pace.now();
        let mut moved = Moved::default();
        let mut rest = donor.range;
        let block = self.memory.disk().block;
        while !rest.is_empty() && moved.skip.is_none() {
            if pace.stop().load(Ordering::Relaxed) {
                moved.interrupted = true;
                break;
            }
            let part = pace.step(rest, block);
            let step = pace.now();
            if let Err(skip) = self.relocate_part(donor, part) {
                moved.skip = Some(skip);
                break;
            }
            let took = pace.now() - step;
            moved.bytes += part.len();
            moved.held = moved.held.max(took);
            rest.start = part.end;
            if let Err(skip) = pace.pause(self, part.len(), took) {
                undurable.get_or_insert_with(|| skip.clone());
                moved.skip = Some(skip);
            }
        }
        moved.by = if moved.bytes > 0 { vec![(EXCHANGE, moved.bytes)] } else { Vec::new() };
        moved.took = pace.now() - began;
        moved
    }

    /// Commits what has moved, and releases what was not used.
    fn settle(&self, donors: Vec<Donor>) -> Result<(), Skip> {
        let mut disk = self.memory.disk_mut();
        let done = disk.commit();
        let block = disk.block;
        for donor in donors {
            let unused: Vec<u64> =
                donor.blocks().skip((donor.taken.div_ceil(block)) as usize).collect();
            disk.release(unused);
        }
        done
    }
}

impl Underway for Open<'_> {
    fn layout(&mut self, _: ByteRange) -> Result<Layout, Skip> {
        self.memory.disk_mut().begin(0, 0)?;
        self.memory.map(self.id)
    }

    fn let_others_in(&mut self) -> Result<(), Skip> {
        self.memory.disk_mut().commit()
    }
}

impl Movable for Open<'_> {
    fn path(&self) -> Option<PathBuf> {
        Some(self.memory.disk().file(self.id).ok()?.path.clone())
    }

    fn size(&self) -> Result<u64, Skip> {
        Ok(self.memory.disk().file(self.id)?.size)
    }

    fn accepts(&self, _: &[Extent]) -> Result<(), Skip> {
        Ok(())
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.memory.disk_mut().begin(0, 0)?;
        Ok(ranges.iter().map(|range| range.len()).sum())
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        // It needs the space that it has reported, whose limits the caller knows, and nothing here is shared.
        _: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        let mut donors = self.stage(targets)?;
        let mut undurable = None;
        for (index, (target, donor)) in targets.iter().zip(&mut donors).enumerate() {
            if pace.stop().load(Ordering::Relaxed) {
                break;
            }
            let staged = donor.places.len() as u64;
            let fate = if staged < target.fragments {
                Fate::Begun(self.relocate_range(donor, pace, &mut undurable))
            } else {
                let why = format!("{} fragments now, {staged} at best", target.fragments);
                let skip = Skip::new(SkipReason::NoBetterPlace, why);
                Fate::Left { fragments: target.fragments, skip }
            };
            if let Err(skip) = pace.done(self, index, fate) {
                undurable.get_or_insert(skip);
            }
        }
        let settled = self.settle(donors);
        let durable = settled.and(undurable.map_or(Ok(()), Err));
        Ok(Settled { durable, held: Duration::ZERO })
    }
}
