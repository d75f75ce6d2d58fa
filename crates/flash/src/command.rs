//! The commands of a host to a drive, and their completions. Addresses and lengths are in mapping units
//! ("units"); a shorter write ([`Command::WritePart`]) is a read-modify-write of the drive.

/// A run of consecutive units of a drive.
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

/// The units of which a write of `bytes` bytes, from this offset in the first unit on, leaves a part as it was:
/// none, the first, the last, or both. They are read before they are written.
pub(crate) fn cut_units(
    units: Units,
    bytes: u32,
    offset: u32,
    unit_bytes: u32,
) -> impl Iterator<Item = Units> {
    let (first, last) = (Units::new(units.start, 1), Units::new(units.end() - 1, 1));
    let cuts_first = offset > 0;
    let end = u64::from(offset) + u64::from(bytes);
    let cuts_last = !end.is_multiple_of(u64::from(unit_bytes)) && (!cuts_first || last != first);
    [(cuts_first, first), (cuts_last, last)]
        .into_iter()
        .filter_map(|(cut, unit)| cut.then_some(unit))
}

/// What the host knows of a write and the drive does not (FAST'24, section 4; the bits of CDW12 and CDW2-3 of
/// the NVMe write).
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

/// A command of the host.
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
        /// Whether it is acknowledged only once it is in the flash (force unit access).
        fua: bool,
    },
    /// A write of less than whole units: `bytes` bytes, from an offset in the first unit on.
    WritePart {
        /// The units that are written in part.
        units: Units,
        /// Bytes that are written.
        bytes: u32,
        /// Their offset in the first unit, in bytes.
        offset: u32,
        /// What the host knows of it.
        hint: Hint,
    },
    /// Once it is done, everything that was acknowledged before it survives a power cut.
    Flush,
    /// The data is not needed any more (NVMe deallocate); the units read as zeroes.
    Trim(Units),
    /// The units read as zeroes, which NVMe guarantees for this command (write zeroes).
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
        /// The number of the zone.
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
    /// The drive copies fragments into a zone, one after the other (InDeF, section IV).
    InDeviceDefragment {
        /// The fragments to copy.
        from: Vec<Units>,
        /// The number of the zone.
        zone: u32,
    },
}

/// What is done to a zone (NVMe zoned namespaces).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Allocates its blocks, so that it can be written.
    Open,
    /// Writes this many units at its write pointer; the completion has the address.
    Append(u32),
    /// Discards its content and releases its blocks.
    Reset,
    /// Makes it full, so that nothing more can be written to it.
    Finish,
}

/// The completion of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// When it reaches the host.
    pub done_ns: u64,
    /// Of a read: the pages on the busiest die over an even share, in per cent; 100 is even
    /// (die-level collisions).
    pub collision_percent: u32,
    /// Of a zone append: the first unit that it wrote.
    pub at: u32,
}

/// Why a drive refused a command. Unless it is [`Refused::NoSpace`], nothing was read or written; a write
/// that fails for lack of space may have written some of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It reaches beyond the end of the drive.
    #[error("beyond the end of the drive")]
    OutOfRange,
    /// It has no units, or more than one command may have.
    #[error("nothing, or more than one command may ask for")]
    Length,
    /// The drive does not support it.
    #[error("not supported by this drive")]
    Unsupported,
    /// The zone is full or has too little space, too many zones are open, or the write is not at the write
    /// pointer.
    #[error("the state of the zone does not allow this")]
    ZoneState,
    /// There is no free block, and garbage collection cannot free one.
    #[error("no free block is left")]
    NoSpace,
    /// Its power is cut. No drive says so: a simulated host does, for a drive that does not answer.
    #[error("its power is cut")]
    NoPower,
}
