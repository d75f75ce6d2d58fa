//! Reads of a real device or file, past the page cache, and the clock that times them.

use super::clock::Clock;
use super::pace::Pace;
use super::reader::{Failed, Read, Reader};
use fragmend_sys::ring::ReadRing;
use std::fs::File;
use std::io;
use std::time::Duration;

/// The most reads in flight.
pub const DEPTH: u32 = 32;

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Where it begins in the file that is read.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The smallest read.
    pub unit_bytes: u32,
    /// The largest request.
    pub max_request_bytes: u32,
}

/// A device or a file, read past the page cache.
pub struct RingReader {
    ring: ReadRing,
    extent: Extent,
    clock: Clock,
    pace: Pace,
}

impl RingReader {
    /// A reader of a file that was opened with `O_DIRECT`.
    ///
    /// # Errors
    /// Where there is no io_uring.
    pub fn new(file: File, extent: Extent, clock: Clock, pace: Pace) -> io::Result<Self> {
        let ring = ReadRing::new(file, DEPTH, extent.max_request_bytes.max(4096) as usize)?;
        Ok(Self { ring, extent, clock, pace })
    }

    /// Whether the kernel maps the buffers anew for each read, which costs some time.
    pub fn maps_buffers(&self) -> bool {
        !self.ring.is_registered()
    }

    /// How much others disturbed.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl Reader for RingReader {
    fn capacity_bytes(&self) -> u64 {
        self.extent.bytes
    }

    fn unit_bytes(&self) -> u32 {
        self.extent.unit_bytes
    }

    fn max_request_bytes(&self) -> u32 {
        self.extent.max_request_bytes
    }

    fn max_depth(&self) -> u32 {
        DEPTH
    }

    fn elapsed(&mut self, reads: &[Read], depth: u32) -> Result<u64, Failed> {
        let places: Vec<(u64, u32)> =
            reads.iter().map(|read| (self.extent.start + read.at, read.bytes)).collect();
        self.pace.before();
        let begun = self.clock.read()?;
        let wall = self.ring.elapsed(&places, depth).map_err(gone)?;
        let ns = match (begun, self.clock.read()?) {
            (Some(begun), Some(ended)) => ended.saturating_sub(begun),
            _ => u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        };
        self.pace.after(places.len() as u64, wall.max(Duration::from_nanos(1)));
        Ok(ns)
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        let bytes = self.ring.read(self.extent.start + at, self.extent.unit_bytes).map_err(gone)?;
        Ok(Some(bytes.iter().any(|byte| *byte != 0)))
    }
}

/// Errors of a device that is not there any more are told from others.
fn gone(error: io::Error) -> Failed {
    // ENXIO, ENODEV: its driver has let it go. An early end: its size is 0 from then on.
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let left = [rustix::io::Errno::NXIO, rustix::io::Errno::NODEV];
    let ended = error.kind() == io::ErrorKind::UnexpectedEof;
    if ended || code.is_some_and(|code| left.contains(&code)) {
        Failed::Gone
    } else {
        Failed::Io(error)
    }
}
