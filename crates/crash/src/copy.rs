//! Makes a file hold what a cut leaves of a disk.
//!
//! Of what a cut leaves nearly all is in the file already, from the cut before; but the file system that was mounted
//! meanwhile has written anywhere. So everything is compared, and only what differs is written. The bytes are compared
//! where they are, through mappings: reading both sides first takes more than twice as long. In a guest it is the other way
//! round, as each page that is mapped there costs as much as a system call.

use crate::cut::View;
use crate::log::Log;
use crate::sectors::{Origins, Source};
use fragmend_sys::cache::next_data;
use fragmend_sys::mapping::Mapping;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a block, the unit in which bytes are compared and written.
const BLOCK: u64 = 4096;
/// The most bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// A range of a disk, copied to a file.
pub struct DiskCopy {
    /// Bytes of the disk.
    range: Range<u64>,
    file: File,
    /// Which blocks of that range of the image hold anything but zeroes.
    filled: Vec<bool>,
    how: How,
}

/// How bytes are compared.
enum How {
    /// Both sides are read.
    Read {
        /// The image when recording began.
        base: File,
        /// What reached the disk since.
        log: Arc<Log>,
        /// What must be there, and what is: made once, as fresh memory is dear in a guest.
        buffers: [Vec<u8>; 2],
    },
    /// Both sides are mapped.
    Mapped {
        /// The image when recording began.
        base: Mapping,
        /// The log's file.
        logged: Mapping,
        /// A block.
        zeroes: Mapping,
        /// The file.
        copy: Mapping,
    },
}

impl DiskCopy {
    /// Copies of a range of whole blocks of a view will be in this file, which has its size; through mappings or not.
    ///
    /// # Errors
    /// Those of reading the image and of mapping files.
    ///
    /// # Panics
    /// When the range does not begin with a whole block.
    pub fn new(view: &View, range: Range<u64>, file: File, mapped: bool) -> io::Result<Self> {
        assert!(range.start.is_multiple_of(BLOCK), "blocks of the image are looked at as a whole");
        let (base, log) = (view.base(), view.log());
        let bytes = base.metadata()?.len();
        let filled = filled_blocks(base, &range)?;
        let how = if mapped {
            let zeroes = memfd_create("zeroes", MemfdFlags::CLOEXEC)?;
            ftruncate(&zeroes, BLOCK)?;
            How::Mapped {
                base: Mapping::to_read(base, bytes as usize)?,
                logged: Mapping::to_read(log.file(), log.bytes().max(1) as usize)?,
                zeroes: Mapping::to_read(&zeroes, BLOCK as usize)?,
                copy: Mapping::new(&file, (range.end - range.start) as usize)?,
            }
        } else {
            let buffers = [vec![0; CHUNK as usize], vec![0; CHUNK as usize]];
            How::Read { base: base.try_clone()?, log: Arc::clone(log), buffers }
        };
        Ok(Self { range, file, filled, how })
    }

    /// The file holds what the view's disk is now. Blocks that hold it already are not written; blocks of zeroes become
    /// holes. Nothing else may write to the file meanwhile.
    ///
    /// # Errors
    /// Those of reading and writing the files.
    pub fn make(&mut self, view: &View) -> io::Result<()> {
        let Range { start, end } = self.range;
        let mut at = start;
        while at < end {
            let (from, is_filled) = (at, self.is_filled(view, at));
            while at < end && self.is_filled(view, at) == is_filled {
                at += BLOCK.min(end - at);
            }
            if is_filled {
                self.fill(view, from..at)?;
            } else {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, how, from - start, at - from)?;
            }
        }
        Ok(())
    }

    /// Whether a block may hold anything but zeroes.
    fn is_filled(&self, view: &View, at: u64) -> bool {
        view.now().sources(at, BLOCK).any(|source| match source {
            Source::Base => self.filled[((at - self.range.start) / BLOCK) as usize],
            Source::Zero => false,
            Source::Log(_) => true,
        })
    }

    /// The same for a range of whole blocks, none of which becomes a hole.
    fn fill(&mut self, view: &View, range: Range<u64>) -> io::Result<()> {
        const PIECE: usize = BLOCK as usize;
        let first = self.range.start;
        match &mut self.how {
            How::Read { base, log, buffers: [wanted, found] } => {
                let origins = Origins { base, log: Some(log.file()) };
                let mut at = range.start;
                while at < range.end {
                    let len = CHUNK.min(range.end - at);
                    let (wanted, found) = (&mut wanted[..len as usize], &mut found[..len as usize]);
                    view.now().read(at, wanted, &origins)?;
                    self.file.read_exact_at(found, at - first)?;
                    write_differing(&self.file, at - first, wanted, found)?;
                    at += len;
                }
            }
            How::Mapped { base, logged, zeroes, copy } => {
                for (source, part) in view.now().runs(range.start, range.end - range.start) {
                    let to = (part.start - first) as usize;
                    let len = (part.end - part.start) as usize;
                    match source {
                        Source::Base => copy.make_equal(to, base, part.start as usize, len, PIECE),
                        Source::Log(at) => copy.make_equal(to, logged, at as usize, len, PIECE),
                        Source::Zero => (0..len).step_by(PIECE).for_each(|n| {
                            copy.make_equal(to + n, zeroes, 0, PIECE.min(len - n), PIECE);
                        }),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Writes the blocks that differ from what was found at `offset` of a file, as few writes as they allow.
fn write_differing(file: &File, offset: u64, wanted: &[u8], found: &[u8]) -> io::Result<()> {
    let block = BLOCK as usize;
    let differs = |at: usize| {
        let end = wanted.len().min(at + block);
        wanted[at..end] != found[at..end]
    };
    let mut at = 0;
    while at < wanted.len() {
        let mut end = at;
        while end < wanted.len() && differs(end) {
            end = wanted.len().min(end + block);
        }
        if end == at {
            at += block;
            continue;
        }
        file.write_all_at(&wanted[at..end], offset + at as u64)?;
        at = end;
    }
    Ok(())
}

/// Which blocks of a range of whole blocks of a file hold anything but zeroes.
fn filled_blocks(file: &File, range: &Range<u64>) -> io::Result<Vec<bool>> {
    let mut filled = vec![false; (range.end - range.start).div_ceil(BLOCK) as usize];
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = range.start;
    while at < range.end
        && let Some(data) = next_data(file, at)
        && data < range.end
    {
        at = data / BLOCK * BLOCK;
        let part = &mut buffer[..CHUNK.min(range.end - at) as usize];
        file.read_exact_at(part, at)?;
        let first = ((at - range.start) / BLOCK) as usize;
        for (block, filled) in part.chunks(BLOCK as usize).zip(&mut filled[first..]) {
            *filled = block.iter().any(|byte| *byte != 0);
        }
        at += CHUNK;
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::Cut;
    use crate::sectors::SECTOR;
    use std::os::unix::fs::MetadataExt;

    /// Also blocks of zeroes in the image, over data in the log and the other way round, and a last block that is none.
    #[test]
    fn a_copy_holds_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (zeroes, base) = (3 * CHUNK, dir.path().join("base"));
        let file = File::create(&base).unwrap();
        file.write_all_at(&[9; 5 * BLOCK as usize], zeroes).unwrap();
        file.write_all_at(&[0; BLOCK as usize], zeroes + BLOCK).unwrap();
        file.set_len(zeroes + 2 * CHUNK + SECTOR).unwrap();
        let mut log = Log::create(&dir.path().join("log")).unwrap();
        log.write(CHUNK - SECTOR, &[1; 2 * SECTOR as usize]).unwrap();
        log.write(zeroes + BLOCK, &[2; SECTOR as usize]).unwrap();
        log.zero(zeroes + 3 * BLOCK, BLOCK).unwrap();
        log.write(zeroes + 2 * CHUNK, &[3; SECTOR as usize]).unwrap();
        log.flush(false).unwrap();
        let mut view = View::new(File::open(base).unwrap(), Arc::new(log), SECTOR).unwrap();
        let ranges = [2 * CHUNK..zeroes + 2 * CHUNK + SECTOR, 0..zeroes];
        let copy = |(range, mapped): (&Range<u64>, bool)| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(range.end - range.start).unwrap();
            DiskCopy::new(&view, range.clone(), file, mapped).unwrap()
        };
        let mut copies: Vec<DiskCopy> =
            ranges.iter().flat_map(|range| [(range, false), (range, true)]).map(copy).collect();
        for position in [0, 5, 0] {
            view.set(Cut { position, seed: 1, honest: true }).unwrap();
            for copy in &mut copies {
                let mut expected = vec![7; (copy.range.end - copy.range.start) as usize];
                let origins = Origins { base: view.base(), log: Some(view.log().file()) };
                view.now().read(copy.range.start, &mut expected, &origins).unwrap();
                // As a file system that was mounted leaves it.
                copy.file.write_all_at(&[6; 3 * BLOCK as usize], CHUNK - BLOCK).unwrap();
                copy.make(&view).unwrap();
                let mut got = vec![7; expected.len()];
                copy.file.read_exact_at(&mut got, 0).unwrap();
                assert!(got == expected, "{position}");
                let filled = expected.chunks(BLOCK as usize).filter(|b| b.iter().any(|b| *b != 0));
                assert!(copy.file.metadata().unwrap().blocks() <= 8 * (filled.count() as u64 + 8));
            }
        }
    }
}
