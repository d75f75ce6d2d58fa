//! What a drive is made of, and the arithmetic of its addresses.
//!
//! | name | what it is |
//! |---|---|
//! | unit | what the mapping maps, usually 4 KiB |
//! | page | a flash page: what one sensing brings into the die's register |
//! | shot | what one program writes: a page, or several (planes together, or cells of several bits) |
//! | granule | what goes to one die before the next one's turn |
//! | block | what one erase erases: of one plane, or of all planes of a die together |
//! | stripe | a granule on every die |
//!
//! Units, shots and blocks are numbered across the drive, die by die; channels come first, so
//! that neighbouring dies are on different channels.

use serde::{Deserialize, Serialize};

/// As in a drive's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Channels to the controller.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of each die.
    pub planes_per_die: u32,
    /// Whether the planes of a die are programmed and erased together, as one.
    #[serde(default)]
    pub planes_together: bool,
    /// Whether the planes of a die sense each for itself.
    #[serde(default)]
    pub planes_read_alone: bool,
    /// Blocks of each plane.
    pub blocks_per_plane: u32,
    /// Flash pages of each block of a plane.
    pub pages_per_block: u32,
    /// What one sensing reads.
    pub flash_page_bytes: u32,
    /// What one program writes; whole flash pages.
    pub one_shot_bytes: u32,
    /// What the mapping maps.
    pub mapping_unit_bytes: u32,
    /// What goes to one die before the next one's turn.
    pub die_granularity_bytes: u32,
    /// Share of the flash that the host does not see, of what it does see.
    pub over_provisioning_per_mille: u32,
}

/// A [`Geometry`] that is consistent, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a mapping unit.
    pub unit_bytes: u32,
    /// Units of a flash page.
    pub page_units: u32,
    /// Units of a shot.
    pub shot_units: u32,
    /// Units of a granule.
    pub granule_units: u32,
    /// Units of a block.
    pub block_units: u32,
    /// Blocks of a die.
    pub die_blocks: u32,
    /// Dies.
    pub dies: u32,
    /// Channels.
    pub channels: u32,
    /// Planes that sense each for itself, of each die.
    pub lines_per_die: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Whether a block spans all planes of its die.
    pub planes_together: bool,
    /// Units that the host sees.
    pub logical_units: u32,
}

/// What is wrong with a drive's description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Inconsistent {
    /// Name of the field.
    pub field: &'static str,
    /// Why it cannot be so.
    pub why: String,
}

impl Inconsistent {
    /// Says so.
    pub fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self { field, why: why.into() }
    }
}

impl Geometry {
    /// What follows from it.
    ///
    /// # Errors
    /// The first field that does not fit the others.
    pub fn shape(&self) -> Result<Shape, Inconsistent> {
        let counts = [
            ("channels", self.channels),
            ("dies_per_channel", self.dies_per_channel),
            ("planes_per_die", self.planes_per_die),
            ("blocks_per_plane", self.blocks_per_plane),
            ("pages_per_block", self.pages_per_block),
            ("flash_page_bytes", self.flash_page_bytes),
            ("one_shot_bytes", self.one_shot_bytes),
            ("mapping_unit_bytes", self.mapping_unit_bytes),
            ("die_granularity_bytes", self.die_granularity_bytes),
        ];
        if let Some((field, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Inconsistent::new(field, "must not be 0"));
        }
        let unit = self.mapping_unit_bytes;
        if !unit.is_multiple_of(512) {
            return Err(Inconsistent::new("mapping_unit_bytes", "must be whole sectors of 512"));
        }
        let whole = |field, bytes: u32, of: u32, what: &str| match bytes.is_multiple_of(of) {
            true => Ok(bytes / of),
            false => Err(Inconsistent::new(field, format!("must be whole {what} of {of}"))),
        };
        let page_units = whole("flash_page_bytes", self.flash_page_bytes, unit, "mapping units")?;
        let pages = whole("one_shot_bytes", self.one_shot_bytes, self.flash_page_bytes, "pages")?;
        let granule = self.die_granularity_bytes;
        let granule_units = whole("die_granularity_bytes", granule, unit, "mapping units")?;
        let (shot, more) = (self.one_shot_bytes, granule > self.one_shot_bytes);
        let (large, small) = if more { (granule, shot) } else { (shot, granule) };
        whole("die_granularity_bytes", large, small, "parts (or a part of one_shot_bytes)")?;
        let together = if self.planes_together { self.planes_per_die } else { 1 };
        let block_pages = self.pages_per_block * together;
        whole("pages_per_block", block_pages, pages, "programs")?;
        let dies = self.channels * self.dies_per_channel;
        let die_blocks = self.blocks_per_plane * self.planes_per_die / together;
        let block_units = block_pages * page_units;
        let units = u64::from(dies) * u64::from(die_blocks) * u64::from(block_units);
        // The largest numbers stand for what is nowhere and for what is in the write buffer.
        if units > u64::from(u32::MAX) / 2 {
            return Err(Inconsistent::new("blocks_per_plane", "more than 2^31 mapping units"));
        }
        let logical = units * 1000 / u64::from(1000 + self.over_provisioning_per_mille);
        let stripe = u64::from(granule_units) * u64::from(dies);
        let logical_units = (logical / stripe * stripe) as u32;
        // See `Shape::most_valid_units`, and one more so that data need not be even to the unit.
        let spare = units - u64::from(logical_units);
        if spare < u64::from(dies) * u64::from(block_units) * 5 {
            let why = "leaves less than five blocks of each die to write to";
            return Err(Inconsistent::new("over_provisioning_per_mille", why));
        }
        Ok(Shape {
            unit_bytes: unit,
            page_units,
            shot_units: pages * page_units,
            granule_units,
            block_units,
            die_blocks,
            dies,
            channels: self.channels,
            lines_per_die: if self.planes_read_alone { self.planes_per_die } else { 1 },
            planes: self.planes_per_die,
            planes_together: self.planes_together,
            logical_units,
        })
    }
}

impl Shape {
    /// Physical units of the drive.
    pub fn units(&self) -> u32 {
        self.blocks() * self.block_units
    }

    /// Blocks of the drive.
    pub fn blocks(&self) -> u32 {
        self.dies * self.die_blocks
    }

    /// Shots of a block.
    pub fn block_shots(&self) -> u32 {
        self.block_units / self.shot_units
    }

    /// Valid units that a die may hold: it needs a block that is written to, one that is moved to,
    /// one that is free, and one to gain by collecting.
    pub fn most_valid_units(&self) -> u32 {
        (self.die_blocks - 4) * self.block_units
    }

    /// Bytes that the host sees.
    pub fn bytes(&self) -> u64 {
        u64::from(self.logical_units) * u64::from(self.unit_bytes)
    }

    /// Bytes of a granule on every die.
    pub fn stripe_bytes(&self) -> u64 {
        u64::from(self.granule_units) * u64::from(self.unit_bytes) * u64::from(self.dies)
    }

    /// The die of a block.
    pub fn die_of_block(&self, block: u32) -> u32 {
        block / self.die_blocks
    }

    /// The block of a physical unit.
    pub fn block_of(&self, unit: u32) -> u32 {
        unit / self.block_units
    }

    /// The die of a physical unit.
    pub fn die_of(&self, unit: u32) -> u32 {
        self.die_of_block(self.block_of(unit))
    }

    /// The channel of a die.
    pub fn channel_of(&self, die: u32) -> u32 {
        die % self.channels
    }

    /// Where a flash page is: its number on the drive, its die and the plane of it.
    pub fn page_of(&self, unit: u32) -> Page {
        let (page, block) = (unit / self.page_units, self.block_of(unit));
        let in_block = page - block * (self.block_units / self.page_units);
        let plane = if self.planes_together { in_block } else { block } % self.planes;
        Page { page, in_block, die: self.die_of_block(block), plane }
    }
}

/// A flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its number on the drive.
    pub page: u32,
    /// Its number in its block, which decides how long its cells take to sense.
    pub in_block: u32,
    /// Its die.
    pub die: u32,
    /// Its plane on that die.
    pub plane: u32,
}
