//! The load on files that have moved: while the mover is stopped, others open files of which some range has
//! moved, overwrite, extend, truncate and punch them, make that durable by any of the calls (`fsync`,
//! `fdatasync`, `O_DSYNC`, `msync`, `syncfs`, through the same or another descriptor), and close them, as
//! most programs do. What such a call made durable must survive a cut, whatever the mover has committed by
//! then.

use crate::content::fill;
use crate::files::{MENDED, Role, TestFile, floor};
use crate::load::{LONGEST, store_words};
use crate::marks::{Mark, Marks};
use crate::scenario::Scenario;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::mapping::Mapping;
use fragmend_testbed::random::Random;
use fragmend_testbed::replay::Aligned;
use rustix::fs::{FallocateFlags, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Alignment of writes, in bytes.
const UNIT: u64 = 512;
/// Alignment of `O_DIRECT` writes and of holes, in bytes.
pub(crate) const BLOCK: u64 = 4096;
/// No file is changed any more once it has reached this version.
const LAST_VERSION: u16 = u16::MAX - 8;

/// Counts of what was done to moved files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaterUseCounts {
    /// Overwrites, extensions, truncations and holes.
    pub changes: u64,
    /// Syncs, by system call.
    pub syncs: BTreeMap<String, u64>,
    /// Opens that failed because of a lease.
    pub turned_away: u64,
    /// How often the mover stopped itself right after a move, before its commit.
    pub stops: u64,
}

impl LaterUseCounts {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.turned_away += other.turned_away;
        self.stops += other.stops;
        for (name, count) in &other.syncs {
            *self.syncs.entry(name.clone()).or_default() += count;
        }
    }
}

/// The users of files that have moved.
pub struct LaterUse<'a> {
    root: &'a Path,
    files: Vec<FileState>,
    random: Random,
    marks: &'a Marks,
    /// Files that stay open to the end. If there are any, all changes are overwrites with
    /// `fdatasync`.
    open: Vec<File>,
    /// What was done.
    pub counts: LaterUseCounts,
}

struct FileState {
    tag: u32,
    path: PathBuf,
    floor: u64,
    largest: u64,
    size: u64,
    version: u16,
    /// The sizes that it may have after a cut.
    least: u64,
    most: u64,
    /// Marks of what is not durable yet.
    pending: Vec<Mark>,
    /// The physical address of each block when it was last read.
    placement: Vec<u64>,
}

/// How bytes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaterWrite {
    Call,
    Direct,
    Durably,
    Mapped,
}

impl<'a> LaterUse<'a> {
    /// The users of the files of the run that have [`Role::UsedLater`].
    pub fn new(
        root: &'a Path,
        files: &[TestFile],
        seed: u64,
        marks: &'a Marks,
        scenario: &Scenario,
    ) -> Self {
        let living = files.iter().filter(|f| f.role == Role::UsedLater).map(|f| FileState {
            tag: f.tag,
            path: root.join(MENDED).join(&f.name),
            floor: floor(f.bytes),
            largest: f.bytes + f.bytes / 4,
            size: f.bytes,
            version: 0,
            least: f.bytes,
            most: f.bytes,
            pending: Vec::new(),
            placement: placement(&root.join(MENDED).join(&f.name)).unwrap_or_default(),
        });
        let (files, random): (Vec<FileState>, _) = (living.collect(), Random::new(seed ^ 0x11FE));
        let open = |file: &FileState| File::open(&file.path).expect("a file of the run");
        let open = files.iter().filter(|_| scenario.keeps_open).map(open).collect();
        Self { root, files, random, marks, open, counts: LaterUseCounts::default() }
    }

    /// Changes one of these files, if there is any.
    ///
    /// # Panics
    /// When the file system refuses.
    pub fn touch(&mut self, tags: &[u32]) {
        let known: Vec<usize> =
            (0..self.files.len()).filter(|n| tags.contains(&self.files[*n].tag)).collect();
        if known.is_empty() {
            return;
        }
        let index = known[self.random.below(known.len() as u64) as usize];
        for _ in 0..1 + self.random.below(2) {
            match self.change(index) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.counts.turned_away += 1,
                done => done.expect("an operation that any program may do"),
            }
        }
    }

    fn mark(&self, mark: Mark) {
        self.marks.write(&mark).expect("a reader of the marks");
    }

    /// Opens a file, changes it, mostly makes that durable, and closes it.
    fn change(&mut self, index: usize) -> io::Result<()> {
        let file = &self.files[index];
        if file.version > LAST_VERSION {
            return Ok(());
        }
        let ways = [LaterWrite::Call, LaterWrite::Direct, LaterWrite::Durably, LaterWrite::Mapped];
        let method = ways[self.random.below(ways.len() as u64) as usize];
        let flags = match method {
            LaterWrite::Direct => OFlags::DIRECT,
            LaterWrite::Durably => OFlags::DSYNC,
            LaterWrite::Call | LaterWrite::Mapped => OFlags::empty(),
        };
        let mut how = File::options();
        // Must not block on a lease: the mover is stopped, and could not release it.
        let flags = flags | OFlags::NONBLOCK;
        how.read(true).write(true).custom_flags(flags.bits().cast_signed());
        let open = how.open(&file.path)?;
        self.counts.changes += 1;
        match self.random.below(8) {
            _ if !self.open.is_empty() => return self.overwrite(index, &open, method),
            0 => self.extend(index, &open, method)?,
            1 => self.truncate(index, &open)?,
            2 => self.punch(index, &open)?,
            _ => return self.overwrite(index, &open, method),
        }
        self.sync(index, &open)
    }

    fn next_version(&mut self, index: usize) -> u16 {
        self.files[index].version += 1;
        self.files[index].version
    }

    fn overwrite(&mut self, index: usize, open: &File, method: LaterWrite) -> io::Result<()> {
        let (tag, size) = (self.files[index].tag, self.files[index].size);
        let unit = if method == LaterWrite::Direct { BLOCK } else { UNIT };
        let from = self.somewhere(index, unit);
        let longest = LONGEST.min(size - from) / unit;
        let to = from + (1 + self.random.below(longest.max(1))) * unit;
        let version = self.next_version(index);
        self.mark(Mark::Writing { tag, from, to, version });
        let mark = Mark::Synced { tag, from, to, version };
        match method {
            LaterWrite::Mapped => {
                let mut mapping = Mapping::new(open, size as usize)?;
                store_words(&mut mapping, tag, from, to - from, version);
                self.files[index].pending.push(mark);
                if self.random.below(4) > 0 {
                    mapping.sync()?;
                    self.settle(index, "msync");
                    return Ok(());
                }
            }
            LaterWrite::Direct => {
                let mut buffer = Aligned::new((to - from) as usize);
                fill(tag, from, version, buffer.bytes());
                open.write_all_at(buffer.bytes(), from)?;
                self.files[index].pending.push(mark);
            }
            LaterWrite::Call | LaterWrite::Durably => {
                let mut bytes = vec![0; (to - from) as usize];
                fill(tag, from, version, &mut bytes);
                open.write_all_at(&bytes, from)?;
                if method == LaterWrite::Durably {
                    // Covers this write alone.
                    self.note("O_DSYNC");
                    self.mark(mark);
                    return Ok(());
                }
                self.files[index].pending.push(mark);
            }
        }
        self.sync(index, open)
    }

    /// An offset to write to: mostly in a block that has moved since the last look, because that is
    /// where bytes can be lost.
    fn somewhere(&mut self, index: usize, unit: u64) -> u64 {
        let file = &mut self.files[index];
        let now = placement(&file.path).unwrap_or_default();
        let moved = |(n, at): (usize, &u64)| {
            let within = (n as u64 + 1) * BLOCK <= file.size;
            (within && file.placement.get(n) != Some(at)).then_some(n as u64 * BLOCK)
        };
        let moved: Vec<u64> = now.iter().enumerate().filter_map(moved).collect();
        file.placement = now;
        match self.random.below(8) {
            1.. if !moved.is_empty() => moved[self.random.below(moved.len() as u64) as usize],
            _ => self.random.below(self.files[index].size / unit) * unit,
        }
    }

    /// Marks that the bytes `from..to` may be zeroes from now on.
    fn zeroes(&mut self, index: usize, from: u64, to: u64) {
        let (tag, version) = (self.files[index].tag, self.next_version(index));
        self.mark(Mark::Zeroing { tag, from, to, version });
        self.files[index].pending.push(Mark::Synced { tag, from, to, version });
    }

    /// Marks that the file may have any size between its last durable one and this from now on.
    fn sizes(&mut self, index: usize, size: u64) {
        let file = &mut self.files[index];
        (file.least, file.most) = (file.least.min(size), file.most.max(size));
        let (tag, least, most) = (file.tag, file.least, file.most);
        self.mark(Mark::Sizes { tag, least, most });
        self.files[index].size = size;
    }

    fn extend(&mut self, index: usize, open: &File, method: LaterWrite) -> io::Result<()> {
        let FileState { tag, size, largest, .. } = self.files[index];
        let unit = if method == LaterWrite::Direct { BLOCK } else { UNIT };
        let from = size.next_multiple_of(unit);
        let to = from + (1 + self.random.below(LONGEST / unit)) * unit;
        if to > largest {
            return self.truncate(index, open);
        }
        self.zeroes(index, size, to);
        self.sizes(index, to);
        let version = self.next_version(index);
        let mut bytes = Aligned::new((to - from) as usize);
        fill(tag, from, version, bytes.bytes());
        open.write_all_at(bytes.bytes(), from)?;
        self.files[index].pending.push(Mark::Synced { tag, from, to, version });
        Ok(())
    }

    fn truncate(&mut self, index: usize, open: &File) -> io::Result<()> {
        let FileState { floor, largest, size, .. } = self.files[index];
        let now = floor + self.random.below((size - floor) / UNIT + 1) * UNIT;
        self.zeroes(index, now, largest);
        self.sizes(index, now);
        open.set_len(now)
    }

    fn punch(&mut self, index: usize, open: &File) -> io::Result<()> {
        let blocks = self.files[index].size / BLOCK;
        let from = self.random.below(blocks) * BLOCK;
        let to = (from + (1 + self.random.below(8)) * BLOCK).min(blocks * BLOCK);
        self.zeroes(index, from, to);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(open, how, from, to - from)?)
    }

    /// Makes all changes durable by one of the calls, or by none.
    fn sync(&mut self, index: usize, open: &File) -> io::Result<()> {
        let path = self.files[index].path.clone();
        // A sync through a new descriptor covers writes through others.
        let again = || File::options().read(true).custom_flags(nonblock()).open(&path);
        let name = match self.random.below(10) {
            _ if !self.open.is_empty() => {
                open.sync_data()?;
                "fdatasync"
            }
            0 | 1 => return Ok(()),
            2 => {
                rustix::fs::syncfs(File::open(self.root)?)?;
                "syncfs"
            }
            3 | 4 => {
                open.sync_all()?;
                "fsync"
            }
            5 => {
                again()?.sync_all()?;
                "fsync"
            }
            6 => {
                again()?.sync_data()?;
                "fdatasync"
            }
            _ => {
                open.sync_data()?;
                "fdatasync"
            }
        };
        self.settle(index, name);
        Ok(())
    }

    fn note(&mut self, name: &str) {
        *self.counts.syncs.entry(name.to_owned()).or_default() += 1;
    }

    /// Marks that all changes to a file are durable.
    fn settle(&mut self, index: usize, by: &str) {
        self.note(by);
        let file = &mut self.files[index];
        (file.least, file.most) = (file.size, file.size);
        let (tag, size, pending) = (file.tag, file.size, std::mem::take(&mut file.pending));
        for mark in pending {
            self.mark(mark);
        }
        self.mark(Mark::Sizes { tag, least: size, most: size });
    }
}

/// Open flags that do not wait for a lease.
fn nonblock() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

/// The physical address of each block of a file, in bytes; `u64::MAX` for one not allocated yet.
fn placement(path: &Path) -> io::Result<Vec<u64>> {
    let file = File::options().read(true).custom_flags(nonblock()).open(path)?;
    let mut placement = vec![u64::MAX; (file.metadata()?.len() / BLOCK) as usize];
    Fiemap::default().for_each(&file, 0..u64::MAX, false, |part| {
        for n in 0..part.length / BLOCK {
            if let Some(place) = placement.get_mut((part.logical / BLOCK + n) as usize) {
                *place = part.physical + n * BLOCK;
            }
        }
    })?;
    Ok(placement)
}
