//! The description of a flash drive: geometry, times, and the choices of its firmware.

use crate::geometry::{Geometry, Inconsistent, Shape, check_rates, check_times};
use serde::{Deserialize, Serialize};

/// A flash drive. Times are nanoseconds, rates bytes a second. JSON has the field names of the first
/// version; [`former_name`] has those that files may still use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Its geometry.
    pub geometry: Geometry,
    /// How long operations last.
    pub timing: Timing,
    /// The write buffer.
    pub buffer: BufferSpec,
    /// The policies of the firmware.
    #[serde(default)]
    pub firmware: Firmware,
}

/// How long operations last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// To sense a flash page: a time for each of the pages of a block in turn, because the pages of a word
    /// line differ.
    pub read_ns: Vec<u64>,
    /// The same where no more than `small_read_bytes` of the page are read.
    #[serde(default)]
    pub small_read_ns: Vec<u64>,
    /// See `small_read_ns`.
    #[serde(default)]
    pub small_read_bytes: u32,
    /// Whether the page that a die sensed last stays in its register, so that another command reads it
    /// without a sensing.
    #[serde(default)]
    pub page_stays: bool,
    /// To program a program unit.
    pub program_ns: u64,
    /// To erase a block.
    pub erase_ns: u64,
    /// Rate of a channel.
    pub channel_bytes_per_second: u64,
    /// Bytes that a die transfers before another may use the channel.
    pub channel_chunk_bytes: u32,
    /// Additional time of each transfer over a channel: command, address, status.
    #[serde(default)]
    pub channel_command_ns: u64,
    /// Rate of the link to the host.
    pub link_bytes_per_second: u64,
    /// Additional time from host to drive of each command, which occupies nothing: commands that are in flight
    /// together wait for it together (janusd, section 5).
    #[serde(default)]
    pub link_latency_ns: u64,
    /// From the arrival of a read until its first sensing may begin.
    pub firmware_read_ns: u64,
    /// The same for a read of no more than `small_command_bytes`.
    pub firmware_small_read_ns: u64,
    /// See `firmware_small_read_ns`.
    pub small_command_bytes: u32,
    /// How long each command occupies the drive's one processor.
    #[serde(default)]
    pub firmware_busy_ns: u64,
    /// The cost at which a read may interrupt a program or an erase; without it, none may.
    #[serde(default)]
    pub suspend: Option<Suspend>,
    /// Whether reads of a die go before its programs and erases that have not begun, unless a flush or an erase
    /// relies on them. Otherwise a die does its operations in the order in which they arrive.
    #[serde(default)]
    pub reads_first: bool,
    /// Time on the channel of the command and the address before a die senses a page or erases a block.
    #[serde(default)]
    pub array_command_ns: u64,
    /// How long a trim occupies the drive's processor, besides `firmware_busy_ns`.
    #[serde(default)]
    pub trim_command_ns: u64,
    /// The same for each mapped unit that it unmaps.
    #[serde(default)]
    pub trim_unit_ns: u64,
}

impl Timing {
    /// Round times, for small drives of which only what they do counts; channels transfer chunks of so many bytes, and the firmware
    /// needs no time.
    pub fn round(chunk_bytes: u32) -> Self {
        Self {
            read_ns: vec![40_000],
            small_read_ns: Vec::new(),
            small_read_bytes: 0,
            page_stays: false,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            channel_bytes_per_second: 800 << 20,
            channel_chunk_bytes: chunk_bytes,
            channel_command_ns: 0,
            link_bytes_per_second: 3200 << 20,
            link_latency_ns: 0,
            firmware_read_ns: 0,
            firmware_small_read_ns: 0,
            small_command_bytes: chunk_bytes,
            firmware_busy_ns: 0,
            suspend: None,
            reads_first: false,
            array_command_ns: 0,
            trim_command_ns: 0,
            trim_unit_ns: 0,
        }
    }

    /// From the arrival of a read of this many bytes until its first sensing may begin.
    pub(crate) fn firmware_read_ns(&self, bytes: u64) -> u64 {
        if bytes <= u64::from(self.small_command_bytes) {
            return self.firmware_small_read_ns;
        }
        self.firmware_read_ns
    }
}

/// The cost of interrupting a program or an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// From the interruption until the die can sense.
    pub suspend_ns: u64,
    /// From the end of the read until the operation continues.
    pub resume_ns: u64,
}

/// The write buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Its size.
    pub bytes: u64,
    /// Time to accept a write.
    pub command_ns: u64,
    /// Additional time for each mapping unit of a write.
    pub unit_ns: u64,
    /// Whether its content survives a power cut (capacitors).
    #[serde(default)]
    pub protected: bool,
    /// Program units that may be assembled at once, each for the appends of one file
    /// ([`Placement::FileAffine`]).
    #[serde(
        default = "default_open_program_units",
        rename(serialize = "open_shots"),
        alias = "open_shots"
    )]
    pub open_program_units: u32,
}

impl BufferSpec {
    /// The time to accept a write of this many units.
    pub(crate) fn accept_ns(&self, units: u32) -> u64 {
        self.command_ns + self.unit_ns * u64::from(units)
    }
}

fn default_open_program_units() -> u32 {
    32
}

/// The policies of a drive's firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Firmware {
    /// Where a write goes.
    pub placement: Placement,
    /// How victims are chosen.
    pub collection: Collection,
    /// Whether garbage collection programs from the register of a die where it can (copyback): a wholly valid
    /// program unit of one flash page that goes to the same plane. Everything else goes through the
    /// controller.
    pub copyback: bool,
    /// Whether garbage collection keeps pace with the programs of the host in small steps, instead of freeing
    /// whole blocks when the host needs one.
    pub collection_paced: bool,
    /// When wear levelling moves data.
    pub wear: Wear,
    /// The most bytes of the defrag log (janusd, section 4.1), in blocks of its own beside those of the geometry,
    /// and as many again for its compaction.
    pub defrag_log_bytes: u64,
}

impl Default for Firmware {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            collection: Collection::default(),
            copyback: false,
            collection_paced: false,
            wear: Wear::default(),
            defrag_log_bytes: 10 << 20,
        }
    }
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// To the dies in turn, in the order of writing.
    #[default]
    RoundRobin,
    /// To the die that follows from the logical address: stripe units of the addresses go to the dies in turn.
    ByAddress,
    /// By the hints of FAST'24 (section 4), as in its artefact: each append begins on the die after its
    /// predecessor's, however short it is.
    DieAffine,
    /// By the same hints, but a die's turn is over only when its program unit is full, and the tail
    /// of a file that is in a flash page with others' data is programmed again with what follows it.
    FileAffine,
}

/// How garbage collection chooses a victim on a die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The block with the fewest valid units.
    #[default]
    Greedy,
    /// The block with the largest (1 - u) / 2u * age (Kawaguchi et al., USENIX'95, after Rosenblum and
    /// Ousterhout, SOSP'91, who divide by 1 + u).
    CostBenefit,
}

/// When wear levelling moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wear {
    /// When a block lags behind the most worn block of its die by more than this many erases, its data moves
    /// to a worn block. 0: never.
    pub block_spread: u32,
    /// When the blocks of a die have more than this many erases more, on average, than those of the least
    /// worn die, overwrites go to other dies. 0: they always stay.
    pub die_spread: u32,
}

impl Default for Wear {
    fn default() -> Self {
        Self { block_spread: 64, die_spread: 16 }
    }
}

/// The name of a field of a drive's file, or of the host's path, in the first version of the format, if it
/// differs. Files may use either name.
pub fn former_name(field: &str) -> Option<&'static str> {
    match field {
        "program_unit_bytes" => Some("one_shot_bytes"),
        "stripe_unit_bytes" => Some("die_granularity_bytes"),
        "open_program_units" => Some("open_shots"),
        "map_segment_bytes" => Some("map_stretch_bytes"),
        "map_segments" => Some("map_stretches"),
        "lookup_ns" => Some("stretch_ns"),
        "uncached_lookup_ns" => Some("extent_ns"),
        _ => None,
    }
}

impl Drive {
    /// Checks the description, and returns what follows from its geometry.
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
        self.check_times()?;
        let rates = [
            ("channel_bytes_per_second", t.channel_bytes_per_second),
            ("link_bytes_per_second", t.link_bytes_per_second),
        ];
        check_rates(&rates, shape.unit_bytes)?;
        if t.channel_chunk_bytes == 0 {
            return Err(Inconsistent::new("channel_chunk_bytes", "must not be 0"));
        }
        // Each die has a program unit that is being assembled, and one more may be in flight.
        let least = (u64::from(shape.dies) + 1) * u64::from(shape.program_unit_bytes());
        if self.buffer.bytes < least {
            let why = format!("must hold a program unit for each die and one more: {least} bytes");
            return Err(Inconsistent::new("bytes", why));
        }
        if self.firmware.defrag_log_bytes < 2 * u64::from(shape.program_unit_bytes()) {
            return Err(Inconsistent::new("defrag_log_bytes", "must hold two program units"));
        }
        Ok(shape)
    }

    fn check_times(&self) -> Result<(), Inconsistent> {
        let (t, b) = (&self.timing, &self.buffer);
        let longest = |times: &[u64]| times.iter().copied().max().unwrap_or(0);
        let suspend = t.suspend.unwrap_or(Suspend { suspend_ns: 0, resume_ns: 0 });
        check_times(&[
            ("read_ns", longest(&t.read_ns)),
            ("small_read_ns", longest(&t.small_read_ns)),
            ("program_ns", t.program_ns),
            ("erase_ns", t.erase_ns),
            ("channel_command_ns", t.channel_command_ns),
            ("link_latency_ns", t.link_latency_ns),
            ("firmware_read_ns", t.firmware_read_ns),
            ("firmware_small_read_ns", t.firmware_small_read_ns),
            ("firmware_busy_ns", t.firmware_busy_ns),
            ("suspend_ns", suspend.suspend_ns),
            ("resume_ns", suspend.resume_ns),
            ("array_command_ns", t.array_command_ns),
            ("trim_command_ns", t.trim_command_ns),
            ("trim_unit_ns", t.trim_unit_ns),
            ("command_ns", b.command_ns),
            ("unit_ns", b.unit_ns),
        ])
    }
}
