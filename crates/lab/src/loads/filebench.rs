//! Filebench's personalities `fileserver` and `varmail` (version 3.0 of both, workloads/fileserver.f and varmail.f of Filebench
//! 1.5): their flow operations in their order, and their file set. Lengths of files have a gamma distribution of shape 1.5
//! (fileset.c: `fs_sizegamma`), 80 per cent of the files exist before, and an append has a length of up to `append_bytes`, all
//! equally likely. A thread opens the files in the order of their numbers, from where it opened the last one on
//! (`fileset_pick`). Directories are left out: paths are names here.
//!
//! | figures | files, mean length | threads |
//! |---|---|---|
//! | F-fig11 | 3,000 (flash), 6,000 (Optane), 8.4 MB, direct I/O | 50 |
//! | I-fig12, I-fig14-16 | fileserver: 3,072, 4 MB; varmail: 6,496, 2 MB | 50 |
//! | D-fig12 | 10,000, 128 KiB, appends of 32 or 16 KiB alone | 10 |

use super::distribution::gamma;
use super::schedule::Programs;
use super::{Done, Load, Scale, write, write_whole};
use crate::random::Random;
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// A flow operation; those that open leave a file open, which the others use. Closing costs nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Creates a file of the set that does not exist (`createfile`).
    Create,
    /// Writes it from its start to its end (`writewholefile`).
    WriteWhole,
    /// Opens the next file that exists (`openfile`).
    Open,
    /// Opens any file that exists, all equally likely (FAST'24, section 5.3).
    OpenAny,
    /// Appends up to `append_bytes` (`appendfilerand`).
    AppendUpTo,
    /// Appends `append_bytes` (`appendfile`).
    Append,
    /// Reads it from its start to its end (`readwholefile`).
    ReadWhole,
    /// Makes it durable (`fsync`).
    Sync,
    /// Deletes the next file that exists and is not open (`deletefile`).
    Delete,
}

/// A personality.
#[derive(Clone, Copy, Debug)]
pub struct Personality {
    /// The operations of each thread, again and again.
    pub flow: &'static [Flow],
    /// Files of the set.
    pub files: u64,
    /// Their mean length.
    pub mean_bytes: u64,
    /// The share of them that exists before.
    pub preallocated_percent: u32,
    /// See [`Flow::Append`] and [`Flow::AppendUpTo`].
    pub append_bytes: u64,
    /// Bytes of a call that reads or writes a whole file.
    pub call_bytes: u64,
    /// Bytes that a call writes, up to a multiple of this in its file, before others may write theirs. A file system that gives a call all of
    /// its blocks at once has no turns within a call; for F2FS, see [`Self::TURN_OF_F2FS`].
    pub turn_bytes: u64,
    /// How files are read and written.
    pub access: Access,
    /// How many threads there are.
    pub threads: u32,
}

/// `fileserver`.
pub const FILESERVER: Personality = Personality {
    flow: &[
        Flow::Create,
        Flow::WriteWhole,
        Flow::Open,
        Flow::AppendUpTo,
        Flow::Open,
        Flow::ReadWhole,
        Flow::Delete,
    ],
    files: 10_000,
    mean_bytes: 128 << 10,
    preallocated_percent: 80,
    append_bytes: 16 << 10,
    call_bytes: 1 << 20,
    turn_bytes: u64::MAX,
    access: Access::Buffered,
    threads: 50,
};

/// `varmail`.
pub const VARMAIL: Personality = Personality {
    flow: &[
        Flow::Delete,
        Flow::Create,
        Flow::AppendUpTo,
        Flow::Sync,
        Flow::Open,
        Flow::ReadWhole,
        Flow::AppendUpTo,
        Flow::Sync,
        Flow::Open,
        Flow::ReadWhole,
    ],
    files: 1_000,
    mean_bytes: 16 << 10,
    threads: 16,
    ..FILESERVER
};

/// FAST'24's variant of `fileserver` (section 5.3): ten threads append 32 KiB to files that all exist before.
pub const APPENDS: Personality = Personality {
    flow: &[Flow::OpenAny, Flow::Append],
    preallocated_percent: 100,
    append_bytes: 32 << 10,
    threads: 10,
    ..FILESERVER
};

/// The shape of the distribution of lengths.
const SHAPE: f64 = 1.5;

/// The files of a set, by their numbers.
struct FileSet {
    name: String,
    bytes: Vec<u64>,
    exist: BTreeSet<usize>,
    missing: BTreeSet<usize>,
    /// How many threads have each file open.
    open: Vec<u32>,
    next_missing: usize,
}

impl FileSet {
    fn path(&self, number: usize) -> PathBuf {
        format!("{}/{number:08}", self.name).into()
    }
}

/// The first number from `*rotor` on that is `right`, or else the first one of all; the rotor moves behind it.
fn pick(of: &BTreeSet<usize>, rotor: &mut usize, right: impl Fn(usize) -> bool) -> Option<usize> {
    let found = of.range(*rotor..).chain(of.range(..*rotor)).copied().find(|one| right(*one))?;
    *rotor = found + 1;
    Some(found)
}

impl Personality {
    /// F2FS allocates block by block, each under the lock of the log, so that the blocks of threads that write at the same time alternate:
    /// direct writes, and from Linux 4.7 to 4.18 all of them. (b93f771286 "f2fs: remove writepages lock"; 853137cef4, which brings the lock
    /// back, reports that of 85,177 requests of a sequential read of files that 32 threads had written some 80,000 were of one block.)
    pub const TURN_OF_F2FS: u64 = 4096;

    /// Makes the file set `name`, as the present program, and adds the threads, which have no end. There are at least ten files
    /// for each thread, at whatever scale, so that each finds one to create.
    ///
    /// # Errors
    /// The file system has too little space, or refuses a call.
    pub fn start(
        &self,
        files: &dyn FileSystem,
        programs: &mut Programs,
        name: &str,
        scale: Scale,
        seed: u64,
    ) -> Result<(), Error> {
        let count = scale.of(self.files).max(10 * u64::from(self.threads)) as usize;
        let mut random = Random::new(seed, &format!("file set {name}"));
        let mut draw = || gamma(&mut random, SHAPE, self.mean_bytes as f64) as u64;
        let bytes: Vec<u64> = (0..count).map(|_| draw()).collect();
        let mut set = FileSet {
            name: name.into(),
            bytes,
            exist: BTreeSet::new(),
            missing: BTreeSet::new(),
            open: vec![0; count],
            next_missing: 0,
        };
        for number in 0..count {
            if random.below(100) >= self.preallocated_percent {
                set.missing.insert(number);
                continue;
            }
            let file = files.create(&set.path(number))?;
            write_whole(files, file, set.bytes[number], self.call_bytes, self.access)?;
            set.exist.insert(number);
        }
        files.sync()?;
        let set = Rc::new(RefCell::new(set));
        for number in 0..self.threads {
            let random = Random::new(seed, &format!("thread {number} of {name}"));
            let set = Rc::clone(&set);
            let left = Left::Nothing;
            let thread =
                Thread { personality: *self, set, random, at: 0, rotor: 0, open: None, left };
            programs.add(files.machine(), thread);
        }
        Ok(())
    }
}

/// What is left of a flow operation.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    Read(ByteRange),
    Write(ByteRange),
}

/// A thread of a personality.
struct Thread {
    personality: Personality,
    set: Rc<RefCell<FileSet>>,
    random: Random,
    /// The number of its next flow operation.
    at: usize,
    /// The number of the file that it opens next.
    rotor: usize,
    /// The file that it has open, and its number.
    open: Option<(usize, FileId)>,
    /// What is still to be read, or written, of that file: other threads make calls between those of a thread.
    left: Left,
}

impl Thread {
    /// Closes what is open, and opens the file with this number.
    fn open(&mut self, number: usize, file: FileId) {
        self.close();
        self.set.borrow_mut().open[number] += 1;
        self.open = Some((number, file));
    }

    fn close(&mut self) {
        if let Some((number, _)) = self.open.take() {
            self.set.borrow_mut().open[number] -= 1;
        }
    }

    fn create(&mut self, files: &dyn FileSystem) -> Result<(), Error> {
        self.close();
        let mut set = self.set.borrow_mut();
        let FileSet { missing, next_missing, .. } = &mut *set;
        // Filebench waits for one: another thread deletes one soon.
        let Some(number) = pick(missing, next_missing, |_| true) else { return Ok(()) };
        let file = files.create(&set.path(number))?;
        set.missing.remove(&number);
        set.exist.insert(number);
        drop(set);
        self.open(number, file);
        Ok(())
    }

    fn open_next(&mut self, files: &dyn FileSystem, any: bool) -> Result<(), Error> {
        let set = self.set.borrow();
        if any && !set.bytes.is_empty() {
            self.rotor = self.random.below_u64(set.bytes.len() as u64) as usize;
        }
        let Some(number) = pick(&set.exist, &mut self.rotor, |_| true) else { return Ok(()) };
        let file = files.find(&set.path(number))?;
        drop(set);
        self.open(number, file);
        Ok(())
    }

    fn delete(&mut self, files: &dyn FileSystem) -> Result<(), Error> {
        self.close();
        let set = &mut *self.set.borrow_mut();
        let found = pick(&set.exist, &mut self.rotor, |number| set.open[number] == 0);
        let Some(number) = found else { return Ok(()) };
        files.remove(&set.path(number))?;
        set.exist.remove(&number);
        set.missing.insert(number);
        Ok(())
    }

    /// Reads or writes the next part of what is left.
    fn go_on(&mut self, files: &dyn FileSystem, file: FileId) -> Result<Done, Error> {
        let Personality { call_bytes, turn_bytes, access, .. } = self.personality;
        match self.left {
            Left::Nothing => Ok(Done::default()),
            Left::Read(left) => {
                let part = ByteRange::at(left.start, call_bytes).intersect(left);
                self.left = rest(part.end..left.end, Left::Read);
                files.read(file, part, access)?;
                Ok(Done { read_bytes: part.len(), ..Done::default() })
            }
            Left::Write(left) => {
                let turn_ends = (left.start / turn_bytes + 1).saturating_mul(turn_bytes);
                let part = ByteRange::at(left.start, call_bytes).intersect(left);
                let part = ByteRange { end: part.end.min(turn_ends), ..part };
                self.left = rest(part.end..left.end, Left::Write);
                write(files, file, part, access)
            }
        }
    }

    /// Begins to do something with the open file, if there is one.
    fn with_open(&mut self, files: &dyn FileSystem, flow: Flow) -> Result<Done, Error> {
        let Some((number, file)) = self.open else { return Ok(Done::default()) };
        let size = files.size(file)?;
        self.left = match flow {
            Flow::WriteWhole => rest(0..self.set.borrow().bytes[number], Left::Write),
            Flow::AppendUpTo => {
                let bytes = 1 + self.random.below_u64(self.personality.append_bytes);
                rest(size..size + bytes, Left::Write)
            }
            Flow::Append => rest(size..size + self.personality.append_bytes, Left::Write),
            Flow::ReadWhole => rest(0..size, Left::Read),
            Flow::Sync => return files.sync_file(file).map(|()| Done::default()),
            Flow::Create | Flow::Open | Flow::OpenAny | Flow::Delete => Left::Nothing,
        };
        self.go_on(files, file)
    }
}

/// A range that is left, if it is not empty.
fn rest(range: Range<u64>, left: fn(ByteRange) -> Left) -> Left {
    let range = ByteRange { start: range.start, end: range.end };
    if range.is_empty() { Left::Nothing } else { left(range) }
}

impl Load for Thread {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        if let Some((_, file)) = self.open.filter(|_| !matches!(self.left, Left::Nothing)) {
            return self.go_on(files, file).map(Some);
        }
        let flow = self.personality.flow[self.at];
        self.at = (self.at + 1) % self.personality.flow.len();
        match flow {
            Flow::Create => self.create(files)?,
            Flow::Open => self.open_next(files, false)?,
            Flow::OpenAny => self.open_next(files, true)?,
            Flow::Delete => self.delete(files)?,
            _ => return self.with_open(files, flow).map(Some),
        }
        Ok(Some(Done::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use fragmend_layout::Volume;

    fn run(personality: Personality, ns: u64, seed: u64) -> (Double, Programs) {
        let (files, mut programs) = (Double::new(1 << 18), Programs::default());
        personality.start(&files, &mut programs, "set", Scale::one_in(50), seed).unwrap();
        let until = files.machine().now_ns() + ns;
        programs.run_until(&files, until).unwrap();
        (files, programs)
    }

    #[test]
    fn a_fileserver_keeps_the_number_of_its_files_and_fragments_them() {
        let personality = Personality { threads: 8, ..FILESERVER };
        let (files, programs) = run(personality, 300_000_000, 7);
        let tally = programs.tally();
        assert!(tally.operations > 1000 && tally.done.read_bytes > tally.done.written_bytes);
        // 80 per cent of 200, and one more for each thread that has created and not deleted yet.
        assert!((145..=185).contains(&files.count()), "{}", files.count());
        let mut all = Vec::new();
        Volume::files(&files, &mut |path, file| all.push((path.to_owned(), file.unwrap())))
            .unwrap();
        let extents: usize =
            all.iter().map(|(path, file)| files.layout(*file, path).unwrap().extents().len()).sum();
        assert!(extents > all.len() * 3 / 2, "{extents} of {}", all.len());
        assert_eq!(run(personality, 300_000_000, 7).1.tally(), tally, "the same again");
        assert_ne!(run(personality, 300_000_000, 8).1.tally(), tally);
    }

    #[test]
    fn threads_that_write_at_once_alternate_where_they_take_turns() {
        let fragments = |turn_bytes| {
            let access = Access::Direct;
            let (files, _) =
                run(Personality { threads: 8, access, turn_bytes, ..FILESERVER }, 300_000_000, 7);
            let mut all = Vec::new();
            Volume::files(&files, &mut |path, file| all.push((path.to_owned(), file.unwrap())))
                .unwrap();
            let layouts = all.iter().map(|(path, file)| files.layout(*file, path).unwrap());
            layouts.map(|layout| layout.extents().len()).sum::<usize>()
        };
        let (calls, turns) = (fragments(u64::MAX), fragments(4096));
        assert!(turns > 2 * calls, "{turns} and {calls}");
    }

    #[test]
    fn varmail_syncs_what_it_appends() {
        let (files, programs) = run(Personality { threads: 4, ..VARMAIL }, 100_000_000, 1);
        let operations = programs.tally().operations;
        // Two of ten operations.
        let syncs = files.syncs() as f64 / operations as f64;
        assert!((0.15..0.25).contains(&syncs), "{syncs}");
    }

    #[test]
    fn appends_reach_all_files() {
        let (files, programs) = run(APPENDS, 100_000_000, 1);
        let tally = programs.tally();
        assert_eq!((tally.done.read_bytes, files.count()), (0, 200));
        assert_eq!(tally.done.written_bytes % (32 << 10), 0);
    }

    #[test]
    fn a_full_file_system_is_an_error() {
        let (files, mut programs) = (Double::new(100), Programs::default());
        let started = FILESERVER.start(&files, &mut programs, "set", Scale::WHOLE, 1);
        assert_eq!(started, Err(Error::NoSpace));
    }
}
