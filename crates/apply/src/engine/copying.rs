//! Copy into a donor, then have the kernel take it over: for file systems that share or exchange
//! extents (XFS, Btrfs).
//!
//! A part of the file (F) is read, written into the donor's new space (D), and waited for until
//! it is on the device; then both are handed to the kernel, which takes D's space for F only if F
//! still holds what was copied. Nobody is locked out while the copy is made.
//!
//! - [`TakeOver::Share`], `FIDEDUPERANGE`: the kernel locks both files against writers and mapped
//!   stores, writes back, compares byte for byte, and makes F share D's blocks; on a difference it
//!   does nothing. When D is closed, F is their only owner.
//! - [`TakeOver::Exchange`], `XFS_IOC_COMMIT_RANGE`: the kernel exchanges both mappings, unless F
//!   has changed since it was sampled. The sample comes first, then a write-back, which makes
//!   mapped pages fault, and so be noticed, when they are stored to; then the copy.
//!
//! Crash argument. If power fails
//!
//! - before the remapping is durable: F has its old blocks, untouched and still its own. D was
//!   never linked, and recovery frees what it held.
//! - after: F has D's blocks. Their bytes were written before the remapping began, and the commit
//!   that makes it durable (XFS: the log write, preceded by a flush; Btrfs: the super block,
//!   preceded by a flush) makes them durable first.
//! - in the middle of a range: an exchange is one logged operation, so the range is in one of the
//!   two states as a whole; sharing goes stretch by stretch, so each stretch is.
//! - after D is closed: the old blocks are free, and reused only once that is durable.

use super::donor::{Space, Stage};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::{Mover, primitive};
use crate::bytes::{read_at, write_at};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Extent, Moves, Relocated, Skip, SkipReason};
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::{cache, xfs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a range that changed under its copy is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// Times of files may be as coarse as the slowest kernel's tick (100 Hz): a change in the tick of
/// the sample would not show.
pub(super) const TICK: Duration = Duration::from_millis(11);

/// How the donor's space becomes the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// `FIDEDUPERANGE`: fails only if the range itself is written to.
    Share,
    /// `XFS_IOC_COMMIT_RANGE`: fails if the file is written to anywhere.
    Exchange {
        /// Then share it, where the file system can do that.
        or_share: bool,
    },
}

/// Copies ranges of one file.
pub(super) struct Copying {
    how: TakeOver,
    /// Gives an empty donor what it needs to be the file's equal.
    prepare: Prepare,
    space: Space,
    stage: Option<Stage>,
    /// What the file was like before any of it was copied.
    sample: Option<xfs::Sample>,
    /// When it was last changed then, and its size in bytes.
    state: State,
    /// Per staged range, where in the file its copy ends.
    ends: Vec<u64>,
    buffer: Vec<u8>,
}

/// See [`Copying::prepare`].
pub(super) type Prepare = fn(&OpenFile, &OwnedFd) -> Result<(), Skip>;

impl Copying {
    /// One that takes space over in this way from donors that are made in that way.
    pub fn new(how: TakeOver, space: Space, prepare: Prepare) -> Self {
        Self {
            how,
            prepare,
            space,
            stage: None,
            sample: None,
            state: State::default(),
            ends: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Samples the file, so that every change from now on shows.
    fn sample(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.state = State::of(file)?;
        if let TakeOver::Exchange { .. } = self.how {
            self.sample = Some(xfs::start_commit(&file.fd).map_err(skip_of)?);
            reached(Point::Sampled);
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Copies a part to its place in the donor, and sends it on its way to the device.
    fn copy(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Result<(), Skip> {
        let (donor, at) = Stage::place(&self.stage, index, part)?;
        cache::write_and_wait(&file.fd, part.start..part.end).map_err(skip_of)?;
        self.buffer.resize(part.len() as usize, 0);
        let read = read_at(&file.fd, &mut self.buffer, part.start).map_err(skip_of)?;
        if read == 0 {
            return Ok(()); // the file ends before it now
        }
        write_at(donor, &self.buffer[..read], at).map_err(skip_of)?;
        let end = at + read as u64;
        if end < at + part.len() {
            // Where the file ends inside a block, the kernel wants the donor to end with it. No
            // other range's space lies behind this one's.
            rustix::fs::ftruncate(donor, end).map_err(|e| skip_of(e.into()))?;
        }
        if let Some(copied) = self.ends.get_mut(index) {
            *copied = part.start + read as u64;
        }
        cache::start_writeback(donor, at..end).map_err(skip_of)
    }

    /// Has the kernel take a copied range over.
    fn take_over(
        &self,
        file: &OpenFile,
        index: usize,
        range: ByteRange,
        done: &mut Relocated,
    ) -> Result<(), Skip> {
        let (donor, at) = Stage::place(&self.stage, index, range)?;
        let changed = || Err::<&str, _>(Skip::new(SkipReason::Busy, "written to under the copy"));
        let end = range.end.min(file.size()?);
        if end <= range.start {
            return Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"));
        }
        // The file is longer or shorter than its copy.
        if self.ends.get(index) != Some(&end) {
            return changed().map(drop);
        }
        let length = end - range.start;
        // Before anybody is locked out.
        cache::write_and_wait(donor, at..at + length).map_err(skip_of)?;
        reached(Point::Filled);
        let started = Instant::now();
        // Safe to crash before, in and after either call: see the head of this file.
        let exchanged = match (self.how, self.sample) {
            (TakeOver::Exchange { or_share }, Some(sample)) => {
                let done = xfs::commit_range(&file.fd, range.start, donor, at, length, sample);
                match done.map_err(skip_of) {
                    Err(skip) if skip.reason == SkipReason::Busy && or_share => None,
                    Err(skip) if skip.reason == SkipReason::Busy => Some(changed()),
                    other => Some(other.map(|()| primitive::COMMIT_RANGE)),
                }
            }
            _ => None,
        };
        if exchanged.is_none() && self.how != TakeOver::Share {
            done.fallback = Some("the file changes under the copy".into());
        }
        let taken = exchanged.unwrap_or_else(|| {
            match dedupe::share(donor, at, &file.fd, range.start, length).map_err(skip_of)? {
                Shared::Bytes(bytes) if bytes == length => Ok(primitive::DEDUPE),
                Shared::Bytes(bytes) => {
                    let detail = format!("the kernel took over {bytes} of {length} bytes");
                    Err(Skip::new(SkipReason::Failed, detail))
                }
                Shared::Differs => changed(),
            }
        });
        done.held = done.held.max(started.elapsed());
        reached(Point::Moved);
        match taken {
            Ok(by) => {
                done.by = Some(by);
                Ok(())
            }
            // A range that lies behind the end for a moment is an invalid argument.
            Err(skip) if skip.reason == SkipReason::Failed && State::of(file)? != self.state => {
                changed().map(drop)
            }
            Err(skip) => Err(skip),
        }
    }
}

/// What shows that a file was cut off, also if it has grown again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    bytes: u64,
    changed: (i64, u64),
}

impl State {
    fn of(file: &OpenFile) -> Result<Self, Skip> {
        let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
        Ok(Self { bytes: stat.st_size as u64, changed: (stat.st_ctime, stat.st_ctime_nsec) })
    }
}

impl Mover for Copying {
    /// A file system may share a whole extent or none: Btrfs would write what is copied after the
    /// first part is shared elsewhere. And a range that changes under its copy stays as it was.
    /// Prepared together, so that the device works while the next is copied.
    fn moves(&self) -> Moves {
        Moves::Ranges { prepared_together: true }
    }

    /// What is shared, too: others keep the old blocks.
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip> {
        match parts.iter().any(|e| e.kind.is_encoded()) {
            true => Err(Skip::new(SkipReason::Encoded, "")),
            false => Ok(()),
        }
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.stage = None;
        self.ends = ranges.iter().map(|range| range.start).collect();
        // What is still delayed gets its place, and freed space becomes free.
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        let prepare = self.prepare;
        let (stage, pieces) = Stage::new(file, ranges, self.space, |donor| prepare(file, donor))?;
        self.stage = Some(stage);
        self.sample(file)?;
        reached(Point::Staged);
        Ok(pieces)
    }

    fn prepare(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Result<(), Skip> {
        self.copy(file, index, part)
    }

    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated::default();
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            let Err(skip) = self.take_over(file, index, part, &mut done) else {
                Stage::moved(&mut self.stage, index);
                return Relocated { moved: part.len(), ..done };
            };
            // Failed: a range that the file's new end has just cut is invalid to the kernel.
            let may_pass = matches!(skip.reason, SkipReason::Busy | SkipReason::Failed);
            if !may_pass || attempt == TRIES {
                return Relocated { skip: Some(skip), ..done };
            }
            std::thread::sleep(wait);
            wait *= 2;
            if let Err(skip) = self.sample(file).and_then(|()| self.copy(file, index, part)) {
                return Relocated { skip: Some(skip), ..done };
            }
        }
        done
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let Some(moved) = self.stage.take().and_then(Stage::close) else { return Ok(()) };
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        reached(Point::Settled);
        moved.restore_cache(file);
        Ok(())
    }
}
