//! Donors of a file that is swapped: with its size, its holes and its attributes, and new space for the rest.

use crate::donor::{DONORS, allocation_failed, unnamed};
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_layout::{ByteRange, Extent, Layout, Skip, SkipReason};
use fragmend_scan::fiemap;
use rustix::fs::{FallocateFlags, XattrFlags};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// The best of a few donors with the same holes, unwritten everywhere, and its layout.
pub(super) fn best(file: &OpenFile, layout: &Layout) -> Result<(OwnedFd, Layout), Skip> {
    // The ranges that have space, written or not.
    let runs: Vec<ByteRange> =
        ByteRange::joined(layout.extents().iter().map(Extent::range)).collect();
    let mut tried: Vec<(OwnedFd, Layout)> = Vec::new();
    let takes = runs.iter().map(|run| run.len()).sum::<u64>();
    while tried.len() < DONORS {
        // The space of earlier attempts counts as used.
        if !tried.is_empty() && file.free_bytes()? < takes + file.floor {
            break;
        }
        match new_donor(file, layout.size, &runs) {
            Ok(donor) => {
                let layout = fiemap::layout_of(&donor).map_err(skip_of)?;
                let best = layout.extents().len() <= runs.len();
                tried.push((donor, layout));
                if best {
                    break;
                }
            }
            // Earlier attempts may be what fills the disk: then the best of them is used.
            Err(skip) if tried.is_empty() => return Err(skip),
            Err(_) => break,
        }
    }
    let best = tried.into_iter().min_by_key(|(_, layout)| layout.extents().len());
    best.ok_or_else(|| Skip::new(SkipReason::NoSpace, ""))
}

/// An unnamed file of this size with space for `runs`. It has the file's owner, whose quota the
/// space counts against, and its extended attributes: the kernel swaps between equals only.
fn new_donor(file: &OpenFile, size: u64, runs: &[ByteRange]) -> Result<OwnedFd, Skip> {
    let donor = unnamed(file)?;
    let stat = |fd: &OwnedFd| rustix::fs::fstat(fd).map_err(|e| skip_of(e.into()));
    let (of_file, of_donor) = (stat(&file.fd)?, stat(&donor)?);
    if (of_file.st_uid, of_file.st_gid) != (of_donor.st_uid, of_donor.st_gid) {
        use rustix::fs::{Gid, Uid};
        let (uid, gid) = (Uid::from_raw(of_file.st_uid), Gid::from_raw(of_file.st_gid));
        // A caller that may not do this needs it only where there are quotas, and then the kernel refuses the
        // swap.
        let _ = rustix::fs::fchown(&donor, Some(uid), Some(gid));
    }
    // First of all: they decide how much space for extents the inode has.
    copy_attributes(&file.fd, &donor);
    rustix::fs::ftruncate(&donor, size).map_err(|e| skip_of(e.into()))?;
    for run in runs {
        rustix::fs::fallocate(&donor, FallocateFlags::KEEP_SIZE, run.start, run.len())
            .map_err(|e| allocation_failed(file, e))?;
    }
    Ok(donor)
}

/// Copies extended attributes as far as that is allowed: where one matters, the kernel refuses the swap.
fn copy_attributes(from: &OwnedFd, to: &OwnedFd) {
    /// `XATTR_LIST_MAX` and `XATTR_SIZE_MAX` (linux/limits.h).
    const LONGEST: usize = 65536;
    let (mut names, mut value) = (vec![0; LONGEST], vec![0; LONGEST]);
    let length = rustix::fs::flistxattr(from, &mut names).unwrap_or(0);
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if let Ok(length) = rustix::fs::fgetxattr(from, name, &mut value) {
            let _ = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}
