//! Programs and erases that have begun or wait for their die: a power cut may interrupt or prevent them.

use super::defrag_log::Area;
use crate::nand::{Nand, Ticket};
use crate::space::ErasedBlock;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A program or an erase in flight.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub ticket: Ticket,
    pub kind: OperationKind,
}

impl Operation {
    /// Bytes that it keeps in the write buffer.
    fn keeps(&self) -> u32 {
        match self.kind {
            OperationKind::Program { buffered_bytes, .. } => buffered_bytes,
            _ => 0,
        }
    }

    /// Keeps none any more; returns how many it did.
    fn release(&mut self) -> u32 {
        match &mut self.kind {
            OperationKind::Program { buffered_bytes, .. } => std::mem::take(buffered_bytes),
            _ => 0,
        }
    }
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(super) enum OperationKind {
    /// Programs the program unit whose first unit is this.
    Program {
        first: u32,
        /// Bytes that stay in the write buffer until it ends, unless the host has waited for them.
        buffered_bytes: u32,
    },
    /// Erases a block, which had this content.
    Erase(ErasedBlock),
    /// Programs the journal, up to this many notes since the first.
    Journal { notes: u64 },
    /// Programs the defrag log, at this place of an area.
    LogProgram { area: usize, place: usize },
    /// Erases an area of the defrag log, which had this content.
    LogErase { area: usize, erased: Area },
}

/// All operations in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    /// The operations of each die, in order.
    dies: Vec<VecDeque<Operation>>,
    /// For each operation its end, as last known, and its die. Reads that interrupt an operation delay its
    /// end.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
}

impl InFlight {
    /// No operations, on this many dies.
    pub fn new(dies: u32) -> Self {
        Self { dies: vec![VecDeque::new(); dies as usize], ends: BinaryHeap::new() }
    }

    /// Adds an operation of a die.
    pub fn push(&mut self, die: u32, ticket: Ticket, kind: OperationKind, nand: &Nand) {
        self.ends.push(Reverse((nand.end_of(ticket), die)));
        self.dies[die as usize].push_back(Operation { ticket, kind });
    }

    /// Removes and returns an operation that has ended by this time.
    pub fn pop_ended(&mut self, now: u64, nand: &Nand) -> Option<OperationKind> {
        while self.ends.peek().is_some_and(|Reverse((end, _))| *end <= now) {
            let Reverse((_, die)) = self.ends.pop()?;
            let Some(first) = self.dies[die as usize].front() else { continue };
            let end = nand.end_of(first.ticket);
            if end <= now {
                return self.pop_front(die);
            }
            self.ends.push(Reverse((end, die)));
        }
        None
    }

    /// Releases what the program that ends next keeps in the write buffer; returns when it ends, and the bytes. It stays in flight
    /// until then.
    pub fn release_next(&mut self, nand: &Nand) -> Option<(u64, u32)> {
        let first = |operations: &VecDeque<Operation>| {
            let (index, operation) =
                operations.iter().enumerate().find(|(_, operation)| operation.keeps() > 0)?;
            Some((nand.end_of(operation.ticket), index))
        };
        let dies = (0..self.dies.len()).filter_map(|die| Some((first(&self.dies[die])?, die)));
        let ((end, index), die) = dies.min()?;
        Some((end, self.dies[die][index].release()))
    }

    fn pop_front(&mut self, die: u32) -> Option<OperationKind> {
        self.dies[die as usize].pop_front().map(|operation| operation.kind)
    }

    /// Whether nothing is in flight on a die.
    pub fn is_idle(&self, die: u32) -> bool {
        self.dies[die as usize].is_empty()
    }

    /// When the program of a program unit of a die ends, if it is in flight.
    pub fn end_of_program(&self, die: u32, first_unit: u32, nand: &Nand) -> Option<u64> {
        let is_it = |operation: &&Operation| matches!(operation.kind, OperationKind::Program { first, .. } if first == first_unit);
        let operation = self.dies[die as usize].iter().find(is_it)?;
        Some(nand.end_of(operation.ticket))
    }

    /// When the last operation ends, if any is in flight.
    pub fn last_end(&self, nand: &Nand) -> Option<u64> {
        // Operations of planes that work independently end in any order.
        self.dies.iter().flatten().map(|operation| nand.end_of(operation.ticket)).max()
    }

    /// Removes and returns the operations of each die, in order.
    pub fn take_all(&mut self) -> Vec<VecDeque<Operation>> {
        self.ends.clear();
        let none = vec![VecDeque::new(); self.dies.len()];
        std::mem::replace(&mut self.dies, none)
    }
}
