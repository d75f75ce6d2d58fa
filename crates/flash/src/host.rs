//! The way of a read or a write from a system call to the drive (FAST'24, sections 2.1 and 3.1): the
//! stretches of a file become bios, bios become requests, requests wait in a plug and go out
//! together, as many at a time as the queue is deep. What one processor does takes its time; what
//! the drive does meanwhile overlaps with it.

use crate::command::{Command, Completion, Hint, Refused, Units};
use crate::ssd::Ssd;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a host's way to a drive costs and allows. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPath {
    /// A system call, there and back.
    pub system_call_ns: u64,
    /// Finding where a stretch of a file lies (iomap), each.
    pub stretch_ns: u64,
    /// A bio, without its pages.
    pub bio_ns: u64,
    /// A page of 4 KiB in a bio.
    pub page_ns: u64,
    /// A request, until it is with the drive.
    pub request_ns: u64,
    /// The end of a request, on the processor that waits for it.
    pub end_ns: u64,
    /// The plug goes out with so many requests.
    pub plug_requests: u32,
    /// It also does with a request of so many bytes.
    pub plug_bytes: u32,
    /// The largest request.
    pub request_bytes: u32,
    /// Requests that may be under way.
    pub queue_depth: u32,
    /// The largest bio: 256 pages.
    #[serde(default = "bio_bytes")]
    pub bio_bytes: u32,
}

fn bio_bytes() -> u32 {
    1 << 20
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
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Read,
    Write(Hint),
}

impl<'a, D: Device + ?Sized> Host<'a, D> {
    /// At this time.
    pub fn new(path: &'a HostPath, device: &'a mut D, now: u64) -> Self {
        Self { path, device, now, under_way: BinaryHeap::new(), requests: 0 }
    }

    /// Reads stretches of the drive that follow each other in a file, with one call; returns when
    /// all of it is there.
    ///
    /// # Errors
    /// What the drive refused.
    pub fn read(&mut self, stretches: &[Units]) -> Result<(), Refused> {
        self.call(stretches, Direction::Read)
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
        self.now += self.path.system_call_ns + self.path.request_ns;
        let done = self.device.submit(self.now, &Command::Flush)?;
        self.now = self.now.max(done.done_ns) + self.path.end_ns;
        Ok(())
    }

    fn call(&mut self, stretches: &[Units], direction: Direction) -> Result<(), Refused> {
        let (unit, path) = (self.device.unit_bytes(), self.path);
        self.now += path.system_call_ns / 2;
        let mut plug: Vec<Units> = Vec::new();
        for stretch in stretches {
            self.now += path.stretch_ns;
            for bio in parts(*stretch, path.bio_bytes / unit) {
                self.now += path.bio_ns + u64::from(bio.count * unit).div_ceil(4096) * path.page_ns;
                for request in parts(bio, path.request_bytes / unit) {
                    // What goes on where the last one ends becomes one with it.
                    let merges = plug.last_mut().filter(|last| {
                        let both = (last.count + request.count) * unit;
                        last.end() == request.start && both <= path.request_bytes
                    });
                    match merges {
                        Some(last) => last.count += request.count,
                        None => {
                            self.now += path.request_ns;
                            let large =
                                plug.last().is_some_and(|r| r.count * unit >= path.plug_bytes);
                            if large || plug.len() as u32 >= path.plug_requests {
                                self.unplug(&mut plug, direction)?;
                            }
                            plug.push(request);
                        }
                    }
                }
            }
        }
        self.unplug(&mut plug, direction)?;
        while let Some(Reverse(end)) = self.under_way.pop() {
            self.now = self.now.max(end) + path.end_ns;
        }
        self.now += path.system_call_ns.div_ceil(2);
        Ok(())
    }

    fn unplug(&mut self, plug: &mut Vec<Units>, direction: Direction) -> Result<(), Refused> {
        for units in plug.drain(..) {
            while self.under_way.len() as u32 >= self.path.queue_depth.max(1) {
                let Some(Reverse(end)) = self.under_way.pop() else { break };
                self.now = self.now.max(end) + self.path.end_ns;
            }
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
}

/// A stretch in parts of at most so many units.
fn parts(stretch: Units, most: u32) -> impl Iterator<Item = Units> {
    let most = most.max(1);
    let starts = (stretch.start..stretch.end()).step_by(most as usize);
    starts.map(move |start| Units::new(start, most.min(stretch.end() - start)))
}
