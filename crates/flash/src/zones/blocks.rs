//! The blocks of zones: allocated when a zone is opened, released when it is reset.

use crate::geometry::Shape;

/// The free blocks of each die, and how worn all blocks are.
#[derive(Clone, Debug)]
pub(super) struct FreeBlocks {
    free: Vec<Vec<u32>>,
    erases: Vec<u32>,
    /// Whether each block was taken since the drive was made.
    used: Vec<bool>,
}

/// A block for a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenBlock {
    pub block: u32,
    /// Whether it must be erased first.
    pub must_erase: bool,
}

impl FreeBlocks {
    /// All blocks, which were never used.
    pub fn new(shape: &Shape) -> Self {
        Self {
            free: (0..shape.dies).map(|die| shape.blocks_of_die(die).collect()).collect(),
            erases: vec![0; shape.blocks() as usize],
            used: vec![false; shape.blocks() as usize],
        }
    }

    /// Takes the least worn free block of each die; `None` if a die has no free block.
    pub fn take(&mut self) -> Option<Vec<TakenBlock>> {
        let least_worn = |free: &Vec<u32>| {
            let wear = |at: &usize| (self.erases[free[*at] as usize], free[*at]);
            (0..free.len()).min_by_key(wear)
        };
        let chosen: Option<Vec<usize>> = self.free.iter().map(least_worn).collect();
        let mut taken = Vec::new();
        for (free, at) in self.free.iter_mut().zip(chosen?) {
            let block = free.swap_remove(at);
            let must_erase = std::mem::replace(&mut self.used[block as usize], true);
            self.erases[block as usize] += u32::from(must_erase);
            taken.push(TakenBlock { block, must_erase });
        }
        Some(taken)
    }

    /// A zone releases a block of a die.
    pub fn give_back(&mut self, die: u32, block: u32) {
        self.free[die as usize].push(block);
    }

    /// How often a block was erased.
    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }
}
