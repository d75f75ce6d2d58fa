//! What a host may ask of a drive, and what it gets back. Addresses and lengths are in mapping
//! units ("units"); what is shorter is read, changed and written by [`crate::ssd`].

/// A stretch of the drive, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units {
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

impl Units {
    /// From here, so many.
    pub fn new(start: u32, count: u32) -> Self {
        Self { start, count }
    }

    /// Behind the last.
    pub fn end(self) -> u32 {
        self.start + self.count
    }

    /// All of them.
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
    /// It goes on where this unit ends in its file.
    Append {
        /// The file's unit before it.
        predecessor: u32,
    },
    /// It takes the place of what is there.
    Overwrite,
}

/// What a host may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read(Units),
    /// Write.
    Write {
        /// Where.
        units: Units,
        /// What the host knows of it.
        hint: Hint,
        /// Acknowledged only when it is in the flash (force unit access).
        fua: bool,
    },
    /// Write of less than whole units: `bytes` of them, from a byte offset in the first.
    WritePart {
        /// The units that are touched.
        units: Units,
        /// Bytes that are written.
        bytes: u32,
        /// Byte of the first unit where they begin.
        offset: u32,
        /// What the host knows of it.
        hint: Hint,
    },
    /// All that was acknowledged survives a power cut from now on.
    Flush,
    /// Nobody needs what is there (NVMe deallocate); it reads as zeroes.
    Trim(Units),
    /// Reads as zeroes, by promise (NVMe write zeroes).
    WriteZeroes(Units),
    /// The drive copies (NVMe copy): stretches, one behind the other, to `to`.
    Copy {
        /// What.
        from: Vec<Units>,
        /// Where to.
        to: u32,
    },
    /// A zone command.
    Zone {
        /// Number of the zone.
        zone: u32,
        /// What.
        action: ZoneAction,
    },
    /// The mapping of `from` becomes `to`'s; no data moves (janusd, section 4).
    Remap {
        /// What.
        from: Units,
        /// Where to.
        to: u32,
    },
    /// The drive puts fragments into a zone, one behind the other, by itself (InDeF, section IV).
    InDeviceDefragment {
        /// What.
        from: Vec<Units>,
        /// Into which zone.
        zone: u32,
    },
}

/// What is done to a zone (NVMe zoned namespaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// It takes up resources, so that it can be written to.
    Open,
    /// So many units are written where it ends; the answer says where that was.
    Append(u32),
    /// It is empty again.
    Reset,
    /// Nothing more is written to it.
    Finish,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// When the host has it.
    pub done_ns: u64,
    /// Of a read: by how many times the busiest die's pages exceed an even share, in per cent; 100
    /// is even (die-level collisions).
    pub collision_percent: u32,
    /// Of a zone append: its first unit.
    pub at: u32,
}

/// Why a command was not carried out. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Beyond the drive.
    #[error("beyond the end of the drive")]
    OutOfRange,
    /// More than a command may ask for.
    #[error("nothing, or more than one command may ask for")]
    Length,
    /// The drive does not know it.
    #[error("not supported by this drive")]
    Unsupported,
    /// A zone is full, or not where it is written to.
    #[error("the zone does not take this now")]
    ZoneState,
    /// There is no room.
    #[error("no free block is left")]
    Full,
}
