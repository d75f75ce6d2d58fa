//! Programs that read side by side, each on a processor of its own. The requests of all of them reach the drive
//! in the order of time, also where calls overlap: a call of one program does not keep the others' requests
//! waiting until it has issued its last one. Of those that wait for a slot of the queue, the one that has waited
//! longest gets it, as in the kernel (lib/sbitmap.c).

use super::{Host, HostPath, Slots, reads};
use crate::command::{Command, Completion, Refused, Units};
use crate::counters::Counters;
use crate::device::{Contents, Device, Recovery};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Collects what a call would submit, and when.
struct Outbox {
    unit_bytes: u32,
    units: u32,
    commands: VecDeque<(u64, Command)>,
}

impl Device for Outbox {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        _: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.commands.push_back((at, command.clone()));
        Ok(Completion { done_ns: at, ..Completion::default() })
    }

    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    fn units(&self) -> u32 {
        self.units
    }

    fn idle_at(&self) -> u64 {
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn bytes(&self, _: Units) -> Vec<u8> {
        Vec::new()
    }

    fn power_cut(&mut self, _: u64) -> Recovery {
        Recovery::default()
    }
}

/// A program in the middle of a call.
struct Program<'a, C> {
    host: Host<'a, Outbox>,
    calls: C,
    /// Before this time no slot of the queue is free for it.
    waits_until: u64,
    /// When each request of the present call that the drive has is done.
    ends: Vec<u64>,
}

/// The drive, and its queue.
struct Queue<'a, D: ?Sized> {
    device: &'a mut D,
    slots: Slots,
}

impl<D: Device + ?Sized> Queue<'_, D> {
    fn submit(&mut self, at: u64, command: &Command) -> Result<u64, Refused> {
        let end = self.device.submit(at, command)?.done_ns;
        self.slots.occupy(at, end);
        Ok(end)
    }
}

impl<C: Iterator<Item = Vec<Units>>> Program<'_, C> {
    /// When it submits its next request or, if it has no more, when its call is done; and since when it is ready for that.
    fn next_at(&self) -> (u64, u64) {
        let done = || self.ends.iter().copied().fold(self.host.now, u64::max);
        match self.host.device.commands.front() {
            Some((ready, _)) => (self.waits_until.max(*ready), *ready),
            None => (done(), done()),
        }
    }

    /// Submits its next request or, if it has no more, ends its call and begins the next one; returns whether
    /// there was one.
    fn step<D: Device + ?Sized>(
        &mut self,
        queue: &mut Queue<'_, D>,
        pause_ns: u64,
    ) -> Result<bool, Refused> {
        let (at, _) = self.next_at();
        if let Some((_, command)) = self.host.device.commands.front() {
            let free_at = queue.slots.free_at(at);
            if free_at > at {
                // Others' requests may come before that.
                self.waits_until = free_at;
                return Ok(true);
            }
            self.ends.push(queue.submit(at, command)?);
            self.host.device.commands.pop_front();
            return Ok(true);
        }
        if !self.ends.is_empty() {
            self.host.in_flight.extend(self.ends.drain(..).map(Reverse));
            self.host.finish();
            self.host.leave();
            self.host.spend(pause_ns, |spent| &mut spent.program);
        }
        let Some(call) = self.calls.next() else { return Ok(false) };
        self.host.enter();
        self.host.issue(reads(&call))?;
        self.host.in_flight.clear();
        Ok(true)
    }
}

/// Lets each program read with its calls, one after the other, from `start` on; `pause_ns` is the time from the
/// end of a call to the next one. Returns when the last program is done.
///
/// # Errors
/// Why the drive refused.
pub fn read_together<D: Device + ?Sized>(
    path: &HostPath,
    device: &mut D,
    start: u64,
    programs: Vec<impl Iterator<Item = Vec<Units>>>,
    pause_ns: u64,
) -> Result<u64, Refused> {
    let (unit_bytes, units) = (device.unit_bytes(), device.units());
    let outbox = |_| Outbox { unit_bytes, units, commands: VecDeque::new() };
    let mut outboxes: Vec<Outbox> = programs.iter().map(outbox).collect();
    let program = |(outbox, calls)| {
        let host = Host::new(path, outbox, start);
        Program { host, calls, waits_until: start, ends: Vec::new() }
    };
    let mut running: Vec<_> = outboxes.iter_mut().zip(programs).map(program).collect();
    let mut queue = Queue { device, slots: Slots::new(path.queue_depth) };
    let mut end = start;
    while let Some(first) = (0..running.len()).min_by_key(|n| running[*n].next_at()) {
        if !running[first].step(&mut queue, pause_ns)? {
            end = end.max(running.swap_remove(first).host.now);
        }
    }
    Ok(end)
}
