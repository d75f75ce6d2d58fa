//! The bytes of a range in its file: which are missing, and putting them there for good.

use super::note::Noting;
use super::privileges::Lost;
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

/// Compares block by block, after writing back what is dirty. Only what a rewrite leaves behind
/// counts as missing: holes and unwritten space, whatever is in the page cache there: where a
/// write-back has failed, it goes on showing what the disk never got. Written zeroes are data, and
/// so is a block of which only a part is as recorded: a rewrite writes whole blocks, and does not
/// end inside one unless the machine ran out of memory in that very moment.
///
/// `alone` is whether others are kept out: then nothing is compared with the page cache, but for what the
/// device may have refused: that is not dropped.
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

/// Whether nothing was ever written there.
fn is_unwritten(layout: &Layout, blocks: ByteRange) -> bool {
    layout.within(blocks).all(|e| e.kind == ExtentKind::Unwritten)
}

/// Whether a part of a file holds no data, not even dirty pages.
///
/// # Errors
/// When the file does not tell.
pub(crate) fn is_blank(file: &OwnedFd, part: ByteRange) -> io::Result<bool> {
    let layout = fiemap::layout_within(&mut Fiemap::default(), file, part, true)?;
    Ok(is_unwritten(&layout, part))
}

/// A file's time of modification, as records keep it.
pub(crate) fn mtime(file: &OwnedFd) -> io::Result<(i64, u32)> {
    let stat = rustix::fs::fstat(file)?;
    Ok((stat.st_mtime, stat.st_mtime_nsec as u32))
}

/// Sets it; the time of access stays.
pub(crate) fn set_mtime(file: &OwnedFd, (seconds, nanoseconds): (i64, u32)) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// How often a file that somebody has open is tried, and how long the first wait is: most look at
/// a file for a moment, and a program that is being started has all its parent's files until then.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// Leases a file, if need be after a moment.
///
/// # Errors
/// As [`Lease::take`].
pub(crate) fn lease(file: &OwnedFd) -> io::Result<Lease<'_>> {
    let is_open = |e: &io::Error| e.kind() == io::ErrorKind::WouldBlock;
    Backoff::new(FIRST_WAIT, TRIES).retry(is_open, || Lease::take(file))
}

/// Who puts bytes into a leased file.
pub(crate) trait Holder {
    /// The lease.
    fn lease(&self) -> &Lease<'_>;
    /// Notes what is done to the file.
    fn noting(&self) -> Noting<'_>;
    /// What could not be kept of what makes the file privileged.
    fn lost(&self) -> &Lost;
    /// Sets the time of modification as it is to be, once the bytes are written. That it cannot be
    /// set is no reason to lose them.
    fn settle_mtime(&self);
    /// Frees space; `false` when there is nothing more to give up.
    fn make_room(&mut self) -> bool {
        false
    }
}

/// What goes where.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// Whole blocks.
    pub range: ByteRange,
    /// The bytes for it, as far as the file reaches.
    pub data: &'a [u8],
    /// A block, in bytes.
    pub block: usize,
}

/// No more is written without asking for the lease: so much of what somebody else wrote can be
/// lost, when this process is held up between asking and writing for longer than others wait.
const LONGEST_WRITE: usize = 256 << 10;

/// Puts a piece into the file: new space in one call, the bytes, the time of modification, all of
/// it durable, and read back from the device into `back`, which is at least as long.
///
/// # Errors
/// Whatever keeps one byte from being there for certain; also that others may have got in: then
/// nothing more is written.
pub(crate) fn put(
    file: &OwnedFd,
    piece: Piece<'_>,
    back: &mut [u8],
    holder: &mut dyn Holder,
) -> io::Result<()> {
    let Piece { range, data, block } = piece;
    let allocate =
        || rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, range.start, range.len());
    loop {
        alone(holder)?;
        let allocated = holder.lost().keeping(file, || holder.noting().change(allocate));
        match allocated {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::DQUOT) if holder.make_room() => {
                // What was freed becomes free with the next commit; an error shows later.
                let _ = rustix::fs::fsync(file);
                reached(Point::RoomMade);
            }
            Err(e) => return Err(e.into()),
        }
    }
    reached(Point::Allocated);
    let half = data.len() / 2 / block * block;
    write(file, piece, 0..half, holder)?;
    reached(Point::HalfWritten);
    write(file, piece, half..data.len(), holder)?;
    holder.noting().change(|| holder.settle_mtime());
    reached(Point::Written);
    rustix::fs::fsync(file)?;
    reached(Point::Synced);
    if !is_on_device(file, range, data, back)? {
        return Err(io::Error::other("what was read back is not what was written"));
    }
    alone(holder)?;
    reached(Point::Compared);
    Ok(())
}

/// Whether others are still kept out.
fn alone(holder: &dyn Holder) -> io::Result<()> {
    if holder.lease().is_held() {
        Ok(())
    } else {
        Err(io::Error::other("it took too long, and others may have the file open"))
    }
}

/// Writes a part of a piece. Of what is done once others may have got in nothing is noted as ours.
fn write(
    file: &OwnedFd,
    piece: Piece<'_>,
    part: Range<usize>,
    holder: &dyn Holder,
) -> io::Result<()> {
    let longest = (LONGEST_WRITE / piece.block * piece.block).max(piece.block);
    for at in part.clone().step_by(longest) {
        let bytes = &piece.data[at..part.end.min(at + longest)];
        alone(holder)?;
        let _ = holder.noting().at_it();
        reached(Point::Writing);
        let write = || write_at(file, bytes, piece.range.start + at as u64);
        let written = holder.lost().keeping(file, write);
        alone(holder)?;
        let _ = holder.noting().settled();
        written?;
    }
    Ok(())
}

/// Whether the device has these bytes in whole blocks of a file that was just synced: all written
/// to, and the same when read past the page cache. That `fsync` succeeds does not tell: it reports
/// a failed write-back once.
///
/// # Errors
/// When the device cannot be asked.
pub(crate) fn is_on_device(
    file: &OwnedFd,
    range: ByteRange,
    data: &[u8],
    back: &mut [u8],
) -> io::Result<bool> {
    cache::forget(file, range.start..range.start + data.len() as u64, || true)?;
    let layout = fiemap::layout_within(&mut Fiemap::default(), file, range, true)?;
    let written = layout.within(range).filter(|e| e.kind != ExtentKind::Unwritten);
    let now = &mut back[..data.len()];
    Ok(written.map(|e| e.length).sum::<u64>() == range.len()
        && read_at(file, now, range.start)? == data.len()
        && now == data)
}
