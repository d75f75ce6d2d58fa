//! Blocks, files and space of a disk in memory, and what a power cut leaves of them.

use crate::fault::{Change, Fault};
use crate::world::World;
use fragmend_layout::{FileId, Skip, SkipReason};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The time that an operation needs besides its blocks, and the time of a commit.
const CALL: Duration = Duration::from_micros(50);
pub(crate) const COMMIT: Duration = Duration::from_millis(2);
/// The time of reading or writing a block.
const BLOCK: Duration = Duration::from_micros(20);

/// The content of a block: two blocks are alike if these numbers are equal.
type Content = u64;

/// One file: where each block of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub path: PathBuf,
    pub generation: u32,
    pub size: u64,
    /// Its blocks on the disk, by their number in the file; a missing number is a hole.
    pub map: BTreeMap<u64, u64>,
    /// Those of them that are allocated and were never written: they read as zeroes.
    pub reserved: BTreeSet<u64>,
}

/// A block of a file that has changed its place.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    inode: u64,
    block: u64,
    from: u64,
    to: u64,
}

/// The state that the owners expect of a file: its size, and the content of each block.
type Expected = (u64, BTreeMap<u64, Content>);

/// A disk, with one file system on it.
#[derive(Debug)]
pub(crate) struct Disk {
    pub world: Rc<World>,
    pub device: u64,
    pub block: u64,
    /// Files as programs see them, and as they are after a power cut, except for what is in `pending`.
    pub files: BTreeMap<u64, File>,
    durable: BTreeMap<u64, File>,
    /// The moves since the last commit, in order.
    pending: Vec<Exchange>,
    /// Blocks as they are read, and as they are on the disk where that differs.
    content: Vec<Content>,
    unwritten: BTreeMap<u64, Content>,
    /// Blocks that belong to a file, or did and the change is not committed, or are allocated for a move.
    used: BTreeSet<u64>,
    /// Those that belong to several files, or did once.
    shared: BTreeSet<u64>,
    /// What the owners have last written, whatever has moved since.
    expected: BTreeMap<u64, Expected>,
    is_on: bool,
    full: bool,
    /// The number of operations so far, and the faults by the number of their operation.
    pub operations: u64,
    pub faults: Vec<(u64, Fault)>,
    /// The least space that was ever free, in blocks.
    pub least_free: u64,
    next: u64,
}

impl Disk {
    pub fn new(world: Rc<World>, device: u64, block: u64, blocks: u64) -> Self {
        Self {
            world,
            device,
            block,
            files: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            content: vec![0; blocks as usize],
            unwritten: BTreeMap::new(),
            used: BTreeSet::new(),
            shared: BTreeSet::new(),
            expected: BTreeMap::new(),
            is_on: true,
            full: false,
            operations: 0,
            faults: Vec::new(),
            least_free: blocks,
            next: 1,
        }
    }

    /// A number that is used nowhere else.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn blocks(&self) -> u64 {
        self.content.len() as u64
    }

    pub fn free(&self) -> u64 {
        self.blocks() - self.used.len() as u64
    }

    /// Makes a file whose blocks are at these places, in this order, with holes where there is none.
    ///
    /// # Panics
    /// When a place is used already, or not on the disk.
    pub fn add(&mut self, path: &Path, size: u64, places: &[Option<u64>]) -> FileId {
        let (inode, generation) = (self.fresh(), self.fresh() as u32);
        let (mut map, mut expected) = (BTreeMap::new(), BTreeMap::new());
        for (block, place) in places.iter().enumerate() {
            let Some(place) = *place else { continue };
            assert!(self.used.insert(place), "block {place} is used");
            self.content[place as usize] = self.fresh();
            self.unwritten.remove(&place);
            map.insert(block as u64, place);
            expected.insert(block as u64, self.content[place as usize]);
        }
        let reserved = BTreeSet::new();
        let file = File { path: path.to_owned(), generation, size, map, reserved };
        self.durable.insert(inode, file.clone());
        self.files.insert(inode, file);
        self.expected.insert(inode, (size, expected));
        self.least_free = self.free();
        FileId { device: self.device, inode, generation }
    }

    /// The file of this identity.
    pub fn file(&self, id: FileId) -> Result<&File, Skip> {
        match self.files.get(&id.inode) {
            Some(file) if file.generation == id.generation => Ok(file),
            Some(_) => Err(Skip::new(SkipReason::IdentityChanged, "the inode was reused")),
            None => Err(Skip::new(SkipReason::Vanished, "")),
        }
    }

    /// The beginning of every operation; it lasts as long as this many blocks read and written need.
    pub fn begin(&mut self, read: u64, written: u64) -> Result<(), Skip> {
        self.operations += 1;
        let time = CALL + BLOCK * (read + written) as u32;
        self.world.work(time, read * self.block, written * self.block);
        let now = self.operations;
        let due = |(at, fault): &(u64, Fault)| (*at == now).then_some(*fault);
        let mut failed = false;
        for fault in self.faults.iter().filter_map(due).collect::<Vec<_>>() {
            match fault {
                Fault::PowerCut => self.is_on = false,
                Fault::Failed => failed = true,
                Fault::NoSpace => self.full = true,
                Fault::Stop => self.world.end(),
                Fault::Changed(file, change) => self.change(file, change),
            }
        }
        match (self.is_on, failed) {
            (true, false) => Ok(()),
            (true, true) => Err(Skip::new(SkipReason::Failed, "an I/O error")),
            (false, _) => Err(Skip::new(SkipReason::Failed, "the power is cut")),
        }
    }

    /// Another program changes a file and syncs it. What has moved is committed before it is let in.
    pub fn change(&mut self, id: FileId, change: Change) {
        if !self.is_on || self.file(id).is_err() {
            return;
        }
        self.commit_now();
        let (new, token) = (self.fresh() as u32, self.fresh());
        let block = self.block;
        let mut file = self.files[&id.inode].clone();
        let mut gone: BTreeMap<u64, u64> = BTreeMap::new();
        match change {
            Change::Write => {
                let first = file.map.first_key_value().map(|(n, place)| (*n, *place));
                if let Some((n, from)) = first
                    && let Some(place) = self.writable(from)
                {
                    self.unwritten.remove(&place);
                    self.content[place as usize] = token;
                    file.map.insert(n, place);
                    file.reserved.remove(&n);
                    self.expected.entry(id.inode).or_default().1.insert(n, token);
                }
            }
            Change::Truncate(bytes) => {
                file.size = bytes;
                gone = file.map.split_off(&bytes.div_ceil(block));
            }
            Change::Punch(range) => {
                let whole = range.start.div_ceil(block)..range.end / block;
                gone.extend(file.map.range(whole).map(|(n, place)| (*n, *place)));
                file.map.retain(|n, _| !gone.contains_key(n));
            }
            Change::Remove | Change::Replace => {
                gone = std::mem::take(&mut file.map);
                (file.generation, file.size) = (new, 0);
            }
        }
        file.reserved.retain(|n| !gone.contains_key(n));
        let expected = self.expected.entry(id.inode).or_default();
        expected.0 = file.size;
        expected.1.retain(|n, _| !gone.contains_key(n));
        if change == Change::Remove {
            self.files.remove(&id.inode);
            self.durable.remove(&id.inode);
            self.expected.remove(&id.inode);
        } else {
            self.durable.insert(id.inode, file.clone());
            self.files.insert(id.inode, file);
        }
        gone.into_values().for_each(|place| self.leave(place));
    }

    /// The place to which a program writes what it has at `place`: the same one, unless others share it; `None`
    /// if there is no space for that.
    fn writable(&mut self, place: u64) -> Option<u64> {
        if !self.is_shared(place) {
            return Some(place);
        }
        let free = self.free_runs().first()?.start;
        self.used.insert(free);
        self.least_free = self.least_free.min(self.free());
        Some(free)
    }

    /// Whether this block belongs to several files.
    pub fn is_shared(&self, place: u64) -> bool {
        self.shared.contains(&place) && self.owners(place) > 1
    }

    fn owners(&self, place: u64) -> usize {
        self.files.values().filter(|file| file.map.values().any(|p| *p == place)).count()
    }

    /// Frees a block that a file has left, unless it belongs to another one as well.
    fn leave(&mut self, place: u64) {
        if !self.shared.contains(&place) || self.owners(place) == 0 {
            self.used.remove(&place);
            self.shared.remove(&place);
        }
    }

    /// Another program makes a file that shares all blocks of this one.
    ///
    /// # Errors
    /// There is no such file.
    pub fn share(&mut self, id: FileId, path: &Path) -> Result<FileId, Skip> {
        self.commit_now();
        let (inode, generation) = (self.fresh(), self.fresh() as u32);
        let file = File { path: path.to_owned(), generation, ..self.file(id)?.clone() };
        self.shared.extend(file.map.values());
        self.expected.insert(inode, self.expected[&id.inode].clone());
        self.durable.insert(inode, file.clone());
        self.files.insert(inode, file);
        Ok(FileId { device: self.device, inode, generation })
    }

    /// Another program allocates these blocks of a file without writing to them; what was in them is gone.
    ///
    /// # Errors
    /// There is no such file, or not enough space.
    pub fn reserve(&mut self, id: FileId, blocks: Range<u64>) -> Result<(), Skip> {
        self.commit_now();
        let mut file = self.file(id)?.clone();
        let missing: Vec<u64> = blocks.clone().filter(|n| !file.map.contains_key(n)).collect();
        let places = self.allocate(missing.len() as u64)?;
        file.map.extend(missing.into_iter().zip(places.into_iter().flatten()));
        file.reserved.extend(blocks.clone());
        let expected = self.expected.entry(id.inode).or_default();
        expected.1.extend(blocks.map(|n| (n, 0)));
        self.durable.insert(id.inode, file.clone());
        self.files.insert(id.inode, file);
        Ok(())
    }

    /// Another program writes blocks of a file, from its block `first` on, and syncs them; they are at these
    /// places.
    ///
    /// # Panics
    /// When there is no such file, or a place is used already.
    pub fn extend(&mut self, id: FileId, first: u64, places: &[u64]) {
        self.commit_now();
        let mut file = self.file(id).expect("a file").clone();
        for (block, place) in (first..).zip(places) {
            assert!(self.used.insert(*place), "block {place} is used");
            let token = self.fresh();
            self.content[*place as usize] = token;
            self.unwritten.remove(place);
            file.map.insert(block, *place);
            file.reserved.remove(&block);
            file.size = file.size.max((block + 1) * self.block);
            let expected = self.expected.entry(id.inode).or_default();
            (expected.0, _) = (file.size, expected.1.insert(block, token));
        }
        self.durable.insert(id.inode, file.clone());
        self.files.insert(id.inode, file);
        self.least_free = self.free();
    }

    /// The contents of these blocks of a file; 0 for a hole, and for what was never written.
    ///
    /// # Errors
    /// There is no such file.
    pub fn read(&self, id: FileId, blocks: Range<u64>) -> Result<Vec<u64>, Skip> {
        let file = self.file(id)?;
        let content =
            |block| file.map.get(&block).map_or(0, |place| self.content_of(file, block, *place));
        Ok(blocks.map(content).collect())
    }

    /// The content of a block of a file, which is at `place`.
    fn content_of(&self, file: &File, block: u64, place: u64) -> Content {
        if file.reserved.contains(&block) { 0 } else { self.content[place as usize] }
    }

    /// Finds space for this many blocks: the shortest free run that holds them all, or else the longest ones.
    ///
    /// # Errors
    /// There is not enough.
    pub fn allocate(&mut self, blocks: u64) -> Result<Vec<Range<u64>>, Skip> {
        if std::mem::take(&mut self.full) || self.free() < blocks {
            return Err(Skip::new(SkipReason::NoSpace, "no space is left"));
        }
        let mut free = self.free_runs();
        free.sort_by_key(|run| run.end - run.start);
        let fits = free.iter().find(|run| run.end - run.start >= blocks).cloned();
        let (mut found, mut left) = (Vec::new(), blocks);
        for run in fits.into_iter().chain(free.into_iter().rev()) {
            let taken = run.start..run.end.min(run.start + left);
            left -= taken.end - taken.start;
            self.used.extend(taken.clone());
            found.push(taken);
            if left == 0 {
                break;
            }
        }
        found.sort_by_key(|run| run.start);
        self.least_free = self.least_free.min(self.free());
        Ok(found)
    }

    pub fn free_runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in (0..self.blocks()).filter(|block| !self.used.contains(block)) {
            match runs.last_mut().filter(|run| run.end == block) {
                Some(run) => run.end += 1,
                None => runs.push(block..block + 1),
            }
        }
        runs
    }

    /// Frees blocks that no file uses any more.
    pub fn release(&mut self, blocks: impl IntoIterator<Item = u64>) {
        for block in blocks {
            self.used.remove(&block);
            self.unwritten.remove(&block);
        }
    }

    /// Copies a block; the copy is not on the disk yet.
    pub fn copy(&mut self, from: u64, to: u64) {
        self.unwritten.entry(to).or_insert(self.content[to as usize]);
        self.content[to as usize] = self.content[from as usize];
    }

    /// Makes the copies in these blocks durable.
    pub fn write(&mut self, blocks: impl IntoIterator<Item = u64>) {
        blocks.into_iter().for_each(|block| _ = self.unwritten.remove(&block));
    }

    /// Whether two blocks have the same content.
    pub fn alike(&self, a: u64, b: u64) -> bool {
        self.content[a as usize] == self.content[b as usize]
    }

    /// Moves a block of a file to another place; its old place stays used until that is committed.
    pub fn exchange(&mut self, inode: u64, block: u64, to: u64) {
        let Some(place) = self.files.get_mut(&inode).and_then(|f| f.map.get_mut(&block)) else {
            return;
        };
        let from = std::mem::replace(place, to);
        self.pending.push(Exchange { inode, block, from, to });
    }

    /// Makes all moves durable, and frees the places that were left.
    pub fn commit(&mut self) -> Result<(), Skip> {
        self.world.work(COMMIT, 0, 0);
        self.begin(0, 0)?;
        self.commit_now();
        Ok(())
    }

    fn commit_now(&mut self) {
        for moved in std::mem::take(&mut self.pending) {
            self.make_durable(moved);
            self.leave(moved.from);
        }
    }

    fn make_durable(&mut self, Exchange { inode, block, to, .. }: Exchange) {
        if let Some(file) = self.durable.get_mut(&inode) {
            file.map.insert(block, to);
        }
    }

    /// The power is back: of the moves that were not committed the first `survivors` are there, and of the
    /// blocks that were not on the disk every second one.
    pub fn restart(&mut self, survivors: usize) {
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().take(survivors).for_each(|moved| self.make_durable(moved));
        for (n, (block, old)) in std::mem::take(&mut self.unwritten).into_iter().enumerate() {
            if n % 2 == 0 {
                self.content[block as usize] = old;
            }
        }
        self.files = self.durable.clone();
        self.used = self.files.values().flat_map(|file| file.map.values().copied()).collect();
        self.shared.retain(|place| self.used.contains(place));
        (self.is_on, self.full) = (true, false);
        self.faults.clear();
    }

    /// Checks that each file is what its owners have last written, and that each block belongs to one file only
    /// once, unless it is shared.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut owners: BTreeMap<u64, u64> = BTreeMap::new();
        for (inode, file) in &self.files {
            let (size, expected) = self.expected.get(inode).cloned().unwrap_or_default();
            let read = |(n, place): (&u64, &u64)| (*n, self.content_of(file, *n, *place));
            let now: BTreeMap<u64, Content> = file.map.iter().map(read).collect();
            if (file.size, &now) != (size, &expected) {
                return Err(format!("{}: {now:?} and not {expected:?}", file.path.display()));
            }
            for place in file.map.values() {
                let other = owners.insert(*place, *inode);
                if let Some(other) = other.filter(|_| !self.shared.contains(place)) {
                    return Err(format!("block {place} is that of {other} and of {inode}"));
                }
            }
        }
        if self.files.len() != self.expected.len() {
            return Err(format!("{} files and not {}", self.files.len(), self.expected.len()));
        }
        if !owners.keys().all(|block| self.used.contains(block)) {
            return Err("a file has blocks that are free".into());
        }
        if owners.len() != self.used.len() && self.pending.is_empty() {
            return Err(format!("{} blocks are nobody's", self.used.len() - owners.len()));
        }
        Ok(())
    }
}
