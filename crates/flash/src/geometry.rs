//! The geometry of a flash drive, and the arithmetic of its addresses.
//!
//! | term | what it is |
//! |---|---|
//! | unit | a mapping unit: what one entry of the mapping maps, usually 4 KiB |
//! | page | a flash page: what one sensing reads into the die's register |
//! | program unit | the pages of one program: one, or several (multi-plane, or cells of several bits) |
//! | stripe unit | consecutive units that go to one die before the next die's turn |
//! | stripe | a stripe unit on every die |
//! | block | what one erase erases: pages of one plane, or of all planes of a die together |
//!
//! Units, program units and blocks are numbered across the drive, die by die. Dies are numbered in the order of
//! their turns: channels first, so that neighbouring dies are on different channels, or ways first.

use crate::command::MAX_UNITS;
use serde::{Deserialize, Serialize};

/// The geometry in a drive's file. JSON has the field names of the first version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Channels to the controller.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Whether the dies of a channel (its ways) have their turns one after the other. Otherwise neighbouring dies are on different
    /// channels. Drives differ in it (Jung and Kandemir, HotStorage'12).
    #[serde(default)]
    pub ways_first: bool,
    /// Planes of each die.
    pub planes_per_die: u32,
    /// Whether the planes of a die are programmed and erased together.
    #[serde(default)]
    pub planes_together: bool,
    /// Whether the planes of a die sense pages independently of each other.
    #[serde(default)]
    pub planes_read_alone: bool,
    /// Blocks of each plane.
    pub blocks_per_plane: u32,
    /// Flash pages of each block of a plane.
    pub pages_per_block: u32,
    /// Bytes that one sensing reads.
    pub flash_page_bytes: u32,
    /// Bytes that one program writes: whole flash pages.
    #[serde(rename(serialize = "one_shot_bytes"), alias = "one_shot_bytes")]
    pub program_unit_bytes: u32,
    /// Bytes of a mapping unit.
    pub mapping_unit_bytes: u32,
    /// Bytes that go to one die before the next die's turn.
    #[serde(rename(serialize = "die_granularity_bytes"), alias = "die_granularity_bytes")]
    pub stripe_unit_bytes: u32,
    /// Over-provisioning: the flash that the host does not see, in thousandths of the capacity that it sees.
    pub over_provisioning_per_mille: u32,
}

/// A consistent [`Geometry`], and the figures that follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a mapping unit.
    pub unit_bytes: u32,
    /// Units of a flash page.
    pub units_per_page: u32,
    /// Units of a program unit.
    pub units_per_program: u32,
    /// Units of a stripe unit.
    pub units_per_stripe_unit: u32,
    /// Units of a block.
    pub units_per_block: u32,
    /// Blocks of a die.
    pub blocks_per_die: u32,
    /// Dies of the drive.
    pub dies: u32,
    /// Channels of the drive.
    pub channels: u32,
    /// See [`Geometry::ways_first`].
    pub ways_first: bool,
    /// Planes of each die that sense independently; 1 if none do.
    pub independent_planes: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Whether a block spans all planes of its die.
    pub planes_together: bool,
    /// Units that the host sees.
    pub logical_units: u32,
}

/// An inconsistency in a drive's description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Inconsistent {
    /// Name of the field.
    pub field: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Inconsistent {
    /// An inconsistency of this field.
    pub fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self { field, why: why.into() }
    }
}

/// The number of parts of `part` bytes in the bytes of `field`.
fn whole(field: &'static str, bytes: u32, part: u32, parts: &str) -> Result<u32, Inconsistent> {
    if bytes.is_multiple_of(part) {
        return Ok(bytes / part);
    }
    Err(Inconsistent::new(field, format!("must be whole {parts} of {part}")))
}

/// A product of counts, of which this field is one.
fn product(field: &'static str, a: u32, b: u32) -> Result<u32, Inconsistent> {
    a.checked_mul(b).ok_or_else(|| Inconsistent::new(field, "too large"))
}

/// The longest time in a description, in nanoseconds: some 18 minutes, so that the virtual clock, of 64 bits, has space for many.
const LONGEST_NS: u64 = 1 << 40;

/// Checks that none of these times is too long.
pub(crate) fn check_times(times: &[(&'static str, u64)]) -> Result<(), Inconsistent> {
    let long = times.iter().find(|(_, ns)| *ns > LONGEST_NS);
    long.map_or(Ok(()), |(field, _)| {
        Err(Inconsistent::new(field, format!("must not be longer than {LONGEST_NS} ns")))
    })
}

/// Checks that the largest command crosses a link, a channel or a head of each of these rates in a time that is not too long.
pub(crate) fn check_rates(
    rates: &[(&'static str, u64)],
    unit_bytes: u32,
) -> Result<(), Inconsistent> {
    let largest = u128::from(MAX_UNITS) * u128::from(unit_bytes);
    let least = (largest * 1_000_000_000).div_ceil(LONGEST_NS.into());
    let slow = rates.iter().find(|(_, rate)| u128::from(*rate) < least);
    slow.map_or(Ok(()), |(field, _)| {
        let why = format!(
            "must be at least {least}: a command of {largest} bytes must not last longer than {LONGEST_NS} ns"
        );
        Err(Inconsistent::new(field, why))
    })
}

/// The most memory for the mapping and the out-of-band areas of a drive, in bytes: some 1.8 TB of flash in units of 4 KiB.
const LARGEST_MAPPING: u64 = 4 << 30;

/// Bytes of memory that `space/map.rs` needs for so many units, all of which the host sees.
fn mapping_bytes(units: u64, units_per_program: u32) -> u64 {
    let programs = units / u64::from(units_per_program);
    units.saturating_mul(8).saturating_add(programs.saturating_mul(9))
}

/// The most dies: a drive has queues, time lines and open blocks for each.
const MOST_DIES: u32 = 1 << 16;

impl Geometry {
    /// The shape of a drive of this geometry.
    ///
    /// # Errors
    /// The first field that does not fit the others.
    pub fn shape(&self) -> Result<Shape, Inconsistent> {
        self.check_counts()?;
        let unit = self.mapping_unit_bytes;
        let units_per_page =
            whole("flash_page_bytes", self.flash_page_bytes, unit, "mapping units")?;
        let (program, stripe) = (self.program_unit_bytes, self.stripe_unit_bytes);
        let pages = whole("program_unit_bytes", program, self.flash_page_bytes, "pages")?;
        let units_per_stripe_unit = whole("stripe_unit_bytes", stripe, unit, "mapping units")?;
        let (large, small) = (stripe.max(program), stripe.min(program));
        whole("stripe_unit_bytes", large, small, "parts (or a part of program_unit_bytes)")?;
        let together = if self.planes_together { self.planes_per_die } else { 1 };
        let pages_per_block = product("pages_per_block", self.pages_per_block, together)?;
        whole("pages_per_block", pages_per_block, pages, "programs")?;
        let mut shape = Shape {
            unit_bytes: unit,
            units_per_page,
            // No more than the bytes of a program unit.
            units_per_program: pages * units_per_page,
            units_per_stripe_unit,
            units_per_block: product("pages_per_block", pages_per_block, units_per_page)?,
            blocks_per_die: product(
                "blocks_per_plane",
                self.blocks_per_plane,
                self.planes_per_die / together,
            )?,
            dies: product("channels", self.channels, self.dies_per_channel)?,
            channels: self.channels,
            ways_first: self.ways_first,
            independent_planes: if self.planes_read_alone { self.planes_per_die } else { 1 },
            planes: self.planes_per_die,
            planes_together: self.planes_together,
            logical_units: 0,
        };
        shape.logical_units = self.logical_units(&shape)?;
        Ok(shape)
    }

    fn check_counts(&self) -> Result<(), Inconsistent> {
        let counts = [
            ("channels", self.channels),
            ("dies_per_channel", self.dies_per_channel),
            ("planes_per_die", self.planes_per_die),
            ("blocks_per_plane", self.blocks_per_plane),
            ("pages_per_block", self.pages_per_block),
            ("flash_page_bytes", self.flash_page_bytes),
            ("program_unit_bytes", self.program_unit_bytes),
            ("mapping_unit_bytes", self.mapping_unit_bytes),
            ("stripe_unit_bytes", self.stripe_unit_bytes),
        ];
        if let Some((field, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Inconsistent::new(field, "must not be 0"));
        }
        if !self.mapping_unit_bytes.is_multiple_of(512) {
            return Err(Inconsistent::new("mapping_unit_bytes", "must be whole sectors of 512"));
        }
        Ok(())
    }

    /// Units that the host sees: whole stripes.
    fn logical_units(&self, shape: &Shape) -> Result<u32, Inconsistent> {
        // The units of a block are counted in 16 bits, all of which stand for a block that is not closed.
        if shape.units_per_block >= u32::from(u16::MAX) {
            return Err(Inconsistent::new("pages_per_block", "more than 65,534 mapping units"));
        }
        let (dies, units_per_block) = (u64::from(shape.dies), u64::from(shape.units_per_block));
        if shape.dies > MOST_DIES {
            return Err(Inconsistent::new(
                "dies_per_channel",
                format!("more than {MOST_DIES} dies"),
            ));
        }
        let units = (dies * u64::from(shape.blocks_per_die)).saturating_mul(units_per_block);
        // So there are far less than 2^31 units: the mapping uses the upper half of the numbers for units that are not in the flash.
        let memory = mapping_bytes(units, shape.units_per_program);
        if memory > LARGEST_MAPPING {
            let why = format!(
                "the mapping of {units} units needs {memory} bytes of memory, more than {LARGEST_MAPPING}: \
                 describe fewer blocks, or a larger mapping_unit_bytes"
            );
            return Err(Inconsistent::new("blocks_per_plane", why));
        }
        let logical = units * 1000 / (1000 + u64::from(self.over_provisioning_per_mille));
        let stripe = u64::from(shape.units_per_stripe_unit) * dies;
        let logical_units = logical / stripe * stripe;
        // Four blocks as in `Shape::max_valid_units_per_die`, and one more, because dies need not have the
        // same number of valid units.
        if units - logical_units < dies * units_per_block * 5 {
            let why = "leaves less than five blocks of each die to write to";
            return Err(Inconsistent::new("over_provisioning_per_mille", why));
        }
        Ok(logical_units as u32)
    }
}

impl Shape {
    /// Physical units of the drive.
    pub fn units(&self) -> u32 {
        self.blocks() * self.units_per_block
    }

    /// Blocks of the drive.
    pub fn blocks(&self) -> u32 {
        self.dies * self.blocks_per_die
    }

    /// Program units of a block.
    pub fn programs_per_block(&self) -> u32 {
        self.units_per_block / self.units_per_program
    }

    /// Bytes of a program unit.
    pub fn program_unit_bytes(&self) -> u32 {
        self.units_per_program * self.unit_bytes
    }

    /// The most valid units of a die. The die needs an open block for the host, an open block for moved data,
    /// a free block, and a block's worth of invalid units to collect.
    pub fn max_valid_units_per_die(&self) -> u32 {
        (self.blocks_per_die - 4) * self.units_per_block
    }

    /// Bytes that the host sees.
    pub fn bytes(&self) -> u64 {
        u64::from(self.logical_units) * u64::from(self.unit_bytes)
    }

    /// The blocks of a die.
    pub fn blocks_of_die(&self, die: u32) -> std::ops::Range<u32> {
        die * self.blocks_per_die..(die + 1) * self.blocks_per_die
    }

    /// The physical units of a block.
    pub fn units_of_block(&self, block: u32) -> std::ops::Range<u32> {
        block * self.units_per_block..(block + 1) * self.units_per_block
    }

    /// All dies, this one first and the others in turn.
    pub fn dies_from(&self, die: u32) -> impl Iterator<Item = u32> + use<> {
        let dies = self.dies;
        (0..dies).map(move |n| (die + n) % dies)
    }

    /// The die whose turn is after this one's.
    pub fn next_die(&self, die: u32) -> u32 {
        (die + 1) % self.dies
    }

    /// The die of a block.
    pub fn die_of_block(&self, block: u32) -> u32 {
        block / self.blocks_per_die
    }

    /// The plane of a block on its die.
    pub fn plane_of_block(&self, block: u32) -> u32 {
        block % self.planes
    }

    /// The block of a physical unit.
    pub fn block_of(&self, unit: u32) -> u32 {
        unit / self.units_per_block
    }

    /// The die of a physical unit.
    pub fn die_of(&self, unit: u32) -> u32 {
        self.die_of_block(self.block_of(unit))
    }

    /// The channel of a die.
    pub fn channel_of(&self, die: u32) -> u32 {
        if self.ways_first { die / (self.dies / self.channels) } else { die % self.channels }
    }

    /// The flash page of a physical unit.
    pub fn page_of(&self, unit: u32) -> Page {
        let (number, block) = (unit / self.units_per_page, self.block_of(unit));
        let in_block = number - block * (self.units_per_block / self.units_per_page);
        let plane = if self.planes_together { in_block } else { block } % self.planes;
        Page { number, in_block, die: self.die_of_block(block), plane }
    }
}

/// A flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its number on the drive.
    pub number: u32,
    /// Its number in its block, on which the time of a sensing depends.
    pub in_block: u32,
    /// Its die.
    pub die: u32,
    /// Its plane on that die.
    pub plane: u32,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A die of 16 blocks of 4 pages of two units of 512 bytes, half of which the host sees.
    pub(crate) fn small() -> Geometry {
        Geometry {
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            planes_together: false,
            planes_read_alone: false,
            ways_first: false,
            blocks_per_plane: 16,
            pages_per_block: 4,
            flash_page_bytes: 1024,
            program_unit_bytes: 1024,
            mapping_unit_bytes: 512,
            stripe_unit_bytes: 512,
            over_provisioning_per_mille: 1000,
        }
    }

    #[test]
    fn the_first_field_that_does_not_fit_is_named() {
        let wrong = |change: fn(&mut Geometry)| {
            let mut geometry = small();
            change(&mut geometry);
            geometry.shape().expect_err("inconsistent").field
        };
        assert_eq!(wrong(|g| g.channels = 0), "channels");
        assert_eq!(wrong(|g| g.mapping_unit_bytes = 500), "mapping_unit_bytes");
        assert_eq!(wrong(|g| g.program_unit_bytes = 1536), "program_unit_bytes");
        assert_eq!(wrong(|g| g.stripe_unit_bytes = 1536), "stripe_unit_bytes");
        assert_eq!(wrong(|g| g.pages_per_block = 0), "pages_per_block");
        assert_eq!(wrong(|g| g.over_provisioning_per_mille = 100), "over_provisioning_per_mille");
        // Counts whose product is beyond 32 bits, or more units than a block may have.
        let channels = |g: &mut Geometry| (g.channels, g.dies_per_channel) = (1 << 31, 2);
        assert_eq!(wrong(channels), "channels");
        assert_eq!(wrong(|g| g.pages_per_block = 1 << 31), "pages_per_block");
        assert_eq!(wrong(|g| g.pages_per_block = 1 << 15), "pages_per_block");
        let planes = |g: &mut Geometry| (g.blocks_per_plane, g.planes_per_die) = (1 << 31, 2);
        assert_eq!(wrong(planes), "blocks_per_plane");
        assert_eq!(wrong(|g| g.blocks_per_plane = u32::MAX), "blocks_per_plane");
        assert_eq!(wrong(|g| g.dies_per_channel = 1 << 17), "dies_per_channel");
        assert_eq!(small().shape().map(|shape| shape.logical_units), Ok(64));
    }

    /// Blocks of 8 units in programs of two: a block needs 64 bytes of the mapping, and 36 of the out-of-band areas of its programs.
    #[test]
    fn a_mapping_that_needs_too_much_memory_is_refused() {
        let of = |blocks: u64| Geometry { blocks_per_plane: blocks as u32, ..small() }.shape();
        let most = LARGEST_MAPPING / 100;
        assert!(of(most).is_ok());
        let Inconsistent { field, why } = of(most + 1).expect_err("a byte too many");
        assert!(field == "blocks_per_plane" && why.contains("larger mapping_unit_bytes"), "{why}");
    }

    #[test]
    fn a_rate_at_which_a_command_lasts_too_long_is_refused() {
        let check = |rate| check_rates(&[("rate", 1 << 40), ("link", rate)], 4096);
        // 65,536 units of 4 KiB in 2^40 ns.
        let least = (1_u64 << 28) * 1_000_000_000 / (1 << 40) + 1;
        assert_eq!(check(least), Ok(()));
        assert_eq!(check(least - 1).map_err(|wrong| wrong.field), Err("link"));
        assert_eq!(check(0).map_err(|wrong| wrong.field), Err("link"));
        assert!(check_rates(&[("link", u64::MAX)], u32::MAX).is_ok());
    }
}
