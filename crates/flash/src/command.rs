//! The commands of a host to a drive, and their completions. Addresses and lengths are in mapping
//! units ("units"); [`crate::ssd`] does read-modify-write for shorter ones.

/// Units of a drive that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

impl Units {
    /// `count` units from `start` on.
    pub fn new(start: u32, count: u32) -> Self {
        Self { start, count }
    }

    /// The unit after the last.
    pub fn end(self) -> u32 {
        self.start + self.count
    }

    /// The number of each unit.
    pub fn each(self) -> std::ops::Range<u32> {
        self.start..self.end()
    }
}

/// What the host knows of a write, and the drive cannot (FAST'24, section 4; the bits of CDW12 and
/// CDW2-3 of the NVMe write).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    #[default]
    None,
    /// It continues a file after this unit.
    Append {
        /// The unit before it in the file.
        predecessor: u32,
    },
    /// It overwrites existing data.
    Overwrite,
}

/// What a host may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read(Units),
    /// Write.
    Write {
        /// The units to write.
        units: Units,
        /// What the host knows of it.
        hint: Hint,
        /// Whether it is acknowledged only when it is in the flash (force unit access).
        fua: bool,
    },
    /// Write of less than whole units: `bytes` bytes, from an offset in the first unit.
    WritePart {
        /// The units that are written in part.
        units: Units,
        /// Bytes that are written.
        bytes: u32,
        /// Where they begin in the first unit, in bytes.
        offset: u32,
        /// What the host knows of it.
        hint: Hint,
    },
    /// Everything acknowledged so far survives a power cut once this is done.
    Flush,
    /// The data is not needed any more (NVMe deallocate); the units read as zeroes.
    Trim(Units),
    /// Reads as zeroes, by promise (NVMe write zeroes).
    WriteZeroes(Units),
    /// The drive copies (NVMe copy) runs of units, one after the other, to `to`.
    Copy {
        /// The runs of units to copy.
        from: Vec<Units>,
        /// The first unit of the copy.
        to: u32,
    },
    /// A zone command.
    Zone {
        /// Number of the zone.
        zone: u32,
        /// What is done to it.
        action: ZoneAction,
    },
    /// The mapping of `from` becomes `to`'s; no data moves (janusd, section 4).
    Remap {
        /// The units whose mapping moves.
        from: Units,
        /// The first unit of their new place.
        to: u32,
    },
    /// The drive itself copies fragments into a zone, one after the other (InDeF, section IV).
    InDeviceDefragment {
        /// The fragments to copy.
        from: Vec<Units>,
        /// Into which zone.
        zone: u32,
    },
}

/// What is done to a zone (NVMe zoned namespaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Gives it resources, so that it can be written to.
    Open,
    /// Writes this many units at its write pointer; the completion has their address.
    Append(u32),
    /// Empties it.
    Reset,
    /// Makes it full: nothing more can be written to it.
    Finish,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// When the host has it.
    pub done_ns: u64,
    /// Of a read: the pages on the busiest die over an even share, in per cent; 100 is even
    /// (die-level collisions).
    pub collision_percent: u32,
    /// Of a zone append: the first unit that it wrote.
    pub at: u32,
}

/// Why a drive refused a command. Nothing of the command was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It reaches beyond the end of the drive.
    #[error("beyond the end of the drive")]
    OutOfRange,
    /// It asks for nothing, or for more than one command may.
    #[error("nothing, or more than one command may ask for")]
    Length,
    /// The drive does not support it.
    #[error("not supported by this drive")]
    Unsupported,
    /// The zone is full, too many zones are open, or the write is not at the write pointer.
    #[error("the state of the zone does not allow this")]
    ZoneState,
    /// There is no free block, and garbage collection cannot free one.
    #[error("no free block is left")]
    NoSpace,
}
