//! XFS: what a file was like at an instant at which nothing was on its way to it, for an exchange
//! that is refused once the file is not that any more.
//!
//! In this order:
//!
//! 1. `XFS_IOC_START_COMMIT` notes the times of the file.
//! 2. A tick passes. Who writes from here on leaves other times, also where they are coarse.
//! 3. `XFS_IOC_COMMIT_RANGE` with the flag for a dry run keeps everybody out for a moment and waits
//!    for direct I/O that is under way. A write that had set the times before (1) may reach the
//!    device long after: without this, the copy would have the old bytes, the exchange would not be
//!    refused, and the write would be lost, although it had succeeded.
//! 4. `fsync` writes back what is dirty, which makes mapped pages fault when they are stored to
//!    next, and a fault sets the times.
//!
//! What is read now is all that was ever written, or else the times are others.
//!
//! Exchanging counts as writing to the file: it takes away what makes a program privileged. Which
//! files have that is looked at after (1), for whoever adds it later sets the times, too.

use super::copying::TICK;
use super::errno::skip_of;
use super::mounted::OpenFile;
use crate::point::{Point, reached};
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::xfs;
use rustix::fs::Mode;
use rustix::thread::CapabilitySet;
use std::os::fd::AsFd;

/// How often a file that changes at once is sampled again.
const TRIES: u32 = 3;

/// Samples a file of which the block at `start` is to be exchanged with that of `donor` at `at`.
///
/// # Errors
/// Busy if it changes at every try; unsupported if an exchange would take something away from it.
pub(super) fn sample(
    file: &OpenFile,
    start: u64,
    donor: impl AsFd,
    at: u64,
) -> Result<xfs::Sample, Skip> {
    let mut tries = 1;
    loop {
        let sample = xfs::start_commit(&file.fd).map_err(skip_of)?;
        reached(Point::Sampled);
        if let Some(what) = would_lose(file)? {
            let why = format!("an exchange would take {what} away from it");
            return Err(Skip::new(SkipReason::Unsupported, why));
        }
        std::thread::sleep(TICK);
        let quiet = xfs::would_commit(&file.fd, start, &donor, at, file.block, sample);
        match quiet.map_err(skip_of) {
            Ok(()) => {
                rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
                return Ok(sample);
            }
            Err(skip) if skip.reason == SkipReason::Busy && tries < TRIES => tries += 1,
            Err(skip) => return Err(skip),
        }
    }
}

/// What a write to this file takes away from it (`file_remove_privs()`, fs/inode.c).
fn would_lose(file: &OpenFile) -> Result<Option<&'static str>, Skip> {
    if rustix::fs::fgetxattr(&file.fd, c"security.capability", &mut [0; 64]).is_ok() {
        return Ok(Some("its capabilities (security.capability)"));
    }
    let stat = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    // Whoever may set such bits on any file keeps them.
    let may_keep = || {
        let own = rustix::thread::capabilities(None);
        own.is_ok_and(|sets| sets.effective.contains(CapabilitySet::FSETID))
    };
    let privileged = mode.contains(Mode::SUID) || mode.contains(Mode::SGID | Mode::XGRP);
    Ok((privileged && !may_keep()).then_some("its set-user-id or set-group-id bit"))
}
