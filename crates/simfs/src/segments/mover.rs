//! A file that is open for relocation, and what moves it, in the manner of F2FS: blocks are written to the cold log in the order of
//! their file, and a checkpoint makes that durable.
//!
//! **What is on the drive if power fails.** While blocks are written, and until the checkpoint is durable, the last checkpoint and the
//! nodes of fsyncs refer to the old blocks, which are held. The checkpoint flushes the new blocks before it refers to them. Between
//! the two, an fsync of the file by another program writes the new addresses behind a flush of its own. So each block is in its old or
//! its new place, with the same bytes.
//!
//! A range moves as a whole. It is written where the log has space for it in one run, if there is such space; a log that would have to
//! break it continues in other sections, and the rest of its section is left to the cleaner.

use super::node::is_place;
use super::state::{LogKind, State};
use super::{LogStructured, Primitive};
use crate::error::Error;
use crate::readahead::blocks_of;
use fragmend_apply::Environment;
use fragmend_apply::drive::{self, ByGroup, File, Job, Mover, Step, by_group};
use fragmend_layout::{
    ByteRange, Extent, FileId, Layout, Movable, Pace, Settled, Skip, SkipReason, Target, Terms,
    Underway,
};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A file, open for relocation.
pub(super) struct Open<'a> {
    file: OpenFile<'a>,
    mover: ToLog<'a>,
}

/// A file of a mounted file system.
pub(super) struct OpenFile<'a> {
    fs: &'a LogStructured,
    id: FileId,
}

/// Bytes of the largest group that one checkpoint makes durable, unless it is one range: F2FS's engine has the same.
const SEGMENT: u64 = 2 << 20;

/// The same where the drive copies, which needs neither memory nor the link: a zone of InDeF's drive.
const ZONE: u64 = 32 << 20;

/// Moves ranges to the cold log.
struct ToLog<'a> {
    fs: PhantomData<&'a LogStructured>,
    primitive: Primitive,
    ranges: Vec<ByteRange>,
    /// The fragments that each range was to be in.
    staged: Vec<u64>,
}

impl<'a> Open<'a> {
    pub fn new(fs: &'a LogStructured, id: FileId, primitive: Primitive) -> Self {
        let mover = ToLog { fs: PhantomData, primitive, ranges: Vec::new(), staged: Vec::new() };
        Self { file: OpenFile { fs, id }, mover }
    }
}

impl OpenFile<'_> {
    fn inode(&self) -> Result<u32, Skip> {
        Ok(self.fs.inode(self.id)?)
    }

    fn blocks(&self, range: ByteRange) -> Range<u64> {
        blocks_of(range, File::block_bytes(self))
    }
}

impl LogStructured {
    /// Reads what of a range is not in the page cache, block by block; each is asked for when the one before it has arrived. Other programs
    /// make their calls meanwhile.
    fn read_each_missing(&self, inode: u32, blocks: Range<u64>) -> Result<(), Error> {
        for block in blocks {
            self.state.borrow_mut().read_missing_block(inode, block)?;
            let _ = self.machine.now();
        }
        Ok(())
    }

    /// Waits for the copies that the drive is making. Other programs make their calls meanwhile.
    fn wait_for_copies(&self) {
        self.state.borrow().wait_for_copies();
        let _ = self.machine.now();
    }
}

impl File for OpenFile<'_> {
    fn block_bytes(&self) -> u64 {
        self.fs.machine.block_bytes()
    }

    fn layout(&self, range: ByteRange) -> Result<Layout, Skip> {
        Ok(self.fs.layout_of(self.id, range)?)
    }
}

impl State {
    /// In how many fragments so many blocks would be, written to the cold log next.
    fn fragments_of(&self, blocks: u64) -> u64 {
        if self.run_for(blocks).is_some() {
            return 1;
        }
        let rest = blocks.saturating_sub(self.left_in_cold());
        u64::from(self.left_in_cold() > 0) + rest.div_ceil(self.geometry.section.into())
    }

    fn left_in_cold(&self) -> u64 {
        let log = self.logs[LogKind::Cold as usize];
        if log.is_open { (self.geometry.section - log.next).into() } else { 0 }
    }

    /// Where the cold log has space for so many blocks in one run: 0 if it just continues, else the number of adjacent free sections
    /// with which it begins anew.
    fn run_for(&self, blocks: u64) -> Option<u32> {
        let (log, left) = (self.logs[LogKind::Cold as usize], self.left_in_cold());
        let section = u64::from(self.geometry.section);
        let behind = blocks.saturating_sub(left).div_ceil(section) as u32;
        let last = log.section + behind;
        let continues = left > 0
            && last < self.geometry.sections
            && self.sections.are_free(log.section + 1, behind);
        if continues {
            return Some(0);
        }
        let count = blocks.div_ceil(section) as u32;
        let starts = 0..(self.geometry.sections + 1).saturating_sub(count);
        starts.into_iter().any(|first| self.sections.are_free(first, count)).then_some(count)
    }

    /// Lets the cold log continue where it has space for so many blocks in one run, if there is such space.
    fn begin_run(&mut self, blocks: u64) -> Result<(), Error> {
        if let Some(count) = self.run_for(blocks).filter(|count| *count > 0) {
            self.leave_section(LogKind::Cold)?;
            self.open_run(LogKind::Cold, count)?;
        }
        Ok(())
    }

    /// Moves a range of a file, which must not come to be in more fragments than `staged`. Returns how many of its blocks the drive
    /// itself has copied.
    fn relocate(
        &mut self,
        inode: u32,
        blocks: Range<u64>,
        staged: u64,
        primitive: Primitive,
    ) -> Result<u64, Skip> {
        let count = blocks.end - blocks.start;
        self.make_space(count)?;
        self.check_range(inode, blocks.clone())?;
        if self.fragments_of(count) > staged {
            let why = "the log has no space in so few fragments any more";
            return Err(Skip::new(SkipReason::NoSpace, why));
        }
        self.begin_run(count)?;
        match primitive {
            Primitive::InDevice => return Ok(self.copy_in_device(inode, blocks)?),
            Primitive::BlockByBlock | Primitive::ThroughHost => {
                self.read_missing(inode, blocks.clone())?;
            }
        }
        self.write_in_order(inode, blocks)?;
        Ok(0)
    }

    /// Writes blocks to the cold log, through the host.
    pub fn write_in_order(&mut self, inode: u32, blocks: Range<u64>) -> Result<(), Error> {
        let keeps = self.machine.keeps_content();
        let content = if keeps { self.content(inode, blocks.clone())? } else { Vec::new() };
        let start = blocks.start;
        let token = |block: u64| content.get((block - start) as usize).copied().unwrap_or(0);
        let mut rest = blocks.clone();
        while !rest.is_empty() {
            rest.start = self.write_some(inode, rest.clone(), LogKind::Cold, &token)?;
        }
        self.cache.clean(inode.into(), blocks);
        Ok(())
    }

    /// Checks that a file still has data in all of a range.
    fn check_range(&self, inode: u32, blocks: Range<u64>) -> Result<(), Skip> {
        let file = self.files.get(inode)?;
        if file.attributes.size.div_ceil(self.machine.block_bytes()) < blocks.end {
            return Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"));
        }
        let dirty = self.cache.dirty(inode.into(), blocks.clone());
        let is_dirty = |block: u64| dirty.iter().any(|range| range.contains(&block));
        let addresses = file.addresses(self.capacity, blocks.clone());
        let data = addresses.filter(|(block, address)| is_place(*address) || is_dirty(*block));
        if data.count() as u64 == blocks.end - blocks.start {
            return Ok(());
        }
        Err(Skip::new(SkipReason::LayoutChanged, "part of it holds no data now"))
    }
}

impl<'a> Mover for ToLog<'a> {
    type File = OpenFile<'a>;

    /// Finds out in how many fragments each range would be. No space is set apart: a log has it when it is written to.
    fn stage(&mut self, file: &OpenFile<'a>, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        let state = file.fs.state.borrow();
        let counts = ranges.iter().map(|range| {
            let blocks = file.blocks(*range);
            blocks.end - blocks.start
        });
        let all: u64 = counts.clone().sum();
        if state.free_blocks() < all {
            return Err(Skip::new(SkipReason::NoSpace, Error::NoSpace.to_string()));
        }
        self.ranges = ranges.to_vec();
        self.staged = counts.map(|count| state.fragments_of(count)).collect();
        Ok(self.staged.clone())
    }

    fn drive(&mut self, job: &Job<'_, OpenFile<'a>>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_group(self, job, pace)
    }

    /// Each group has been made durable by itself.
    fn settle(&mut self, _: &OpenFile<'a>) -> Result<(), Skip> {
        Ok(())
    }
}

impl<'a> ByGroup for ToLog<'a> {
    fn most(&self) -> u64 {
        if self.primitive == Primitive::InDevice { ZONE } else { SEGMENT }
    }

    /// Reads into the page cache what would otherwise be read while the file is locked.
    fn prepare(&mut self, file: &OpenFile<'a>, _: usize, part: ByteRange) -> Result<(), Skip> {
        let (inode, blocks) = (file.inode()?, file.blocks(part));
        if self.primitive == Primitive::ThroughHost {
            file.fs.state.borrow_mut().read_missing(inode, blocks)?;
        }
        Ok(())
    }

    /// Makes the group durable with one checkpoint.
    fn relocate(
        &mut self,
        file: &OpenFile<'a>,
        group: &[usize],
        stop: &AtomicBool,
    ) -> Vec<(usize, Step)> {
        let mut done: Vec<(usize, Step)> = Vec::new();
        for &index in group {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            done.push((index, self.relocate_range(file, index)));
        }
        file.fs.wait_for_copies();
        if done.iter().any(|(_, step)| step.moved > 0)
            && let Err(error) = file.fs.state.borrow_mut().checkpoint()
        {
            for (_, step) in &mut done {
                step.skip.get_or_insert_with(|| error.clone().into());
            }
        }
        done
    }
}

impl ToLog<'_> {
    fn relocate_range(&self, file: &OpenFile<'_>, index: usize) -> Step {
        let (range, staged) = (self.ranges[index], self.staged[index]);
        let began = file.fs.machine.now_ns();
        let moved = file.inode().and_then(|inode| {
            if self.primitive == Primitive::BlockByBlock {
                file.fs.read_each_missing(inode, file.blocks(range))?;
            }
            let mut state = file.fs.state.borrow_mut();
            state.relocate(inode, file.blocks(range), staged, self.primitive)
        });
        let in_device = match moved {
            Ok(in_device) => in_device,
            Err(skip) => return Step::none(skip),
        };
        let blocks = file.blocks(range);
        let through_host = blocks.end - blocks.start - in_device;
        let none = self.primitive == Primitive::InDevice && in_device == 0;
        let some = in_device > 0 && through_host > 0;
        let by = if none { Primitive::ThroughHost } else { self.primitive };
        Step {
            moved: range.len(),
            by: Some(by.name()),
            fallback: none.then(|| "all of it was dirty".into()),
            note: some.then(|| format!("{through_host} dirty blocks went through the host")),
            held: Duration::from_nanos(file.fs.machine.now_ns() - began),
            ..Step::default()
        }
    }
}

impl Underway for Open<'_> {
    fn layout(&mut self, range: ByteRange) -> Result<Layout, Skip> {
        File::layout(&self.file, range)
    }
}

impl Movable for Open<'_> {
    fn path(&self) -> Option<PathBuf> {
        let inode = self.file.inode().ok()?;
        Some(self.file.fs.state.borrow().files.get(inode).ok()?.attributes.path.clone())
    }

    fn size(&self) -> Result<u64, Skip> {
        let inode = self.file.inode()?;
        Ok(self.file.fs.state.borrow().files.get(inode)?.attributes.size)
    }

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        self.mover.accepts(parts)
    }

    fn need(&mut self, ranges: &[ByteRange]) -> Result<u64, Skip> {
        self.mover.need(&self.file, ranges)
    }

    fn is_dirty(&self, range: ByteRange) -> Option<bool> {
        let inode = self.file.inode().ok()?;
        let state = self.file.fs.state.borrow();
        Some(!state.cache.dirty(inode.into(), self.file.blocks(range)).is_empty())
    }

    fn write_back(&self, range: ByteRange, _: &AtomicBool) {
        let Ok(inode) = self.file.inode() else { return };
        let mut state = self.file.fs.state.borrow_mut();
        let Ok(log) = state.files.get(inode).map(|file| file.attributes.temperature.log()) else {
            return;
        };
        // What could not be written stays dirty, which the caller sees.
        let _ = state.write_back(inode, self.file.blocks(range), log);
    }

    fn relocate(
        &mut self,
        targets: &[Target],
        // Nothing is shared, and the space that it needs is what it has reported.
        _: &Terms,
        pace: &mut dyn Pace,
    ) -> Result<Settled, Skip> {
        drive::relocate(&mut self.mover, &self.file, targets, pace, |_| ())
    }
}
