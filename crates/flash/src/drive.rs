//! A drive as somebody describes it: geometry, times, and how its firmware goes about things.

use crate::geometry::{Geometry, Inconsistent, Shape};
use serde::{Deserialize, Serialize};

/// A flash drive. Times are nanoseconds, rates bytes a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// What it is made of.
    pub geometry: Geometry,
    /// How long things take.
    pub timing: Timing,
    /// The write buffer.
    pub buffer: BufferSpec,
    /// The firmware's choices.
    #[serde(default)]
    pub firmware: Firmware,
}

/// How long things take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// To sense a flash page; of the pages of a block in turn, because the cells of a word line
    /// hold several pages that differ.
    pub read_ns: Vec<u64>,
    /// The same where no more than `small_read_bytes` of the page are asked for.
    #[serde(default)]
    pub small_read_ns: Vec<u64>,
    /// See `small_read_ns`.
    #[serde(default)]
    pub small_read_bytes: u32,
    /// Whether the page that a die has sensed last stays in its register, so that the next read of
    /// it needs no sensing, though another command asks.
    #[serde(default)]
    pub page_stays: bool,
    /// To program a shot.
    pub program_ns: u64,
    /// To erase a block.
    pub erase_ns: u64,
    /// Rate of a channel.
    pub channel_bytes_per_second: u64,
    /// A channel is given to one die for so many bytes at a time.
    pub channel_chunk_bytes: u32,
    /// What each use of a channel costs besides: command, address, status.
    #[serde(default)]
    pub channel_command_ns: u64,
    /// Rate of the link to the host.
    pub link_bytes_per_second: u64,
    /// From a read's arrival until its first die may begin.
    pub firmware_read_ns: u64,
    /// The same for a read of no more than `small_command_bytes`.
    pub firmware_small_read_ns: u64,
    /// See `firmware_small_read_ns`.
    pub small_command_bytes: u32,
    /// How long each command has the one processor to itself.
    #[serde(default)]
    pub firmware_busy_ns: u64,
    /// Whether a read may interrupt a program or an erase.
    #[serde(default)]
    pub suspend: Option<Suspend>,
}

/// What it takes to interrupt a program or an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// Until the die can be read.
    pub suspend_ns: u64,
    /// What going on afterwards costs.
    pub resume_ns: u64,
}

/// The write buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Its size.
    pub bytes: u64,
    /// What taking in a command costs.
    pub command_ns: u64,
    /// What each mapping unit of it costs.
    pub unit_ns: u64,
    /// Whether its content survives a power cut (capacitors).
    #[serde(default)]
    pub protected: bool,
    /// Shots that may be put together at once, for writers that go on where they ended.
    #[serde(default = "open_shots")]
    pub open_shots: u32,
}

fn open_shots() -> u32 {
    32
}

/// The firmware's choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Firmware {
    /// Where a write goes.
    pub placement: Placement,
    /// Which block is collected.
    pub collection: Collection,
    /// Whether what is moved stays in its die's register where it can (copyback): a whole shot of one
    /// flash page, to the same plane. Otherwise it goes through the controller.
    pub copyback: bool,
    /// When wear is evened out.
    pub wear: Wear,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// To the dies in turn, in the order of writing.
    #[default]
    RoundRobin,
    /// By the hints of FAST'24 (section 4), as its artefact does: each append begins on the die
    /// behind its predecessor's, however little it brings.
    DieAffine,
    /// By the same hints, but a die's turn is over only when its granule is full, and the tail of a
    /// file that lies in a flash page with others' data is programmed again with what follows it.
    FileAffine,
}

/// Which block of a die is collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The one with the least valid units.
    #[default]
    Greedy,
    /// The one with the largest (1 - u) / 2u * age (Rosenblum and Ousterhout, SOSP'91, equation 1).
    CostBenefit,
}

/// When wear is evened out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wear {
    /// When a block has been erased so many times less than the most worn one of its die, what it
    /// holds moves to a worn one. 0: never.
    pub block_spread: u32,
    /// When a die's blocks have been erased so many times more, on average, than those of the least
    /// worn die, overwrites do not stay on it. 0: they always do.
    pub die_spread: u32,
}

impl Default for Wear {
    fn default() -> Self {
        Self { block_spread: 64, die_spread: 16 }
    }
}

impl Drive {
    /// Whether all of it fits together, and what follows from its geometry.
    ///
    /// # Errors
    /// The first field that does not fit.
    pub fn shape(&self) -> Result<Shape, Inconsistent> {
        let shape = self.geometry.shape()?;
        let t = &self.timing;
        if t.read_ns.is_empty() {
            return Err(Inconsistent::new("read_ns", "must have at least one time"));
        }
        if t.small_read_bytes > 0 && t.small_read_ns.is_empty() {
            return Err(Inconsistent::new("small_read_ns", "must have at least one time"));
        }
        let rates = [
            ("channel_bytes_per_second", t.channel_bytes_per_second),
            ("channel_chunk_bytes", u64::from(t.channel_chunk_bytes)),
            ("link_bytes_per_second", t.link_bytes_per_second),
        ];
        if let Some((field, _)) = rates.iter().find(|(_, rate)| *rate == 0) {
            return Err(Inconsistent::new(field, "must not be 0"));
        }
        // A shot for each die that is being put together, one for each open one, one to program.
        let shot = u64::from(shape.shot_units) * u64::from(shape.unit_bytes);
        let least = (u64::from(shape.dies) + 1) * shot;
        if self.buffer.bytes < least {
            let why = format!("must hold a program for each die and one more: {least} bytes");
            return Err(Inconsistent::new("bytes", why));
        }
        Ok(shape)
    }
}
