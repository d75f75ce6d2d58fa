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
//! - in the middle of a range: it is in one of the two states where space is shared, and its parts
//!   up to some step are in the second and the rest in the first where it is exchanged.
//! - after D is closed: the old blocks are free, and reused only once that is durable.

use super::Mover;
use super::donor::{Space, Stage};
use super::errno::skip_of;
use super::mounted::OpenFile;
use crate::bytes::{read_at, write_at};
use fragmend_layout::{ByteRange, Relocated, Skip, SkipReason};
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::{cache, xfs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a part that changed under the copy is tried, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// How the donor's space becomes the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// `FIDEDUPERANGE`.
    Share,
    /// `XFS_IOC_COMMIT_RANGE`.
    Exchange,
}

/// Copies parts of one file.
pub(super) struct Copying {
    how: TakeOver,
    /// Gives an empty donor what it needs to be the file's equal.
    prepare: Prepare,
    space: Space,
    stage: Option<Stage>,
    buffer: Vec<u8>,
}

/// See [`Copying::prepare`].
pub(super) type Prepare = fn(&OpenFile, &OwnedFd) -> Result<(), Skip>;

impl Copying {
    /// One that takes space over in this way from donors that are made in that way.
    pub fn new(how: TakeOver, space: Space, prepare: Prepare) -> Self {
        Self { how, prepare, space, stage: None, buffer: Vec::new() }
    }

    /// Copies a part into its place in the donor, and waits until it is on the device. Gives the
    /// donor, the offset there, and what there was to copy: less than the part where the file ends.
    fn copy(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
    ) -> Result<(&OwnedFd, u64, ByteRange), Skip> {
        let (donor, at) = Stage::place(&self.stage, index, part)?;
        cache::write_and_wait(&file.fd, part.start..part.end).map_err(skip_of)?;
        self.buffer.resize(part.len() as usize, 0);
        let read = read_at(&file.fd, &mut self.buffer, part.start).map_err(skip_of)?;
        write_at(donor, &self.buffer[..read], at).map_err(skip_of)?;
        let copied = ByteRange::at(part.start, read as u64);
        if copied.len() < part.len() {
            // Where the file ends inside a block, the kernel wants the donor to end with it. No
            // other range's space lies behind this one's.
            rustix::fs::ftruncate(donor, at + copied.len()).map_err(|e| skip_of(e.into()))?;
        }
        cache::write_and_wait(donor, at..at + copied.len()).map_err(skip_of)?;
        Ok((donor, at, copied))
    }

    /// Copies a part and exchanges it.
    fn exchange(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        held: &mut Duration,
    ) -> Result<(), Skip> {
        let sample = xfs::start_commit(&file.fd).map_err(skip_of)?;
        let (donor, at, copied) = self.copy(file, index, part)?;
        let started = Instant::now();
        // Safe to crash before, in and after this call: see the head of this file.
        let done = xfs::commit_range(&file.fd, copied.start, donor, at, copied.len(), sample);
        *held = (*held).max(started.elapsed());
        done.map_err(skip_of)
    }

    /// Shares a range that was copied.
    fn share(
        &mut self,
        file: &OpenFile,
        index: usize,
        range: ByteRange,
        held: &mut Duration,
    ) -> Result<(), Skip> {
        let (donor, at) = Stage::place(&self.stage, index, range)?;
        let size = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?.st_size as u64;
        let length = range.end.min(size).saturating_sub(range.start);
        let started = Instant::now();
        // Safe to crash before, in and after this call: see the head of this file.
        let done = dedupe::share(donor, at, &file.fd, range.start, length);
        *held = (*held).max(started.elapsed());
        match done.map_err(skip_of)? {
            Shared::Bytes(bytes) if bytes == length => Ok(()),
            Shared::Bytes(bytes) => {
                let detail = format!("the kernel took over {bytes} of {length} bytes");
                Err(Skip::new(SkipReason::Failed, detail))
            }
            Shared::Differs => Err(Skip::new(SkipReason::Busy, "written to under the copy")),
        }
    }
}

impl Mover for Copying {
    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.stage = None;
        // What is still delayed gets its place, and freed space becomes free.
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        let prepare = self.prepare;
        let (stage, pieces) = Stage::new(file, ranges, self.space, |donor| prepare(file, donor))?;
        self.stage = Some(stage);
        Ok(pieces)
    }

    /// A file system may share a whole extent or none: Btrfs would write what is copied after the
    /// first part is shared elsewhere.
    fn moves_whole_ranges(&self) -> bool {
        self.how == TakeOver::Share
    }

    fn prepare(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Result<(), Skip> {
        self.copy(file, index, part).map(drop)
    }

    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated {
        let mut done = Relocated { moved: 0, held: Duration::ZERO, skip: None };
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            let moved = match self.how {
                TakeOver::Exchange => self.exchange(file, index, part, &mut done.held),
                TakeOver::Share => self.share(file, index, part, &mut done.held),
            };
            let Err(skip) = moved else {
                Stage::moved(&mut self.stage, index);
                done.moved = part.len();
                break;
            };
            if skip.reason != SkipReason::Busy || attempt == TRIES {
                done.skip = Some(skip);
                break;
            }
            std::thread::sleep(wait);
            wait *= 2;
            if self.how == TakeOver::Share
                && let Err(skip) = self.copy(file, index, part)
            {
                done.skip = Some(skip);
                break;
            }
        }
        done
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let Some(moved) = self.stage.take().and_then(Stage::close) else { return Ok(()) };
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        moved.restore_cache(file);
        Ok(())
    }
}
