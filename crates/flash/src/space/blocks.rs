//! The state of every block, and which block of a die is opened, collected or levelled next.

use crate::geometry::Shape;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// It has no valid units: it is erased, or is erased when it is opened.
    Free,
    /// It is being programmed.
    Open,
    /// It is not programmed any further before an erase.
    Closed,
}

/// Which units are programmed to a block. Moved units are colder than those that the host writes, so the two
/// are in separate blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Units that the host writes.
    Host,
    /// Units that garbage collection and wear levelling move.
    Moved,
}

impl Stream {
    const ALL: [Self; 2] = [Self::Host, Self::Moved];

    /// The other stream.
    pub fn other(self) -> Self {
        match self {
            Self::Host => Self::Moved,
            Self::Moved => Self::Host,
        }
    }
}

/// An open block, and how many of its program units are programmed.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    block: u32,
    programmed: u32,
}

#[derive(Clone, Debug, Default)]
struct Die {
    /// Free blocks, in the order in which each stream opens them.
    free: [BTreeSet<(u32, u32)>; 2],
    open: [Option<OpenBlock>; 2],
    valid: u32,
    erases: u64,
}

/// The rank of a free block; a stream opens that of the lowest rank: for the host the least worn one, for
/// moved units the most worn one.
fn opening_rank(stream: Stream, erases: u32) -> u32 {
    match stream {
        Stream::Host => erases,
        Stream::Moved => !erases,
    }
}

impl Die {
    fn add_free(&mut self, block: u32, erases: u32) {
        for stream in Stream::ALL {
            self.free[stream as usize].insert((opening_rank(stream, erases), block));
        }
    }

    fn remove_free(&mut self, block: u32, erases: u32) {
        for stream in Stream::ALL {
            self.free[stream as usize].remove(&(opening_rank(stream, erases), block));
        }
    }
}

/// All blocks of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    shape: Shape,
    state: Vec<BlockState>,
    /// Valid units of each block.
    valid: Vec<u16>,
    /// The same for closed blocks, and `u16::MAX` for others; a search for a victim scans this.
    closed: Vec<u16>,
    erases: Vec<u32>,
    /// The number of the program that closed each block.
    closed_at: Vec<u64>,
    /// Whether each block must be erased when it is opened.
    dirty: Vec<bool>,
    /// When each block may be erased at the earliest: by then the successors of its units are programmed.
    safe_at: Vec<u64>,
    /// Units of each block whose successors are in the write buffer.
    awaited: Vec<u16>,
    dies: Vec<Die>,
}

impl Blocks {
    /// Blocks that were never used.
    pub fn new(shape: &Shape) -> Self {
        let blocks = shape.blocks() as usize;
        let die = |die: u32| {
            let ranked =
                |stream| shape.blocks_of_die(die).map(move |b| (opening_rank(stream, 0), b));
            Die { free: Stream::ALL.map(|stream| ranked(stream).collect()), ..Die::default() }
        };
        Self {
            shape: shape.clone(),
            state: vec![BlockState::Free; blocks],
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

    /// The state of a block.
    pub fn state(&self, block: u32) -> BlockState {
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

    /// Erases of a block.
    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }

    /// Erases of each block.
    pub fn all_erases(&self) -> &[u32] {
        &self.erases
    }

    /// The most bytes of memory that the tables use.
    pub fn memory_bytes(&self) -> usize {
        // A set's nodes are at least half full.
        let free = 2 * 2 * size_of::<(u32, u32)>();
        let tables = size_of::<BlockState>() + size_of::<bool>() + 3 * 2 + 4 + 2 * 8;
        self.state.len() * (tables + free) + self.dies.len() * size_of::<Die>()
    }

    /// Erases of all blocks of a die.
    pub fn erases_of_die(&self, die: u32) -> u64 {
        self.dies[die as usize].erases
    }

    /// Free blocks of a die.
    pub fn free(&self, die: u32) -> usize {
        self.dies[die as usize].free[0].len()
    }

    /// Free blocks of a die that await no successor, counted up to `most`.
    pub fn erasable(&self, die: u32, most: usize) -> usize {
        let free = self.dies[die as usize].free[0].iter();
        free.filter(|(_, block)| !self.awaits_successor(*block)).take(most).count()
    }

    /// Counts a unit of a block that becomes valid.
    #[inline]
    pub fn add_valid(&mut self, block: u32) {
        let at = block as usize;
        self.valid[at] += 1;
        if self.state[at] == BlockState::Closed {
            self.closed[at] += 1;
        }
        self.dies[self.shape.die_of_block(block) as usize].valid += 1;
    }

    /// Counts a unit of a block that becomes invalid.
    #[inline]
    pub fn remove_valid(&mut self, block: u32) {
        let at = block as usize;
        self.valid[at] -= 1;
        if self.state[at] == BlockState::Closed {
            self.closed[at] -= 1;
        }
        self.dies[self.shape.die_of_block(block) as usize].valid -= 1;
    }

    /// Notes that a unit of a block awaits the program of its successor.
    #[inline]
    pub fn await_successor(&mut self, block: u32) {
        self.awaited[block as usize] += 1;
    }

    /// Notes that the successor of a unit of a block is programmed at `safe_at`, or that there will be none.
    #[inline]
    pub fn set_succeeded(&mut self, block: u32, safe_at: u64) {
        let at = block as usize;
        self.awaited[at] -= 1;
        self.safe_at[at] = self.safe_at[at].max(safe_at);
    }

    /// Whether a unit of a block awaits the program of its successor, which is in the write buffer.
    pub fn awaits_successor(&self, block: u32) -> bool {
        self.awaited[block as usize] > 0
    }

    /// When a block may be erased at the earliest.
    pub fn safe_at(&self, block: u32) -> u64 {
        self.safe_at[block as usize]
    }

    /// Whether a die has an open block for a stream.
    pub fn has_open(&self, die: u32, stream: Stream) -> bool {
        self.dies[die as usize].open[stream as usize].is_some()
    }

    /// The free block of a die that a stream opens next: for the host, whose data is soon overwritten, the
    /// least worn one, and for moved units the most worn one; one that awaits a successor only if there is no
    /// other.
    pub fn next_free(&self, die: u32, stream: Stream) -> Option<u32> {
        let free = &self.dies[die as usize].free[stream as usize];
        let erasable = free.iter().find(|(_, block)| !self.awaits_successor(*block));
        erasable.or(free.first()).map(|(_, block)| *block)
    }

    /// Opens a free block; returns whether it must be erased.
    pub fn open(&mut self, block: u32, stream: Stream) -> bool {
        let die = &mut self.dies[self.shape.die_of_block(block) as usize];
        die.remove_free(block, self.erases[block as usize]);
        let open = die.open[stream as usize].replace(OpenBlock { block, programmed: 0 });
        assert!(open.is_none(), "{open:?} is open for {stream:?}, and {block} besides");
        self.state[block as usize] = BlockState::Open;
        std::mem::take(&mut self.dirty[block as usize])
    }

    /// Counts an erase of a block.
    pub fn count_erase(&mut self, block: u32) {
        self.erases[block as usize] += 1;
        self.dies[self.shape.die_of_block(block) as usize].erases += 1;
    }

    /// The write pointer of an open block: the first unit of the program unit that is programmed
    /// next.
    pub fn write_pointer(&self, die: u32, stream: Stream) -> Option<u32> {
        let OpenBlock { block, programmed } = self.dies[die as usize].open[stream as usize]?;
        Some(self.shape.units_of_block(block).start + programmed * self.shape.units_per_program)
    }

    /// Advances the write pointer of an open block by a program unit, and closes the block after its last
    /// one. Returns the write pointer as it was.
    pub fn advance(&mut self, die: u32, stream: Stream, program: u64) -> Option<u32> {
        let first = self.write_pointer(die, stream)?;
        let open = &mut self.dies[die as usize].open[stream as usize];
        let OpenBlock { block, programmed } = (*open)?;
        if programmed + 1 == self.shape.programs_per_block() {
            *open = None;
            self.close(block, program);
        } else {
            *open = Some(OpenBlock { block, programmed: programmed + 1 });
        }
        Some(first)
    }

    fn close(&mut self, block: u32, program: u64) {
        let at = block as usize;
        self.state[at] = BlockState::Closed;
        self.closed[at] = self.valid[at];
        self.closed_at[at] = program;
    }

    /// Makes a closed block without valid units free; it is erased when it is opened.
    pub fn release(&mut self, block: u32) {
        let at = block as usize;
        debug_assert_eq!((self.valid[at], self.state[at]), (0, BlockState::Closed));
        self.state[at] = BlockState::Free;
        self.closed[at] = u16::MAX;
        self.dirty[at] = true;
        self.dies[self.shape.die_of_block(block) as usize].add_free(block, self.erases[at]);
    }

    fn range_of_die(&self, die: u32) -> Range<usize> {
        let Range { start, end } = self.shape.blocks_of_die(die);
        start as usize..end as usize
    }

    /// The closed block of a die with the fewest valid units.
    pub fn emptiest(&self, die: u32) -> Option<u32> {
        let range = self.range_of_die(die);
        let closed = &self.closed[range.clone()];
        let least = closed.iter().copied().min().filter(|least| *least != u16::MAX)?;
        let at = closed.iter().position(|valid| *valid == least)?;
        Some((range.start + at) as u32)
    }

    /// The one with the fewest valid units of those that await no successor.
    pub fn emptiest_that_awaits_none(&self, die: u32) -> Option<u32> {
        let blocks = self.shape.blocks_of_die(die);
        let may_be = |block: &u32| {
            self.state(*block) == BlockState::Closed && !self.awaits_successor(*block)
        };
        blocks.filter(may_be).min_by_key(|block| self.valid(*block))
    }

    /// The closed block of a die with the most benefit for its cost: the largest (1 - u) * age / 2u, where u
    /// is its share of valid units, and its age is the number of programs since the one that closed it, plus
    /// 1. `now` is the number of the last program.
    pub fn best_by_cost_benefit(&self, die: u32, now: u64) -> Option<u32> {
        let range = self.range_of_die(die);
        let all = u64::from(self.shape.units_per_block);
        let value = |at: usize| {
            let valid = u64::from(self.closed[at]);
            let age = now.saturating_sub(self.closed_at[at]) + 1;
            // In units of 1/256. Ages are numbers of programs, far below 2^40.
            ((all - valid) * age * 256).checked_div(2 * valid).unwrap_or(u64::MAX)
        };
        let closed = range.filter(|at| self.closed[*at] != u16::MAX);
        closed.max_by_key(|at| (value(*at), Reverse(*at))).map(|at| at as u32)
    }

    /// The least worn closed block of a die, and by how many erases it lags behind the most worn block of the
    /// die.
    pub fn least_worn(&self, die: u32) -> Option<(u32, u32)> {
        let range = self.range_of_die(die);
        let most = self.erases[range.clone()].iter().max()?;
        let closed = range.filter(|at| self.state[*at] == BlockState::Closed);
        let least = closed.min_by_key(|at| (self.erases[*at], *at))?;
        Some((least as u32, most - self.erases[least]))
    }

    /// Rebuilds the tables after a power cut, from the number of valid units of each block. `programmed`
    /// returns how many program units of a block are programmed; a block that is programmed in part is open,
    /// with its write pointer after them.
    pub fn rebuild(&mut self, valid: &[u16], program: u64, programmed: impl Fn(u32) -> u32) {
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
            let programmed = programmed(block);
            let vacant = self.dies[die].open.iter_mut().find(|open| open.is_none());
            match vacant {
                _ if programmed == 0 => {
                    // Its erase may have been cut off.
                    (self.state[at], self.dirty[at]) = (BlockState::Free, true);
                    self.dies[die].add_free(block, self.erases[at]);
                }
                Some(vacant) if programmed < self.shape.programs_per_block() => {
                    *vacant = Some(OpenBlock { block, programmed });
                    self.state[at] = BlockState::Open;
                }
                _ => self.close(block, self.closed_at[at].min(program)),
            }
        }
    }
}
