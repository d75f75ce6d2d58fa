//! The file system in parts of equal size, and what is in each: a cell of the screen shows some of them.

use fragmend_layout::{ByteRange, Extent, Layout};

/// Parts: more than a large terminal has cells for them.
const PARTS: usize = 8192;

/// What is marked on the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Data of files.
    Used,
    /// Data of files that are in several fragments.
    Fragmented,
    /// Data that the device has just read for programs.
    Read,
    /// Data that the present plan would move.
    Planned,
    /// Where data was that has moved.
    Moved,
}

const MARKS: usize = 5;

/// What a cell shows: the most telling of what is in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing that is known.
    Nothing,
    /// Data.
    Used,
    /// To a quarter or more, data of fragmented files.
    Fragmented,
    /// Data that is to be moved.
    Planned,
    /// Data has moved away from here.
    Moved,
}

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What it shows.
    pub shown: Shown,
    /// Whether something of it is being read.
    pub read: bool,
}

/// The bytes of each mark in each part.
#[derive(Clone, Debug)]
pub struct BlockMap {
    part_bytes: u64,
    parts: Vec<[u64; MARKS]>,
}

impl BlockMap {
    /// An empty map of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let part_bytes = bytes.div_ceil(PARTS as u64).max(1);
        Self { part_bytes, parts: vec![[0; MARKS]; PARTS] }
    }

    /// The map of files, where addresses beyond `bytes` make it longer: those of Btrfs are not of one device.
    pub fn of(bytes: u64, extents: &[(ByteRange, bool)]) -> Self {
        let end = extents.iter().map(|(range, _)| range.end).max().unwrap_or(0);
        let mut map = Self::new(bytes.max(end));
        for (range, fragmented) in extents {
            map.mark(*range, Mark::Used);
            if *fragmented {
                map.mark(*range, Mark::Fragmented);
            }
        }
        map
    }

    /// Marks addresses; what is beyond the end is not shown.
    pub fn mark(&mut self, range: ByteRange, mark: Mark) {
        self.each(range, |bytes, part| {
            part[mark as usize] = part[mark as usize].saturating_add(bytes);
        });
    }

    /// Takes marks back.
    pub fn unmark(&mut self, range: ByteRange, mark: Mark) {
        self.each(range, |bytes, part| {
            part[mark as usize] = part[mark as usize].saturating_sub(bytes);
        });
    }

    /// Calls `change` with each part that has some of these addresses, and how many.
    fn each(&mut self, range: ByteRange, change: impl Fn(u64, &mut [u64; MARKS])) {
        let mut at = range.start;
        while at < range.end {
            let part = at / self.part_bytes;
            let Some(bytes) = usize::try_from(part).ok().and_then(|p| self.parts.get_mut(p)) else {
                return;
            };
            let end = range.end.min((part + 1).saturating_mul(self.part_bytes));
            change(end - at, bytes);
            at = end;
        }
    }

    /// Removes all marks of a kind.
    pub fn clear(&mut self, mark: Mark) {
        self.parts.iter_mut().for_each(|part| part[mark as usize] = 0);
    }

    /// Takes a new state of the files, and keeps what is read, planned and moved only if that is of the same size.
    pub fn renew(&mut self, files: Self) {
        let earlier = std::mem::replace(self, files);
        if earlier.part_bytes == self.part_bytes {
            for (part, earlier) in self.parts.iter_mut().zip(earlier.parts) {
                part[Mark::Read as usize] = earlier[Mark::Read as usize];
            }
        }
    }

    /// Cell `index` of `count`, which share the map evenly.
    pub fn cell(&self, index: usize, count: usize) -> Cell {
        let first = index * PARTS / count;
        let end = ((index + 1) * PARTS / count).max(first + 1);
        let mut sum = [0u64; MARKS];
        for part in &self.parts[first.min(PARTS - 1)..end.min(PARTS)] {
            for (sum, bytes) in sum.iter_mut().zip(part) {
                *sum = sum.saturating_add(*bytes);
            }
        }
        let of = |mark: Mark| sum[mark as usize];
        let shown = match () {
            () if of(Mark::Planned) > 0 => Shown::Planned,
            () if of(Mark::Moved) > 0 => Shown::Moved,
            () if of(Mark::Fragmented) > 0 && of(Mark::Fragmented) >= of(Mark::Used) / 4 => {
                Shown::Fragmented
            }
            () if of(Mark::Used) > 0 => Shown::Used,
            () => Shown::Nothing,
        };
        Cell { shown, read: of(Mark::Read) > 0 }
    }
}

/// The addresses of a range of a file.
pub fn places(layout: &Layout, range: ByteRange) -> impl Iterator<Item = ByteRange> + '_ {
    let place = |e: Extent| ByteRange::at(e.physical, e.length);
    layout.within(range).filter(|e| e.kind.is_addressed()).map(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 4096;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start: start * PART, end: end * PART }
    }

    fn shown(map: &BlockMap, count: usize) -> Vec<Shown> {
        (0..count).map(|i| map.cell(i, count).shown).collect()
    }

    #[test]
    fn a_cell_shows_the_most_telling_of_its_parts() {
        let all = PARTS as u64;
        let mut map = BlockMap::of(
            all * PART,
            &[(range(all / 8, all / 2), false), (range(0, all / 8), true)],
        );
        use Shown::{Fragmented, Moved, Nothing, Planned, Used};
        assert_eq!(shown(&map, 4), [Fragmented, Used, Nothing, Nothing]);
        assert_eq!(shown(&map, 2), [Fragmented, Nothing], "a quarter of the data of the cell");
        assert_eq!(shown(&map, 1), [Fragmented]);
        map.mark(range(all / 2, all), Mark::Used);
        assert_eq!(shown(&map, 1), [Used], "an eighth");
        map.mark(range(all / 4, all / 4 + 1), Mark::Planned);
        assert_eq!(shown(&map, 4), [Fragmented, Planned, Used, Used]);
        map.clear(Mark::Planned);
        map.mark(range(all / 4, all / 4 + 1), Mark::Moved);
        assert_eq!(shown(&map, 4), [Fragmented, Moved, Used, Used]);
        map.mark(range(all - 1, all), Mark::Read);
        let read: Vec<bool> = (0..4).map(|i| map.cell(i, 4).read).collect();
        assert_eq!(read, [false, false, false, true]);
    }

    #[test]
    fn any_address_and_any_number_of_cells_is_possible() {
        let mut map = BlockMap::new(0);
        map.mark(ByteRange { start: 0, end: u64::MAX }, Mark::Used);
        map.mark(ByteRange { start: u64::MAX - 1, end: u64::MAX }, Mark::Read);
        for count in [1, 2, PARTS, 3 * PARTS] {
            assert_eq!(map.cell(count - 1, count), Cell { shown: Shown::Used, read: false });
        }
        let beyond = BlockMap::of(PART, &[(range(5, 6), false)]);
        assert_eq!(shown(&beyond, 6)[5], Shown::Used, "longer than the file system says it is");
        let mut huge = BlockMap::new(u64::MAX);
        (0..3).for_each(|_| huge.mark(ByteRange { start: 0, end: u64::MAX }, Mark::Used));
        assert_eq!(shown(&huge, 1), [Shown::Used]);
    }
}
