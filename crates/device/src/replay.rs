//! Reads of files on one disk, past the page cache, timed by the clock on the wall, or by that of a served drive. It is
//! the probe's way of reading, for several files at a time.

use crate::probe::clock::{Clock, ClockKind};
use crate::probe::pace::{Manner, Pace};
use crate::probe::reader::Failed;
use crate::probe::ring::{DEPTH, timed};
use crate::{profile, target};
use fragmend_sys::block::{BlockDevice, Counters};
use fragmend_sys::cache::next_data;
use fragmend_sys::ring::ReadRing;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// A read: the index of its file, its offset and its bytes, both in whole blocks of the file.
pub type FileRead = (usize, u64, u32);

/// Files on one disk that are read past the page cache.
pub struct Replayer {
    ring: ReadRing,
    files: Vec<File>,
    clock: Clock,
    pace: Pace,
}

impl Replayer {
    /// The most reads in flight.
    pub const MOST_IN_FLIGHT: u32 = DEPTH;

    /// Of files that were opened with `O_DIRECT`, on this device. No read is longer than `longest`, in whole pages. The clock is
    /// that by which the device was probed, if its profile is kept, so that times can be compared with its costs.
    ///
    /// # Errors
    /// Where there is no io_uring, no file, or a served drive's clock cannot be opened.
    pub fn new(files: Vec<File>, device: &BlockDevice, longest: u32) -> io::Result<Self> {
        let first = files.first().ok_or(io::ErrorKind::NotFound)?.try_clone()?;
        let ring = ReadRing::new(first, DEPTH, longest.max(4096) as usize)?;
        let clock = clock_of_costs(device)?;
        let pace = Pace::new(Manner::Yielding, Some(device.whole()));
        Ok(Self { ring, files, clock, pace })
    }

    /// Which clock times it.
    pub fn clock(&self) -> ClockKind {
        self.clock.kind()
    }

    /// How many bytes of these reads are data, and no hole.
    ///
    /// # Errors
    /// Those of `lseek(2)`.
    pub fn data_bytes(&self, reads: &[FileRead]) -> io::Result<u64> {
        data_bytes(&self.files, reads)
    }

    /// Carries out reads, `depth` of them in flight, once other programs leave the disk alone for a moment; returns
    /// the time until the last was done, or `None` if `ended` returned that no further one is to be issued.
    ///
    /// # Errors
    /// When a read fails, or ends early because its file has become shorter.
    pub fn elapsed(
        &mut self,
        reads: &[FileRead],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        let bytes = reads.iter().map(|(.., bytes)| u64::from(*bytes)).sum();
        let read = || self.ring.elapsed_across(&self.files, reads, depth, ended);
        timed(&self.clock, &mut self.pace, bytes, read).map_err(of_failed)
    }

    /// The same, each as soon as those that it `needs` are done, a range of the indices of earlier ones.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    pub fn elapsed_in_order(
        &mut self,
        reads: &[FileRead],
        needs: &[Range<usize>],
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        let bytes = reads.iter().map(|(.., bytes)| u64::from(*bytes)).sum();
        let read = || self.ring.elapsed_in_order(&self.files, reads, needs, ended);
        timed(&self.clock, &mut self.pace, bytes, read).map_err(of_failed)
    }
}

fn of_failed(failed: Failed) -> io::Error {
    match failed {
        Failed::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// The clock by which a device's costs were probed; its own where no profile is kept that can be used. A served drive that is
/// paced may be probed by either.
fn clock_of_costs(device: &BlockDevice) -> io::Result<Clock> {
    match profile::stored(device, &profile::directory(None)) {
        Ok(Some(profile)) if profile.clock == ClockKind::Wall => Ok(Clock::Wall),
        _ => target::clock_of(device),
    }
}

fn data_bytes(files: &[File], reads: &[FileRead]) -> io::Result<u64> {
    let mut bytes = 0;
    for (file, start, len) in reads {
        let (mut at, end) = (*start, start + u64::from(*len));
        while at < end
            && let Some(data) = next_data(&files[*file], at).filter(|data| *data < end)
        {
            at = seek(&files[*file], SeekFrom::Hole(data))?;
            bytes += at.min(end) - data;
        }
    }
    Ok(bytes)
}

/// How long a disk has been busy, with anything.
pub struct Busy {
    disk: BlockDevice,
    clock: Clock,
}

/// What a disk has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Time during which something was in flight.
    pub busy: Duration,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl std::ops::Add for Done {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            busy: self.busy + other.busy,
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

impl std::ops::Sub for Done {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }
}

/// The field of `/sys/block/*/stat` with the milliseconds during which something was in flight
/// (Documentation/block/stat.rst).
const IO_TICKS: usize = 9;

impl Busy {
    /// Of the disk of a device, by the clock of its costs, as for a [`Replayer`].
    ///
    /// # Errors
    /// When a served drive's clock cannot be opened.
    pub fn of(device: &BlockDevice) -> io::Result<Self> {
        Ok(Self { disk: device.whole(), clock: clock_of_costs(device)? })
    }

    /// Which clock times it.
    pub fn clock(&self) -> ClockKind {
        self.clock.kind()
    }

    /// What it has done so far. A served drive's virtual time goes on only while something is in flight.
    ///
    /// # Errors
    /// When the kernel does not count it, or the clock cannot be read.
    pub fn done(&self) -> io::Result<Done> {
        let Counters { read_bytes, written_bytes, .. } = self.disk.counters()?;
        let busy = match self.clock.read().map_err(io::Error::other)? {
            Some(ns) => Duration::from_nanos(ns),
            None => {
                let stat = self.disk.attribute("stat").unwrap_or_default();
                let ticks = stat.split_ascii_whitespace().nth(IO_TICKS);
                let ticks = ticks.and_then(|ms| ms.parse().ok());
                let absent = || io::Error::new(io::ErrorKind::InvalidData, "no io_ticks in stat");
                Duration::from_millis(ticks.ok_or_else(absent)?)
            }
        };
        Ok(Done { busy, read_bytes, written_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_no_data() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 16384], 0).unwrap();
        file.write_all_at(&[1; 16384], 49152).unwrap();
        let files = [file];
        for (at, len, data) in
            [(0, 65536, 32768), (16384, 4096, 0), (12288, 8192, 4096), (45056, 8192, 4096)]
        {
            assert_eq!(data_bytes(&files, &[(0, at, len)]).unwrap(), data, "{at} {len}");
        }
        assert_eq!(data_bytes(&files, &[(0, 0, 4096), (0, 65536, 4096)]).unwrap(), 4096);
    }
}
