//! `FIDEDUPERANGE` (linux/fs.h, ioctl_fideduperange(2)): makes a range of one file share the
//! blocks of another, if and only if both hold the same bytes.
//!
//! The kernel locks both files against writers and mapped stores, writes back dirty pages, compares
//! byte for byte, and remaps; on any difference it does nothing.
//!
//! If it stops half way (XFS: an error after the first extents, `xfs_file_remap_range()`), it reports
//! success for all of it: `vfs_dedupe_file_range()` (fs/remap_range.c) returns the requested length. So
//! the extents of both ranges are compared afterwards.

use crate::fiemap::{Fiemap, Mapped, flags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The most that every kernel accepts in one call, in bytes (`MAX_DEDUPE_LENGTH` of Btrfs).
pub const LONGEST: u64 = 16 << 20;

const FIDEDUPERANGE: libc::c_ulong = 0xC018_9436;
const FILE_DEDUPE_RANGE_DIFFERS: i32 = 1;

/// `struct file_dedupe_range` with one `struct file_dedupe_range_info`.
#[repr(C)]
struct DedupeRange {
    src_offset: u64,
    src_length: u64,
    dest_count: u16,
    reserved: [u16; 3],
    dest_fd: i64,
    dest_offset: u64,
    bytes_deduped: u64,
    status: i32,
    info_reserved: u32,
}

const _: () = assert!(size_of::<DedupeRange>() == 56);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// This many bytes, from the start of the range, were found to be shared afterwards. Less than all of it if
    /// the kernel stopped half way, or another program has written since.
    Bytes(u64),
    /// The files differ somewhere in the range: nothing was done.
    Differs,
}

/// Makes `length` bytes of `file` at `offset` share the blocks of `source` at `source_offset`.
/// All three are multiples of the block size, or reach to the end of both files.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no shared extents, `EINVAL` for files that
/// must not share (checksummed with unchecksummed, unaligned ranges), `EPERM` for a file that the
/// caller may not write, `ETXTBSY` for a swap file.
pub fn share(
    source: impl AsFd,
    source_offset: u64,
    file: impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<Shared> {
    let (source, file) = (source.as_fd(), file.as_fd());
    let mut arg = DedupeRange {
        src_offset: source_offset,
        src_length: length,
        dest_count: 1,
        reserved: [0; 3],
        dest_fd: file.as_raw_fd().into(),
        dest_offset: offset,
        bytes_deduped: 0,
        status: 0,
        info_reserved: 0,
    };
    // SAFETY: FIDEDUPERANGE reads and writes the header and `dest_count` = 1 entry: exactly this
    // 56-byte structure.
    let rc = unsafe { libc::ioctl(source.as_raw_fd(), FIDEDUPERANGE, &raw mut arg) };
    let failed = (rc < 0).then(io::Error::last_os_error);
    match answer(failed, arg.status, arg.bytes_deduped, length)? {
        Shared::Bytes(told) => {
            shared_bytes(source, source_offset, file, offset, told).map(Shared::Bytes)
        }
        differs => Ok(differs),
    }
}

/// Interprets status and bytes of a call about `length` bytes.
fn answer(failed: Option<io::Error>, status: i32, bytes: u64, length: u64) -> io::Result<Shared> {
    if let Some(error) = failed {
        return Err(error);
    }
    match status {
        FILE_DEDUPE_RANGE_DIFFERS => Ok(Shared::Differs),
        _ if status < 0 => Err(io::Error::from_raw_os_error(status.saturating_neg())),
        0 if bytes <= length => Ok(Shared::Bytes(bytes)),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the kernel's answer means nothing (status {status}, {bytes} of {length} bytes)"
            ),
        )),
    }
}

/// How many of `length` bytes of `file` at `offset` have the same physical blocks as those of `source`
/// at `source_offset`, from the start and without a gap.
///
/// # Errors
/// Those of [`Fiemap::for_each`].
pub fn shared_bytes(
    source: impl AsFd,
    source_offset: u64,
    file: impl AsFd,
    offset: u64,
    length: u64,
) -> io::Result<u64> {
    let mut space = Fiemap::default();
    let mut places = |file: BorrowedFd, range: Range<u64>| -> io::Result<Vec<Mapped>> {
        let mut found = Vec::new();
        space.for_each(file, range.clone(), false, |e| found.extend(within(e, &range)))?;
        Ok(found)
    };
    let here = places(file.as_fd(), offset..offset.saturating_add(length))?;
    let there = places(source.as_fd(), source_offset..source_offset.saturating_add(length))?;
    Ok(alike(&here, &there).min(length))
}

/// The part of an extent that is in `range`, relative to its start; `None` without a physical address.
fn within(e: Mapped, range: &Range<u64>) -> Option<Mapped> {
    let nowhere = flags::UNKNOWN | flags::DELALLOC | flags::UNWRITTEN | flags::DATA_INLINE;
    let start = e.logical.max(range.start);
    let end = e.logical.saturating_add(e.length).min(range.end);
    (start < end && e.flags & nowhere == 0).then(|| Mapped {
        logical: start - range.start,
        physical: e.physical.wrapping_add(start - e.logical),
        length: end - start,
        flags: e.flags,
    })
}

/// How far two lists of extents have the same physical blocks, from 0 on.
fn alike(here: &[Mapped], there: &[Mapped]) -> u64 {
    let place = |all: &[Mapped], at: u64| {
        let e = all.iter().find(|e| e.logical <= at && at - e.logical < e.length)?;
        Some((e.physical.wrapping_add(at - e.logical), e.length - (at - e.logical)))
    };
    let mut at = 0;
    while let (Some((one, rest)), Some((other, more))) = (place(here, at), place(there, at))
        && one == other
    {
        at += rest.min(more);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_says_to_have_done_counts() {
        let failed = |code| Some(io::Error::from_raw_os_error(code));
        assert!(matches!(answer(None, 0, 8192, 8192), Ok(Shared::Bytes(8192))));
        assert!(matches!(answer(None, 0, 4096, 8192), Ok(Shared::Bytes(4096))));
        assert!(matches!(answer(None, 0, 0, 8192), Ok(Shared::Bytes(0))));
        assert!(matches!(answer(None, 1, 0, 8192), Ok(Shared::Differs)));
        let code = |answer: io::Result<Shared>| answer.unwrap_err().raw_os_error();
        assert_eq!(code(answer(None, -libc::EPERM, 8192, 8192)), Some(libc::EPERM));
        assert_eq!(code(answer(failed(libc::EINVAL), 0, 8192, 8192)), Some(libc::EINVAL));
        assert_eq!(code(answer(failed(libc::EINTR), 1, 0, 8192)), Some(libc::EINTR));
        for (status, bytes) in [(0, 8193), (0, u64::MAX), (2, 8192), (i32::MAX, 0)] {
            let strange = answer(None, status, bytes, 8192).unwrap_err();
            assert_eq!(strange.kind(), io::ErrorKind::InvalidData, "{status}");
        }
        assert!(answer(None, i32::MIN, 0, 8192).is_err());
    }

    #[test]
    fn what_lies_elsewhere_is_not_shared() {
        let at = |logical, physical, length| Mapped { logical, physical, length, flags: 0 };
        let donor = [at(0, 1000, 100)];
        assert_eq!(alike(&[at(0, 1000, 100)], &donor), 100);
        assert_eq!(alike(&[at(0, 1000, 30), at(30, 1030, 70)], &donor), 100);
        assert_eq!(alike(&[at(0, 1000, 30), at(30, 2030, 70)], &donor), 30);
        assert_eq!(alike(&[at(0, 1000, 30), at(40, 1040, 60)], &donor), 30);
        assert_eq!(alike(&[at(10, 1010, 90)], &donor), 0);
        assert_eq!((alike(&[], &donor), alike(&donor, &[])), (0, 0));
    }

    #[test]
    fn extents_count_as_far_as_they_are_in_the_range() {
        let e = Mapped { logical: 100, physical: 5000, length: 50, flags: 0 };
        let part = |range| within(e, &range).map(|e| (e.logical, e.physical, e.length));
        assert_eq!(part(0..1000), Some((100, 5000, 50)));
        assert_eq!(part(110..120), Some((0, 5010, 10)));
        assert_eq!((part(0..100), part(150..200)), (None, None));
        let delayed = Mapped { flags: flags::DELALLOC, ..e };
        assert_eq!(within(delayed, &(0..1000)), None);
        let odd = Mapped { logical: u64::MAX - 1, physical: u64::MAX, length: 9, flags: 0 };
        assert_eq!(within(odd, &(0..1000)), None);
    }
}
