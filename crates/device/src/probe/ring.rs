//! Reads of a real device or file, past the page cache, and the clock that times them.

use super::clock::{Clock, ClockKind};
use super::pace::{Manner, Pace};
use super::reader::{Failed, Read, Reader};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::ring::ReadRing;
use rustix::io::Errno;
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
    device: BlockDevice,
    /// The device's size when it was opened.
    size_then: u64,
    clock: Clock,
    pace: Pace,
}

/// How long reading `bytes` lasts by this clock, and as `read` returns it where that is the one on the wall, once other
/// programs leave the disk alone for a moment; `None` if `read` was ended.
pub(crate) fn timed(
    clock: &Clock,
    pace: &mut Pace,
    bytes: u64,
    read: impl FnOnce() -> io::Result<Option<Duration>>,
) -> Result<Option<Duration>, Failed> {
    pace.before();
    let begun = clock.read()?;
    let Some(wall) = read()? else { return Ok(None) };
    let now = clock.read()?;
    pace.after(bytes, wall);
    let own = begun.zip(now).map(|(begun, now)| Duration::from_nanos(now.saturating_sub(begun)));
    Ok(Some(own.unwrap_or(wall)))
}

impl RingReader {
    /// A reader of a file that was opened with `O_DIRECT`: a device, or a file on it.
    ///
    /// # Errors
    /// Where there is no io_uring.
    pub fn new(
        file: File,
        extent: Extent,
        device: &BlockDevice,
        clock: Clock,
        manner: Manner,
    ) -> io::Result<Self> {
        let ring = ReadRing::new(file, DEPTH, extent.max_request_bytes.max(4096) as usize)?;
        let pace = Pace::new(manner, Some(device.whole()));
        let size_then = device.bytes()?;
        Ok(Self { ring, extent, device: device.clone(), size_then, clock, pace })
    }

    /// Errors of a device that is not there any more are told from others.
    fn failed(&self, error: io::Error) -> Failed {
        // ENXIO, ENODEV: its driver has let it go. Reads that are in flight by then fail with EIO, or end early.
        let code = error.raw_os_error().map(Errno::from_raw_os_error);
        let left = code.is_some_and(|code| [Errno::NXIO, Errno::NODEV].contains(&code));
        if left || self.device.bytes().map_or(true, |bytes| bytes < self.size_then) {
            Failed::Gone
        } else {
            Failed::Io(error)
        }
    }

    /// Whether the kernel maps the buffers anew for each read, which costs some time.
    pub fn maps_buffers(&self) -> bool {
        !self.ring.is_registered()
    }

    /// Which clock times it.
    pub fn clock(&self) -> ClockKind {
        self.clock.kind()
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

    fn elapsed(
        &mut self,
        reads: &[Read],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> Result<u64, Failed> {
        let places: Vec<(u64, u32)> =
            reads.iter().map(|read| (self.extent.start + read.at, read.bytes)).collect();
        let bytes = places.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        let read = || self.ring.elapsed_until(&places, depth, ended);
        match timed(&self.clock, &mut self.pace, bytes, read) {
            Ok(Some(lasted)) => Ok(u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX)),
            Ok(None) => Err(Failed::Stopped),
            Err(Failed::Io(error)) => Err(self.failed(error)),
            Err(failed) => Err(failed),
        }
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        let held = self
            .ring
            .read(self.extent.start + at, self.extent.unit_bytes)
            .map(|bytes| bytes.iter().any(|byte| *byte != 0));
        held.map(Some).map_err(|error| self.failed(error))
    }
}
