//! The path of a read or a write from a system call to the drive (FAST'24, sections 2.1 and 3.1): the extents
//! of a file become bios, bios become requests, and requests wait in a plug and are issued together, as many
//! at a time as the queue is deep. The work of the host's one processor overlaps with that of the drive.

mod extents;
mod path;
mod slots;
#[cfg(test)]
mod tests;
mod together;

pub use extents::windows;
pub use path::{HostPath, SplitHints};
pub use slots::Slots;
pub use together::read_together;

use crate::command::{Command, Completion, Hint, Refused, Units};
use crate::device::Device;
use extents::split;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The time that a host has spent, by layer, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// System calls, entry and return.
    pub system_call: u64,
    /// The file system, looking up extents (iomap).
    pub file_system: u64,
    /// Bios, without their pages.
    pub bio: u64,
    /// Pages of bios.
    pub pages: u64,
    /// Requests, until the drive has them.
    pub request: u64,
    /// Completions of requests.
    pub completion: u64,
    /// Falling asleep and waking up.
    pub wake: u64,
    /// The program itself, which processes the data that it has read.
    pub program: u64,
    /// Asleep while the drive works.
    pub waiting: u64,
}

impl TimeSpent {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.host() + self.waiting
    }

    /// The sum without the time asleep.
    pub fn host(&self) -> u64 {
        let by_layer = [self.system_call, self.file_system, self.bio, self.pages];
        by_layer.iter().sum::<u64>() + self.request + self.completion + self.wake + self.program
    }
}

/// A program that reads and writes, one call after the other.
pub struct Host<'a, D: ?Sized> {
    path: &'a HostPath,
    /// The drive.
    pub device: &'a mut D,
    /// The present time of its processor.
    pub now: u64,
    /// Ends of the requests in flight.
    in_flight: BinaryHeap<Reverse<u64>>,
    /// The number of requests so far.
    pub requests: u64,
    /// The time spent so far.
    pub spent: TimeSpent,
    /// How many pages from the start of its buffer on the program has used before.
    used_pages: u64,
    /// Where the last extent ended on the drive.
    last_end: Option<u32>,
    /// Time for which the program processes each page of 4 KiB that it reads through the page cache.
    pub use_page_ns: u64,
    /// When each request of the last call or window is done, and its units.
    issued: Vec<(u64, u32)>,
    /// Hints that the layers below the file system have made wrong: requests of split writes whose hint names a
    /// unit that they do not follow, or that have no hint any more, and hints that were lost in a merge.
    pub stale_hints: u64,
}

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write(Hint),
}

impl Direction {
    /// The same for what follows this unit in the file.
    fn after(self, predecessor: u32) -> Self {
        match self {
            Self::Write(Hint::Append { .. }) => Self::Write(Hint::Append { predecessor }),
            same => same,
        }
    }

    /// Whether a request that ends with the unit `last` says of another one, which it is merged with, all that its own hint does.
    fn covers(self, other: Self, last: u32) -> bool {
        other == self.after(last) || other == Self::Write(Hint::None)
    }
}

/// Extents that are read.
fn reads(extents: &[Units]) -> impl Iterator<Item = (Units, Direction)> + '_ {
    extents.iter().map(|extent| (*extent, Direction::Read))
}

/// A request in the plug.
#[derive(Clone, Copy, Debug)]
struct Request {
    units: Units,
    direction: Direction,
}

impl<'a, D: Device + ?Sized> Host<'a, D> {
    /// A program at this time, which has used all of its buffer before.
    pub fn new(path: &'a HostPath, device: &'a mut D, now: u64) -> Self {
        Self {
            path,
            device,
            now,
            in_flight: BinaryHeap::new(),
            requests: 0,
            spent: TimeSpent::default(),
            used_pages: u64::MAX,
            last_end: None,
            use_page_ns: 0,
            issued: Vec::new(),
            stale_hints: 0,
        }
    }

    /// The same program with a buffer that it has never used.
    pub fn with_new_buffer(mut self) -> Self {
        self.used_pages = 0;
        self
    }

    /// Reads consecutive extents of a file with one call; returns once all of them have arrived.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn read(&mut self, extents: &[Units]) -> Result<(), Refused> {
        self.call(reads(extents))
    }

    /// The same through the page cache, which is cold, with the host's readahead as the kernel's is once its
    /// window has the largest size (mm/readahead.c): the program begins a window when it comes to the first
    /// page of the one before, whether that has arrived or not, and waits for each page until the request that
    /// it is part of is done.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn read_buffered(&mut self, extents: &[Units]) -> Result<(), Refused> {
        self.read_buffered_by_map(extents, &[])
    }

    /// The same where the file system has to read the file's map of extents, too. Each entry of `map` is a
    /// block of it and the first unit of the file whose place it holds, in order: before the program begins the
    /// window with that unit, it waits for the block.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn read_buffered_by_map(
        &mut self,
        extents: &[Units],
        map: &[(u32, Units)],
    ) -> Result<(), Refused> {
        let window = self.path.readahead_bytes / self.device.unit_bytes();
        if window == 0 {
            self.wait_for_map(map)?;
            return self.read(extents);
        }
        self.enter();
        let (mut windows, mut rest, mut at) = (windows(extents, window).into_iter(), map, 0);
        let mut next_window = |host: &mut Self| {
            let window = windows.next().unwrap_or_default();
            at += window.iter().map(|extent| extent.count).sum::<u32>();
            let (needed, later) = rest.split_at(rest.partition_point(|(first, _)| *first < at));
            rest = later;
            host.wait_for_map(needed)?;
            host.begin(&window)
        };
        let mut ahead = next_window(self)?;
        while !ahead.is_empty() {
            let arriving = std::mem::replace(&mut ahead, next_window(self)?);
            for (end, units) in arriving {
                self.sleep_until(end);
                self.use_units(units.into());
            }
        }
        self.finish();
        self.leave();
        Ok(())
    }

    /// Reads blocks of a file's map, one after the other.
    fn wait_for_map(&mut self, blocks: &[(u32, Units)]) -> Result<(), Refused> {
        for (_, block) in blocks {
            let ends = self.begin(&[*block])?;
            ends.iter().for_each(|(end, _)| self.sleep_until(*end));
        }
        Ok(())
    }

    /// Issues the requests of a read without a call, as readahead does, and waits for none; returns when each is
    /// done, and its units.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn begin(&mut self, extents: &[Units]) -> Result<Vec<(u64, u32)>, Refused> {
        self.issued.clear();
        self.issue(reads(extents))?;
        Ok(std::mem::take(&mut self.issued))
    }

    /// Spends the time in which the program processes the data that it has read.
    fn use_units(&mut self, units: u64) {
        let pages = (units * u64::from(self.device.unit_bytes())).div_ceil(4096);
        self.spend(pages * self.use_page_ns, |spent| &mut spent.program);
    }

    /// Waits until the drive is idle; returns when it is. No layer's time counts this.
    pub fn wait_until_idle(&mut self) -> u64 {
        self.now = self.now.max(self.device.idle_at());
        self.now
    }

    /// Writes consecutive extents of a file with one call; an append's hint is that of the first one, the others follow it.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn write(&mut self, extents: &[Units], hint: Hint) -> Result<(), Refused> {
        let (mut direction, mut each) = (Direction::Write(hint), Vec::with_capacity(extents.len()));
        for extent in extents {
            each.push((*extent, direction));
            direction = direction.after(extent.end() - 1);
        }
        self.call(each)
    }

    /// Writes extents with one call, each with a hint of its own.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn write_each(&mut self, extents: &[(Units, Hint)]) -> Result<(), Refused> {
        self.call(extents.iter().map(|(units, hint)| (*units, Direction::Write(*hint))))
    }

    /// Makes everything durable that the drive has acknowledged.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn flush(&mut self) -> Result<(), Refused> {
        self.command(&Command::Flush).map(drop)
    }

    /// Sends a command as it is, with one call, and waits for its completion.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn command(&mut self, command: &Command) -> Result<Completion, Refused> {
        self.enter();
        self.spend(self.path.request_ns, |spent| &mut spent.request);
        let done = self.device.submit(self.now, command)?;
        self.in_flight.push(Reverse(done.done_ns));
        self.finish();
        self.leave();
        Ok(done)
    }

    /// Sends a command as it is, as the kernel does by itself, and does not wait for its completion.
    ///
    /// # Errors
    /// Why the drive refused.
    pub fn begin_command(&mut self, command: &Command) -> Result<Completion, Refused> {
        self.spend(self.path.request_ns, |spent| &mut spent.request);
        self.device.submit(self.now, command)
    }

    fn call(
        &mut self,
        extents: impl IntoIterator<Item = (Units, Direction)>,
    ) -> Result<(), Refused> {
        self.issued.clear();
        self.enter();
        self.issue(extents)?;
        self.finish();
        self.leave();
        Ok(())
    }

    fn enter(&mut self) {
        self.spend(self.path.system_call_ns / 2, |spent| &mut spent.system_call);
    }

    fn leave(&mut self) {
        self.spend(self.path.system_call_ns.div_ceil(2), |spent| &mut spent.system_call);
    }

    fn spend(&mut self, ns: u64, layer: fn(&mut TimeSpent) -> &mut u64) {
        self.now += ns;
        *layer(&mut self.spent) += ns;
    }

    /// Issues the requests of a call.
    fn issue(
        &mut self,
        extents: impl IntoIterator<Item = (Units, Direction)>,
    ) -> Result<(), Refused> {
        let (unit, path) = (self.device.unit_bytes(), self.path);
        let mut plug: Vec<Request> = Vec::new();
        let mut pages = 0;
        for (extent, mut direction) in extents {
            self.look_up(extent);
            for bio in split(extent, path.bio_bytes / unit) {
                pages = self.make_bio(bio, pages);
                for units in split(bio, path.request_bytes / unit) {
                    let is_first = units.start == bio.start;
                    let direction =
                        if is_first { direction } else { self.split_hint(direction, units) };
                    self.add_request(Request { units, direction }, &mut plug)?;
                }
                // The file system knows what a bio follows; the layers below it do not.
                direction = direction.after(bio.end() - 1);
            }
        }
        self.used_pages = self.used_pages.max(pages);
        self.flush_plug(&mut plug)
    }

    /// Spends the time in which the file system looks up an extent.
    fn look_up(&mut self, extent: Units) {
        let follows = self.last_end.replace(extent.end()) == Some(extent.start);
        let uncached_ns = if follows { 0 } else { self.path.uncached_lookup_ns };
        self.spend(self.path.lookup_ns + uncached_ns, |spent| &mut spent.file_system);
    }

    /// Makes a bio after `pages` pages of the call; returns how many pages the call has had then.
    fn make_bio(&mut self, bio: Units, pages: u64) -> u64 {
        let path = self.path;
        self.spend(path.bio_ns, |spent| &mut spent.bio);
        let bio_pages = u64::from(bio.count * self.device.unit_bytes()).div_ceil(4096);
        let end = pages + bio_pages;
        let new = end.saturating_sub(self.used_pages.max(pages));
        self.spend(bio_pages * path.page_ns + new * path.new_page_ns, |spent| &mut spent.pages);
        end
    }

    /// Adds a request to the plug, or merges it with the last one there if it follows that.
    fn add_request(&mut self, request: Request, plug: &mut Vec<Request>) -> Result<(), Refused> {
        let (unit, path) = (self.device.unit_bytes(), self.path);
        if let Some(last) = plug.last_mut()
            && last.units.end() == request.units.start
            && (last.units.count + request.units.count) * unit <= path.request_bytes
        {
            if !last.direction.covers(request.direction, last.units.end() - 1) {
                self.stale_hints += 1;
            }
            last.units.count += request.units.count;
            return Ok(());
        }
        self.spend(path.request_ns, |spent| &mut spent.request);
        let large = plug.last().is_some_and(|last| last.units.count * unit >= path.plug_bytes);
        if large || plug.len() as u32 >= path.plug_requests {
            self.flush_plug(plug)?;
        }
        // A request occupies a slot of the queue from here on. Before the program waits for a free slot, it
        // flushes the plug.
        let depth = path.queue_depth.max(1) as usize;
        if self.in_flight.len() + plug.len() >= depth {
            self.flush_plug(plug)?;
        }
        while self.in_flight.len() >= depth {
            self.finish_one();
        }
        plug.push(request);
        Ok(())
    }

    /// The direction and the hint of a later request of a split write.
    fn split_hint(&mut self, direction: Direction, units: Units) -> Direction {
        let Direction::Write(Hint::Append { .. }) = direction else { return direction };
        match self.path.split_hints {
            SplitHints::Renewed => Direction::Write(Hint::Append { predecessor: units.start - 1 }),
            SplitHints::Repeated => {
                self.stale_hints += 1;
                direction
            }
            SplitHints::Dropped => {
                self.stale_hints += 1;
                Direction::Write(Hint::None)
            }
        }
    }

    fn flush_plug(&mut self, plug: &mut Vec<Request>) -> Result<(), Refused> {
        for Request { units, direction } in plug.drain(..) {
            let command = match direction {
                Direction::Read => Command::Read(units),
                Direction::Write(hint) => Command::Write { units, hint, fua: false },
            };
            let done = self.device.submit(self.now, &command)?;
            self.requests += 1;
            self.in_flight.push(Reverse(done.done_ns));
            self.issued.push((done.done_ns, units.count));
        }
        Ok(())
    }

    /// Sleeps until the first request in flight is done.
    fn finish_one(&mut self) {
        let Some(Reverse(end)) = self.in_flight.pop() else { return };
        if end > self.now {
            self.spend(end - self.now, |spent| &mut spent.waiting);
            self.spend(self.path.wake_ns, |spent| &mut spent.wake);
        }
        self.spend(self.path.end_ns, |spent| &mut spent.completion);
    }

    /// Sleeps until a request is done, and completes those that are done by then.
    fn sleep_until(&mut self, end: u64) {
        if end > self.now {
            self.spend(end - self.now, |spent| &mut spent.waiting);
            self.spend(self.path.wake_ns, |spent| &mut spent.wake);
        }
        while self.in_flight.peek().is_some_and(|Reverse(end)| *end <= self.now) {
            self.in_flight.pop();
            self.spend(self.path.end_ns, |spent| &mut spent.completion);
        }
    }

    /// Sleeps until all requests in flight are done, and wakes up once.
    fn finish(&mut self) {
        let mut slept = false;
        while let Some(Reverse(end)) = self.in_flight.pop() {
            if end > self.now {
                slept = true;
                self.spend(end - self.now, |spent| &mut spent.waiting);
            }
            self.spend(self.path.end_ns, |spent| &mut spent.completion);
        }
        if slept {
            self.spend(self.path.wake_ns, |spent| &mut spent.wake);
        }
    }
}
