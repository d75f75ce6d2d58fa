//! The parameters of a log-structured file system, and how its drive is divided.
//!
//! The drive begins with two areas for checkpoint packs; behind them are the sections of the main area. A section is what is opened,
//! filled, cleaned and freed as a whole: one segment, or, on a drive with zones, one zone (which is several segments). F2FS has the
//! same division (Lee et al., FAST'15, section 2.1).

use super::clean::Cleaning;
use crate::error::Error;

/// Parameters. All but the first four may differ each time it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Blocks of a zone, on a drive with zones; a multiple of a segment's.
    pub zone_blocks: Option<u32>,
    /// The most addresses of a node, which has no more than fit into a block in any case.
    pub node_addresses: u64,
    /// Sections that users' data cannot fill, in thousandths of all, so that cleaning finds invalid blocks.
    pub spare_per_mille: u32,
    /// Whether a block that has a place is overwritten there; not on drives with zones.
    pub in_place: bool,
    /// What is discarded after a checkpoint, on drives without zones.
    pub discard: Discard,
    /// How the cleaner works.
    pub cleaning: Cleaning,
    /// The most blocks in the page cache.
    pub cache_blocks: u64,
    /// More dirty blocks than this are written back.
    pub dirty_blocks: u64,
    /// A write this long after the last checkpoint makes one.
    pub checkpoint_every_ns: u64,
    /// For tests of the tests: the barrier that is left out.
    pub omit: Option<Barrier>,
}

/// What is discarded (TRIM) once a checkpoint no longer refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Nothing.
    Never,
    /// Sections that have become free.
    Sections,
    /// All blocks that have become invalid.
    Blocks,
}

/// What the order of writes, and the reuse of space, must keep so that a power cut loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// All nodes, tables and data are durable before the checkpoint block is written.
    FlushBeforeCheckpoint,
    /// The checkpoint block is durable before space is reused or a sync returns.
    FlushAfterCheckpoint,
    /// The checkpoint block is written after the tables of its pack.
    CheckpointLast,
    /// Nodes are written before the checkpoint that refers to them.
    NodesBeforeCheckpoint,
    /// A checkpoint has the NAT of all nodes that were written.
    NodesInTable,
    /// A checkpoint has the SIT of all sections that changed.
    SectionsInTable,
    /// What the last checkpoint refers to is neither reused nor discarded before the next one.
    HeldUntilCheckpoint,
    /// Sections are discarded, or their zones reset, after the checkpoint that frees them, not before it.
    DiscardAfterCheckpoint,
    /// The data of an fsync is durable before its nodes are written.
    DataBeforeNodes,
    /// What the cleaner has copied is durable before an fsync writes nodes that refer to it.
    CopiesBeforeNodes,
    /// What the drive itself copies is complete before it is flushed.
    CopiesBeforeFlush,
    /// An fsync returns when its nodes are durable.
    FlushAfterNodes,
    /// A roll-forward ends at a node that is older than the checkpoint.
    VersionInChain,
    /// What was rolled forward is in sections that nothing else is written to before the next checkpoint.
    NewLogsAfterRecovery,
    /// A file whose name changed is made durable by a checkpoint.
    CheckpointForNames,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::FlushBeforeCheckpoint,
        Self::FlushAfterCheckpoint,
        Self::CheckpointLast,
        Self::NodesBeforeCheckpoint,
        Self::NodesInTable,
        Self::SectionsInTable,
        Self::HeldUntilCheckpoint,
        Self::DiscardAfterCheckpoint,
        Self::DataBeforeNodes,
        Self::CopiesBeforeNodes,
        Self::CopiesBeforeFlush,
        Self::FlushAfterNodes,
        Self::VersionInChain,
        Self::NewLogsAfterRecovery,
        Self::CheckpointForNames,
    ];
}

impl Default for Settings {
    /// F2FS's segments (fs/f2fs/f2fs.h), its interval of checkpoints (`DEF_CP_INTERVAL`, fs/f2fs/segment.h), and the spare sections of
    /// its first mkfs (5 %); a page cache of 256 MiB of blocks of 4 KiB, a tenth of which may be dirty.
    fn default() -> Self {
        Self {
            segment_bytes: 2 << 20,
            zone_blocks: None,
            node_addresses: u64::MAX,
            spare_per_mille: 50,
            in_place: false,
            discard: Discard::Sections,
            cleaning: Cleaning::default(),
            cache_blocks: 65_536,
            dirty_blocks: 6_554,
            checkpoint_every_ns: 60_000_000_000,
            omit: None,
        }
    }
}

/// Sections that are open at once: one for each log.
const OPEN: u32 = 4;

/// How the drive is divided. All figures are blocks, or numbers of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks of a segment.
    pub segment: u32,
    /// Blocks of a section.
    pub section: u32,
    /// Sections of each area for checkpoint packs.
    pub area_sections: u32,
    /// Sections of the main area.
    pub sections: u32,
    /// Sections that users' data cannot fill.
    pub spare: u32,
}

impl Geometry {
    /// Divides a drive of so many blocks.
    ///
    /// # Errors
    /// The parameters do not fit the drive, or each other.
    pub fn new(blocks: u32, block_bytes: u64, settings: &Settings) -> Result<Self, Error> {
        let segment = (settings.segment_bytes / block_bytes) as u32;
        let section = settings.zone_blocks.unwrap_or(segment);
        if segment < 8 || !section.is_multiple_of(segment) {
            return Err(Error::Unsupported(
                "a segment has eight blocks at least, and a zone whole segments",
            ));
        }
        if block_bytes < 512 || settings.node_addresses == 0 {
            return Err(Error::Unsupported("a node has no space for an address"));
        }
        if settings.in_place && settings.zone_blocks.is_some() {
            return Err(Error::Unsupported("nothing is overwritten in place in zones"));
        }
        // A pack with all tables has at most six bytes for each block in the NAT, if half of the blocks are nodes of twelve bytes,
        // and a bit in the SIT. An area holds more than two of them.
        let area_sections = (blocks / 256 + 12).div_ceil(section);
        let sections = (blocks / section).saturating_sub(2 * area_sections);
        let least = settings.cleaning.sections_needed() + 2;
        let spare = (sections.saturating_mul(settings.spare_per_mille) / 1000).max(least);
        if sections < spare + OPEN + 2 {
            return Err(Error::Unsupported("the drive has too few sections"));
        }
        let block_bytes = block_bytes as usize;
        Ok(Self { block_bytes, segment, section, area_sections, sections, spare })
    }

    /// The block of the drive that is the `offset`th of a section.
    pub fn place(&self, section: u32, offset: u32) -> u32 {
        (2 * self.area_sections + section) * self.section + offset
    }

    /// The section of a block of the drive, and its offset there.
    pub fn locate(&self, place: u32) -> (u32, u32) {
        (place / self.section - 2 * self.area_sections, place % self.section)
    }

    /// Whether a block of the drive is in the main area.
    pub fn is_main(&self, place: u32) -> bool {
        let section = place / self.section;
        (2 * self.area_sections..2 * self.area_sections + self.sections).contains(&section)
    }

    /// The first block of an area for checkpoint packs.
    pub fn area_start(&self, area: u32) -> u32 {
        area * self.area_sections * self.section
    }

    /// Blocks of an area.
    pub fn area_blocks(&self) -> u32 {
        self.area_sections * self.section
    }

    /// Blocks that data and nodes may have together.
    pub fn usable(&self) -> u64 {
        u64::from(self.sections - self.spare - OPEN) * u64::from(self.section)
    }
}
