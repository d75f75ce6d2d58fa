//! The operations of one die, or of one plane where planes sense independently, in order.

use super::Work;
use crate::drive::Suspend;
use std::collections::VecDeque;

/// An operation on its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub id: u64,
    pub start: u64,
    /// When its array phase begins, in which it can be interrupted; before that is the transfer or the
    /// sensing.
    pub array: u64,
    pub end: u64,
    pub work: Work,
    /// Whether it must not be delayed any more, because an erase or a flush relies on its end.
    pub pinned: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    free_at: u64,
    busy_ns: u64,
    /// Number of the flash page in its register.
    register: Option<u32>,
    /// Operations that have not ended, in order; only where operations can be interrupted, or are traced.
    queue: VecDeque<Operation>,
}

/// The rest of an operation that was interrupted.
#[derive(Clone, Copy, Debug)]
struct Remainder {
    operation: Operation,
    left_ns: u64,
    resume_ns: u64,
}

/// Where a read fits into a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// When the read may begin.
    pub start: u64,
    position: Position,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// After everything.
    Last,
    /// Before the operation at this index of the queue, after the one that it interrupts.
    At(usize, Option<Remainder>),
}

impl Line {
    /// When the last operation ends.
    pub fn free_at(&self) -> u64 {
        self.free_at
    }

    /// For how long the line was busy.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Loads a page into the register; returns whether it was there already.
    pub fn load_register(&mut self, page: u32) -> bool {
        self.register.replace(page) == Some(page)
    }

    /// Empties the register, as a program or an erase does.
    pub fn clear_register(&mut self) {
        self.register = None;
    }

    /// The operations that have not ended, as far as they are kept.
    pub fn queue(&self) -> &VecDeque<Operation> {
        &self.queue
    }

    /// Removes and returns the next operation that has ended by this time.
    pub fn pop_ended(&mut self, now: u64) -> Option<Operation> {
        let ended = self.queue.front().is_some_and(|operation| operation.end <= now);
        if ended { self.queue.pop_front() } else { None }
    }

    /// The slot after all operations.
    pub fn last_slot(&self, ready: u64) -> Slot {
        Slot { start: self.free_at.max(ready), position: Position::Last }
    }

    /// The slot of a read that goes before programs and erases which are not pinned, and may interrupt one if
    /// that can be suspended. It does not go before other reads, whose ends are known to the host.
    pub fn early_slot(&mut self, ready: u64, suspend: Option<Suspend>) -> Slot {
        let stays = |operation: &Operation| operation.pinned || operation.work == Work::Read;
        let stays = self.queue.iter().rposition(stays);
        let mut at = stays.map_or(0, |at| at + 1);
        let mut start = stays.map_or(ready, |at| self.queue[at].end.max(ready));
        while let Some(operation) = self.queue.get_mut(at) {
            if operation.end <= start {
                at += 1;
            } else if operation.start >= start {
                return Slot { start, position: Position::At(at, None) };
            } else if let Some(suspend) = suspend.filter(|_| operation.array < operation.end) {
                start = start.max(operation.array);
                let left_ns = operation.end - start;
                let remainder =
                    Remainder { operation: *operation, left_ns, resume_ns: suspend.resume_ns };
                operation.end = start;
                let position = Position::At(at + 1, Some(remainder));
                return Slot { start: start + suspend.suspend_ns, position };
            } else {
                start = operation.end;
                at += 1;
            }
        }
        Slot { start, position: Position::At(self.queue.len(), None) }
    }

    /// Inserts an operation into its slot.
    pub fn insert(&mut self, slot: Slot, operation: Operation, keep: bool) {
        match slot.position {
            Position::Last => self.append(operation, keep),
            Position::At(at, remainder) => {
                self.busy_ns += operation.end - operation.start;
                self.insert_at(at, operation, remainder);
            }
        }
    }

    /// Adds an operation after all others.
    pub fn append(&mut self, operation: Operation, keep: bool) {
        self.busy_ns += operation.end - operation.start;
        self.free_at = self.free_at.max(operation.end);
        if keep {
            self.queue.push_back(operation);
        }
    }

    /// Inserts a read, resumes after it the operation that it interrupted, and delays later ones as far as
    /// necessary.
    fn insert_at(&mut self, at: usize, read: Operation, remainder: Option<Remainder>) {
        self.queue.insert(at, read);
        let (mut end, mut next) = (read.end, at + 1);
        if let Some(Remainder { operation, left_ns, resume_ns }) = remainder {
            let start = end + resume_ns;
            end = start + left_ns;
            self.queue.insert(next, Operation { start, array: start, end, ..operation });
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

    /// Pins the programs that have not ended; returns when the last of them does.
    pub fn pin_programs(&mut self) -> u64 {
        let mut last = 0;
        for operation in &mut self.queue {
            if matches!(operation.work, Work::Program | Work::Copyback) {
                operation.pinned = true;
                last = last.max(operation.end);
            }
        }
        last
    }

    /// Drops all operations and empties the register, as a power cut does.
    pub fn reset(&mut self) {
        self.queue.clear();
        (self.free_at, self.register) = (0, None);
    }
}
