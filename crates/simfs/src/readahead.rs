//! Readahead of buffered reads across calls, for all simulated file systems: which ranges a read fetches, by the planner's imitation of
//! the kernel's rules, and which of them are still in flight. A sequential reader by small calls gets windows that grow to the host's
//! `readahead_bytes`, and the next window is in flight while the program uses the last one.
//!
//! What was fetched must be in the file system's page cache until [`Readahead::forget`]: the caller forgets a file's state when it finds
//! something missing that was fetched before (it was evicted).

use crate::error::Error;
use crate::machine::Machine;
use fragmend_flash::command::Units;
use fragmend_flash::host::HostPath;
use fragmend_layout::{ByteRange, WindowEnds};
use fragmend_plan::readahead::{PageCache, Window};
use std::ops::Range;

/// The state of a file.
#[derive(Debug)]
pub struct Readahead {
    rules: PageCache,
    window: Window,
    size: u64,
    /// Bytes that were asked for and may not have arrived, with the time when they have.
    in_flight: Vec<(ByteRange, u64)>,
}

impl Readahead {
    /// A file of `size` bytes of which nothing is cached.
    pub fn new(size: u64, path: &HostPath) -> Self {
        let window = Window {
            readahead: path.readahead_bytes.into(),
            longest: u64::from(path.request_bytes).max(path.readahead_bytes.into()),
            ends: WindowEnds::AnyPage,
        };
        Self { rules: PageCache::new(size, window), window, size, in_flight: Vec::new() }
    }

    /// Nothing of the file is cached any more, or its size is another.
    pub fn forget(&mut self, size: u64) {
        self.rules = PageCache::new(size, self.window);
        (self.size, self.in_flight) = (size, Vec::new());
    }

    /// The size that it knows, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A range is cached: it was written.
    pub fn add(&mut self, range: ByteRange) {
        self.rules.add(range);
    }

    /// The bytes that a read by a program fetches, in whole pages, in order.
    pub fn fetches(&mut self, program: u32, range: ByteRange) -> Vec<ByteRange> {
        let mut fetched = Vec::new();
        self.rules.read(program, range, |part| fetched.push(part));
        fetched
    }

    /// Asks the drive for a range, which is at these places, and does not wait.
    ///
    /// # Errors
    /// The drive refuses.
    pub fn begin(
        &mut self,
        machine: &Machine,
        range: ByteRange,
        places: &[Units],
    ) -> Result<(), Error> {
        let ready = machine.begin_read(places)?;
        self.in_flight.push((range, ready));
        Ok(())
    }

    /// Waits for what of `range` is in flight, and uses the range.
    pub fn end(&mut self, machine: &Machine, range: ByteRange) {
        let now = machine.now_ns();
        self.in_flight.retain(|(_, ready)| *ready > now);
        let (wanted, others) =
            self.in_flight.drain(..).partition::<Vec<_>, _>(|(part, _)| part.overlaps(range));
        self.in_flight = others;
        if let Some(ready) = wanted.into_iter().map(|(_, ready)| ready).max() {
            machine.end_read(ready);
        }
    }
}

/// The blocks of bytes, whole ones.
pub fn blocks_of(range: ByteRange, block_bytes: u64) -> Range<u64> {
    range.start / block_bytes..range.end.div_ceil(block_bytes)
}
