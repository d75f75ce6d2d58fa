//! The bytes of a range in its file: which are missing, and writing them durably.

use super::leased::{Leased, Phase, Seen, Time};
use super::record::Record;
use super::refused;
use crate::bytes::{read_at, write_at};
use crate::point::{Point, reached};
use fragmend_layout::{ByteRange, ExtentKind, Layout};
use fragmend_scan::fiemap;
use fragmend_sys::backoff::Backoff;
use fragmend_sys::cache;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::lease::Lease;
use rustix::fs::{FallocateFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How a file's range compares with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every byte is there.
    Whole,
    /// These parts, whole blocks, are holes or unwritten; every other byte is there.
    Missing(Vec<ByteRange>),
    /// The file has another size.
    Resized(u64),
    /// Other data begins here.
    Differs(u64),
    /// Other data is in the page cache here, and not on the device, which has refused it.
    Refused(u64),
}

/// Compares block by block, after writing back what is dirty. Only what a rewrite leaves counts as missing:
/// holes and unwritten space. What the page cache holds there does not matter: after a failed writeback it
/// still has data that never reached the disk. Written zeroes are data, and so is a block of which only a part
/// is as recorded: a rewrite writes whole blocks, and does not end inside one unless the machine ran out of
/// memory in that very moment.
///
/// `alone` is whether other programs are kept out. Then all is compared with the device and not with the page
/// cache, but for pages that the device may have refused, which are not dropped.
///
/// # Errors
/// When the file cannot be read, or not from the device.
pub(crate) fn judge(
    file: &OwnedFd,
    record: &Record,
    data: &[u8],
    alone: bool,
) -> io::Result<Verdict> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    if size != record.size {
        return Ok(Verdict::Resized(size));
    }
    let range = record.range;
    let layout = fiemap::layout_within(&mut Fiemap::default(), file, range, true)?;
    if let Some(at) = refused::other_than(file, range.start, data)? {
        return Ok(Verdict::Refused(at));
    }
    let forgotten = cache::forget(file, range.start..range.start + data.len() as u64, || true);
    if alone {
        forgotten?;
    }
    let mut now = vec![0; data.len()];
    if read_at(file, &mut now, range.start)? < data.len() {
        return Ok(Verdict::Resized(rustix::fs::fstat(file)?.st_size as u64));
    }
    let block = record.block.max(1) as usize;
    let mut missing: Vec<ByteRange> = Vec::new();
    for (index, (now, then)) in now.chunks(block).zip(data.chunks(block)).enumerate() {
        let at = ByteRange::at(range.start + (index * block) as u64, block as u64);
        if is_unwritten(&layout, at) {
            match missing.last_mut() {
                Some(last) if last.end == at.start => last.end = at.end,
                _ => missing.push(at),
            }
        } else if now != then {
            return Ok(Verdict::Differs(at.start));
        }
    }
    Ok(if missing.is_empty() { Verdict::Whole } else { Verdict::Missing(missing) })
}

/// Whether no block in `blocks` was ever written.
fn is_unwritten(layout: &Layout, blocks: ByteRange) -> bool {
    layout.within(blocks).all(|e| e.kind == ExtentKind::Unwritten)
}

/// Whether a part of a file holds no data, not even dirty pages.
///
/// # Errors
/// When the file system does not return the layout.
pub(crate) fn is_blank(file: &OwnedFd, part: ByteRange) -> io::Result<bool> {
    let layout = fiemap::layout_within(&mut Fiemap::default(), file, part, true)?;
    Ok(is_unwritten(&layout, part))
}

/// A file's time of modification, as records keep it.
pub(crate) fn mtime(file: &OwnedFd) -> io::Result<Time> {
    Ok(Seen::now(file)?.modified)
}

/// Sets the time of modification; the time of access stays.
pub(crate) fn set_mtime(file: &OwnedFd, (seconds, nanoseconds): Time) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// How often a lease is tried on a file that another program has open, and how long the first wait is: most
/// programs open a file for a moment only, and a program that is being started holds its parent's files until
/// it is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// Leases a file, if need be after some tries.
///
/// # Errors
/// As [`Lease::take`].
pub(crate) fn lease(file: &OwnedFd) -> io::Result<Lease<'_>> {
    let is_open = |e: &io::Error| e.kind() == io::ErrorKind::WouldBlock;
    Backoff::new(FIRST_WAIT, TRIES).retry(is_open, || Lease::take(file))
}

/// What [`put`] leaves to its caller.
pub(crate) trait Holder {
    /// Frees space; `false` when nothing more can be released.
    fn free_space(&mut self) -> bool {
        false
    }
    /// Waits for others to free space; `false` when it has waited long enough.
    fn wait_for_space(&mut self) -> bool {
        false
    }
}

/// A range, and the bytes that belong there.
#[derive(Clone, Copy)]
pub(crate) struct Fill<'a> {
    /// Whole blocks.
    pub range: ByteRange,
    /// The bytes for it, up to the end of the file.
    pub data: &'a [u8],
    /// The size of a block, in bytes.
    pub block: usize,
    /// Which of the bytes are missing, in whole blocks and in order.
    pub missing: &'a [Range<usize>],
}

/// The longest write between two checks of the lease. So much of another program's data can be overwritten if
/// this process is delayed between check and write for longer than the kernel lets others wait.
const LONGEST_WRITE: usize = 256 << 10;

/// Writes what is missing of `fill` into the file: allocates new space in one call, writes the bytes, those at the
/// end first (`leased.rs`), sets the time of modification, makes all of it durable, and reads all of the range back
/// from the device into `back`, which is at least as long.
///
/// # Errors
/// Any reason why a byte may not be durable; also that others may have opened the file, or truncated it: then
/// nothing more is written.
pub(crate) fn put(
    leased: Leased<'_>,
    fill: Fill<'_>,
    back: &mut [u8],
    holder: &mut dyn Holder,
) -> io::Result<()> {
    let Fill { range, data, .. } = fill;
    let file = leased.noting.file;
    // In a second try the end may have been lost.
    if leased.state.phase() == Phase::Ended {
        leased.state.is_in(Phase::Allocated);
    }
    let allocate = || {
        rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, range.start, range.len())?;
        leased.state.is_in(Phase::Allocated);
        Ok(())
    };
    loop {
        match leased.change(Point::Changing, allocate)? {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT) if holder.free_space() => {
                // The released space becomes free with the next commit; an error of this call shows later.
                let _ = rustix::fs::fsync(file);
                reached(Point::RoomMade);
            }
            Err(Errno::NOSPC | Errno::DQUOT) if holder.wait_for_space() => {}
            Err(e) => return Err(e.into()),
        }
    }
    reached(Point::Allocated);
    write(leased, fill)?;
    leased.set_time()?;
    reached(Point::Written);
    rustix::fs::fsync(file)?;
    reached(Point::Synced);
    if !is_on_device(file, range, data, back)? {
        if is_truncated(&back[..data.len()], fill) {
            return Err(leased.changed("others have truncated it"));
        }
        leased.alone()?;
        return Err(io::Error::other("what was read back is not what was written"));
    }
    leased.alone()?;
    reached(Point::Compared);
    Ok(())
}

/// Writes what is missing, from the end to the beginning.
fn write(leased: Leased<'_>, fill: Fill<'_>) -> io::Result<()> {
    let Fill { range, data, block, missing } = fill;
    let longest = (LONGEST_WRITE / block * block).max(block);
    let mut left: usize = missing.iter().map(Range::len).sum();
    let half = left / 2 / block * block;
    // Where the end is not missing, it is there.
    if missing.last().is_some_and(|last| last.end < data.len()) {
        leased.state.is_in(Phase::Ended);
    }
    for part in missing.iter().rev() {
        let mut end = part.end;
        while end > part.start {
            if left == half {
                reached(Point::HalfWritten);
            }
            let most = if left > half { longest.min(left - half) } else { longest };
            // Whole blocks, but for the end of the file.
            let begin = end.saturating_sub(most).next_multiple_of(block).max(part.start);
            let write =
                || write_at(leased.noting.file, &data[begin..end], range.start + begin as u64);
            leased.change(Point::Writing, write)??;
            leased.state.is_in(Phase::Ended);
            (left, end) = (left - (end - begin), begin);
        }
    }
    Ok(())
}

/// Whether what was read back is as written up to a place within the last block, and zero from there: so a
/// truncation looks that frees no block. A device that has lost the last sectors may look like that, too.
fn is_truncated(back: &[u8], fill: Fill<'_>) -> bool {
    let Fill { data, block, .. } = fill;
    let last = data.len().saturating_sub(1) / block * block;
    let same = back.iter().zip(data).take_while(|(now, then)| now == then).count();
    (last + 1..data.len()).contains(&same) && back[same..].iter().all(|byte| *byte == 0)
}

/// Whether the device has these bytes in whole blocks of a file that was just synced: all of them are written,
/// and are the same when read past the page cache. That `fsync` succeeds does not prove it: `fsync` reports a
/// failed writeback once.
///
/// # Errors
/// When the device cannot be read.
pub(crate) fn is_on_device(
    file: &OwnedFd,
    range: ByteRange,
    data: &[u8],
    back: &mut [u8],
) -> io::Result<bool> {
    cache::forget(file, range.start..range.start + data.len() as u64, || true)?;
    let layout = fiemap::layout_within(&mut Fiemap::default(), file, range, true)?;
    let written = layout.within(range).filter(|e| e.kind != ExtentKind::Unwritten);
    // Read in any case: the caller looks at what is there.
    let now = &mut back[..data.len()];
    let is_whole = read_at(file, now, range.start)? == data.len() && now == data;
    Ok(is_whole && written.map(|e| e.length).sum::<u64>() == range.len())
}
