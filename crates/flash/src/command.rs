//! The commands of a host to a drive, and their completions. Addresses and lengths are in mapping units
//! ("units"); a shorter write ([`Command::WritePart`]) is a read-modify-write of the drive.

/// The most units of a command that transfers data: not of a trim, and not of write zeroes.
pub(crate) const MAX_UNITS: u32 = 1 << 16;

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

/// Checks that no two of these runs overlap.
pub(crate) fn check_apart(runs: &[Units]) -> Result<(), Refused> {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[0].end() <= pair[1].start);
    if apart { Ok(()) } else { Err(Refused::Overlap) }
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
    /// `to` leads to the data of `from`; no data moves (janusd, section 4.1). What `to` held before is trimmed. It
    /// survives a power cut once the defrag log is flushed ([`LogAction::Flush`]).
    Remap {
        /// The units to remap, each of which is mapped.
        from: Units,
        /// The first unit of their new place.
        to: u32,
        /// Whether `from` leads to the data as well, until it is trimmed or written. Otherwise it is unmapped at
        /// once, and leads to the data again if the remap is discarded before it is committed.
        shared: bool,
    },
    /// A command for the defrag log (janusd, table 2).
    DefragLog(LogAction),
    /// The drive writes these units anew, in this order, so that they are spread over its dies (janusd, section
    /// 4.2). Each is mapped.
    PhysicalDefragment(Vec<Units>),
    /// The drive copies fragments to the write pointer of a zone, one after the other (InDeF, section III-C); the
    /// completion has the address.
    InDeviceDefragment {
        /// The fragments to copy, which do not overlap, and are written.
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

/// What is done with the defrag log. A remap that is not shared is *uncommitted* until [`LogAction::Commit`]: a
/// discard undoes it. So a file system flushes the log, commits its journal, and then commits the log; after a
/// power cut it checks, and if not all is committed, it discards, and restores its own state from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Once it is done, all remaps before it survive a power cut, and so does the data that they lead to.
    Flush,
    /// Flushes, and then commits all remaps.
    Commit,
    /// Reports in the completion whether all remaps are committed.
    Check,
    /// Undoes the remaps that are not committed: `from` leads to its data again, unless it was written or
    /// trimmed meanwhile. `to` is free again, and its content undefined, unless it was written meanwhile.
    Discard,
}

/// The completion of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// When it reaches the host.
    pub done_ns: u64,
    /// Of a read: the pages on the busiest die over an even share, in per cent; 100 is even
    /// (die-level collisions).
    pub collision_percent: u32,
    /// Of a zone append and of an in-device defragmentation: the first unit that it wrote.
    pub at: u32,
    /// Of a check of the defrag log: whether all remaps are committed.
    pub committed: bool,
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
    /// A unit to remap, to spread or to defragment holds no data.
    #[error("a unit holds no data")]
    Unmapped,
    /// The ranges of units overlap.
    #[error("the ranges overlap")]
    Overlap,
    /// The defrag log has no space for another remap, as too many of its entries are still needed.
    #[error("the defrag log is full")]
    LogFull,
    /// A unit was remapped to where it is, and that is not committed: it cannot be remapped again before.
    #[error("an earlier remap of a unit is not committed")]
    Uncommitted,
    /// There is no free block, and garbage collection cannot free one.
    #[error("no free block is left")]
    NoSpace,
    /// Its power is cut. No drive says so: a simulated host does, for a drive that does not answer.
    #[error("its power is cut")]
    NoPower,
}
