//! The way of a read or a write from a system call to the drive (FAST'24, sections 2.1 and 3.1): the
//! stretches of a file become bios, bios become requests, requests wait in a plug and go out
//! together, as many at a time as the queue is deep. What one processor does takes its time; what
//! the drive does meanwhile overlaps with it.

use crate::command::{Command, Completion, Hint, Refused, Units};
pub use crate::path::{HostPath, SplitHints};
use crate::ssd::Ssd;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Where a host's time went, by layer, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// System calls, there and back.
    pub system_call: u64,
    /// The file system, asked where stretches lie (iomap).
    pub file_system: u64,
    /// Bios, but for their pages.
    pub bio: u64,
    /// Pages of bios.
    pub pages: u64,
    /// Requests, until they are with the drive.
    pub request: u64,
    /// Ends of requests.
    pub completion: u64,
    /// Falling asleep and waking up.
    pub wake: u64,
    /// The program itself, with what it has read.
    pub program: u64,
    /// Asleep, while the drive works.
    pub waiting: u64,
}

impl Spent {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.host() + self.waiting
    }

    /// All of it but for the drive.
    pub fn host(&self) -> u64 {
        let by_layer = [self.system_call, self.file_system, self.bio, self.pages];
        by_layer.iter().sum::<u64>() + self.request + self.completion + self.wake + self.program
    }
}

/// Something that takes commands at instants of virtual time.
pub trait Device {
    /// Carries out a command that arrives then.
    ///
    /// # Errors
    /// Why not.
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused>;
    /// Bytes of a unit.
    fn unit_bytes(&self) -> u32;
}

impl Device for Ssd {
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        Self::submit(self, at, command)
    }

    fn unit_bytes(&self) -> u32 {
        self.shape().unit_bytes
    }
}

/// A program that reads and writes, one call after the other.
pub struct Host<'a, D: ?Sized> {
    path: &'a HostPath,
    /// The drive behind it.
    pub device: &'a mut D,
    /// The time on its processor.
    pub now: u64,
    /// Ends of the requests that are under way.
    under_way: BinaryHeap<Reverse<u64>>,
    /// Requests so far.
    pub requests: u64,
    /// Where the time went so far.
    pub spent: Spent,
    /// Pages at the start of the caller's buffer that it has used.
    used_pages: u64,
    /// Where the last stretch ended.
    last_end: Option<u32>,
    /// What the program does with each page of 4 KiB that it reads through the page cache.
    pub use_page_ns: u64,
    /// Units of the window that is under way.
    window_units: u64,
    /// Requests whose hint names something else than what they go on from, or nothing, because
    /// their write was split.
    pub stale_hints: u64,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write(Hint),
}

impl Direction {
    /// The same for what comes behind this unit.
    fn behind(self, before: Option<u32>) -> Self {
        match (self, before) {
            (Self::Write(Hint::Append { .. }), Some(predecessor)) => {
                Self::Write(Hint::Append { predecessor })
            }
            (same, _) => same,
        }
    }
}

/// A request in the plug.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    units: Units,
    direction: Direction,
}

/// A drive that several programs use, each through a handle of its own.
pub struct Shared<'a, D>(pub &'a RefCell<D>);

impl<D: Device> Device for Shared<'_, D> {
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.0.borrow_mut().submit(at, command)
    }

    fn unit_bytes(&self) -> u32 {
        self.0.borrow().unit_bytes()
    }
}

impl<'a, D: Device + ?Sized> Host<'a, D> {
    /// At this time, with a buffer that it has used before.
    pub fn new(path: &'a HostPath, device: &'a mut D, now: u64) -> Self {
        Self {
            path,
            device,
            now,
            under_way: BinaryHeap::new(),
            requests: 0,
            spent: Spent::default(),
            used_pages: u64::MAX,
            last_end: None,
            use_page_ns: 0,
            window_units: 0,
            stale_hints: 0,
        }
    }

    /// Its next call is the first one that uses its buffer.
    pub fn with_new_buffer(mut self) -> Self {
        self.used_pages = 0;
        self
    }

    /// Reads stretches of the drive that follow each other in a file, with one call; returns when
    /// all of it is there.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn read(&mut self, stretches: &[Units]) -> Result<(), Refused> {
        self.call(stretches, Direction::Read)
    }

    /// The same through the page cache, which has none of it, with the host's readahead: while the
    /// reader is at one window of it, the next one is under way.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn read_buffered(&mut self, stretches: &[Units]) -> Result<(), Refused> {
        let window = self.path.readahead_bytes / self.device.unit_bytes();
        if window == 0 {
            return self.read(stretches);
        }
        self.enter();
        for window in windows(stretches, window) {
            self.next_window(&window)?;
        }
        self.last_window();
        self.leave();
        Ok(())
    }

    /// One window of a buffered read is sent out once the one before is there, which the program
    /// then uses.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn next_window(&mut self, window: &[Units]) -> Result<(), Refused> {
        self.finish();
        self.issue(window, Direction::Read)?;
        let units = window.iter().map(|stretch| u64::from(stretch.count)).sum::<u64>();
        let there = std::mem::replace(&mut self.window_units, units);
        self.use_units(there);
        Ok(())
    }

    /// The last window is there, and used.
    pub fn last_window(&mut self) {
        self.finish();
        let there = std::mem::take(&mut self.window_units);
        self.use_units(there);
    }

    /// The program does something with what it has read.
    fn use_units(&mut self, units: u64) {
        let pages = (units * u64::from(self.device.unit_bytes())).div_ceil(4096);
        self.spend(pages * self.use_page_ns, |spent| &mut spent.program);
    }

    /// When everything that is under way is done.
    pub fn ready_at(&self) -> u64 {
        self.under_way.iter().map(|Reverse(end)| *end).fold(self.now, u64::max)
    }

    /// Writes them.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn write(&mut self, stretches: &[Units], hint: Hint) -> Result<(), Refused> {
        self.call(stretches, Direction::Write(hint))
    }

    /// Has the drive make all that it took in durable.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn flush(&mut self) -> Result<(), Refused> {
        self.enter();
        self.spend(self.path.request_ns, |spent| &mut spent.request);
        let done = self.device.submit(self.now, &Command::Flush)?;
        self.under_way.push(Reverse(done.done_ns));
        self.finish();
        self.leave();
        Ok(())
    }

    fn call(&mut self, stretches: &[Units], direction: Direction) -> Result<(), Refused> {
        self.enter();
        self.issue(stretches, direction)?;
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

    fn spend(&mut self, ns: u64, on: fn(&mut Spent) -> &mut u64) {
        self.now += ns;
        *on(&mut self.spent) += ns;
    }

    /// Sends out all that a call asks for.
    fn issue(&mut self, stretches: &[Units], direction: Direction) -> Result<(), Refused> {
        let (unit, path) = (self.device.unit_bytes(), self.path);
        let mut plug: Vec<Wanted> = Vec::new();
        let (mut pages, mut before) = (0, None);
        for stretch in stretches {
            let goes_on = self.last_end.replace(stretch.end()) == Some(stretch.start);
            let lookup = path.stretch_ns + if goes_on { 0 } else { path.extent_ns };
            self.spend(lookup, |spent| &mut spent.file_system);
            for bio in parts(*stretch, path.bio_bytes / unit) {
                self.spend(path.bio_ns, |spent| &mut spent.bio);
                let of_bio = u64::from(bio.count * unit).div_ceil(4096);
                pages += of_bio;
                let new = pages.saturating_sub(self.used_pages.max(pages - of_bio));
                let cost = of_bio * path.page_ns + new * path.new_page_ns;
                self.spend(cost, |spent| &mut spent.pages);
                // The file system knows what a bio goes on from; below it that is known no more.
                let of_bio = direction.behind(before);
                for units in parts(bio, path.request_bytes / unit) {
                    let direction = match units.start == bio.start {
                        true => of_bio,
                        false => self.split(of_bio, units),
                    };
                    // What goes on where the last one ends becomes one with it.
                    let merges = plug.last_mut().filter(|last| {
                        let both = (last.units.count + units.count) * unit;
                        last.units.end() == units.start && both <= path.request_bytes
                    });
                    match merges {
                        Some(last) => last.units.count += units.count,
                        None => self.request(Wanted { units, direction }, &mut plug)?,
                    }
                }
                before = Some(bio.end() - 1);
            }
        }
        self.used_pages = self.used_pages.max(pages);
        self.unplug(&mut plug)
    }

    /// One more request for the plug.
    fn request(&mut self, request: Wanted, plug: &mut Vec<Wanted>) -> Result<(), Refused> {
        let (unit, path) = (self.device.unit_bytes(), self.path);
        self.spend(path.request_ns, |spent| &mut spent.request);
        let large = plug.last().is_some_and(|last| last.units.count * unit >= path.plug_bytes);
        if large || plug.len() as u32 >= path.plug_requests {
            self.unplug(plug)?;
        }
        // A request takes its place in the queue when it is made. Who waits for one unplugs first.
        let depth = path.queue_depth.max(1) as usize;
        if self.under_way.len() + plug.len() >= depth {
            self.unplug(plug)?;
        }
        while self.under_way.len() >= depth {
            self.finish_one();
        }
        plug.push(request);
        Ok(())
    }

    /// What a request of a split write says.
    fn split(&mut self, direction: Direction, units: Units) -> Direction {
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

    fn unplug(&mut self, plug: &mut Vec<Wanted>) -> Result<(), Refused> {
        for Wanted { units, direction } in plug.drain(..) {
            let command = match direction {
                Direction::Read => Command::Read(units),
                Direction::Write(hint) => Command::Write { units, hint, fua: false },
            };
            let done = self.device.submit(self.now, &command)?;
            self.requests += 1;
            self.under_way.push(Reverse(done.done_ns));
        }
        Ok(())
    }

    /// Sleeps until the first of what is under way is done.
    fn finish_one(&mut self) {
        let Some(Reverse(end)) = self.under_way.pop() else { return };
        if end > self.now {
            self.spend(end - self.now, |spent| &mut spent.waiting);
            self.spend(self.path.wake_ns, |spent| &mut spent.wake);
        }
        self.spend(self.path.end_ns, |spent| &mut spent.completion);
    }

    /// Sleeps until all of it is; it is woken once.
    fn finish(&mut self) {
        let mut slept = false;
        while let Some(Reverse(end)) = self.under_way.pop() {
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

/// A stretch in parts of at most so many units.
fn parts(stretch: Units, most: u32) -> impl Iterator<Item = Units> {
    let most = most.max(1);
    let starts = (stretch.start..stretch.end()).step_by(most as usize);
    starts.map(move |start| Units::new(start, most.min(stretch.end() - start)))
}

/// Stretches that follow each other in a file, cut at every so many units of it.
pub fn windows(stretches: &[Units], units: u32) -> Vec<Vec<Units>> {
    let (mut all, mut left) = (Vec::new(), 0);
    for stretch in stretches {
        let mut rest = *stretch;
        while rest.count > 0 {
            if left == 0 {
                all.push(Vec::new());
                left = units;
            }
            let count = rest.count.min(left);
            all.last_mut().expect("just pushed").push(Units::new(rest.start, count));
            rest = Units::new(rest.start + count, rest.count - count);
            left -= count;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that does one command after the other, each in a microsecond a unit.
    #[derive(Default)]
    struct Slow {
        free_at: u64,
        commands: Vec<(u64, Units)>,
    }

    impl Device for Slow {
        fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
            let Command::Read(units) = command else { return Err(Refused::Unsupported) };
            self.commands.push((at, *units));
            self.free_at = self.free_at.max(at) + 1000 * u64::from(units.count);
            Ok(Completion { done_ns: self.free_at, ..Completion::default() })
        }

        fn unit_bytes(&self) -> u32 {
            4096
        }
    }

    fn path() -> HostPath {
        HostPath {
            system_call_ns: 100,
            stretch_ns: 10,
            extent_ns: 5,
            bio_ns: 20,
            page_ns: 1,
            new_page_ns: 7,
            request_ns: 30,
            end_ns: 3,
            wake_ns: 50,
            plug_requests: 16,
            plug_bytes: 128 << 10,
            request_bytes: 1 << 20,
            queue_depth: 1023,
            readahead_bytes: 0,
            bio_bytes: 1 << 20,
            split_hints: SplitHints::default(),
        }
    }

    #[test]
    fn every_nanosecond_is_accounted_for_by_its_layer() {
        let (path, mut drive) = (path(), Slow::default());
        let mut host = Host::new(&path, &mut drive, 0).with_new_buffer();
        // The second stretch goes on where the first one ends: one request, one look at the extent.
        host.read(&[Units::new(0, 4), Units::new(4, 4), Units::new(100, 8)]).unwrap();
        let spent = host.spent;
        assert_eq!((host.requests, host.now), (2, spent.total()));
        assert_eq!((spent.system_call, spent.file_system, spent.bio), (100, 40, 60));
        assert_eq!((spent.pages, spent.request), (16 * 8, 60));
        assert_eq!((spent.completion, spent.wake), (6, 50), "woken once");
        host.read(&[Units::new(0, 32)]).unwrap();
        let pages = 32 + 16 * 7;
        assert_eq!(host.spent.pages - spent.pages, pages, "half of the buffer is new");
    }

    #[test]
    fn one_request_at_a_time_waits_for_each() {
        let (mut path, mut drive) = (path(), Slow::default());
        path.queue_depth = 1;
        let all: Vec<Units> = (0..4).map(|n| Units::new(n * 100, 2)).collect();
        let mut host = Host::new(&path, &mut drive, 0);
        host.read(&all).unwrap();
        assert_eq!((host.spent.wake, host.spent.waiting), (4 * 50, 4 * 2000));
        assert!(drive.commands.windows(2).all(|two| two[1].0 >= two[0].0 + 2000));
        (path.queue_depth, drive) = (8, Slow::default());
        let mut host = Host::new(&path, &mut drive, 0);
        host.read(&all).unwrap();
        assert_eq!(host.spent.wake, 50);
        assert!(drive.commands.windows(2).all(|two| two[1].0 == two[0].0), "plugged");
    }

    #[test]
    fn a_split_write_says_what_it_goes_on_from_or_does_not() {
        #[derive(Default)]
        struct Told(Vec<Hint>);
        impl Device for Told {
            fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
                let Command::Write { hint, .. } = command else { return Err(Refused::Unsupported) };
                self.0.push(*hint);
                Ok(Completion { done_ns: at, ..Completion::default() })
            }
            fn unit_bytes(&self) -> u32 {
                4096
            }
        }
        let told = |split_hints| {
            let path = HostPath { split_hints, request_bytes: 64 << 10, ..path() };
            let mut drive = Told::default();
            let mut host = Host::new(&path, &mut drive, 0);
            let hint = Hint::Append { predecessor: 7 };
            host.write(&[Units::new(100, 32), Units::new(500, 8)], hint).unwrap();
            let stale = host.stale_hints;
            (drive.0, stale)
        };
        let after = |predecessor| Hint::Append { predecessor };
        assert_eq!(told(SplitHints::Repeated), (vec![after(7), after(7), after(131)], 1));
        assert_eq!(told(SplitHints::Dropped), (vec![after(7), Hint::None, after(131)], 1));
        assert_eq!(told(SplitHints::Renewed), (vec![after(7), after(115), after(131)], 0));
    }

    #[test]
    fn what_the_program_does_overlaps_with_the_next_window() {
        let mut path = path();
        path.readahead_bytes = 128 << 10;
        let ns = |use_page_ns| {
            let mut drive = Slow::default();
            let mut host = Host::new(&path, &mut drive, 0);
            host.use_page_ns = use_page_ns;
            host.read_buffered(&[Units::new(0, 256)]).unwrap();
            host.now
        };
        // Eight windows of 32 pages; the drive takes a microsecond a page.
        assert!(ns(500) < ns(0) + 32 * 500 + 8 * 100);
        assert!(ns(2000) > 8 * 32 * 2000);
    }

    #[test]
    fn readahead_decides_how_many_requests_a_file_takes() {
        let (mut path, whole) = (path(), Units::new(0, 256));
        let pieces: Vec<Units> = (0..16).map(|n| Units::new(n * 100, 16)).collect();
        let requests = |path: &HostPath, stretches: &[Units]| {
            let mut drive = Slow::default();
            let mut host = Host::new(path, &mut drive, 0);
            host.read_buffered(stretches).unwrap();
            host.requests
        };
        assert_eq!((requests(&path, &[whole]), requests(&path, &pieces)), (1, 16));
        path.readahead_bytes = 128 << 10;
        assert_eq!((requests(&path, &[whole]), requests(&path, &pieces)), (8, 16));
        path.readahead_bytes = 96 << 10;
        assert_eq!(requests(&path, &pieces), 21, "windows of 24 units cut every third piece");
    }
}
