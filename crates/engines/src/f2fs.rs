//! F2FS: `F2FS_IOC_DEFRAGMENT`, which writes a range anew at the end of a log.
//!
//! The kernel holds the file's lock while it marks the range's pages dirty and issues their writes, up to a
//! segment at a time. Moved data goes to the log for cold data, where ordinary writers of other files do not
//! write in between. A range in one extent the kernel leaves alone.
//!
//! Crash argument. A checkpoint makes durable what is moved, never an `fsync`: F2FS flushes the device once at
//! the end of an `fsync`, so a disk that writes in an order of its own may have the node blocks that recovery
//! rolls forward from, and not the data. (Tried: with an `fsync`, cuts within it lost what had moved.) If power
//! fails
//!
//! - before the checkpoint is complete: the last one's node blocks still name the old blocks. A block that was
//!   valid in the last checkpoint is not written again before the next one.
//! - after a checkpoint, whether this process or another one caused it: it waited for the moved pages, because
//!   the kernel marks them as it marks those that its cleaner moves, and flushed the device before its last
//!   block. Linux does so since 5.19 ("f2fs: fix to tag gcing flag on page during file defragment"); older
//!   kernels are refused unless forced, and nothing but the version distinguishes them.
//! - in the middle of a range: each block is in one of its two places, with the same bytes.
//!
//! Which programs are kept out. Another program's `fsync` of this file between the move and the checkpoint
//! would be as bad as one of this process. Therefore ranges are moved, a segment's worth at a time, and made
//! durable by one checkpoint, under a read lease: no program has the file open for writing, and one that opens
//! it for writing waits until the current step and the checkpoint are done, or, with `O_NONBLOCK`, gets an
//! error. Each step is on the device before the next one begins, so that the checkpoint waits for no more than
//! one step, and a program that opens the file, or a request to end, waits only shortly even on a slow disk.
//! The steps wait for data pages alone: no node block is written by that, and nothing becomes durable. A file
//! that others write is left alone, unless forced. Not promised: that no program syncs it through a descriptor
//! that only reads, in the very milliseconds of a power cut.
//!
//! There is no donor whose place could be compared before, and no way back. What is checked before is whether
//! enough segments are free for the log to continue in whole ones, and again before each step; where there are
//! not, F2FS may fill holes instead, and nothing is moved. A receipt reports a range's layout afterwards.

use super::errno::skip_of;
use super::mounted::OpenFile;
use super::warm::{drop_cached, is_cold};
use super::{Engine, Mover, Moves, primitive};
use crate::bytes::read_at;
use crate::point::{Point, reached};
use fragmend_apply::drive::{ByGroup, File, Job, Step, by_group};
use fragmend_layout::{ByteRange, Layout, Pace, Skip, SkipReason};
use fragmend_sys::backoff::Backoff;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::cache;
use fragmend_sys::f2fs::{SEGMENT, Segments, defragment, segments};
use fragmend_sys::handle;
use fragmend_sys::inode::flags;
use fragmend_sys::lease::Lease;
use fragmend_sys::mounts::Mount;
use fragmend_sys::process::version;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes for which the file is locked at once, unless they are in one extent.
const STEP: u64 = 256 << 10;

/// How often a move is tried while the file is being synced, and how long the first wait is.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(2);

/// The engine of one F2FS.
pub(super) struct F2fs {
    device: String,
    force: bool,
}

impl F2fs {
    /// Checks the kernel's version; `force` accepts any.
    ///
    /// # Errors
    /// Why the file system cannot promise what it must, or would only use up space.
    pub fn new(mount: &Mount, force: bool) -> Result<Self, String> {
        if mount.options.iter().any(|o| o.starts_with("checkpoint=disable")) {
            return Err("mounted with checkpoint=disable, where what is left behind stays occupied; remount it with checkpoint=enable".into());
        }
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy();
        if !force && !orders_moved_data(&release) {
            return Err(format!(
                "Linux {release} does not order moved data on F2FS before its checkpoints, so a power cut could lose some; use Linux 5.19 or newer, or --force to accept that"
            ));
        }
        let device = BlockDevice::from_dev(mount.dev).map_err(|e| format!("its device: {e}"))?;
        Ok(Self { device: device.name(), force })
    }
}

/// Whether this release of Linux is 5.19 or newer; see the head of this file.
fn orders_moved_data(release: &str) -> bool {
    version(release).is_some_and(|version| version >= (5, 19))
}

impl Engine for F2fs {
    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip> {
        defragment(&file.fd, 0, 0).map_err(refusal)?;
        // No descriptor may be open for writing, and so not this one; moving needs no more than reading.
        let how = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = handle::reopen(&file.fd, how | OFlags::NOATIME);
        file.fd = reader.or_else(|_| handle::reopen(&file.fd, how)).map_err(skip_of)?;
        Ok(Box::new(Log {
            device: self.device.clone(),
            force: self.force,
            staged: Vec::new(),
            buffer: Vec::new(),
        }))
    }
}

/// See [`super::may_move`]; these attributes mean something else, or nothing, elsewhere.
pub(super) fn may_move(attributes: u32) -> Result<(), Skip> {
    if attributes & flags::COMPRESSED != 0 {
        return Err(Skip::new(SkipReason::Encoded, ""));
    }
    if attributes & flags::NOCOW != 0 {
        return Err(Skip::new(SkipReason::Pinned, ""));
    }
    if attributes & flags::INLINE_DATA != 0 {
        return Err(Skip::new(SkipReason::InlineData, ""));
    }
    Ok(())
}

/// What the kernel's errors mean here.
fn refusal(error: io::Error) -> Skip {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => Skip::new(
            SkipReason::PermissionDenied,
            "moving data on F2FS needs CAP_SYS_ADMIN: run as root",
        ),
        Some(Errno::INVAL) => Skip::new(
            SkipReason::Unsupported,
            "F2FS writes this file in place: by its ipu_policy, or during an atomic write",
        ),
        Some(Errno::AGAIN) => Skip::new(SkipReason::NoSpace, "too few free sections"),
        _ => skip_of(error),
    }
}

/// Why there is no read lease.
fn not_leased(error: io::Error) -> Skip {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Skip::new(
            SkipReason::Busy,
            "another program has it open for writing, and a power cut while both sync it may lose bytes; --force accepts that",
        ),
        _ => skip_of(error),
    }
}

/// Moves ranges to the end of the log.
struct Log {
    device: String,
    /// Whether files are moved that others have open for writing.
    force: bool,
    staged: Vec<Staged>,
    buffer: Vec<u8>,
}

struct Staged {
    range: ByteRange,
    /// Nothing of it was in the page cache before.
    cold: bool,
    moved: bool,
}

impl Log {
    /// Moves one range, step by step, until another program wants the lease, or until `stop`.
    fn move_range(
        &self,
        file: &OpenFile,
        range: ByteRange,
        lease: Option<&Lease>,
        stop: &AtomicBool,
    ) -> Step {
        let mut done = Step::default();
        let moved = file.layout(range).and_then(|layout| {
            for step in steps(&layout, range) {
                if lease.is_some_and(Lease::is_wanted) {
                    return Err(Skip::new(SkipReason::Busy, "another program opened it to write"));
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                // Others may have filled the file system since the range was staged.
                self.room_for(step.len())?;
                let started = Instant::now();
                Self::rewrite(file, step, &mut done)?;
                for chunk in step.steps(STEP) {
                    cache::write_and_wait(&file.fd, chunk.start..chunk.end).map_err(skip_of)?;
                }
                done.held = done.held.max(started.elapsed());
            }
            Ok(())
        });
        done.skip = moved.err();
        done
    }

    /// Checks that the log has free segments for so many bytes.
    fn room_for(&self, bytes: u64) -> Result<(), Skip> {
        // Where sysfs has no figures, the kernel itself refuses, a little later.
        let Ok(Segments { free, scattering_below }) = segments(&self.device) else {
            return Ok(());
        };
        let need = bytes.div_ceil(SEGMENT) + 1;
        if free < need + scattering_below {
            let detail = format!(
                "{free} free segments, {need} needed above the {scattering_below} below which F2FS may fill holes"
            );
            return Err(Skip::new(SkipReason::NoSpace, detail));
        }
        Ok(())
    }

    /// One call to the kernel, and further ones while the file is being synced.
    fn rewrite(file: &OpenFile, step: ByteRange, done: &mut Step) -> Result<(), Skip> {
        let mut backoff = Backoff::new(FIRST_WAIT, TRIES);
        loop {
            let started = Instant::now();
            // Safe to crash before, in and after this line: see the head of this file.
            let written = defragment(&file.fd, step.start, step.len());
            done.held = done.held.max(started.elapsed());
            reached(Point::Moved);
            match written {
                Ok(bytes) => {
                    done.moved += bytes;
                    done.by = Some(primitive::F2FS_DEFRAG);
                    if bytes < step.len() {
                        let detail = format!("the kernel moved {bytes} of {} bytes", step.len());
                        return Err(Skip::new(SkipReason::LayoutChanged, detail));
                    }
                    return Ok(());
                }
                Err(e) if e.raw_os_error() != Some(Errno::INVAL.raw_os_error()) => {
                    return Err(refusal(e));
                }
                Err(e) if backoff.is_last() => return Err(refusal(e)),
                Err(_) => backoff.wait(),
            }
        }
    }
}

/// Cuts a range into steps, none of which is in one extent, unless the whole range is.
fn steps(layout: &Layout, range: ByteRange) -> Vec<ByteRange> {
    let mut steps = Vec::new();
    let mut rest = range;
    while !rest.is_empty() {
        let mut end = (rest.start + STEP).min(range.end);
        let broken = |start, end| layout.fragments(ByteRange { start, end }) > 1;
        while end < range.end && !(broken(rest.start, end) && broken(end, range.end)) {
            end = (end + STEP).min(range.end);
        }
        steps.push(ByteRange { start: rest.start, end });
        rest.start = end;
    }
    steps
}

impl Mover for Log {
    type File = OpenFile;

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        self.staged.clear();
        // Delayed data gets its blocks, and the kernel has nothing to wait for later.
        rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?;
        self.room_for(ranges.iter().map(|r| r.len()).sum())?;
        let staged =
            |range: &ByteRange| Staged { range: *range, cold: is_cold(file, *range), moved: false };
        self.staged = ranges.iter().map(staged).collect();
        // The log may continue elsewhere after each segment.
        Ok(ranges.iter().map(|r| r.len().div_ceil(SEGMENT)).collect())
    }

    /// `f2fs_defragment_range()` (fs/f2fs/file.c) returns without a write where it finds no break.
    fn writes_anew(&self) -> Result<(), Skip> {
        let why = "F2FS writes nothing anew that is in one extent (F2FS_IOC_DEFRAGMENT); --engine rewrite does";
        Err(Skip::new(SkipReason::Unsupported, why))
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_group(self, job, pace)
    }

    /// Each group has been made durable by itself.
    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let mut staged = std::mem::take(&mut self.staged);
        staged.retain(|s| s.moved);
        reached(Point::Settled);
        // The pages stay valid when their data moves; only those that this engine brought in are dropped.
        drop_cached(file, staged.iter().filter(|s| s.cold).map(|s| s.range));
        Ok(())
    }
}

/// There is no way back.
impl ByGroup for Log {
    fn most(&self) -> u64 {
        SEGMENT
    }

    /// Reads into the page cache what the kernel would otherwise read under the file's lock.
    fn prepare(&mut self, file: &OpenFile, _: usize, part: ByteRange) -> Result<(), Skip> {
        self.buffer.resize(part.len() as usize, 0);
        // Best effort: if it fails, the kernel reads for itself.
        let _ = read_at(&file.fd, &mut self.buffer, part.start);
        Ok(())
    }

    /// Makes the group durable with one checkpoint.
    fn relocate(
        &mut self,
        file: &OpenFile,
        group: &[usize],
        stop: &AtomicBool,
    ) -> Vec<(usize, Step)> {
        let mut done: Vec<(usize, Step)> = Vec::new();
        let (Some(&first), false) = (group.first(), stop.load(Ordering::Relaxed)) else {
            return done;
        };
        let lease = match Lease::take_read(&file.fd) {
            Ok(lease) => Some(lease),
            Err(_) if self.force => None,
            Err(e) => return vec![(first, Step::none(not_leased(e)))],
        };
        for &index in group {
            let Some(staged) = self.staged.get_mut(index) else { continue };
            let range = staged.range;
            staged.moved = true;
            let step = self.move_range(file, range, lease.as_ref(), stop);
            let wanted = step.skip.as_ref().is_some_and(|skip| skip.reason == SkipReason::Busy);
            done.push((index, step));
            if wanted || stop.load(Ordering::Relaxed) {
                // The others are moved one by one, each with a lease of its own, or stay where they are.
                break;
            }
        }
        // Before another program may sync the file: see the head of this file.
        let started = Instant::now();
        let durable = rustix::fs::syncfs(&file.fd).map_err(|e| skip_of(e.into()));
        let waited = started.elapsed();
        for (_, step) in &mut done {
            // A program that opens it for writing waits for the checkpoint, too.
            step.held += waited;
            if let Err(skip) = &durable {
                step.skip.get_or_insert_with(|| skip.clone());
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{Extent, ExtentKind, FileId};

    #[test]
    fn files_with_a_place_of_their_own_are_left_alone() {
        let reason = |set| may_move(set).err().map(|skip| skip.reason);
        assert_eq!(reason(flags::COMPRESSED), Some(SkipReason::Encoded));
        assert_eq!(reason(flags::NOCOW), Some(SkipReason::Pinned));
        assert_eq!(reason(flags::INLINE_DATA), Some(SkipReason::InlineData));
        assert_eq!(reason(0), None);
    }

    #[test]
    fn no_step_is_in_one_fragment() {
        let file = FileId { device: 0, inode: 0, generation: 0 };
        for seed in 1..100 {
            let mut layout = Layout::new(file, 4 << 20);
            let mut at = 0;
            for n in 1..40 {
                let length = (1 + n * seed * 37 % 300) * 4096;
                let kind = ExtentKind::Data;
                layout.push(Extent { logical: at, physical: at + n * 4096, length, kind });
                at += length;
            }
            let steps = steps(&layout, ByteRange { start: 0, end: at });
            assert_eq!((steps[0].start, steps.iter().map(|s| s.len()).sum()), (0, at));
            assert!(steps.windows(2).all(|s| s[0].end == s[1].start));
            assert!(steps.iter().all(|s| layout.fragments(*s) > 1), "seed {seed}: {steps:?}");
        }
    }

    #[test]
    fn kernels_are_told_apart_by_their_release() {
        for release in ["5.19.0", "6.1.176", "6.18.5-amd64", "10.0-rc1"] {
            assert!(orders_moved_data(release), "{release}");
        }
        for release in ["5.18.19", "5.4.0-150-generic", "4.19", "", "unknown"] {
            assert!(!orders_moved_data(release), "{release}");
        }
    }
}
