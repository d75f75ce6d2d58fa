//! The dies, channels and link of a drive on their time lines: when a sensing, a program, an erase or a
//! transfer begins and ends, given all earlier operations.
//!
//! A die does its operations in the order in which they arrive. Where reads go first, or programs and erases can
//! be suspended, reads go before those that have not begun, unless their ends are relied on
//! ([`Nand::pin_programs`]); where they can be suspended, reads also interrupt one in its array phase, which
//! resumes after them. The data of a program that is delayed may have crossed the channel already:
//! it waits in the cache register of the die.

mod line;
#[cfg(test)]
mod tests;

use crate::drive::{Drive, Timing};
use crate::geometry::{Page, Shape};
use crate::timeline::{Timeline, transfer_ns};
use line::{Line, Operation};

/// A kind of operation of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Senses a page and sends it.
    Read,
    /// Receives a program unit and programs it.
    Program,
    /// Erases a block.
    Erase,
    /// Programs the page that it has just sensed (copyback).
    Copyback,
}

/// A time during which a die was busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The line: a die, or a plane where planes sense independently.
    pub line: u32,
    /// When it begins.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// The operation.
    pub work: Work,
}

/// Identifies an operation of a die, of which the end is needed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    line: u32,
    id: u64,
    start: u64,
    end: u64,
}

/// The dies, channels and link of a drive.
#[derive(Clone, Debug)]
pub struct Nand {
    timing: Timing,
    shape: Shape,
    lines: Vec<Line>,
    channels: Vec<Timeline>,
    link: Timeline,
    last_id: u64,
    /// See [`Nand::trace`].
    trace: Option<Vec<Busy>>,
    counts: [u64; 4],
    total_busy_ns: u64,
    channel_bytes: u64,
}

impl Nand {
    /// Idle dies.
    pub fn new(drive: &Drive, shape: &Shape) -> Self {
        Self {
            timing: drive.timing.clone(),
            shape: shape.clone(),
            lines: vec![Line::default(); (shape.dies * shape.independent_planes) as usize],
            channels: vec![Timeline::default(); shape.channels as usize],
            link: Timeline::default(),
            last_id: 0,
            trace: None,
            counts: [0; 4],
            total_busy_ns: 0,
            channel_bytes: 0,
        }
    }

    /// Starts to record when each die is busy, for [`Nand::traced`].
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// When the dies were busy, as far as it cannot change after `now`; each time is returned once.
    pub fn traced(&mut self, now: u64) -> Vec<Busy> {
        for line in 0..self.lines.len() {
            self.drop_ended(line, now);
        }
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The line of a plane.
    fn line_of(&self, die: u32, plane: u32) -> usize {
        let plane = if self.shape.independent_planes > 1 { plane } else { 0 };
        (die * self.shape.independent_planes + plane) as usize
    }

    fn drop_ended(&mut self, line: usize, now: u64) {
        while let Some(ended) = self.lines[line].pop_ended(now) {
            if let Some(trace) = &mut self.trace {
                let Operation { start, end, work, .. } = ended;
                trace.push(Busy { line: line as u32, start, end, work });
            }
        }
    }

    /// Whether reads may delay programs and erases that are in flight.
    fn reorders(&self) -> bool {
        self.timing.suspend.is_some() || self.timing.reads_first
    }

    fn keeps_operations(&self) -> bool {
        self.reorders() || self.trace.is_some()
    }

    /// Sends a command and an address to a die, which senses or erases then; returns when it begins to.
    fn command(&mut self, now: u64, start: u64, die: u32) -> u64 {
        let len = self.timing.array_command_ns;
        let channel = &mut self.channels[self.shape.channel_of(die) as usize];
        channel.reserve(now, start, len) + len
    }

    /// Senses a page and sends `bytes` of it over the channel, and over the link if they go to the host.
    /// Returns when the last of them arrives.
    pub fn read(&mut self, now: u64, ready: u64, page: Page, bytes: u32, to_host: bool) -> u64 {
        let line = self.line_of(page.die, page.plane);
        let in_register = self.lines[line].load_register(page.number);
        let sensing = if in_register && self.timing.page_stays {
            0
        } else {
            self.sensing_ns(page, bytes <= self.timing.small_read_bytes)
        };
        self.counts[Work::Read as usize] += u64::from(sensing > 0);
        self.drop_ended(line, now);
        let slot = if self.reorders() {
            self.lines[line].early_slot(ready, self.timing.suspend)
        } else {
            self.lines[line].last_slot(ready)
        };
        let start = slot.start;
        let sensing = if sensing > 0 {
            self.command(now, start, page.die) - start + sensing
        } else {
            sensing
        };
        let (end, arrived) = self.send(now, start + sensing, page.die, bytes, to_host);
        let (id, work, pinned) = (self.next_id(), Work::Read, false);
        self.total_busy_ns += end - start;
        let keep = self.keeps_operations();
        let read = Operation { id, start, array: u64::MAX, end, work, pinned };
        self.lines[line].insert(slot, read, keep);
        arrived
    }

    fn sensing_ns(&self, page: Page, small: bool) -> u64 {
        let times = if small { &self.timing.small_read_ns } else { &self.timing.read_ns };
        times[page.in_block as usize % times.len()]
    }

    /// Sends bytes between the register of a die and the controller, chunk by chunk, and on to the host;
    /// returns when the die is done, and when the last byte arrives.
    fn send(&mut self, now: u64, sensed: u64, die: u32, bytes: u32, to_host: bool) -> (u64, u64) {
        self.channel_bytes += u64::from(bytes);
        let channel = &mut self.channels[self.shape.channel_of(die) as usize];
        let (mut left, mut at, mut arrived) = (bytes, sensed, sensed);
        let mut command_ns = self.timing.channel_command_ns;
        while left > 0 {
            let chunk = left.min(self.timing.channel_chunk_bytes);
            let len = transfer_ns(chunk.into(), self.timing.channel_bytes_per_second)
                + std::mem::take(&mut command_ns);
            at = channel.reserve(now, at, len) + len;
            arrived = at;
            if to_host {
                let len = transfer_ns(chunk.into(), self.timing.link_bytes_per_second);
                arrived = self.link.reserve(now, at, len) + len;
            }
            left -= chunk;
        }
        (at, arrived)
    }

    /// Sends a program unit over the channel and programs it.
    pub fn program(&mut self, now: u64, ready: u64, die: u32, plane: u32, bytes: u32) -> Ticket {
        let line = self.line_of(die, plane);
        self.drop_ended(line, now);
        let start = self.lines[line].free_at().max(ready);
        let (sent, _) = self.send(now, start, die, bytes, false);
        self.occupy(line, start, sent, self.timing.program_ns, Work::Program)
    }

    /// Senses a page and programs it elsewhere on its plane; nothing crosses the channel.
    pub fn copyback(&mut self, now: u64, ready: u64, page: Page) -> Ticket {
        let line = self.line_of(page.die, page.plane);
        self.drop_ended(line, now);
        let start = self.lines[line].free_at().max(ready);
        let sensed = self.command(now, start, page.die) + self.sensing_ns(page, false);
        self.occupy(line, start, sensed, self.timing.program_ns, Work::Copyback)
    }

    /// Erases a block.
    pub fn erase(&mut self, now: u64, ready: u64, die: u32, plane: u32) -> Ticket {
        let line = self.line_of(die, plane);
        self.drop_ended(line, now);
        let start = self.lines[line].free_at().max(ready);
        let array = self.command(now, start, die);
        self.occupy(line, start, array, self.timing.erase_ns, Work::Erase)
    }

    /// Occupies a line from `start` on, with an array phase of `len` from `array` on.
    fn occupy(&mut self, line: usize, start: u64, array: u64, len: u64, work: Work) -> Ticket {
        self.counts[work as usize] += 1;
        let (id, end, keep) = (self.next_id(), array + len, self.keeps_operations());
        self.total_busy_ns += end - start;
        self.lines[line].clear_register();
        let operation = Operation { id, start, array, end, work, pinned: false };
        self.lines[line].append(operation, keep);
        Ticket { line: line as u32, id, start, end }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Forbids that reads delay the programs that are in flight; returns when the last of them ends, or 0
    /// where reads never delay programs.
    pub fn pin_programs(&mut self) -> u64 {
        if !self.reorders() {
            return 0;
        }
        self.lines.iter_mut().map(Line::pin_programs).max().unwrap_or(0)
    }

    /// When an operation ends, unless a later read delays it.
    pub fn end_of(&self, ticket: Ticket) -> u64 {
        if !self.reorders() {
            return ticket.end;
        }
        // An operation that was interrupted is in the queue more than once; it ends with the last entry.
        let queue = self.lines[ticket.line as usize].queue();
        let last = queue.iter().rev().find(|operation| operation.id == ticket.id);
        last.map_or(ticket.end, |operation| operation.end)
    }

    /// When an operation begins, unless a later read delays it.
    pub fn start_of(&self, ticket: Ticket) -> u64 {
        let queue = self.lines[ticket.line as usize].queue();
        let first = queue.iter().find(|operation| operation.id == ticket.id);
        first.map_or(ticket.start, |operation| operation.start)
    }

    /// Sends bytes over the link, from the host or, where no die is read, to it; returns when the last of
    /// them arrives.
    pub fn transfer(&mut self, now: u64, ready: u64, bytes: u64) -> u64 {
        let len = transfer_ns(bytes, self.timing.link_bytes_per_second);
        self.link.reserve(now, ready, len) + len
    }

    /// When the dies and the link are idle.
    pub fn idle_at(&self) -> u64 {
        self.lines.iter().map(Line::free_at).fold(self.link.free_at(), u64::max)
    }

    /// Drops all operations and transfers, as a power cut does.
    pub fn reset(&mut self) {
        self.lines.iter_mut().for_each(Line::reset);
        self.channels.iter_mut().chain([&mut self.link]).for_each(|line| *line = line.idle());
    }

    /// The longest time of one sensing.
    pub fn max_sensing_ns(&self) -> u64 {
        self.timing.read_ns.iter().copied().max().unwrap_or(0)
    }

    /// For how long each line was busy.
    pub fn busy_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines.iter().map(Line::busy_ns)
    }

    /// The sum of the busy times of all lines.
    pub fn total_busy_ns(&self) -> u64 {
        self.total_busy_ns
    }

    /// For how long each channel was busy.
    pub fn channels_busy_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.channels.iter().map(Timeline::busy_ns)
    }

    /// Bytes that crossed the channels in both directions.
    pub fn channel_bytes(&self) -> u64 {
        self.channel_bytes
    }

    /// How many operations of this kind the dies have done; of reads, those that needed a sensing.
    pub fn count(&self, work: Work) -> u64 {
        self.counts[work as usize]
    }
}
