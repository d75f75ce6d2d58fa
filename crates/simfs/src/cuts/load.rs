//! A load of programs' calls and moves that a seed determines, step by step, and what each step does to the model.

use super::model::Model;
use super::{Kind, Random, Seen};
use crate::error::Error;
use crate::file_system::{Access, FileSystem};
use fragmend_apply::{Options, Rate, Volumes};
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_plan::{Policy, Settings, Survey};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

/// Names in use.
const NAMES: u64 = 5;
/// The most blocks of a file.
const BLOCKS: u64 = 40;

/// A load.
pub(super) struct Load<'a> {
    pub fs: Rc<dyn FileSystem>,
    pub model: &'a mut Model,
    pub random: Random,
    kind: &'a dyn Kind,
    /// Bytes that were moved.
    pub moved_bytes: u64,
}

impl<'a> Load<'a> {
    pub fn new(
        kind: &'a dyn Kind,
        fs: Rc<dyn FileSystem>,
        model: &'a mut Model,
        seed: u64,
    ) -> Self {
        Self { fs, model, random: Random(seed), kind, moved_bytes: 0 }
    }

    fn name(&mut self) -> PathBuf {
        Path::new("/").join(format!("f{}", self.random.below(NAMES)))
    }

    /// A range of whole blocks of a file of at most `end` blocks; the last one may end inside a block.
    fn range(&mut self, end: u64) -> ByteRange {
        let start = self.random.below(end);
        let count = 1 + self.random.below((end - start).min(12));
        let block = self.fs.block_bytes();
        ByteRange::at(start * block, count * block)
    }

    /// Does one step. A step that meets a full file system may do a part of it.
    ///
    /// # Errors
    /// The power is cut.
    pub fn step(&mut self) -> Result<(), Error> {
        let done = self.any();
        match done {
            Err(Error::NoSpace) => {
                self.model.observe(&*self.fs);
                Ok(())
            }
            done if !self.fs.machine().is_on() => {
                Err(done.err().unwrap_or(Error::Drive(fragmend_flash::command::Refused::NoPower)))
            }
            done => done,
        }
    }

    fn any(&mut self) -> Result<(), Error> {
        let path = self.name();
        let Some(file) = self.model.at(&path) else {
            return self.create(&path);
        };
        if self.kind.moves_often() && self.random.below(3) == 0 {
            self.scatter(file)?;
            return if self.kind.acts() { self.act() } else { self.relocate(&path) };
        }
        match self.random.below(24) {
            0..=4 => self.write(file, BLOCKS, Access::Buffered),
            5..=6 => self.write(file, BLOCKS, Access::Direct),
            7..=8 => self.append(file),
            9 => self.scatter(file),
            10..=11 => self.sync_file(file),
            12 => {
                self.sync_file(file)?;
                self.fs.close(file)
            }
            13 => self.sync(),
            14..=15 => {
                let to = self.name();
                self.model.renames(&path, Some(&to));
                self.fs.rename(&path, &to)
            }
            16 => {
                self.model.renames(&path, None);
                self.fs.remove(&path)
            }
            17..=18 => self.punch(file),
            19 => self.truncate(file),
            20 => self.allocate(file),
            21 if self.kind.shares() => self.share(file),
            22 if self.kind.acts() => self.act(),
            _ => self.relocate(&path),
        }
    }

    fn create(&mut self, path: &Path) -> Result<(), Error> {
        self.model.creates(path);
        let file = self.fs.create(path)?;
        self.model.created(path, file);
        self.write(file, BLOCKS / 4, Access::Buffered)
    }

    fn write(&mut self, file: FileId, end: u64, access: Access) -> Result<(), Error> {
        let range = self.range(end);
        self.write_range(file, range, access)
    }

    /// Writes a range; on a file system that is full, perhaps not.
    fn write_range(&mut self, id: FileId, range: ByteRange, access: Access) -> Result<(), Error> {
        self.model.writes(id, range, self.fs.machine().next_token());
        self.fs.write(id, range, access)
    }

    fn append(&mut self, file: FileId) -> Result<(), Error> {
        let (size, block) = (self.model.size(file), self.fs.block_bytes());
        if size >= BLOCKS * block {
            return self.truncate(file);
        }
        let bytes = 1 + self.random.below(4 * block);
        self.write_range(file, ByteRange::at(size, bytes), Access::Buffered)
    }

    /// Writes the first blocks of a file one by one, the last one first, so that it is in fragments.
    fn scatter(&mut self, file: FileId) -> Result<(), Error> {
        let block = self.fs.block_bytes();
        self.model.punches(file, ByteRange { start: 0, end: 8 * block });
        self.fs.punch(file, ByteRange { start: 0, end: 8 * block })?;
        for n in (0..8).rev() {
            self.write_range(file, ByteRange::at(n * block, block), Access::Direct)?;
        }
        Ok(())
    }

    fn sync_file(&mut self, file: FileId) -> Result<(), Error> {
        self.fs.sync_file(file)?;
        self.model.synced(file);
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), Error> {
        self.fs.sync()?;
        self.model.all_synced();
        Ok(())
    }

    fn punch(&mut self, file: FileId) -> Result<(), Error> {
        let range = self.range(BLOCKS);
        self.model.punches(file, range);
        self.fs.punch(file, range)
    }

    fn truncate(&mut self, file: FileId) -> Result<(), Error> {
        let bytes = self.random.below(BLOCKS * self.fs.block_bytes());
        self.model.truncates(file, bytes);
        self.fs.truncate(file, bytes)
    }

    fn allocate(&mut self, file: FileId) -> Result<(), Error> {
        let range = self.range(BLOCKS);
        match self.fs.allocate(file, range) {
            Err(Error::Unsupported(_)) => Ok(()),
            done => done,
        }
    }

    fn share(&mut self, file: FileId) -> Result<(), Error> {
        let path = self.name();
        if self.model.at(&path).is_some() {
            return Ok(());
        }
        self.model.creates(&path);
        let other = self.fs.share(file, &path)?;
        self.model.shared(file, &path, other);
        Ok(())
    }

    fn act(&mut self) -> Result<(), Error> {
        self.moved_bytes += self.kind.act(&*self.fs)?;
        Ok(())
    }

    /// Moves a file with the production planner and mover, if it is in fragments. Nothing that programs see changes.
    fn relocate(&mut self, path: &Path) -> Result<(), Error> {
        let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
        let Ok(mut survey) = Survey::of(&Seen(Rc::clone(&self.fs)), None) else { return Ok(()) };
        survey.files.retain(|file| file.path == path);
        let plan = fragmend_plan::make(survey, &settings);
        if plan.files.is_empty() {
            return Ok(());
        }
        let options =
            Options { rate: Rate::Unlimited, free_floor_bytes: Some(0), ..Options::DEFAULT };
        let Some(device) = plan.devices.first() else { return Ok(()) };
        let volume: Box<dyn Volume> = Box::new(Seen(Rc::clone(&self.fs)));
        let volumes = Volumes::from([(device.device, volume)]);
        let machine = self.fs.machine().clone();
        let stop = AtomicBool::new(false);
        let applied = fragmend_apply::apply(&plan, volumes, &machine, &options, &stop, &mut |_| ());
        let summary = applied.map_err(|error| Error::Damaged(error.to_string()))?;
        self.moved_bytes += summary.moved_bytes;
        Ok(())
    }
}
