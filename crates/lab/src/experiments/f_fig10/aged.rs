//! A store on an ext4 that has been used: files of other programs have come and gone before it was filled.

use crate::bed;
use crate::loads::lsm::{Options, Store};
use crate::loads::ycsb::{Fill, RECORDS};
use crate::loads::{Load, Scale, write_whole};
use crate::presets;
use crate::random::Random;
use crate::setup::DriveKind;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::mounted::Primitive;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// The drive, and what the names of the store's files begin with.
pub const PRESET: &str = "optane";
pub const DATABASE: &str = "db";
/// Bytes of the partition, of those of the records; and how often all of it is written with other files before.
const PARTITION: u64 = 6;
const AGED: u64 = 2;
/// What is free meanwhile, in hundredths of the bytes of the records: the records, and what a compaction needs. So much more is free
/// now and then.
const FREE_TO_LOAD: u64 = 115;
const CHURN: u64 = 20;
/// What is free for the mover, once more than half of the other files are removed: a defragmenter that moves files whole finds no
/// better places for most of them in less.
const FREE_TO_MOVE: u64 = 300;
/// How many files of a thousand are shorter than so many bytes: those of `/usr`, `/etc` and `/var` of a Debian 12 with tools to build
/// programs, 135,849 files. The last row is a limit of ours: longer ones have half of all bytes there, and space that is free
/// where one was is not fragmented.
const LENGTHS: [(u32, u64); 17] = [
    (0, 1),
    (50, 165),
    (100, 328),
    (200, 629),
    (300, 983),
    (400, 1_324),
    (500, 1_883),
    (600, 2_942),
    (700, 4_900),
    (800, 9_891),
    (850, 15_159),
    (900, 24_576),
    (950, 53_660),
    (970, 91_673),
    (990, 268_836),
    (999, 5_279_185),
    (1000, 16_000_000),
];

/// Files that come and go.
struct Ageing {
    random: Random,
    files: Vec<PathBuf>,
    made: u64,
}

impl Ageing {
    /// The length of a file, between those of two rows.
    fn length(&mut self) -> u64 {
        let share = self.random.unit() * 1000.0;
        let behind = LENGTHS.partition_point(|(shorter, _)| f64::from(*shorter) <= share);
        let ((from, short), (to, long)) = (LENGTHS[behind - 1], LENGTHS[behind]);
        let part = (share - f64::from(from)) / f64::from(to - from);
        short + ((long - short) as f64 * part) as u64
    }

    /// Makes a file; returns its bytes.
    fn make(&mut self, files: &dyn FileSystem) -> u64 {
        let bytes = self.length();
        let path = PathBuf::from(format!("aged/{}", self.made));
        let file = files.create(&path).expect("an inode");
        write_whole(files, file, bytes, bytes, Access::Buffered).expect("room");
        files.close(file).expect("a file");
        self.files.push(path);
        self.made += 1;
        bytes
    }

    fn remove_any(&mut self, files: &dyn FileSystem) {
        let at = self.random.below(self.files.len() as u32) as usize;
        files.remove(&self.files.swap_remove(at)).expect("it is there");
    }

    /// Removes files until so many bytes are free.
    fn free(&mut self, files: &dyn FileSystem, bytes: u64) {
        while files.free_bytes().expect("mounted") < bytes {
            self.remove_any(files);
        }
        files.sync().expect("room");
    }
}

/// A store on a file system, and how much smaller it is than the paper's.
pub struct Stored {
    pub scale: Scale,
    pub files: Rc<dyn FileSystem>,
    pub store: Rc<RefCell<Store>>,
}

impl Stored {
    /// A store that was filled, on an aged file system with space for the mover, which brings data to new places by this primitive.
    ///
    /// # Panics
    /// The partition is too small.
    pub fn aged(scale: Scale, primitive: Primitive, seed: u64) -> Self {
        let store = Rc::new(RefCell::new(Store::new(DATABASE, Options::rocksdb(scale))));
        let mut stored =
            Self { scale, files: formatted(PARTITION * bytes(scale), primitive), store };
        stored.age(seed);
        stored
    }

    fn age(&mut self, seed: u64) {
        let (files, bytes) = (&*self.files, self.bytes());
        let random = Random::new(seed, "F-fig10");
        let mut ageing = Ageing { random, files: Vec::new(), made: 0 };
        let (mut written, free) = (0, bytes * FREE_TO_LOAD / 100);
        while written < AGED * PARTITION * bytes {
            ageing.free(files, free + bytes * CHURN / 100);
            while files.free_bytes().expect("mounted") > free {
                written += ageing.make(files);
            }
        }
        Fill::new(&self.store, self.records()).finish(files).expect("room");
        ageing.free(files, bytes * FREE_TO_MOVE / 100);
    }

    /// Its records.
    pub fn records(&self) -> u64 {
        self.scale.of(RECORDS)
    }

    /// Bytes of its records.
    pub fn bytes(&self) -> u64 {
        bytes(self.scale)
    }

    /// Blocks of its records.
    pub fn blocks(&self) -> u64 {
        self.bytes() / Options::rocksdb(self.scale).block
    }

    /// Fragments of its files for each block.
    pub fn split(&self) -> f64 {
        let (fragments, _) = bed::fragments(&*self.files, DATABASE);
        fragments as f64 / self.blocks() as f64
    }
}

fn bytes(scale: Scale) -> u64 {
    scale.of(RECORDS) * Options::rocksdb(scale).record
}

/// An empty file system of so many bytes.
fn formatted(bytes: u64, primitive: Primitive) -> Rc<dyn FileSystem> {
    let mut setup = presets::named(PRESET).expect("a preset");
    if let DriveKind::InPlace(drive) = &mut setup.drive {
        drive.bytes = bytes.next_multiple_of(1 << 20);
    }
    let machine = bed::machine(&setup);
    let mut options = inplace::Options::of(&machine);
    // One for each 16 KiB, as mke2fs makes them.
    options.inodes = machine.blocks() / 4;
    options.primitive = primitive;
    Rc::new(InPlace::format(&machine, &options).expect("room"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_lengths_of_the_table() {
        let random = Random::new(1, "lengths");
        let mut ageing = Ageing { random, files: Vec::new(), made: 0 };
        let mut lengths: Vec<u64> = (0..20_000).map(|_| ageing.length()).collect();
        lengths.sort_unstable();
        for (shorter, bytes) in &LENGTHS[2..14] {
            let found = lengths[(20 * shorter) as usize];
            assert!(found * 9 < bytes * 10 && found * 10 > bytes * 9, "{found} and not {bytes}");
        }
    }
}
