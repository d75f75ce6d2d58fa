//! Random calls of programs and moves on file systems that are nearly full, with journals, metadata areas and defrag logs that are too
//! small: a call that fails changes nothing but the file that it is for, what is synced is there after a power cut, and tables and drive
//! agree.
//!
//! `HOSTILE_RUNS=1000 cargo test -p fragmend-simfs --test simulated hostile` makes as many runs of each; `HOSTILE_SEED` is the first.

use crate::support::{Kind, Random, Seen, drives};
use fragmend_apply::{Options as Apply, Rate, Volumes};
use fragmend_flash::ssd::Ssd;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_plan::{Policy, Settings as Plan, Survey};
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem, Token};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Primitive, Remap};
use fragmend_simfs::segments::{LogStructured, Settings};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

/// The file system in the manner of ext4, with so small a journal.
struct Ext4Like {
    by: Primitive,
    journal: u32,
    joins: bool,
    delayed: bool,
}

impl Ext4Like {
    fn options(&self, machine: &Machine) -> inplace::Options {
        let mut options = inplace::Options::of(machine);
        (options.blocks_per_group, options.journal_blocks, options.inodes) =
            (100, self.journal, 24);
        (options.reservation, options.locality) = (self.delayed, self.delayed);
        (options.primitive, options.defrag_on_write) = (self.by, self.joins);
        options.settings.delayed_allocation = self.delayed;
        options
    }
}

impl Kind for Ext4Like {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &self.options(machine))?;
        machine.flush()?;
        Ok(())
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &self.options(machine))?))
    }

    fn acts(&self) -> bool {
        true
    }

    fn act(&self, fs: &dyn FileSystem) -> Result<u64, Error> {
        Ok(fs.gather_free_space()?.blocks * fs.block_bytes())
    }
}

/// The one in the manner of Btrfs, with so few blocks for metadata.
struct BtrfsLike(u32);

impl BtrfsLike {
    fn options(&self, machine: &Machine) -> cow::Options {
        cow::Options { metadata_blocks: self.0, ..cow::Options::of(machine) }
    }
}

impl Kind for BtrfsLike {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        Cow::format(machine, &self.options(machine)).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(Cow::mount(machine, &self.options(machine))?))
    }

    fn shares(&self) -> bool {
        true
    }

    fn acts(&self) -> bool {
        true
    }

    fn act(&self, fs: &dyn FileSystem) -> Result<u64, Error> {
        Ok(fs.gather_free_space()?.blocks * fs.block_bytes())
    }
}

/// The one in the manner of F2FS.
struct F2fsLike;

impl F2fsLike {
    fn settings() -> Settings {
        Settings {
            segment_bytes: 16 * drives::SMALL_BLOCK,
            node_addresses: 8,
            cache_blocks: 64,
            dirty_blocks: 24,
            ..Settings::default()
        }
    }
}

impl Kind for F2fsLike {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        LogStructured::format(machine, &Self::settings()).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(LogStructured::mount(machine, &Self::settings())?))
    }
}

/// A file as a program knows it.
#[derive(Clone)]
struct File {
    id: FileId,
    size: u64,
    blocks: Vec<Token>,
}

struct Run<'a> {
    kind: &'a dyn Kind,
    machine: Machine,
    fs: Rc<dyn FileSystem>,
    files: BTreeMap<PathBuf, File>,
    random: Random,
    /// Calls that failed for lack of space.
    full: u64,
    synced: u64,
}

/// The most blocks of a file.
const BLOCKS: u64 = 160;

impl<'a> Run<'a> {
    fn new(kind: &'a dyn Kind, machine: Machine, seed: u64) -> Self {
        kind.format(&machine).expect("it is made");
        let fs = kind.mount(&machine).expect("it is mounted");
        let (files, random) = (BTreeMap::new(), Random(seed));
        Self { kind, machine, fs, files, random, full: 0, synced: 0 }
    }

    fn range(&mut self) -> ByteRange {
        let start = self.random.below(BLOCKS);
        let count = 1 + self.random.below((BLOCKS - start).min(24));
        ByteRange::at(start * self.fs.block_bytes(), count * self.fs.block_bytes())
    }

    /// One call; returns what it was, and the file that it may have changed in part if it failed.
    fn step(&mut self) -> (String, PathBuf, Result<(), Error>) {
        let path = Path::new("/").join(format!("f{}", self.random.below(14)));
        let fs = Rc::clone(&self.fs);
        let Some(file) = self.files.get(&path).cloned() else {
            let made = fs.create(&path).map(|id| {
                self.files.insert(path.clone(), File { id, size: 0, blocks: Vec::new() });
            });
            return ("create".into(), path, made);
        };
        let what = self.random.below(26);
        let done = match what {
            0..=8 => {
                let access = if what < 5 { Access::Buffered } else { Access::Direct };
                let range = self.range();
                self.write(&path, &file, range, access)
            }
            // Single blocks, far from each other.
            9..=11 => (0..8).try_for_each(|_| {
                let file = self.files[&path].clone();
                let block = fs.block_bytes();
                let range = ByteRange::at(self.random.below(BLOCKS) * block, block);
                self.write(&path, &file, range, Access::Direct)
            }),
            12 => {
                let bytes = self.random.below(BLOCKS * fs.block_bytes());
                fs.truncate(file.id, bytes).map(|()| self.truncated(&path, bytes))
            }
            13..=14 => {
                let range = self.range();
                fs.punch(file.id, range).map(|()| {
                    let block = fs.block_bytes();
                    let blocks = &mut self.files.get_mut(&path).expect("it").blocks;
                    let end = (range.end / block).min(blocks.len() as u64) as usize;
                    let start = (range.start / block).min(end as u64) as usize;
                    blocks[start..end].fill(0);
                })
            }
            15 => {
                let range = self.range();
                fs.allocate(file.id, range)
            }
            16 => fs.remove(&path).map(|()| _ = self.files.remove(&path)),
            17 => {
                let to = Path::new("/").join(format!("f{}", self.random.below(14)));
                fs.rename(&path, &to).map(|()| {
                    let moved = self.files.remove(&path).expect("it");
                    self.files.insert(to, moved);
                })
            }
            18 if self.kind.shares() => {
                let to = Path::new("/").join(format!("f{}", self.random.below(14)));
                if self.files.contains_key(&to) {
                    return ("nothing".into(), path, Ok(()));
                }
                fs.share(file.id, &to).map(|id| _ = self.files.insert(to, File { id, ..file }))
            }
            19 if self.kind.acts() => self.kind.act(&*fs).map(drop),
            20..=21 => self.relocate(&path),
            22 => fs.sync_file(file.id),
            23 => {
                fs.drop_caches();
                fs.close(file.id)
            }
            _ => self.sync(),
        };
        (format!("{what}"), path, done)
    }

    fn write(
        &mut self,
        path: &Path,
        file: &File,
        range: ByteRange,
        access: Access,
    ) -> Result<(), Error> {
        let token = self.machine.next_token();
        self.fs.write(file.id, range, access)?;
        let block = self.fs.block_bytes();
        let known = self.files.get_mut(path).expect("it");
        let (start, end) = ((range.start / block) as usize, range.end.div_ceil(block) as usize);
        known.blocks.resize(known.blocks.len().max(end), 0);
        known.size = known.size.max(range.end);
        for (n, at) in known.blocks[start..end].iter_mut().enumerate() {
            *at = token + n as u64;
        }
        Ok(())
    }

    fn truncated(&mut self, path: &Path, bytes: u64) {
        let end = bytes.div_ceil(self.fs.block_bytes()) as usize;
        let known = self.files.get_mut(path).expect("it");
        known.size = bytes;
        known.blocks.truncate(end);
    }

    /// Moves a file with the production planner and mover.
    fn relocate(&mut self, path: &Path) -> Result<(), Error> {
        let settings = Plan { policy: Policy::WholeFile, ..Plan::default() };
        let mut survey = Survey::of(&Seen(Rc::clone(&self.fs)), None).expect("a survey");
        survey.files.retain(|file| file.path == path);
        let plan = fragmend_plan::make(survey, &settings);
        let Some(device) = plan.devices.first().filter(|_| !plan.files.is_empty()) else {
            return Ok(());
        };
        let volume: Box<dyn Volume> = Box::new(Seen(Rc::clone(&self.fs)));
        let volumes = Volumes::from([(device.device, volume)]);
        let options = Apply { rate: Rate::Unlimited, free_floor_bytes: Some(0), ..Apply::DEFAULT };
        let (machine, stop) = (self.machine.clone(), AtomicBool::new(false));
        fragmend_apply::apply(&plan, volumes, &machine, &options, &stop, &mut |_| ())
            .map(drop)
            .map_err(|error| Error::Damaged(error.to_string()))
    }

    /// Syncs; after some the power is cut, which loses nothing then.
    fn sync(&mut self) -> Result<(), Error> {
        self.fs.sync()?;
        self.synced += 1;
        self.fs.check().map_err(Error::Damaged)?;
        if self.random.below(2) == 0 {
            self.machine.restart(self.random.below(300_000));
            self.fs = self.kind.mount(&self.machine)?;
            self.fs.check().map_err(Error::Damaged)?;
        }
        Ok(())
    }

    /// Compares all files with what programs know of them; that of `path` is taken as it is.
    fn compare(&mut self, besides: Option<&Path>) -> Result<(), String> {
        for (path, file) in &mut self.files {
            let size = self.fs.size(file.id).map_err(|e| format!("{path:?}: {e}"))?;
            let end = size.div_ceil(self.fs.block_bytes());
            let blocks = self.fs.content(file.id, 0..end).map_err(|e| e.to_string())?;
            if besides == Some(&**path) {
                (file.size, file.blocks) = (size, blocks);
                continue;
            }
            file.blocks.resize(end as usize, 0);
            if size != file.size || blocks != file.blocks {
                let at = blocks.iter().zip(&file.blocks).position(|(now, was)| now != was);
                return Err(format!("{path:?}: {size} bytes, not {}; block {at:?}", file.size));
            }
        }
        Ok(())
    }

    fn go(mut self, steps: usize) -> Result<Self, String> {
        for step in 0..steps {
            let (what, path, done) = self.step();
            let at = |why: String| format!("step {step}, {what} of {path:?}: {why}");
            let besides = match done {
                Ok(()) => None,
                Err(Error::NoSpace) => {
                    self.full += 1;
                    Some(&*path)
                }
                Err(error) => return Err(at(error.to_string())),
            };
            self.compare(besides).map_err(at)?;
        }
        Ok(self)
    }
}

/// What two files share stays shared when free space is gathered.
#[test]
fn gathering_free_space_unshares_nothing() {
    let kind = BtrfsLike(128);
    let mut run = Run::new(&kind, drives::small_ssd(0), 1);
    let (filler, shared) = (run.created("filler"), run.created("shared"));
    run.scatter(&filler, 0..60);
    run.scatter(&shared, 0..20);
    run.fs.share(run.files[&shared].id, Path::new("/other")).expect("it shares");
    run.fs.remove(&filler).expect("it is there");
    run.files.remove(&filler);
    run.fs.sync().expect("space");
    let free = run.fs.free_bytes().expect("its free space");
    run.fs.gather_free_space().expect("it is done");
    assert_eq!(run.fs.free_bytes(), Ok(free));
    run.is_durable();
}

/// A machine with an SSD of some 680 KiB whose defrag log has 50 entries at most.
fn tiny_log(_: u64) -> Machine {
    let unit = drives::SMALL_BLOCK as u32;
    let mut drive = drives::flash(unit, 16, 32);
    drive.geometry.flash_page_bytes = unit;
    drive.geometry.program_unit_bytes = unit;
    drive.geometry.stripe_unit_bytes = unit;
    drive.firmware.defrag_log_bytes = u64::from(2 * unit);
    let ssd = Ssd::with_content(&drive).expect("a consistent description");
    Machine::new(Box::new(ssd), true, drives::path())
}

impl Run<'_> {
    fn created(&mut self, name: &str) -> PathBuf {
        let path = Path::new("/").join(name);
        let id = self.fs.create(&path).expect("a new file");
        self.files.insert(path.clone(), File { id, size: 0, blocks: Vec::new() });
        path
    }

    /// Writes some blocks of a file, one by one.
    fn scatter(&mut self, path: &Path, blocks: impl Iterator<Item = u64>) {
        let block = self.fs.block_bytes();
        for at in blocks {
            let file = self.files[path].clone();
            let range = ByteRange::at(at * block, block);
            self.write(path, &file, range, Access::Direct).expect("space");
        }
    }

    /// All is as it should be, and durable.
    fn is_durable(&mut self) {
        self.fs.sync().expect("there is space");
        for is_cut in [false, true] {
            if is_cut {
                self.machine.restart(0);
                self.fs = self.kind.mount(&self.machine).expect("it is mounted");
            }
            self.fs.check().unwrap();
            self.compare(None).unwrap();
        }
    }
}

/// Files of many extents until there is no space for their metadata: a sync fails, and once most are removed, all is as if it had not.
#[test]
fn a_commit_without_space_for_metadata_changes_nothing() {
    let kind = BtrfsLike(24);
    let mut run = Run::new(&kind, drives::small_ssd(0), 1);
    let mut paths = Vec::new();
    while run.fs.sync().is_ok() {
        assert!(paths.len() < 14, "there is space for all");
        let path = run.created(&format!("f{}", paths.len()));
        run.scatter(&path, (0..40).map(|n| n * 7 % 40));
        paths.push(path);
    }
    assert_eq!(run.fs.sync(), Err(Error::NoSpace));
    run.compare(None).unwrap();
    for path in &paths[2..] {
        run.fs.remove(path).expect("it is there");
        run.files.remove(path);
    }
    run.is_durable();
}

/// A call that changes more blocks of metadata than the journal has: the sync fails, and after a call that takes it back nothing is lost.
#[test]
fn a_transaction_that_is_longer_than_the_journal_changes_nothing() {
    const LONG: u64 = 400;
    let kind = Ext4Like { by: COPY, journal: 16, joins: false, delayed: false };
    let mut run = Run::new(&kind, drives::small_ssd(0), 1);
    let (other, long) = (run.created("other"), run.created("long"));
    run.scatter(&other, (0..40).map(|n| n * 7 % 40));
    run.scatter(&long, (0..LONG).step_by(2));
    run.fs.sync().expect("each call is a transaction");
    let (id, block) = (run.files[&long].id, run.fs.block_bytes());
    run.fs.allocate(id, ByteRange::at(0, LONG * block)).expect("space");
    assert_eq!(run.fs.sync(), Err(Error::NoSpace));
    run.compare(None).unwrap();
    run.fs.truncate(id, 60 * block).expect("it is there");
    run.truncated(&long, 60 * block);
    run.is_durable();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().expect("a number"))
}

/// Runs of these seeds, or of those that the environment names.
fn runs(kind: &dyn Kind, machine: fn(u64) -> Machine, name: &str, seeds: Range<u64>) {
    let first = number("HOSTILE_SEED", seeds.start);
    let count = number("HOSTILE_RUNS", seeds.end - seeds.start);
    let (mut full, mut synced, mut wrong) = (0, 0, Vec::new());
    for seed in first..first + count {
        match Run::new(kind, machine(seed), seed).go(400) {
            Ok(run) => (full, synced) = (full + run.full, synced + run.synced),
            Err(why) => wrong.push(format!("seed {seed}: {why}")),
        }
    }
    println!("{name}: {full} calls found no space, {synced} syncs, {} runs wrong", wrong.len());
    wrong.truncate(5);
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

const COPY: Primitive = Primitive::Copy;
const EXCLUSIVE: Primitive = Primitive::Remap(Remap::EXCLUSIVE);
const SHARED: Primitive = Primitive::Remap(Remap { shared: true, or_copy: true });

#[test]
fn ext4_like() {
    for (journal, joins, delayed) in [(16, false, false), (16, true, true), (64, true, true)] {
        let kind = Ext4Like { by: COPY, journal, joins, delayed };
        runs(&kind, drives::small_ssd, &format!("{journal} {joins} {delayed}"), 1..5);
    }
}

#[test]
fn ext4_like_by_remaps() {
    for (by, journal, joins, delayed) in [
        (EXCLUSIVE, 64, true, true),
        (EXCLUSIVE, 16, true, false),
        (SHARED, 64, true, true),
        (SHARED, 24, false, false),
    ] {
        let kind = Ext4Like { by, journal, joins, delayed };
        let name = format!("{by:?} {journal} {joins} {delayed}");
        runs(&kind, drives::short_log, &name, 2..5);
        runs(&kind, tiny_log, &format!("{name}, tiny log"), 10..14);
    }
}

#[test]
fn btrfs_like() {
    for metadata in [16, 40, 128] {
        runs(&BtrfsLike(metadata), drives::small_ssd, &format!("{metadata}"), 1..5);
    }
}

#[test]
fn f2fs_like() {
    runs(&F2fsLike, drives::small_ssd, "segments", 1..9);
}
