//! XFS: the state of a file at an instant at which no other program had it open, for an exchange that is
//! refused once the file has changed.
//!
//! An exchange compares times, not bytes, and times are not enough: a fault on a mapped page sets them before
//! it takes the lock (`xfs_write_fault()`), so its store may come any time later; a direct write sets them
//! before it is on the device; and a program that opened the file by its handle sets none. So
//!
//! 1. a write lease is taken, which proves that no other program has the file open or mapped, and keeps it so.
//!    It is held until the last exchange of what was copied under it, or until a program waits for the file;
//!    then it is released at once, between two turns, and the sample with it.
//! 2. `XFS_IOC_START_COMMIT` notes the times of the file.
//! 3. A tick passes. A later change by the file's name, which breaks no lease, leaves other times, also where
//!    they are coarse: on Linux 6.12. Since 6.13 the sample itself ensures that.
//!
//! And as a second safeguard, should a lease not keep what it promises:
//!
//! 4. `XFS_IOC_COMMIT_RANGE` with the flag for a dry run locks all others out for a moment and waits for direct
//!    I/O in flight.
//!
//! What is read now is all that was ever written. Each part is written back before it is copied, which makes
//! the next store to a mapped page fault; the whole file is not written back, which would keep others out.
//!
//! Exchanging counts as writing to the file: it removes what makes a program privileged. Whether a file has
//! that is checked after (3): adding it later leaves other times.

use super::copying::TICK;
use super::errno::skip_of;
use super::hold::{self, alone, is_open_elsewhere};
use super::mounted::OpenFile;
use super::turns::{cut_off, is_on_disk, vacate};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::lease::Lease;
use fragmend_sys::priority::Prompt;
use fragmend_sys::same::Compare;
use fragmend_sys::signals::Unstopped;
use fragmend_sys::xfs;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a file that changes right away is sampled.
const TRIES: u32 = 3;

/// Why a file is not exchanged.
pub(super) const CHANGES: &str = "the file changes under the copy";
pub(super) const OTHERS: &str = "others have the file open";

/// The state of the file before some of it was copied; no other program has had it open since.
pub(super) struct Sampled {
    /// The index of the staged range.
    pub index: usize,
    pub sample: xfs::Sample,
    /// What was copied since. Earlier copies may be older than the sample.
    pub fresh: ByteRange,
    pub lease: Lease<'static>,
    /// Kept as long as the lease, and dropped after it.
    _unstopped: Unstopped,
    _prompt: Prompt,
}

/// Why there is no sample.
pub(super) enum NoSample {
    /// Something about the file.
    OfFile(Skip),
    /// The kernel failed where it also writes out the donor.
    OfDonor(Skip),
}

impl From<Skip> for NoSample {
    fn from(skip: Skip) -> Self {
        Self::OfFile(skip)
    }
}

/// Samples a file of whose staged range `index`, which begins at `first`, the block at `start` is to be
/// exchanged with that of `donor` at `at`. `held` is raised to the time for which the file was locked, if that
/// was longer. Ends once `go_on` returns false.
///
/// # Errors
/// Busy if others have it open, or it changes at every try; unsupported if an exchange would remove a privilege
/// from it.
pub(super) fn sample(
    file: &OpenFile,
    index: usize,
    (first, start): (u64, u64),
    (donor, at): (impl AsFd, u64),
    held: &mut Duration,
    go_on: impl Fn() -> bool,
) -> Result<Sampled, NoSample> {
    let (unstopped, prompt) = (Unstopped::begin(), Prompt::begin());
    let lease = alone(file, hold::TRIES).map_err(|e| match e.kind() {
        _ if is_open_elsewhere(&e) => Skip::new(SkipReason::Busy, OTHERS),
        io::ErrorKind::ResourceBusy => skip_of(e),
        _ => Skip::new(SkipReason::Unsupported, format!("no lease can be taken ({e})")),
    })?;
    // No other program truncates it while the lease is held.
    let size = file.size()?;
    if size <= start {
        return Err(cut_off().into());
    }
    // A dry run of a block in which either file ends is invalid to the kernel: there the block before is used,
    // which has moved already.
    let copied = rustix::fs::fstat(&donor).map_err(|e| skip_of(e.into()))?.st_size as u64;
    let is_whole = size - start >= file.block && copied.saturating_sub(at) >= file.block;
    let back = if is_whole { 0 } else { file.block.min(start - first) };
    // A dry run drops pages, too: so none of the block is cached then.
    let block = ByteRange::at(start - back, file.block);
    let mut tries = 1;
    loop {
        let sample = xfs::start_commit(&file.fd).map_err(skip_of)?;
        reached(Point::Sampled);
        std::thread::sleep(TICK);
        if let Some(what) = would_lose(file)? {
            let why = format!("an exchange would take {what} away from it");
            return Err(Skip::new(SkipReason::Unsupported, why).into());
        }
        let goes_on = || !lease.is_wanted() && go_on();
        let mut compare = Compare::default();
        if !is_on_disk(&mut compare, file, block, goes_on)?
            || !vacate(&mut compare, file, block, goes_on)?
        {
            return Err(Skip::new(SkipReason::Busy, OTHERS).into());
        }
        let started = Instant::now();
        let (n, at) = (block.len(), at - back);
        let quiet = xfs::would_commit(&file.fd, block.start, &donor, at, n, sample);
        *held = started.elapsed().max(*held);
        match quiet.map_err(skip_of_dry_run) {
            Ok(()) => {
                let fresh = ByteRange::at(start, 0);
                let (_unstopped, _prompt) = (unstopped, prompt);
                return Ok(Sampled { index, sample, fresh, lease, _unstopped, _prompt });
            }
            Err(skip) if skip.reason == SkipReason::Busy && tries < TRIES => tries += 1,
            Err(skip) if skip.reason == SkipReason::Busy => {
                return Err(Skip::new(SkipReason::Busy, CHANGES).into());
            }
            Err(skip) if skip.reason == SkipReason::Unsupported => return Err(skip.into()),
            Err(skip) => return Err(NoSample::OfDonor(skip)),
        }
    }
}

/// What the kernel calls invalid is due to where the files end, and no failure of the donor, which was not
/// written for it.
fn skip_of_dry_run(error: io::Error) -> Skip {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) => {
            let why = format!("an exchange of it is invalid to the kernel ({error})");
            Skip::new(SkipReason::Unsupported, why)
        }
        _ => skip_of(error),
    }
}

/// The privilege that a write to this file removes (`file_remove_privs()`, fs/inode.c).
fn would_lose(file: &OpenFile) -> Result<Option<&'static str>, Skip> {
    if rustix::fs::fgetxattr(&file.fd, c"security.capability", &mut [0; 64]).is_ok() {
        return Ok(Some("its capabilities (security.capability)"));
    }
    let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    // A process that may set such bits on any file keeps them.
    let may_keep = || {
        let own = rustix::thread::capabilities(None);
        own.is_ok_and(|sets| sets.effective.contains(CapabilitySet::FSETID))
    };
    let privileged = mode.contains(Mode::SUID) || mode.contains(Mode::SGID | Mode::XGRP);
    Ok((privileged && !may_keep()).then_some("its set-user-id or set-group-id bit"))
}
