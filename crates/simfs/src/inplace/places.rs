//! Where on the drive the tables are: super block, journal (or it is at the end), bitmaps, inodes, and behind them data.

use super::Options;
use crate::error::Error;
use crate::machine::Machine;
use fragmend_flash::command::Units;
use serde::{Deserialize, Serialize};

/// The first number of the super block.
const MAGIC: u32 = 0x1e4f_5301;

/// The super block's content, from which the places of all tables follow. Numbers are blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Places {
    magic: u32,
    block_bytes: u32,
    /// Of the drive.
    pub blocks: u32,
    /// Of a group.
    pub per_group: u32,
    /// Of the journal.
    journal_blocks: u32,
    /// Whether the journal is at the end.
    journal_last: bool,
    /// Blocks with an inode each.
    pub inodes: u32,
}

impl Places {
    /// The places of the tables on a machine's drive.
    pub fn new(machine: &Machine, options: &Options) -> Result<Self, Error> {
        let block_bytes = machine.block_bytes() as u32;
        let per_group = options.blocks_per_group;
        if per_group == 0 || per_group > 8 * block_bytes {
            return Err(Error::Unsupported(
                "groups of more blocks than a block has bits, or of none",
            ));
        }
        if options.journal_blocks < 16 {
            return Err(Error::Unsupported("a journal of less than 16 blocks"));
        }
        let places = Self {
            magic: MAGIC,
            block_bytes,
            blocks: machine.blocks(),
            per_group,
            journal_blocks: options.journal_blocks,
            journal_last: options.journal_last,
            inodes: options.inodes,
        };
        let metadata = 1
            + u64::from(options.journal_blocks)
            + u64::from(places.groups())
            + u64::from(options.inodes);
        if metadata >= u64::from(places.blocks) { Err(Error::NoSpace) } else { Ok(places) }
    }

    /// Whether this is the super block of a file system on such a drive.
    pub fn is_of(&self, machine: &Machine) -> bool {
        let (bytes, blocks) = (machine.block_bytes(), machine.blocks());
        self.magic == MAGIC && u64::from(self.block_bytes) == bytes && self.blocks == blocks
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.into()
    }

    /// The journal.
    pub fn journal(&self) -> Units {
        let start = if self.journal_last { self.blocks - self.journal_blocks } else { 1 };
        Units::new(start, self.journal_blocks)
    }

    /// The first bitmap.
    fn first_bitmap(&self) -> u32 {
        if self.journal_last { 1 } else { self.journal().end() }
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.blocks.div_ceil(self.per_group)
    }

    /// The blocks of a group.
    pub fn group(&self, group: u32) -> Units {
        let start = group * self.per_group;
        Units::new(start, self.per_group.min(self.blocks - start))
    }

    /// The bitmap of a group.
    pub fn bitmap(&self, group: u32) -> Units {
        Units::new(self.first_bitmap() + group, 1)
    }

    /// The inodes.
    pub fn table(&self) -> Units {
        Units::new(self.first_bitmap() + self.groups(), self.inodes)
    }

    /// The block of an inode.
    pub fn inode(&self, inode: u64) -> u32 {
        self.table().start + inode as u32
    }

    /// All blocks that have tables, or are the journal's.
    pub fn tables(&self) -> Vec<Units> {
        let mut tables = vec![Units::new(0, self.first_data())];
        tables.extend(self.journal_last.then(|| self.journal()));
        tables
    }

    /// The first block that files may have.
    pub fn first_data(&self) -> u32 {
        self.table().end()
    }

    /// The longest path that fits into an inode beside four extents.
    pub fn longest_path(&self) -> usize {
        (self.block_bytes / 4).min(255) as usize
    }
}
