//! The state of every block, and which ones of a die are written to next, collected, or spared.

use crate::geometry::Shape;
use std::collections::BTreeSet;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Erased, or to be erased before it is opened: it holds nothing.
    Free,
    /// Being written.
    Open,
    /// Written, to the end or as far as it ever will be.
    Closed,
}

/// Who writes to a block. What is moved is colder than what the host writes, so it stays apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The host.
    Host,
    /// The drive itself: collection and wear levelling.
    Moved,
}

impl Stream {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Host => Self::Moved,
            Self::Moved => Self::Host,
        }
    }
}

/// A block that is being written, and its next shot.
#[derive(Clone, Copy, Debug)]
struct Active {
    block: u32,
    next_shot: u32,
}

#[derive(Clone, Debug, Default)]
struct Die {
    /// Free blocks by wear, in the order in which each stream would have them.
    free: [BTreeSet<(u32, u32)>; 2],
    active: [Option<Active>; 2],
    valid: u32,
    erases: u64,
}

/// A stream opens the free block first for which this is least: the least worn one for the host,
/// the most worn one for what is moved.
fn wish(stream: Stream, erases: u32) -> u32 {
    if stream == Stream::Host { erases } else { !erases }
}

impl Die {
    /// A block that was erased so often is free now, or is not.
    fn set_free(&mut self, block: u32, erases: u32, is_free: bool) {
        for stream in [Stream::Host, Stream::Moved] {
            let (free, entry) = (&mut self.free[stream as usize], (wish(stream, erases), block));
            if is_free {
                free.insert(entry)
            } else {
                free.remove(&entry)
            };
        }
    }
}

/// All blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    shape: Shape,
    state: Vec<State>,
    valid: Vec<u16>,
    /// Valid units of closed blocks, the largest number for others: what a search goes through.
    closed: Vec<u16>,
    erases: Vec<u32>,
    /// When it was closed, as a number of a program.
    closed_at: Vec<u64>,
    /// Whether it must be erased before it is opened.
    dirty: Vec<bool>,
    /// Until when it must not be erased: then all that has replaced its units is in the flash.
    safe_at: Vec<u64>,
    /// Its units whose successors are in the write buffer.
    awaited: Vec<u16>,
    dies: Vec<Die>,
}

impl Blocks {
    /// All erased, never used.
    pub fn new(shape: &Shape) -> Self {
        let blocks = shape.blocks() as usize;
        let die = |die: u32| {
            let blocks = die * shape.die_blocks..(die + 1) * shape.die_blocks;
            let free = [Stream::Host, Stream::Moved]
                .map(|stream| blocks.clone().map(|block| (wish(stream, 0), block)).collect());
            Die { free, ..Die::default() }
        };
        Self {
            shape: shape.clone(),
            state: vec![State::Free; blocks],
            valid: vec![0; blocks],
            closed: vec![u16::MAX; blocks],
            erases: vec![0; blocks],
            closed_at: vec![0; blocks],
            dirty: vec![false; blocks],
            safe_at: vec![0; blocks],
            awaited: vec![0; blocks],
            dies: (0..shape.dies).map(die).collect(),
        }
    }

    /// What a block is.
    pub fn state(&self, block: u32) -> State {
        self.state[block as usize]
    }

    /// Valid units of a block.
    pub fn valid(&self, block: u32) -> u32 {
        self.valid[block as usize].into()
    }

    /// Valid units of a die.
    pub fn valid_of_die(&self, die: u32) -> u32 {
        self.dies[die as usize].valid
    }

    /// How often a block was erased.
    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }

    /// The same of every block.
    pub fn all_erases(&self) -> &[u32] {
        &self.erases
    }

    /// Bytes of memory that this takes at most.
    pub fn memory_bytes(&self) -> usize {
        // A set's nodes are half full at least.
        let free = 2 * 2 * size_of::<(u32, u32)>();
        let tables = size_of::<State>() + size_of::<bool>() + 3 * 2 + 4 + 2 * 8;
        self.state.len() * (tables + free) + self.dies.len() * size_of::<Die>()
    }

    /// How often a die's blocks were, in all.
    pub fn erases_of_die(&self, die: u32) -> u64 {
        self.dies[die as usize].erases
    }

    /// Blocks of a die that can be opened.
    pub fn free(&self, die: u32) -> usize {
        self.dies[die as usize].free[0].len()
    }

    /// Those of them that wait for nothing that is in the buffer, counted up to `most`.
    pub fn ready(&self, die: u32, most: usize) -> usize {
        let free = self.dies[die as usize].free[0].iter();
        free.filter(|(_, block)| !self.is_awaited(*block)).take(most).count()
    }

    /// One more unit of a block is valid.
    #[inline]
    pub fn gain(&mut self, block: u32) {
        let at = block as usize;
        self.valid[at] += 1;
        if self.state[at] == State::Closed {
            self.closed[at] += 1;
        }
        self.dies[self.shape.die_of_block(block) as usize].valid += 1;
    }

    /// One less is.
    #[inline]
    pub fn lose(&mut self, block: u32) {
        let at = block as usize;
        self.valid[at] -= 1;
        if self.state[at] == State::Closed {
            self.closed[at] -= 1;
        }
        self.dies[self.shape.die_of_block(block) as usize].valid -= 1;
    }

    /// What replaces one of its units is in the write buffer.
    #[inline]
    pub fn await_successor(&mut self, block: u32) {
        self.awaited[block as usize] += 1;
    }

    /// It is not any more: it is in the flash from `safe_at` on, if it went there.
    #[inline]
    pub fn succeeded(&mut self, block: u32, safe_at: u64) {
        let at = block as usize;
        self.awaited[at] -= 1;
        self.safe_at[at] = self.safe_at[at].max(safe_at);
    }

    /// Whether something that replaces units of this block is in the write buffer only.
    pub fn is_awaited(&self, block: u32) -> bool {
        self.awaited[block as usize] > 0
    }

    /// Until when it must not be erased.
    pub fn safe_at(&self, block: u32) -> u64 {
        self.safe_at[block as usize]
    }

    /// Whether there is an open block with room for a shot.
    pub fn has_open(&self, die: u32, stream: Stream) -> bool {
        self.dies[die as usize].active[stream as usize].is_some()
    }

    /// The free block of a die to write to next: the least worn one for the host, whose data is
    /// soon written again, and the most worn one for what is moved; but none that waits for what
    /// is in the buffer, if there is another.
    pub fn next_free(&self, die: u32, stream: Stream) -> Option<u32> {
        let free = &self.dies[die as usize].free[stream as usize];
        let ready = free.iter().find(|(_, block)| !self.is_awaited(*block));
        ready.or(free.first()).map(|(_, block)| *block)
    }

    /// Opens a free block, the next one of its stream; gives whether it must be erased first.
    pub fn open(&mut self, block: u32, stream: Stream) -> bool {
        let die = &mut self.dies[self.shape.die_of_block(block) as usize];
        die.set_free(block, self.erases[block as usize], false);
        die.active[stream as usize] = Some(Active { block, next_shot: 0 });
        self.state[block as usize] = State::Open;
        std::mem::take(&mut self.dirty[block as usize])
    }

    /// A block was erased.
    pub fn erased(&mut self, block: u32) {
        self.erases[block as usize] += 1;
        self.dies[self.shape.die_of_block(block) as usize].erases += 1;
    }

    /// The same as `next_shot`, which is still to come.
    pub fn peek_shot(&self, die: u32, stream: Stream) -> Option<u32> {
        let Active { block, next_shot } = self.dies[die as usize].active[stream as usize]?;
        Some(block * self.shape.block_units + next_shot * self.shape.shot_units)
    }

    /// First unit of the next shot of the open block; closes it behind its last one.
    pub fn next_shot(&mut self, die: u32, stream: Stream, program: u64) -> Option<u32> {
        let active = &mut self.dies[die as usize].active[stream as usize];
        let Active { block, next_shot } = (*active)?;
        if next_shot + 1 == self.shape.block_shots() {
            *active = None;
            self.close(block, program);
        } else {
            *active = Some(Active { block, next_shot: next_shot + 1 });
        }
        Some(block * self.shape.block_units + next_shot * self.shape.shot_units)
    }

    fn close(&mut self, block: u32, program: u64) {
        let at = block as usize;
        self.state[at] = State::Closed;
        self.closed[at] = self.valid[at];
        self.closed_at[at] = program;
    }

    /// A closed block has no valid unit any more and can be opened after an erase.
    pub fn release(&mut self, block: u32) {
        let at = block as usize;
        debug_assert_eq!((self.valid[at], self.state[at]), (0, State::Closed));
        self.state[at] = State::Free;
        self.closed[at] = u16::MAX;
        self.dirty[at] = true;
        self.dies[self.shape.die_of_block(block) as usize].set_free(block, self.erases[at], true);
    }

    fn of_die(&self, die: u32) -> std::ops::Range<usize> {
        let first = (die * self.shape.die_blocks) as usize;
        first..first + self.shape.die_blocks as usize
    }

    /// The closed block of a die with the least valid units.
    pub fn emptiest(&self, die: u32) -> Option<u32> {
        let range = self.of_die(die);
        let closed = &self.closed[range.clone()];
        let least = closed.iter().copied().min().filter(|least| *least != u16::MAX)?;
        let at = closed.iter().position(|valid| *valid == least)?;
        Some((range.start + at) as u32)
    }

    /// The closed block of a die whose collection pays most for its cost: the largest
    /// (1 - u) * age / 2u, where u is its share of valid units.
    pub fn best_by_cost(&self, die: u32, now: u64) -> Option<u32> {
        let range = self.of_die(die);
        let of_all = u64::from(self.shape.block_units);
        let value = |at: usize| {
            let valid = u64::from(self.closed[at]);
            let age = now.saturating_sub(self.closed_at[at]) + 1;
            // In 1/256: ages are numbers of programs, far below 2^40.
            ((of_all - valid) * age * 256).checked_div(2 * valid).unwrap_or(u64::MAX)
        };
        let closed = range.filter(|at| self.closed[*at] != u16::MAX);
        closed.max_by_key(|at| (value(*at), std::cmp::Reverse(*at))).map(|at| at as u32)
    }

    /// The closed block of a die that was erased least, and how much less than the one that was
    /// most.
    pub fn least_worn(&self, die: u32) -> Option<(u32, u32)> {
        let range = self.of_die(die);
        let most = self.erases[range.clone()].iter().max()?;
        let closed = range.filter(|at| self.state[*at] == State::Closed);
        let least = closed.min_by_key(|at| (self.erases[*at], *at))?;
        Some((least as u32, most - self.erases[least]))
    }

    /// After a power cut: what is valid is counted anew, and a block that was begun is gone on with
    /// behind the last shot that was begun. `begun` says how many shots of a block those are.
    pub fn recount(&mut self, valid: &[u16], program: u64, begun: impl Fn(u32) -> u32) {
        self.safe_at.fill(0);
        self.awaited.fill(0);
        for die in &mut self.dies {
            *die = Die { erases: die.erases, ..Die::default() };
        }
        for block in 0..self.shape.blocks() {
            let at = block as usize;
            let die = self.shape.die_of_block(block) as usize;
            self.valid[at] = valid[at];
            self.dies[die].valid += u32::from(valid[at]);
            self.closed[at] = u16::MAX;
            self.dirty[at] = false;
            let next_shot = begun(block);
            let vacant = self.dies[die].active.iter_mut().find(|active| active.is_none());
            match vacant {
                _ if next_shot == 0 => {
                    // It may have been cut off in its erase.
                    (self.state[at], self.dirty[at]) = (State::Free, true);
                    self.dies[die].set_free(block, self.erases[at], true);
                }
                Some(vacant) if next_shot < self.shape.block_shots() => {
                    *vacant = Some(Active { block, next_shot });
                    self.state[at] = State::Open;
                }
                _ => self.close(block, self.closed_at[at].min(program)),
            }
        }
    }
}
