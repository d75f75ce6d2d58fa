//! What a path leads to: a block device, the device below a directory, or a file; and how such a thing is opened for a
//! probe.

use crate::kind::{self, Kind};
use crate::probe::clock::Clock;
use crate::probe::pace::Manner;
use crate::probe::ring::{Extent, RingReader};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::{input, mounts};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a path leads to.
#[derive(Clone, Debug)]
pub enum Target {
    /// A block device: the path is its node, or a directory on it.
    Device(BlockDevice),
    /// A regular file, and the device below it.
    File(PathBuf, BlockDevice),
}

/// Why a path leads to nothing that can be probed.
#[derive(Debug, thiserror::Error)]
pub enum NoTarget {
    /// It cannot be looked at.
    #[error("{0}: {1}")]
    Unreachable(PathBuf, io::Error),
    /// Its file system has no block device.
    #[error("{0} is on {1}, which has no block device below it that could be probed")]
    NoDevice(PathBuf, String),
    /// It is a pipe, a socket, a character device.
    #[error("{0} is neither a block device nor a file or directory")]
    OtherKind(PathBuf),
    /// There is nothing in it.
    #[error("{0} is empty: there is nothing to read")]
    Empty(PathBuf),
}

impl Target {
    /// What a path leads to; links are followed.
    ///
    /// # Errors
    /// See [`NoTarget`].
    pub fn of(path: &Path) -> Result<Self, NoTarget> {
        let unreachable = |e| NoTarget::Unreachable(path.to_owned(), e);
        let found = path.metadata().map_err(unreachable)?;
        let what = found.file_type();
        if what.is_block_device() {
            return BlockDevice::from_dev(found.rdev()).map(Self::Device).map_err(unreachable);
        }
        if !what.is_dir() && !what.is_file() {
            return Err(NoTarget::OtherKind(path.to_owned()));
        }
        if what.is_file() && found.len() == 0 {
            return Err(NoTarget::Empty(path.to_owned()));
        }
        let below = BlockDevice::under(path, found.dev()).map_err(|_| {
            let kind = mounts::of_path(path).map(|mount| mount.fs_type);
            NoTarget::NoDevice(path.to_owned(), kind.unwrap_or_else(|_| "a file system".into()))
        })?;
        if what.is_file() {
            Ok(Self::File(path.to_owned(), below))
        } else {
            Ok(Self::Device(below))
        }
    }

    /// The device that is read, or is below the file that is read.
    pub fn device(&self) -> &BlockDevice {
        match self {
            Self::Device(device) | Self::File(_, device) => device,
        }
    }
}

/// How a device or a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// How others are treated.
    pub manner: Manner,
    /// Whether a served drive is timed by the clock on the wall nevertheless.
    pub wall_clock: bool,
}

/// Smaller reads are not measured: file systems and mapping tables work in these.
const UNIT: u64 = 4096;
/// The longest request that is measured.
const LONGEST: u64 = 1 << 20;

/// Opens a device for a probe.
///
/// # Errors
/// Those of opening it, and where there is no io_uring.
pub fn open_device(device: &BlockDevice, how: How) -> io::Result<RingReader> {
    let file = device.open_direct()?;
    let bytes = device.bytes()?;
    open(device, file, bytes, how)
}

/// Opens a file on a device for a probe.
///
/// # Errors
/// As [`open_device`].
pub fn open_file(path: &Path, device: &BlockDevice, how: How) -> io::Result<RingReader> {
    let file = input::open_direct(path)?;
    let bytes = file.metadata()?.len();
    open(device, file, bytes, how)
}

fn open(device: &BlockDevice, file: std::fs::File, bytes: u64, how: How) -> io::Result<RingReader> {
    let queue = device.queue()?;
    let unit = queue.logical_block_bytes.max(UNIT);
    let longest = queue.max_request_bytes.min(LONGEST).max(unit) / unit * unit;
    let extent = Extent {
        start: 0,
        bytes: bytes / unit * unit,
        unit_bytes: unit as u32,
        max_request_bytes: longest as u32,
    };
    let clock = if how.wall_clock { Clock::Wall } else { clock_of(device)? };
    RingReader::new(file, extent, device, clock, how.manner)
}

/// The clock that times a device.
pub(crate) fn clock_of(device: &BlockDevice) -> io::Result<Clock> {
    match Kind::of(device) {
        Kind::Served | Kind::Loop => {
            Ok(kind::served_clock(device)?.map_or(Clock::Wall, Clock::Served))
        }
        _ => Ok(Clock::Wall),
    }
}

/// Bytes from the start of its disk to the start of a partition; `None` for a whole disk.
pub fn partition_start(device: &BlockDevice) -> Option<u64> {
    if !device.is_partition() {
        return None;
    }
    let text = std::fs::read_to_string(device.node().join("start")).ok()?;
    Some(text.trim().parse::<u64>().ok()? * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_probed_says_why_in_a_line() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        for (path, why) in [
            (Path::new("/nowhere"), "No such file"),
            (Path::new("/dev/null"), "neither a block device"),
            (Path::new("/proc/version"), "is empty"),
            (Path::new("/proc"), "no block device"),
            (empty.path(), "is empty"),
        ] {
            let error = Target::of(path).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }
}
