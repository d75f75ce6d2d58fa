//! The operations on a file, and how the next one is drawn: the same seed and the same sizes yield the same
//! operations. Offsets and lengths are bytes.

use super::LARGEST;
use crate::random::Random;
use std::fmt;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `pwrite`.
    Write,
    /// `pwrite` past the page cache.
    WriteDirect,
    /// Stores to a mapping.
    Store,
    /// `pread`, compared.
    Read,
    /// `pread` past the page cache, compared.
    ReadDirect,
    /// Loads from a mapping, compared.
    Load,
    /// `ftruncate`, to more or to less.
    Truncate,
    /// `fallocate`.
    Allocate,
    /// `fallocate` that keeps the size.
    AllocateKeepSize,
    /// `FALLOC_FL_ZERO_RANGE`.
    Zero,
    /// `FALLOC_FL_ZERO_RANGE` that keeps the size.
    ZeroKeepSize,
    /// `FALLOC_FL_PUNCH_HOLE`.
    Punch,
    /// `FALLOC_FL_COLLAPSE_RANGE`.
    Collapse,
    /// `FALLOC_FL_INSERT_RANGE`.
    Insert,
    /// `copy_file_range` to the other file.
    Copy,
    /// `FICLONERANGE` to the other file.
    Clone,
    /// `fsync`.
    Sync,
    /// `fdatasync`.
    SyncData,
    /// `msync`.
    SyncMapping,
    /// The whole file is read and compared.
    Compare,
    /// The same from the device: dirty pages are written and dropped first.
    CompareCold,
    /// A range is punched, allocated in scattered single blocks, and written.
    Scatter,
}

impl Kind {
    /// All kinds with their weights: how often each is drawn.
    pub const ALL: [(Self, u64); 22] = [
        (Self::Write, 20),
        (Self::WriteDirect, 8),
        (Self::Store, 14),
        (Self::Read, 10),
        (Self::ReadDirect, 6),
        (Self::Load, 8),
        (Self::Truncate, 2),
        (Self::Allocate, 2),
        (Self::AllocateKeepSize, 2),
        (Self::Zero, 2),
        (Self::ZeroKeepSize, 2),
        (Self::Punch, 4),
        (Self::Collapse, 1),
        (Self::Insert, 1),
        (Self::Copy, 3),
        (Self::Clone, 2),
        (Self::Sync, 3),
        (Self::SyncData, 3),
        (Self::SyncMapping, 2),
        (Self::Compare, 2),
        (Self::CompareCold, 2),
        (Self::Scatter, 2),
    ];

    /// The alignment of its offset and length, on a file system with blocks of `block` bytes.
    fn unit(self, block: u64) -> u64 {
        match self {
            Self::WriteDirect | Self::ReadDirect => block,
            Self::Collapse | Self::Insert | Self::Clone | Self::Scatter => block,
            _ => 1,
        }
    }

    /// Whether its range must be within the file.
    fn is_inside(self) -> bool {
        matches!(
            self,
            Self::Store | Self::Read | Self::Load | Self::Collapse | Self::Copy | Self::Clone
        )
    }
}

/// One operation on one file of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// The file of the pair, 0 or 1; the other one is the target of copies.
    pub file: usize,
    /// First byte; the new size for [`Kind::Truncate`].
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The offset in the other file, for copies.
    pub to: u64,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, file, at, len, to } = self;
        write!(f, "{kind:?} {} at {at:#x} length {len:#x}", ["a", "b"][*file])?;
        if matches!(kind, Kind::Copy | Kind::Clone) { write!(f, " to {to:#x}") } else { Ok(()) }
    }
}

impl Operation {
    /// Draws one of this kind, for files of these sizes; a kind that the sizes do not allow becomes
    /// a write.
    pub fn draw(kind: Kind, random: &mut Random, sizes: [u64; 2], block: u64) -> Self {
        let file = usize::from(random.below(4) == 0);
        let (size, unit) = (sizes[file], kind.unit(block));
        let limit = if kind.is_inside() { size } else { LARGEST };
        // An insertion may fill the file up to its largest size.
        let limit = if kind == Kind::Insert { LARGEST.saturating_sub(size) } else { limit };
        let longest = if random.below(8) == 0 { LARGEST / 4 } else { 32 << 10 };
        let units = limit / unit;
        let len = (1 + random.below((longest / unit).max(1))).min(units) * unit;
        let last = match kind {
            Kind::Insert => size.saturating_sub(1) / unit,
            _ => units.saturating_sub(len / unit),
        };
        let mut at = random.below(last + 1) * unit;
        let to = random.below((LARGEST - len) / unit + 1) * unit;
        if kind == Kind::Truncate {
            at = LARGEST / 4 + random.below(LARGEST * 3 / 4 + 1);
        }
        let impossible = match kind {
            Kind::Collapse => len == 0 || at + len >= size,
            Kind::Insert => len == 0 || at >= size,
            _ => len == 0,
        };
        if impossible {
            return Self { kind: Kind::Write, file, at: 0, len: 1 + random.below(longest), to: 0 };
        }
        Self { kind, file, at, len, to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_stay_where_they_are_allowed_and_repeat() {
        let drawn = |seed: u64| -> Vec<Operation> {
            let mut random = Random::new(seed);
            let mut sizes = [0, 0];
            let kinds = Kind::ALL.iter().cycle().take(5000);
            let draw = |(kind, _): &(Kind, u64)| {
                sizes = [random.below(LARGEST + 1), random.below(3 * 4096)];
                let op = Operation::draw(*kind, &mut random, sizes, 4096);
                let (size, end) = (sizes[op.file], op.at + op.len);
                assert!(op.len > 0 && op.at <= LARGEST && op.to + op.len <= LARGEST, "{op}");
                match op.kind {
                    Kind::Truncate => {}
                    Kind::Insert => assert!(op.at < size && size + op.len <= LARGEST, "{op}"),
                    Kind::Collapse => assert!(end < size, "{op}"),
                    kind if kind.is_inside() => assert!(end <= size, "{op}"),
                    _ => assert!(end <= LARGEST, "{op}"),
                }
                let unit = op.kind.unit(4096);
                assert!(
                    op.kind == Kind::Truncate || (op.at | op.len | op.to).is_multiple_of(unit),
                    "{op}"
                );
                op
            };
            kinds.map(draw).collect()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
