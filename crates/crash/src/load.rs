//! The load on the files while they are moved. It runs as a process of its own (`soak load`), in the same way
//! on the host and in a guest: it writes, syncs, and marks what is durable. It ends when its standard input
//! does.

use crate::content::{Word, fill};
use crate::files::{CHURN, CHURN_TAGS, MENDED, Role, TestFile, floor};
use crate::marks::{Mark, Marks};
use fragmend_sys::mapping::Mapping;
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::Aligned;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pause between two operations of one writer, so that others run and the log stays small.
const PAUSE: Duration = Duration::from_micros(700);
/// The last version that a writer issues.
const LAST_VERSION: u16 = u16::MAX;
/// A file that grows stops at this size.
const LARGEST: u64 = 12 << 20;

/// Works on the files below `root` until standard input ends.
///
/// # Panics
/// When the file system refuses anything.
pub fn run(root: &Path, files: &[TestFile], seed: u64, marks: &Marks) {
    let stop = AtomicBool::new(false);
    // With few syncs, many writes are unflushed at a cut.
    let calm = [1, 4, 16][(seed % 3) as usize];
    std::thread::scope(|scope| {
        let written = |f: &&TestFile| !matches!(f.role, Role::Untouched | Role::UsedLater);
        for file in files.iter().filter(written) {
            let stop = &stop;
            let random = Random::new(seed ^ u64::from(file.tag));
            let path = root.join(MENDED).join(&file.name);
            let mut worker = Worker { file, random, stop, calm, marks };
            scope.spawn(move || match file.role {
                Role::Untouched | Role::UsedLater => {}
                Role::Buffered | Role::Direct | Role::Mapped => worker.overwrite(&path),
                Role::Appended => worker.append(&path),
                Role::Truncated => worker.truncate(&path),
            });
        }
        let (stop_churn, random) = (&stop, Random::new(seed ^ u64::from(CHURN_TAGS)));
        scope.spawn(move || churn(&root.join(CHURN), random, calm, stop_churn));
        let stop_commits = &stop;
        scope.spawn(move || commits(root, calm, stop_commits, marks));
        let _ = io::stdin().read(&mut [0]);
        stop.store(true, Ordering::Relaxed);
    });
}

struct Worker<'a> {
    file: &'a TestFile,
    random: Random,
    stop: &'a AtomicBool,
    /// Divides the frequency of syncs.
    calm: u64,
    marks: &'a Marks,
}

/// A file, and how bytes are written to it.
enum WrittenFile {
    Call(File),
    Direct(File, Aligned),
    Stores(File, Mapping),
}

impl WrittenFile {
    fn open(path: &Path, role: Role, bytes: u64) -> io::Result<Self> {
        let mut how = File::options();
        how.read(true).write(true);
        Ok(match role {
            Role::Direct => {
                how.custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed());
                Self::Direct(how.open(path)?, Aligned::new(LONGEST as usize))
            }
            Role::Mapped => {
                let file = how.open(path)?;
                let mapping = Mapping::new(&file, bytes as usize)?;
                Self::Stores(file, mapping)
            }
            _ => Self::Call(how.open(path)?),
        })
    }

    /// The unit of its offsets and lengths, in bytes.
    fn unit(&self) -> u64 {
        match self {
            Self::Direct(..) => 4096,
            Self::Call(_) | Self::Stores(..) => 512,
        }
    }

    fn write(&mut self, tag: u32, offset: u64, len: u64, version: u16) -> io::Result<()> {
        match self {
            Self::Call(file) => {
                let mut bytes = vec![0; len as usize];
                fill(tag, offset, version, &mut bytes);
                file.write_all_at(&bytes, offset)
            }
            Self::Direct(file, buffer) => {
                let bytes = &mut buffer.bytes()[..len as usize];
                fill(tag, offset, version, bytes);
                file.write_all_at(bytes, offset)
            }
            Self::Stores(_, mapping) => {
                store_words(mapping, tag, offset, len, version);
                Ok(())
            }
        }
    }

    /// Makes its writes durable, with all metadata or without.
    fn sync(&self, all: bool) -> io::Result<()> {
        match self {
            Self::Call(file) | Self::Direct(file, _) | Self::Stores(file, _) if all => {
                file.sync_all()
            }
            Self::Call(file) | Self::Direct(file, _) => file.sync_data(),
            Self::Stores(_, mapping) => mapping.sync(),
        }
    }
}

/// Stores a file's content from a byte offset on.
pub(crate) fn store_words(mapping: &mut Mapping, tag: u32, offset: u64, len: u64, version: u16) {
    let places = (0..len / 8).map(|n| offset + n * 8);
    let words: Vec<u64> = places.map(|at| Word::at(tag, at, version).encode().to_le()).collect();
    mapping.store(offset as usize, &words);
}

/// The longest write, in bytes.
pub(crate) const LONGEST: u64 = 32 << 10;

impl Worker<'_> {
    /// Pauses; returns false once the load is to end.
    fn goes_on(&self) -> bool {
        std::thread::sleep(PAUSE);
        !self.stop.load(Ordering::Relaxed)
    }

    /// Overwrites at random offsets, without changing the size, and syncs from time to time.
    fn overwrite(&mut self, path: &Path) {
        let (tag, bytes) = (self.file.tag, self.file.bytes);
        let mut method =
            WrittenFile::open(path, self.file.role, bytes).expect("a file to write to");
        let mut written = Vec::new();
        for version in 1..=LAST_VERSION {
            let unit = method.unit();
            let offset = self.random.below(bytes / unit) * unit;
            let longest = LONGEST.min(bytes - offset) / unit;
            let len = (1 + self.random.below(longest)) * unit;
            method.write(tag, offset, len, version).expect("a write");
            written.push(Mark::Synced { tag, from: offset, to: offset + len, version });
            let ends = !self.goes_on();
            if ends || self.random.below(12 * self.calm) == 0 {
                let all = self.random.below(2) == 0;
                method.sync(all).expect("fsync");
                written.drain(..).for_each(|mark| self.mark(mark));
            }
            if ends {
                break;
            }
        }
    }

    /// Appends records of any number of words, and syncs from time to time.
    fn append(&mut self, path: &Path) {
        let mut file = File::options().append(true).open(path).expect("a file to append to");
        let (tag, mut size) = (self.file.tag, self.file.bytes);
        while size < LARGEST {
            let mut record = vec![0; 8 * (1 + self.random.below(1200) as usize)];
            fill(tag, size, 0, &mut record);
            file.write_all(&record).expect("an append");
            size += record.len() as u64;
            let ends = !self.goes_on();
            if ends || self.random.below(6 * self.calm) == 0 {
                file.sync_all().expect("fsync");
                self.mark(Mark::Grown { tag, bytes: size });
            }
            if ends {
                break;
            }
        }
    }

    /// Truncates a file, and extends it again.
    fn truncate(&mut self, path: &Path) {
        let file = File::options().write(true).open(path).expect("a file to truncate");
        let (tag, bytes) = (self.file.tag, self.file.bytes);
        let floor = floor(bytes);
        for version in 1..=LAST_VERSION {
            let words = |random: &mut Random, bytes: u64| random.below(bytes / 8 + 1) * 8;
            let size = floor + words(&mut self.random, bytes - floor);
            self.mark(Mark::Zeroing { tag, from: size, to: bytes, version });
            file.set_len(size).expect("truncation");
            let mut more = vec![0; words(&mut self.random, (bytes - size).min(64 << 10)) as usize];
            fill(tag, size, version, &mut more);
            file.write_all_at(&more, size).expect("a write");
            if self.random.below(10 * self.calm) == 0 {
                file.sync_all().expect("fsync");
            }
            if !self.goes_on() {
                break;
            }
        }
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.write(&mark).expect("a reader of the marks");
    }
}

/// Commits the whole file system from time to time (`syncfs`).
fn commits(root: &Path, calm: u64, stop: &AtomicBool, marks: &Marks) {
    let root = File::open(root).expect("the root");
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(100 + 50 * calm));
        marks.write(&Mark::Committing).expect("a reader of the marks");
        rustix::fs::syncfs(&root).expect("syncfs");
        marks.write(&Mark::Committed).expect("a reader of the marks");
    }
}

/// Creates files, renames them over others and deletes them, so that freed space is reused at once.
fn churn(dir: &Path, mut random: Random, calm: u64, stop: &AtomicBool) {
    const FILES: u32 = 40;
    let mut tag = CHURN_TAGS;
    let mut there: Vec<u32> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE * 2);
        let path = dir.join(tag.to_string());
        let mut bytes = vec![0; 512 + random.below(160 << 10) as usize];
        fill(tag, 0, 0, &mut bytes);
        let new = path.with_extension("new");
        let mut file = File::create(&new).expect("a file");
        file.write_all(&bytes).expect("a write");
        if random.below(3 * calm) == 0 {
            file.sync_all().expect("fsync");
        }
        fs::rename(&new, &path).expect("a rename");
        there.push(tag);
        if there.len() as u32 > FILES {
            let gone = there.swap_remove(random.below(u64::from(FILES)) as usize);
            fs::remove_file(dir.join(gone.to_string())).expect("a removal");
        }
        tag = CHURN_TAGS + (tag - CHURN_TAGS + 1) % (crate::content::TAGS - CHURN_TAGS);
        if there.contains(&tag) {
            there.retain(|t| *t != tag); // about to be replaced
        }
    }
}
