//! The hints that data writes have (FAST'24, section 4), as its patch of ext4 passes them on (`io_submit_init_bio` in fs/ext4/page-io.c of
//! its kernel): blocks that follow each other in the file and on the drive are a bio, and its first block decides.
//!
//! - A block that was on the drive in this place is overwritten.
//! - A new one is appended to the block before it in the file, if that has a place and was ever written. What that block's place holds is
//!   looked up when the bio is made: the predecessor has moved with its file, or is none once it was freed.
//! - The first block of a file, and one behind a hole, have none.
//!
//! A hint is wrong nevertheless where the predecessor is placed and not on the drive yet, because it is written later: the drive finds
//! nothing there, and counts it as lost. Metadata, the journal, and what a mover copies have no hints.

use crate::extent_map::Piece;
use crate::files::File;
use fragmend_flash::command::{Hint, Units};
use std::ops::Range;

impl File {
    /// The bios of a write of these blocks, all of which have places, with their hints.
    pub(super) fn bios(&self, range: Range<u64>) -> Vec<(Units, Hint)> {
        self.map.within(range).map(|piece| (piece.units(), self.hint(&piece))).collect()
    }

    fn hint(&self, piece: &Piece) -> Hint {
        if !self.unwritten_out.contains(piece.block) {
            return Hint::Overwrite;
        }
        let before =
            piece.block.checked_sub(1).and_then(|block| Some((block, self.map.at(block)?)));
        match before {
            Some((block, before)) if !before.unwritten => {
                Hint::Append { predecessor: before.place + (block - before.block) as u32 }
            }
            _ => Hint::None,
        }
    }
}
