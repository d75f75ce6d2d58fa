//! The segments of a mounted F2FS, as far as user space can see them. Nothing is written.
//!
//! | module | what is read | from |
//! |---|---|---|
//! | `geometry` | where segments are, how long they are | super block |
//! | `geometry` | in which segments logs are open | the last checkpoint |
//! | `listing` | type and valid blocks of each segment | `/proc/fs/f2fs/DEVICE/segment_info` |
//! | `listing` | when a segment was modified (since Linux 6.15) | `/proc/fs/f2fs/DEVICE/segment_bits` |
//! | | free and reserved segments | sysfs (`fragmend_sys::f2fs`) |
//!
//! F2FS keeps its metadata in pages of its own, which reads of the device do not share. So the device is read past what its
//! page cache has, and its last checkpoint is what a caller gets who has synced the file system before. What changes
//! meanwhile makes a plan less good and never wrong: whatever moves data looks again.

mod geometry;
mod listing;

pub use geometry::{Geometry, open_logs};
pub use listing::{modified, segments};

use crate::FileSystem;
use fragmend_layout::SegmentTable;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::f2fs;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Segments beyond which ages are not read: the kernel writes some 210 bytes about each into one buffer, here 14 MiB.
const MOST_AGES: usize = 1 << 16;
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
        source: io::Error,
    },
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
    let io = |what: &str| {
        let what = what.to_owned();
        move |source| Unread::Io { what, source }
    };
    let device = fs.open_device().map_err(io("the block device"))?;
    let read = |at: u64, length: usize, what: &str| {
        let mut bytes = vec![0; length];
        // Best effort: of what is cached, no more than a hint is late.
        let _ = rustix::fs::fadvise(&device, at, NonZeroU64::new(length as u64), Advice::DontNeed);
        device.read_exact_at(&mut bytes, at).map_err(io(what)).map(|()| bytes)
    };
    let (of_super, of_checkpoint) = ("the super block", "the checkpoint");
    let bytes = read(Geometry::AT, Geometry::BYTES, of_super)?;
    let senseless = |what: &str| {
        let what = what.to_owned();
        move |why| Unread::Senseless { what, why }
    };
    let geometry = Geometry::parse(&bytes).map_err(senseless(of_super))?;
    let packs = geometry.checkpoints();
    let packs = [read(packs[0], 512, of_checkpoint)?, read(packs[1], 512, of_checkpoint)?];
    let name = BlockDevice::from_dev(fs.dev).map_err(io("its device"))?.name();
    let proc = |file: &str| Path::new("/proc/fs/f2fs").join(&name).join(file);
    let path = proc("segment_info");
    let named = path.display().to_string();
    let listed = text(path).map_err(io(&named))?;
    let mut segments = segments(&listed, geometry.segments as usize).map_err(senseless(&named))?;
    for open in open_logs([&packs[0], &packs[1]]) {
        if let Some(segment) = segments.get_mut(open as usize) {
            segment.is_open = true;
        }
    }
    let no_age = if segments.len() > MOST_AGES {
        Some(format!(
            "of {} segments the kernel would need too much memory to tell it",
            segments.len()
        ))
    } else {
        let path = proc("segment_bits");
        let named = path.display().to_string();
        let listed = text(path).map_err(io(&named))?;
        let times = modified(&listed, segments.len()).map_err(senseless(&named))?;
        match times {
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
    let free = f2fs::segments(&name).map_err(io("the free segments in sysfs"))?;
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

fn text(path: PathBuf) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_SEGMENTS * LINE).read_to_string(&mut text)?;
    Ok(text)
}
