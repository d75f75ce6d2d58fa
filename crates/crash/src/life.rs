//! Life after the move: while the mover is stopped, others open files of which something has moved,
//! overwrite, extend, truncate and punch them, and make that durable in every way that there is
//! (`fsync`, `fdatasync`, `O_DSYNC`, `msync`, `syncfs`, through the same or another descriptor);
//! and close them again, as most programs do. What they were told is durable must be there after a
//! cut, whatever the mover has told the kernel to commit by then.

use crate::bed::Bed;
use crate::content::fill;
use crate::files::{FileOf, MENDED, Role, floor};
use crate::load::{LONGEST, store_words};
use crate::marks::{Mark, Marks};
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

/// What a write or a hole begins and ends on.
const UNIT: u64 = 512;
/// What `O_DIRECT` and holes begin and end on.
const BLOCK: u64 = 4096;
/// Versions are not used up before.
const LAST_VERSION: u16 = u16::MAX - 8;

/// What was done after moves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lived {
    /// Overwritings, extensions, truncations, holes.
    pub changes: u64,
    /// Times that something was made durable, by the call that did it.
    pub syncs: BTreeMap<String, u64>,
    /// Times that a file could not be opened, because somebody had a lease on it.
    pub turned_away: u64,
    /// Times that the mover stopped itself right after a move, before that is committed.
    pub stops: u64,
}

impl Lived {
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

/// Those who use files that have moved.
pub struct Life<'a> {
    root: &'a Path,
    files: Vec<Living>,
    random: Random,
    marks: &'a Marks,
    /// Files that are held to the end: then all that is done is to overwrite them, and to sync that
    /// without metadata.
    open: Vec<File>,
    /// What came of it.
    pub lived: Lived,
}

struct Living {
    tag: u32,
    path: PathBuf,
    floor: u64,
    largest: u64,
    size: u64,
    version: u16,
    /// Sizes that it may have after a cut.
    least: u64,
    most: u64,
    /// Not durable yet.
    waiting: Vec<Mark>,
    /// Where each block lay when it was opened last.
    lies: Vec<u64>,
}

/// How the bytes of a write get there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Call,
    Direct,
    Durably,
    Mapped,
}

impl<'a> Life<'a> {
    /// Of the files below `root` that are meant for it.
    pub fn new(root: &'a Path, files: &[FileOf], seed: u64, marks: &'a Marks, bed: &Bed) -> Self {
        let living = files.iter().filter(|f| f.role == Role::Living).map(|f| Living {
            tag: f.tag,
            path: root.join(MENDED).join(&f.name),
            floor: floor(f.bytes),
            largest: f.bytes + f.bytes / 4,
            size: f.bytes,
            version: 0,
            least: f.bytes,
            most: f.bytes,
            waiting: Vec::new(),
            lies: lies(&root.join(MENDED).join(&f.name)).unwrap_or_default(),
        });
        let (files, random): (Vec<Living>, _) = (living.collect(), Random::new(seed ^ 0x11FE));
        let open = |file: &Living| File::open(&file.path).expect("a file of the run");
        let open = files.iter().filter(|_| bed.keeps_open).map(open).collect();
        Self { root, files, random, marks, open, lived: Lived::default() }
    }

    /// Does something to one of these files, if there is any.
    ///
    /// # Panics
    /// When the file system refuses.
    pub fn touch(&mut self, tags: &[u32]) {
        let known: Vec<usize> =
            (0..self.files.len()).filter(|n| tags.contains(&self.files[*n].tag)).collect();
        if known.is_empty() {
            return;
        }
        let of = known[self.random.below(known.len() as u64) as usize];
        for _ in 0..1 + self.random.below(2) {
            match self.change(of) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.lived.turned_away += 1,
                done => done.expect("what anybody may do to a file"),
            }
        }
    }

    fn say(&self, mark: Mark) {
        self.marks.say(&mark).expect("somebody listens");
    }

    /// Opens, changes, mostly makes that durable, closes.
    fn change(&mut self, of: usize) -> io::Result<()> {
        let file = &self.files[of];
        if file.version > LAST_VERSION {
            return Ok(());
        }
        let ways = [Way::Call, Way::Direct, Way::Durably, Way::Mapped];
        let way = ways[self.random.below(ways.len() as u64) as usize];
        let flags = match way {
            Way::Direct => OFlags::DIRECT,
            Way::Durably => OFlags::DSYNC,
            Way::Call | Way::Mapped => OFlags::empty(),
        };
        let mut how = File::options();
        // Not a word while somebody has a lease: the mover stands still, and could not give it up.
        let flags = flags | OFlags::NONBLOCK;
        how.read(true).write(true).custom_flags(flags.bits().cast_signed());
        let open = how.open(&file.path)?;
        self.lived.changes += 1;
        match self.random.below(8) {
            _ if !self.open.is_empty() => return self.overwrite(of, &open, way),
            0 => self.extend(of, &open, way)?,
            1 => self.truncate(of, &open)?,
            2 => self.punch(of, &open)?,
            _ => return self.overwrite(of, &open, way),
        }
        self.sync(of, &open)
    }

    fn next_version(&mut self, of: usize) -> u16 {
        self.files[of].version += 1;
        self.files[of].version
    }

    fn overwrite(&mut self, of: usize, open: &File, way: Way) -> io::Result<()> {
        let (tag, size) = (self.files[of].tag, self.files[of].size);
        let unit = if way == Way::Direct { BLOCK } else { UNIT };
        let from = self.somewhere(of, unit);
        let longest = LONGEST.min(size - from) / unit;
        let to = from + (1 + self.random.below(longest.max(1))) * unit;
        let version = self.next_version(of);
        let mark = Mark::Synced { tag, from, to, version };
        match way {
            Way::Mapped => {
                let mut mapping = Mapping::new(open, size as usize)?;
                store_words(&mut mapping, tag, from, to - from, version);
                self.files[of].waiting.push(mark);
                if self.random.below(4) > 0 {
                    mapping.sync()?;
                    self.settle(of, "msync");
                    return Ok(());
                }
            }
            Way::Direct => {
                let mut buffer = Aligned::new((to - from) as usize);
                fill(tag, from, version, buffer.bytes());
                open.write_all_at(buffer.bytes(), from)?;
                self.files[of].waiting.push(mark);
            }
            Way::Call | Way::Durably => {
                let mut bytes = vec![0; (to - from) as usize];
                fill(tag, from, version, &mut bytes);
                open.write_all_at(&bytes, from)?;
                if way == Way::Durably {
                    // Of this write alone.
                    self.note("O_DSYNC");
                    self.say(mark);
                    return Ok(());
                }
                self.files[of].waiting.push(mark);
            }
        }
        self.sync(of, open)
    }

    /// Mostly where it has moved since somebody looked: that is where bytes are lost.
    fn somewhere(&mut self, of: usize, unit: u64) -> u64 {
        let file = &mut self.files[of];
        let now = lies(&file.path).unwrap_or_default();
        let moved = |(n, at): (usize, &u64)| {
            let within = (n as u64 + 1) * BLOCK <= file.size;
            (within && file.lies.get(n) != Some(at)).then_some(n as u64 * BLOCK)
        };
        let moved: Vec<u64> = now.iter().enumerate().filter_map(moved).collect();
        file.lies = now;
        match self.random.below(8) {
            1.. if !moved.is_empty() => moved[self.random.below(moved.len() as u64) as usize],
            _ => self.random.below(self.files[of].size / unit) * unit,
        }
    }

    /// Bytes `from..to` may be zeroes from now on.
    fn zeroes(&mut self, of: usize, from: u64, to: u64) {
        let (tag, version) = (self.files[of].tag, self.next_version(of));
        self.say(Mark::Zeroing { tag, from, to, version });
        self.files[of].waiting.push(Mark::Synced { tag, from, to, version });
    }

    /// It may have any size between its last durable one and this from now on.
    fn sizes(&mut self, of: usize, size: u64) {
        let file = &mut self.files[of];
        (file.least, file.most) = (file.least.min(size), file.most.max(size));
        let (tag, least, most) = (file.tag, file.least, file.most);
        self.say(Mark::Sizes { tag, least, most });
        self.files[of].size = size;
    }

    fn extend(&mut self, of: usize, open: &File, way: Way) -> io::Result<()> {
        let Living { tag, size, largest, .. } = self.files[of];
        let unit = if way == Way::Direct { BLOCK } else { UNIT };
        let from = size.next_multiple_of(unit);
        let to = from + (1 + self.random.below(LONGEST / unit)) * unit;
        if to > largest {
            return self.truncate(of, open);
        }
        self.zeroes(of, size, to);
        self.sizes(of, to);
        let version = self.next_version(of);
        let mut bytes = Aligned::new((to - from) as usize);
        fill(tag, from, version, bytes.bytes());
        open.write_all_at(bytes.bytes(), from)?;
        self.files[of].waiting.push(Mark::Synced { tag, from, to, version });
        Ok(())
    }

    fn truncate(&mut self, of: usize, open: &File) -> io::Result<()> {
        let Living { floor, largest, size, .. } = self.files[of];
        let now = floor + self.random.below((size - floor) / UNIT + 1) * UNIT;
        self.zeroes(of, now, largest);
        self.sizes(of, now);
        open.set_len(now)
    }

    fn punch(&mut self, of: usize, open: &File) -> io::Result<()> {
        let blocks = self.files[of].size / BLOCK;
        let from = self.random.below(blocks) * BLOCK;
        let to = (from + (1 + self.random.below(8)) * BLOCK).min(blocks * BLOCK);
        self.zeroes(of, from, to);
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(open, how, from, to - from)?)
    }

    /// Makes all of it durable, or leaves that to somebody else.
    fn sync(&mut self, of: usize, open: &File) -> io::Result<()> {
        let path = self.files[of].path.clone();
        // Whoever opens a file to sync it, syncs what others wrote.
        let again = || File::options().read(true).custom_flags(quick()).open(&path);
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
        self.settle(of, name);
        Ok(())
    }

    fn note(&mut self, name: &str) {
        *self.lived.syncs.entry(name.to_owned()).or_default() += 1;
    }

    /// All that was done to a file is durable.
    fn settle(&mut self, of: usize, by: &str) {
        self.note(by);
        let file = &mut self.files[of];
        (file.least, file.most) = (file.size, file.size);
        let (tag, size, waiting) = (file.tag, file.size, std::mem::take(&mut file.waiting));
        for mark in waiting {
            self.say(mark);
        }
        self.say(Mark::Sizes { tag, least: size, most: size });
    }
}

fn quick() -> i32 {
    OFlags::NONBLOCK.bits().cast_signed()
}

/// Where each block of a file lies, in bytes; `u64::MAX` for one that lies nowhere yet.
fn lies(path: &Path) -> io::Result<Vec<u64>> {
    let file = File::options().read(true).custom_flags(quick()).open(path)?;
    let mut lies = vec![u64::MAX; (file.metadata()?.len() / BLOCK) as usize];
    Fiemap::default().for_each(&file, 0..u64::MAX, false, |part| {
        for n in 0..part.length / BLOCK {
            if let Some(place) = lies.get_mut((part.logical / BLOCK + n) as usize) {
                *place = part.physical + n * BLOCK;
            }
        }
    })?;
    Ok(lies)
}
