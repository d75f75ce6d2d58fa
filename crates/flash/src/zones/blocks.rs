//! The blocks of zones: allocated when a zone is opened, released when it is reset.

use crate::geometry::Shape;

/// The free blocks of each die, and the wear of all blocks.
#[derive(Clone, Debug)]
pub(super) struct FreeBlocks {
    free: Vec<Vec<u32>>,
    erases: Vec<u32>,
    /// Whether each block was ever allocated.
    used: Vec<bool>,
}

/// A block that is allocated to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenBlock {
    pub block: u32,
    /// Whether it must be erased before it is programmed.
    pub must_erase: bool,
}

impl FreeBlocks {
    /// The blocks of a new drive, all of them free.
    pub fn new(shape: &Shape) -> Self {
        Self {
            free: (0..shape.dies).map(|die| shape.blocks_of_die(die).collect()).collect(),
            erases: vec![0; shape.blocks() as usize],
            used: vec![false; shape.blocks() as usize],
        }
    }

    /// Allocates the least worn free block of each die; `None` if a die has no free block.
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

    /// Releases a block of a die.
    pub fn release(&mut self, die: u32, block: u32) {
        self.free[die as usize].push(block);
    }

    /// Erases of a block.
    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }
}
