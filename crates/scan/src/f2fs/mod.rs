//! The segments of a mounted F2FS, as far as user space can see them. Nothing is written.
//!
//! | module | what is read | from |
//! |---|---|---|
//! | `geometry` | where segments are, how long they are | super block |
//! | `geometry` | in which segments logs are open | the last checkpoint |
//! | `listing` | type and valid blocks of each segment | `/proc/fs/f2fs/DEVICE/segment_info` |
//! | `listing` | which blocks of a segment are valid | `/proc/fs/f2fs/DEVICE/segment_bits` |
//! | `listing` | when a segment was modified (since Linux 6.15) | the same |
//! | | free and reserved segments | sysfs (`fragmend_sys::f2fs`) |
//!
//! `space` makes of these which addresses are free.
//!
//! F2FS keeps its metadata in pages of its own, which reads of the device do not share. So the device is read past what its
//! page cache has, and its last checkpoint is what a caller gets who has synced the file system before. What changes
//! meanwhile makes a plan less good and never wrong: whatever moves data looks again.

mod geometry;
mod listing;
mod space;

pub use geometry::{Geometry, open_logs};
pub use listing::{ValidBlocks, modified, segments, valid_blocks};
pub(crate) use space::space;

use crate::FileSystem;
use fragmend_layout::SegmentTable;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::f2fs;
use rustix::fs::Advice;
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Segments beyond which `segment_bits` is not read: the kernel writes some 210 bytes about each into one buffer, here 14 MiB.
const MOST_BITS: usize = 1 << 16;
/// The longest line about a segment in either file, in bytes.
const LINE: u64 = 256;
/// A list of more segments than this is not read: F2FS counts blocks with 32 bits, and segments have 512 of them.
const MOST_SEGMENTS: u64 = 1 << 23;

/// Why the segments cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The device or a file of the kernel's cannot be read.
    #[error("{what} cannot be read: {source}")]
    Io {
        /// What of the file system.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The kernel would need too much memory.
    #[error("of {0} segments the kernel would need too much memory to tell which blocks are valid")]
    TooMany(u32),
    /// What was read makes no sense.
    #[error("{what}: {why}")]
    Senseless {
        /// What of the file system.
        what: String,
        /// Why, in words for people.
        why: &'static str,
    },
}

/// Reads the segments of a mounted F2FS that was synced before.
///
/// # Errors
/// Without root, or where the kernel was built without the files in `/proc`.
pub fn segment_table(fs: &FileSystem) -> Result<SegmentTable, Unread> {
    let device = OpenDevice::of(fs)?;
    let of_checkpoint = "the checkpoint";
    let geometry = device.geometry()?;
    let packs = geometry.checkpoints();
    let packs =
        [device.read(packs[0], 512, of_checkpoint)?, device.read(packs[1], 512, of_checkpoint)?];
    let mut segments =
        device.listed("segment_info", |list| segments(list, geometry.segments as usize))?;
    for open in open_logs([&packs[0], &packs[1]]) {
        if let Some(segment) = segments.get_mut(open as usize) {
            segment.is_open = true;
        }
    }
    let no_age = if segments.len() > MOST_BITS {
        Some(format!(
            "of {} segments the kernel would need too much memory to tell it",
            segments.len()
        ))
    } else {
        match device.listed("segment_bits", |list| modified(list, segments.len()))? {
            Some(times) => {
                segments
                    .iter_mut()
                    .zip(times)
                    .for_each(|(segment, at)| segment.modified = Some(at));
                None
            }
            None => Some("this kernel does not show it (Linux 6.15 and later do)".into()),
        }
    };
    let free = f2fs::segments(&device.name).map_err(io("the free segments in sysfs"))?;
    Ok(SegmentTable {
        start: geometry.start,
        block_bytes: geometry.block_bytes,
        segment_blocks: geometry.segment_blocks,
        section_segments: geometry.section_segments,
        segments,
        spare: free.free.saturating_sub(free.scattering_below),
        no_age,
    })
}

/// The device under a mounted F2FS, and what the kernel lists of it.
struct OpenDevice {
    file: File,
    /// As in `/proc` and sysfs.
    name: String,
}

impl OpenDevice {
    fn of(fs: &FileSystem) -> Result<Self, Unread> {
        let file = fs.open_device().map_err(io("the block device"))?;
        let name = BlockDevice::from_dev(fs.dev).map_err(io("its device"))?.name();
        Ok(Self { file, name })
    }

    fn read(&self, at: u64, length: usize, what: &str) -> Result<Vec<u8>, Unread> {
        let mut bytes = vec![0; length];
        let drop = Advice::DontNeed;
        // Best effort: of what is cached, no more than a hint is late.
        let _ = rustix::fs::fadvise(&self.file, at, NonZeroU64::new(length as u64), drop);
        self.file.read_exact_at(&mut bytes, at).map_err(io(what)).map(|()| bytes)
    }

    fn geometry(&self) -> Result<Geometry, Unread> {
        let what = "the super block";
        Geometry::parse(&self.read(Geometry::AT, Geometry::BYTES, what)?).map_err(senseless(what))
    }

    /// One of the kernel's lists in `/proc`, parsed.
    fn listed<T>(
        &self,
        file: &str,
        parse: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Result<T, Unread> {
        let path = Path::new("/proc/fs/f2fs").join(&self.name).join(file);
        let named = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path)
            .and_then(|file| file.take(MOST_SEGMENTS * LINE).read_to_string(&mut text));
        read.map_err(io(&named))?;
        parse(&text).map_err(senseless(&named))
    }
}

fn io(what: &str) -> impl FnOnce(std::io::Error) -> Unread {
    let what = what.to_owned();
    move |source| Unread::Io { what, source }
}

fn senseless(what: &str) -> impl FnOnce(&'static str) -> Unread {
    let what = what.to_owned();
    move |why| Unread::Senseless { what, why }
}
