//! The slots of a drive's queue, whoever sends the commands: so many are in flight at a time, and one more waits for the first to end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The slots, and when the commands that have them are done.
#[derive(Clone, Debug)]
pub struct Slots {
    depth: usize,
    ends: BinaryHeap<Reverse<u64>>,
}

impl Slots {
    /// So many, at least one, which are free.
    pub fn new(depth: u32) -> Self {
        Self { depth: depth.max(1) as usize, ends: BinaryHeap::new() }
    }

    /// When a command that is ready at this time gets a slot.
    pub fn free_at(&mut self, at: u64) -> u64 {
        self.release(at);
        let is_full = self.ends.len() >= self.depth;
        self.ends.peek().filter(|_| is_full).map_or(at, |Reverse(end)| *end)
    }

    /// A command that got its slot at this time is done at `end`.
    pub fn occupy(&mut self, at: u64, end: u64) {
        self.release(at);
        self.ends.push(Reverse(end));
    }

    /// No command is in flight any more.
    pub fn clear(&mut self) {
        self.ends.clear();
    }

    fn release(&mut self, at: u64) {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= at) {
            self.ends.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_the_first_to_end_when_all_slots_are_taken() {
        let mut slots = Slots::new(2);
        slots.occupy(0, 400);
        assert_eq!(slots.free_at(10), 10);
        slots.occupy(10, 200);
        assert_eq!(slots.free_at(100), 200);
        // It takes the slot that is free then, and the next one waits for the other.
        slots.occupy(200, 300);
        assert_eq!((slots.free_at(150), slots.free_at(350)), (300, 350));
        slots.clear();
        assert_eq!(slots.free_at(0), 0);
    }

    #[test]
    fn a_queue_has_a_slot() {
        let mut slots = Slots::new(0);
        slots.occupy(0, 5);
        assert_eq!(slots.free_at(1), 5);
    }
}
