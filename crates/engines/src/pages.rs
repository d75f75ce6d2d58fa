//! Brings pages into the page cache in small reads, each waited for.
//!
//! Reads of other programs queue behind these at the device. A range in many extents costs as many requests: so
//! only few bytes are requested at a time, and fewer where that is slow. And pages that the kernel lacks under
//! a file's locks it would read one by one: so all of them must be in the cache before, and known to be.

use super::errno::skip_of;
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::cache;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::bytes::read_at;

/// Bytes of the first read, and the bounds of later ones.
const FIRST: u64 = 64 << 10;
const SHORTEST: u64 = 16 << 10;
const LONGEST: u64 = 256 << 10;
/// A read that lasts longer is followed by a shorter one, a quicker one by a longer.
const LONG: Duration = Duration::from_millis(15);
const QUICK: Duration = Duration::from_millis(2);
/// How often pages that do not stay are read again, and for how long: a request to end waits for that.
const READS: u32 = 4;
const LONGEST_HOLD: Duration = Duration::from_millis(400);

/// Reads from one device.
#[derive(Debug)]
pub(super) struct Pages {
    unit: u64,
    scratch: Vec<u8>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { unit: FIRST, scratch: Vec::new() }
    }
}

impl Pages {
    /// Reads a range into `buffer`; returns how many bytes there were before the file ended.
    pub fn read(
        &mut self,
        file: impl AsFd,
        range: ByteRange,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let unit = buffer.len().min(done + self.unit as usize);
            let at = range.start + done as u64;
            let cached = cache::is_resident(&file, at..range.start + unit as u64);
            let started = Instant::now();
            let got = read_at(&file, &mut buffer[done..unit], at)?;
            let time = started.elapsed();
            // A read from the cache shows nothing of the device, unless it waits for one that was requested before.
            if !cached.unwrap_or(false) || time > LONG {
                self.took(time);
            }
            done += got;
            if done < unit {
                break;
            }
        }
        Ok(done)
    }

    /// Whether the last reads were so quick that others would not wait long for several of them.
    pub fn is_quick(&self) -> bool {
        self.unit == LONGEST
    }

    /// Brings what is missing of a range into the page cache.
    pub fn bring_in(&mut self, file: impl AsFd, range: ByteRange) -> io::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut at = range.start;
        let mut done = Ok(());
        while at < range.end && done.is_ok() {
            let unit = ByteRange::at(at, self.unit).intersect(range);
            if !cache::is_resident(&file, unit.start..unit.end).unwrap_or(false) {
                scratch.resize(unit.len() as usize, 0);
                done = self.read(&file, unit, &mut scratch).map(drop);
            }
            at = unit.end;
        }
        self.scratch = scratch;
        done
    }

    /// Brings ranges of files into the page cache, and ensures that all of them are there at once. They are
    /// read whatever is cached: a page whose read is in flight, for another program or because of readahead,
    /// counts as cached, and would be waited for under the locks.
    ///
    /// # Errors
    /// They do not stay, or cannot be read.
    pub fn hold<F: AsFd>(&mut self, parts: &[(F, ByteRange)]) -> Result<(), Skip> {
        let there = |(file, range): &(F, ByteRange)| {
            cache::is_resident(file, range.start..range.end).unwrap_or(false)
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let until = Instant::now() + LONGEST_HOLD;
        let mut done = Err(away());
        for _ in 0..READS {
            let read = parts.iter().try_for_each(|(file, range)| {
                range.steps(LONGEST).try_for_each(|step| {
                    scratch.resize(step.len() as usize, 0);
                    self.read(file, step, &mut scratch).map_err(skip_of)?;
                    if Instant::now() < until { Ok(()) } else { Err(away()) }
                })
            });
            if read.is_err() || parts.iter().all(there) {
                done = read;
                break;
            }
        }
        self.scratch = scratch;
        done
    }

    fn took(&mut self, time: Duration) {
        if time > LONG {
            self.unit = (self.unit / 2).max(SHORTEST);
        } else if time < QUICK {
            self.unit = (self.unit * 2).min(LONGEST);
        }
    }
}

/// The error that pages are evicted as soon as they were read.
pub(super) fn away() -> Skip {
    Skip::new(SkipReason::Busy, "its pages do not stay in memory")
}
