//! Dies, channels and the link on their time lines: when a sensing, a program, an erase or a
//! transfer begins and ends, given all that was asked for before it.
//!
//! A die does what it is told in that order, but for reads where it can be suspended: those go
//! first, interrupt a program or an erase in its array phase, and what they interrupted goes on
//! behind them, unless somebody counts on its end (see [`Nand::pin`]). A program's data may have crossed the channel by then: it waits in the die's
//! cache register.

use crate::drive::{Drive, Suspend, Timing};
use crate::geometry::{Page, Shape};
use crate::timeline::{Timeline, transfer_ns};
use std::collections::VecDeque;

/// What a die does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Senses a page and sends it.
    Read,
    /// Takes a shot in and programs it.
    Program,
    /// Erases a block.
    Erase,
    /// Programs what it has just sensed.
    Copyback,
}

/// A stretch of a die's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Which line: a die, or a plane where planes read alone.
    pub line: u32,
    /// From when on.
    pub start: u64,
    /// Until when.
    pub end: u64,
    /// With what.
    pub work: Work,
}

/// Something that a die was told to do, by which its end can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    line: u32,
    id: u64,
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    id: u64,
    start: u64,
    /// From when on it can be interrupted.
    array: u64,
    end: u64,
    work: Work,
    /// Somebody counts on its end: nothing delays it any more.
    pinned: bool,
}

#[derive(Clone, Debug, Default)]
struct Line {
    free_at: u64,
    busy_ns: u64,
    /// The page in its register.
    held: Option<u32>,
    /// What has not ended, in order; kept where work can be suspended, or is traced.
    queue: VecDeque<Queued>,
}

/// The flash and the ways to it.
#[derive(Clone, Debug)]
pub struct Nand {
    timing: Timing,
    shape: Shape,
    lines: Vec<Line>,
    channels: Vec<Timeline>,
    link: Timeline,
    chunk: u32,
    next_id: u64,
    /// See [`Nand::trace`].
    trace: Option<Vec<Busy>>,
    counts: [u64; 4],
    busy_in_all_ns: u64,
    channel_bytes: u64,
}

impl Nand {
    /// All idle.
    pub fn new(drive: &Drive, shape: &Shape) -> Self {
        Self {
            timing: drive.timing.clone(),
            shape: shape.clone(),
            lines: vec![Line::default(); (shape.dies * shape.lines_per_die) as usize],
            channels: vec![Timeline::default(); shape.channels as usize],
            link: Timeline::default(),
            chunk: drive.timing.channel_chunk_bytes,
            next_id: 0,
            trace: None,
            counts: [0; 4],
            busy_in_all_ns: 0,
            channel_bytes: 0,
        }
    }

    /// From now on keeps every stretch of every die's time, for [`Nand::traced`].
    pub fn trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// What the dies did, all that will not change any more by `now`.
    pub fn traced(&mut self, now: u64) -> Vec<Busy> {
        for line in 0..self.lines.len() {
            self.forget(line, now);
        }
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn line_of(&self, page: Page) -> usize {
        let plane = if self.shape.lines_per_die > 1 { page.plane } else { 0 };
        (page.die * self.shape.lines_per_die + plane) as usize
    }

    /// Drops what has ended.
    fn forget(&mut self, line: usize, now: u64) {
        let queue = &mut self.lines[line].queue;
        while let Some(done) = queue.front().filter(|op| op.end <= now).copied() {
            queue.pop_front();
            if let Some(trace) = &mut self.trace {
                let Queued { start, end, work, .. } = done;
                trace.push(Busy { line: line as u32, start, end, work });
            }
        }
    }

    fn keeps(&self) -> bool {
        self.timing.suspend.is_some() || self.trace.is_some()
    }

    /// Senses a page and sends `bytes` of it: over the channel, and to the host if that asked.
    /// Gives when the last of them arrive.
    pub fn read(&mut self, now: u64, ready: u64, page: Page, bytes: u32, to_host: bool) -> u64 {
        let line = self.line_of(page);
        let held = self.lines[line].held.replace(page.page) == Some(page.page);
        let small = bytes <= self.timing.small_read_bytes;
        let times = if small { &self.timing.small_read_ns } else { &self.timing.read_ns };
        let sense = match held && self.timing.page_stays {
            true => 0,
            false => times[page.in_block as usize % times.len()],
        };
        self.counts[Work::Read as usize] += u64::from(sense > 0);
        self.forget(line, now);
        let (start, at) = match self.timing.suspend {
            None => (self.lines[line].free_at.max(ready), None),
            Some(suspend) => self.break_into(line, ready, suspend),
        };
        let (left_die, arrived) = self.send(now, start + sense, page.die, bytes, to_host);
        let id = self.next();
        let (work, pinned) = (Work::Read, false);
        let op = Queued { id, start, array: u64::MAX, end: left_die, work, pinned };
        let keeps = self.keeps();
        self.busy_in_all_ns += left_die - start;
        let line = &mut self.lines[line];
        line.busy_ns += left_die - start;
        match at {
            Some((at, rest)) => line.put_in(at, op, rest),
            None => line.append(op, keeps),
        }
        arrived
    }

    /// Sends bytes from a die's register, chunk by chunk; gives when the die and when the channel
    /// or the link is done.
    fn send(&mut self, now: u64, sensed: u64, die: u32, bytes: u32, to_host: bool) -> (u64, u64) {
        self.channel_bytes += u64::from(bytes);
        let channel = &mut self.channels[self.shape.channel_of(die) as usize];
        let (mut left, mut at, mut arrived) = (bytes, sensed, sensed);
        let mut command_ns = self.timing.channel_command_ns;
        while left > 0 {
            let chunk = left.min(self.chunk);
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

    /// Where on a line a read may begin that is ready then, at which place of its queue, and how
    /// much of what it interrupts is left.
    fn break_into(
        &mut self,
        line: usize,
        ready: u64,
        suspend: Suspend,
    ) -> (u64, Option<(usize, Option<Rest>)>) {
        let queue = &mut self.lines[line].queue;
        let pinned = queue.iter().rposition(|op| op.pinned);
        let mut at = pinned.map_or(0, |at| at + 1);
        let mut t = pinned.map_or(ready, |at| queue[at].end.max(ready));
        while let Some(op) = queue.get_mut(at) {
            if op.end <= t {
                at += 1;
            } else if op.start >= t {
                return (t, Some((at, None)));
            } else if op.array < op.end {
                t = t.max(op.array);
                let rest = Rest { op: *op, left: op.end - t, resume_ns: suspend.resume_ns };
                op.end = t;
                return (t + suspend.suspend_ns, Some((at + 1, Some(rest))));
            } else {
                t = op.end;
                at += 1;
            }
        }
        (t, Some((queue.len(), None)))
    }

    /// Data crosses the channel and is programmed.
    pub fn program(&mut self, now: u64, ready: u64, die: u32, plane: u32, bytes: u32) -> Ticket {
        let line = self.line_for(die, plane);
        self.forget(line, now);
        let start = self.lines[line].free_at.max(ready);
        let (sent, _) = self.send(now, start, die, bytes, false);
        self.occupy(line, start, sent, self.timing.program_ns, Work::Program)
    }

    /// A page is sensed and programmed elsewhere on its plane; nothing crosses the channel.
    pub fn copyback(&mut self, now: u64, ready: u64, page: Page) -> Ticket {
        let line = self.line_of(page);
        self.forget(line, now);
        let start = self.lines[line].free_at.max(ready);
        let times = &self.timing.read_ns;
        let sense = times[page.in_block as usize % times.len()];
        let program = self.timing.program_ns;
        self.occupy(line, start, start + sense, program, Work::Copyback)
    }

    /// A block is erased.
    pub fn erase(&mut self, now: u64, ready: u64, die: u32, plane: u32) -> Ticket {
        let line = self.line_for(die, plane);
        self.forget(line, now);
        let start = self.lines[line].free_at.max(ready);
        self.occupy(line, start, start, self.timing.erase_ns, Work::Erase)
    }

    fn line_for(&self, die: u32, plane: u32) -> usize {
        let plane = if self.shape.lines_per_die > 1 { plane } else { 0 };
        (die * self.shape.lines_per_die + plane) as usize
    }

    /// The die is busy from `start`, in its array from `array` on for `len`.
    fn occupy(&mut self, line: usize, start: u64, array: u64, len: u64, work: Work) -> Ticket {
        self.counts[work as usize] += 1;
        let (id, end, keeps) = (self.next(), array + len, self.keeps());
        self.busy_in_all_ns += end - start;
        self.lines[line].busy_ns += end - start;
        self.lines[line].held = None;
        let pinned = false;
        self.lines[line].append(Queued { id, start, array, end, work, pinned }, keeps);
        Ticket { line: line as u32, id, start, end }
    }

    fn next(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// From now on no read delays the programs that are under way; gives when the last one ends. Where
    /// reads never do, there is nothing to do.
    pub fn pin(&mut self) -> u64 {
        if self.timing.suspend.is_none() {
            return 0;
        }
        let mut last = 0;
        for op in self.lines.iter_mut().flat_map(|line| &mut line.queue) {
            if matches!(op.work, Work::Program | Work::Copyback) {
                op.pinned = true;
                last = last.max(op.end);
            }
        }
        last
    }

    /// When what the ticket is for ends, as far as is known.
    pub fn end_of(&self, ticket: Ticket) -> u64 {
        if self.timing.suspend.is_none() {
            return ticket.end;
        }
        // What was interrupted is there more than once; the last of it is its end.
        let queue = &self.lines[ticket.line as usize].queue;
        queue.iter().rev().find(|op| op.id == ticket.id).map_or(ticket.end, |op| op.end)
    }

    /// When it begins, as far as is known.
    pub fn start_of(&self, ticket: Ticket) -> u64 {
        let queue = &self.lines[ticket.line as usize].queue;
        queue.iter().find(|op| op.id == ticket.id).map_or(ticket.start, |op| op.start)
    }

    /// The host's data arrives over the link; gives when the last of it has.
    pub fn receive(&mut self, now: u64, ready: u64, bytes: u64) -> u64 {
        let len = transfer_ns(bytes, self.timing.link_bytes_per_second);
        self.link.reserve(now, ready, len) + len
    }

    /// Bytes that need no die go to the host; gives when the last of them have.
    pub fn answer(&mut self, now: u64, ready: u64, bytes: u64) -> u64 {
        self.receive(now, ready, bytes)
    }

    /// When the last die is idle.
    pub fn idle_at(&self) -> u64 {
        self.lines.iter().map(|line| line.free_at).max().unwrap_or(0)
    }

    /// Nothing is under way any more: the power was off.
    pub fn reset(&mut self) {
        self.lines.iter_mut().for_each(|line| {
            line.queue.clear();
            (line.free_at, line.held) = (0, None);
        });
        self.channels.iter_mut().chain([&mut self.link]).for_each(|line| *line = line.idle());
    }

    /// How long one sensing takes.
    pub fn sense_ns(&self) -> u64 {
        self.timing.read_ns.iter().copied().max().unwrap_or(0)
    }

    /// For how long each line was busy.
    pub fn busy_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.lines.iter().map(|line| line.busy_ns)
    }

    /// For how long all lines were, together.
    pub fn busy_in_all_ns(&self) -> u64 {
        self.busy_in_all_ns
    }

    /// For how long each channel was busy.
    pub fn channels_busy_ns(&self) -> impl Iterator<Item = u64> + '_ {
        self.channels.iter().map(Timeline::busy_ns)
    }

    /// Bytes that crossed the channels, both ways.
    pub fn channel_bytes(&self) -> u64 {
        self.channel_bytes
    }

    /// How often the dies did this.
    pub fn count(&self, work: Work) -> u64 {
        self.counts[work as usize]
    }
}

/// What is left of something that was interrupted.
#[derive(Clone, Copy, Debug)]
struct Rest {
    op: Queued,
    left: u64,
    resume_ns: u64,
}

impl Line {
    fn append(&mut self, op: Queued, keep: bool) {
        self.free_at = self.free_at.max(op.end);
        if keep {
            self.queue.push_back(op);
        }
    }

    /// Puts a read in at a place of the queue, behind it what it interrupted, and has everything
    /// later wait for as long as it must.
    fn put_in(&mut self, at: usize, op: Queued, rest: Option<Rest>) {
        self.queue.insert(at, op);
        let (mut end, mut next) = (op.end, at + 1);
        if let Some(Rest { op, left, resume_ns }) = rest {
            let start = end + resume_ns;
            end = start + left;
            self.queue.insert(next, Queued { start, array: start, end, ..op });
            next += 1;
        }
        for later in self.queue.iter_mut().skip(next) {
            let wait = end.saturating_sub(later.start);
            if wait == 0 {
                break;
            }
            later.start += wait;
            later.array = later.array.saturating_add(wait);
            later.end += wait;
            end = later.end;
        }
        self.free_at = self.queue.back().map_or(self.free_at, |last| last.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{BufferSpec, Firmware};
    use crate::geometry::Geometry;

    /// Two dies on a channel; sensing takes 100 us, a unit 10 us over the channel and no time over
    /// the link.
    fn nand(page_stays: bool) -> Nand {
        let drive = Drive {
            geometry: Geometry {
                channels: 1,
                dies_per_channel: 2,
                planes_per_die: 1,
                planes_together: false,
                planes_read_alone: false,
                blocks_per_plane: 16,
                pages_per_block: 16,
                flash_page_bytes: 16_384,
                one_shot_bytes: 16_384,
                mapping_unit_bytes: 4096,
                die_granularity_bytes: 4096,
                over_provisioning_per_mille: 500,
            },
            timing: Timing {
                read_ns: vec![100_000],
                small_read_ns: Vec::new(),
                small_read_bytes: 0,
                page_stays,
                program_ns: 500_000,
                erase_ns: 3_000_000,
                channel_bytes_per_second: 409_600_000,
                channel_chunk_bytes: 16_384,
                channel_command_ns: 0,
                link_bytes_per_second: u64::MAX,
                firmware_read_ns: 0,
                firmware_small_read_ns: 0,
                small_command_bytes: 0,
                firmware_busy_ns: 0,
                suspend: None,
            },
            buffer: BufferSpec {
                bytes: 1 << 20,
                command_ns: 0,
                unit_ns: 0,
                protected: false,
                open_shots: 1,
            },
            firmware: Firmware::default(),
        };
        let shape = drive.shape().unwrap();
        Nand::new(&drive, &shape)
    }

    #[test]
    fn a_page_in_the_register_is_sensed_once() {
        let done_of = |stays: bool, programs: bool| {
            let mut nand = nand(stays);
            let page = nand.shape.page_of(0);
            let first = nand.read(0, 0, page, 4096, false);
            let from = match programs {
                true => nand.program(first, first, 0, 0, 16_384).end,
                false => first,
            };
            let other = nand.shape.page_of(nand.shape.block_units * nand.shape.die_blocks);
            nand.read(from, from, other, 4096, false);
            let again = nand.read(from, from, page, 4096, false) - from;
            (first, again, nand.count(Work::Read))
        };
        assert_eq!(done_of(false, false), (110_000, 120_000, 3), "behind the other die's");
        assert_eq!(done_of(true, false), (110_000, 10_000, 2), "the other die has its own");
        assert_eq!(done_of(true, true), (110_000, 120_000, 3), "a program takes the register");
    }
}
