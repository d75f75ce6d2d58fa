//! The disk after a power cut.
//!
//! The fault model: every write before the last flush of its disk is durable. Of the writes after
//! it, each survives whole, not at all, or in any subset of its atoms, independently of the others;
//! where writes overlap, an atom has the bytes of any of them, or its old ones. An atom is never
//! torn: a sector of 512 bytes, or more where the file system relies on more (see
//! [`crate::scenario`]). A seed decides what survives.

use crate::log::{Entry, Log};
use crate::sectors::{SECTOR, Sectors, Source};
use fragmend_testbed::random::Random;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A power cut: its position in the log, and the seed for what survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cut {
    /// Log entries before the cut.
    pub position: usize,
    /// Decides which unflushed writes survive.
    pub seed: u64,
    /// Whether the device keeps what it has flushed. A control turns it off.
    pub honest: bool,
}

/// Which of the unflushed writes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurvivingWrites {
    None,
    All,
    OnlyLast,
    AllButOne(usize),
    /// All before one, and some atoms of that one.
    TornAt(usize),
    /// Each write as a whole, with this probability in 256.
    Whole(u64),
    /// Each atom of each write, with this probability in 256.
    Atoms(u64),
    /// The head, the tail, all or nothing of each write.
    Ends,
}

impl SurvivingWrites {
    /// Draws one for this number of unflushed writes.
    fn draw(writes: usize, random: &mut Random) -> Self {
        let one = random.below(writes.max(1) as u64) as usize;
        let chance = 1 + random.below(254);
        match random.below(10) {
            0 => Self::None,
            1 => Self::All,
            2 => Self::OnlyLast,
            3 => Self::AllButOne(one),
            4 => Self::TornAt(one),
            5..=6 => Self::Whole(chance),
            7 => Self::Atoms(chance),
            _ => Self::Ends,
        }
    }

    /// Calls `keep` with each surviving range (from, to) of atoms of write `n` of `writes`, which
    /// has `len` atoms.
    fn keep(
        self,
        n: usize,
        writes: usize,
        len: u64,
        random: &mut Random,
        mut keep: impl FnMut(u64, u64),
    ) {
        let mut whole = |survives: bool| keep(0, if survives { len } else { 0 });
        match self {
            Self::None => {}
            Self::All => whole(true),
            Self::OnlyLast => whole(n + 1 == writes),
            Self::AllButOne(one) => whole(n != one),
            Self::TornAt(one) if n != one => whole(n < one),
            Self::Whole(chance) => whole(random.below(256) < chance),
            Self::Ends => match random.below(4) {
                0 => whole(true),
                1 => keep(0, random.below(len + 1)),
                2 => keep(random.below(len + 1), len),
                _ => {}
            },
            Self::TornAt(_) => {
                (0..len).filter(|_| random.below(2) == 0).for_each(|s| keep(s, s + 1));
            }
            Self::Atoms(chance) => {
                (0..len).filter(|_| random.below(256) < chance).for_each(|s| keep(s, s + 1));
            }
        }
    }
}

/// The disk after a cut. The recording does not change.
pub struct View {
    base: File,
    log: Arc<Log>,
    /// Sectors of an atom.
    atom: u64,
    /// Where a second disk begins, in bytes.
    second: u64,
    /// Each disk after its first `flushed` log entries.
    durable: Sectors,
    flushed: [usize; 2],
    now: Sectors,
}

impl View {
    /// The disk when recording began; its atomic write unit is `atom_bytes`.
    ///
    /// # Errors
    /// Those of reading the image.
    pub fn new(base: File, log: Arc<Log>, atom_bytes: u64) -> io::Result<Self> {
        Self::two(base, log, atom_bytes, None)
    }

    /// The same with a second disk from this byte on.
    ///
    /// # Errors
    /// Those of reading the image.
    pub fn two(
        base: File,
        log: Arc<Log>,
        atom_bytes: u64,
        second: Option<u64>,
    ) -> io::Result<Self> {
        let durable = Sectors::all_base(base.metadata()?.len());
        let (atom, now) = (atom_bytes / SECTOR, durable.clone());
        let second = second.unwrap_or(u64::MAX);
        Ok(Self { base, log, atom, second, now, durable, flushed: [0; 2] })
    }

    /// The bytes of each disk.
    pub fn disks(&self) -> impl Iterator<Item = Range<u64>> {
        let (all, second) = (self.now.bytes(), self.second);
        std::iter::once(0..second.min(all)).chain((second < all).then_some(second..all))
    }

    /// Becomes the disk after this cut; quick when cuts come in order of their positions.
    ///
    /// # Errors
    /// When the log does not fit the disk.
    pub fn set(&mut self, cut: Cut) -> io::Result<()> {
        let log = Arc::clone(&self.log);
        let entries = &log.entries()[..cut.position.min(log.entries().len())];
        let flushed = if cut.honest {
            [false, true].map(|second| {
                let flush = Entry::Flush { second };
                entries.iter().rposition(|entry| *entry == flush).map_or(0, |last| last + 1)
            })
        } else {
            [entries.len().saturating_sub(UNRELIABLE); 2]
        };
        if flushed[0] < self.flushed[0] || flushed[1] < self.flushed[1] {
            self.durable = Sectors::all_base(self.durable.bytes());
            self.flushed = [0; 2];
        }
        let from = self.flushed[0].min(self.flushed[1]);
        for (n, entry) in entries.iter().enumerate().skip(from) {
            let disk = self.disk_of(entry);
            if (self.flushed[disk]..flushed[disk]).contains(&n) {
                apply(&mut self.durable, entry, 0, u64::MAX)?;
            }
        }
        self.flushed = flushed;
        self.now.copy_from(&self.durable);
        let from = flushed[0].min(flushed[1]);
        let unflushed = |(n, entry): &(usize, &Entry)| {
            sectors_of(entry) > 0 && *n >= flushed[self.disk_of(entry)]
        };
        let late = entries.iter().enumerate().skip(from).filter(unflushed);
        let writes: Vec<&Entry> = late.map(|(_, entry)| entry).collect();
        let mut random = Random::new(cut.seed);
        let surviving = SurvivingWrites::draw(writes.len(), &mut random);
        for (n, entry) in writes.iter().enumerate() {
            let mut done = Ok(());
            let (atom, atoms) = (self.atom, sectors_of(entry).div_ceil(self.atom));
            surviving.keep(n, writes.len(), atoms, &mut random, |from, to| {
                if done.is_ok() {
                    done = apply(&mut self.now, entry, from * atom, to * atom);
                }
            });
            done?;
        }
        Ok(())
    }

    /// The sources of all sectors after the cut.
    pub fn now(&self) -> &Sectors {
        &self.now
    }

    /// The image when recording began.
    pub fn base(&self) -> &File {
        &self.base
    }

    /// What reached the disk since.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    fn disk_of(&self, entry: &Entry) -> usize {
        match *entry {
            Entry::Write { offset, .. } | Entry::Zero { offset, .. } => {
                usize::from(offset >= self.second)
            }
            Entry::Flush { .. } | Entry::Mark { .. } => 0,
        }
    }
}

/// Entries before the cut that a device without honest flushes may lose.
const UNRELIABLE: usize = 200;

/// How many sectors an entry changes.
fn sectors_of(entry: &Entry) -> u64 {
    match *entry {
        Entry::Write { len, .. } | Entry::Zero { len, .. } => len / SECTOR,
        Entry::Flush { .. } | Entry::Mark { .. } => 0,
    }
}

/// Applies the sectors `from..to` of an entry.
fn apply(sectors: &mut Sectors, entry: &Entry, from: u64, to: u64) -> io::Result<()> {
    let count = to.min(sectors_of(entry)).saturating_sub(from);
    match *entry {
        Entry::Write { offset, at, .. } => {
            let skip = from * SECTOR;
            sectors.set(offset + skip, count * SECTOR, Source::Log(at + skip))
        }
        Entry::Zero { offset, .. } => {
            sectors.set(offset + from * SECTOR, count * SECTOR, Source::Zero)
        }
        Entry::Flush { .. } | Entry::Mark { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sectors::Origins;
    use std::collections::HashSet;

    /// A disk of 16 KiB: a flushed write of 1s, then 2s, 3s over half of them, and zeroes.
    fn view(dir: &std::path::Path, atom: u64) -> View {
        let base = dir.join("base");
        std::fs::write(&base, vec![9; 16384]).unwrap();
        let mut log = Log::create(&dir.join("log")).unwrap();
        log.write(0, &[1; 4096]).unwrap();
        log.flush(false).unwrap();
        log.write(4096, &[2; 4096]).unwrap();
        log.write(6144, &[3; 4096]).unwrap();
        log.mark("a mark is no write").unwrap();
        log.zero(12288, 4096).unwrap();
        View::new(File::open(base).unwrap(), Arc::new(log), atom).unwrap()
    }

    fn sectors_after(view: &mut View, cut: Cut) -> Vec<u8> {
        view.set(cut).unwrap();
        let mut bytes = vec![0; 16384];
        let origins = Origins { base: &view.base, log: Some(view.log.file()) };
        view.now.read(0, &mut bytes, &origins).unwrap();
        let whole = |s: &[u8]| s.iter().all(|b| *b == s[0]);
        assert!(bytes.chunks(512).all(whole), "a torn sector");
        bytes.chunks(512).map(|s| s[0]).collect()
    }

    #[test]
    fn flushed_writes_survive_and_any_part_of_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let mut view = view(dir.path(), SECTOR);
        let mut seen = HashSet::new();
        for seed in 0..2000 {
            let now = sectors_after(&mut view, Cut { position: 6, seed, honest: true });
            assert_eq!(now[..8], [1; 8]);
            assert!(now[8..12].iter().all(|s| [9, 2].contains(s)));
            assert!(now[12..16].iter().all(|s| [9, 2, 3].contains(s)));
            assert!(now[16..20].iter().all(|s| [9, 3].contains(s)));
            assert!(now[20..24].iter().all(|s| *s == 9));
            assert!(now[24..].iter().all(|s| [9, 0].contains(s)));
            seen.insert(now);
        }
        let disk = |parts: [(u8, usize); 6]| -> Vec<u8> {
            parts.into_iter().flat_map(|(byte, n)| vec![byte; n]).collect()
        };
        let none = disk([(1, 8), (9, 4), (9, 4), (9, 4), (9, 4), (9, 8)]);
        let all = disk([(1, 8), (2, 4), (3, 4), (3, 4), (9, 4), (0, 8)]);
        let only_last = disk([(1, 8), (9, 4), (9, 4), (9, 4), (9, 4), (0, 8)]);
        let older_on_top = disk([(1, 8), (2, 4), (2, 4), (9, 4), (9, 4), (0, 8)]);
        for extreme in [none, all, only_last, older_on_top] {
            assert!(seen.contains(&extreme), "{extreme:?}");
        }
        assert!(seen.len() > 500, "{}", seen.len());
    }

    #[test]
    fn an_atom_is_never_torn() {
        let dir = tempfile::tempdir().unwrap();
        let mut view = view(dir.path(), 2048);
        for seed in 0..500 {
            let now = sectors_after(&mut view, Cut { position: 6, seed, honest: true });
            assert!(now.chunks(4).all(|atom| atom.iter().all(|s| *s == atom[0])), "{now:?}");
        }
        // Backwards, too, and before anything was flushed.
        let now = sectors_after(&mut view, Cut { position: 0, seed: 1, honest: true });
        assert_eq!(now, [9; 32]);
    }

    #[test]
    fn a_flush_covers_its_own_disk_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("base"), vec![9; 16384]).unwrap();
        let mut log = Log::create(&dir.path().join("log")).unwrap();
        log.write(0, &[1; 512]).unwrap();
        log.write(8192, &[2; 512]).unwrap();
        log.flush(true).unwrap();
        log.write(8704, &[3; 512]).unwrap();
        let base = File::open(dir.path().join("base")).unwrap();
        let mut view = View::two(base, Arc::new(log), SECTOR, Some(8192)).unwrap();
        let after = |seed| sectors_after(&mut view, Cut { position: 4, seed, honest: true });
        let all: Vec<Vec<u8>> = (0..200).map(after).collect();
        assert!(all.iter().all(|now| now[16] == 2));
        for (sector, old) in [(0, 9), (17, 9)] {
            assert!(all.iter().any(|now| now[sector] == old), "{sector}");
            assert!(all.iter().any(|now| now[sector] != old), "{sector}");
        }
    }

    #[test]
    fn a_disk_that_lies_about_flushes_loses_what_it_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let mut view = view(dir.path(), SECTOR);
        let lost = |seed| {
            sectors_after(&mut view, Cut { position: 2, seed, honest: false })[..8] != [1; 8]
        };
        assert!((0..50).any(lost));
    }
}
