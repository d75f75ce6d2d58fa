//! Where a file's bytes are on the device.

use crate::{ByteRange, FileId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an extent holds. Only what is [addressed](ExtentKind::is_addressed) takes part in
/// fragmentation; the others are distinguished so that they are not mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExtentKind {
    /// Plain data of this file alone.
    Data,
    /// Data whose blocks other files use too (reflink, snapshot, deduplication).
    Shared,
    /// Allocated, never written: reads as zeroes without touching the device.
    Unwritten,
    /// Not allocated yet (delayed allocation) or at an unknown place.
    Delayed,
    /// Data kept in the inode or among metadata: it has no address of its own.
    Inline,
    /// The bytes on the device are not the file's bytes (compressed, encrypted by the file
    /// system's own format).
    Encoded {
        /// Bytes on the device; `length` where that is not reported.
        stored: u64,
        /// Whether other files use it too.
        shared: bool,
    },
}

impl ExtentKind {
    /// Whether a read of it is a request at this extent's device address.
    pub fn is_addressed(self) -> bool {
        matches!(self, Self::Data | Self::Shared | Self::Encoded { .. })
    }

    /// Whether it has a place on the device, whether or not a read uses it.
    pub fn is_placed(self) -> bool {
        self.is_addressed() || self == Self::Unwritten
    }

    /// Whether the bytes on the device are not the file's.
    pub fn is_encoded(self) -> bool {
        matches!(self, Self::Encoded { .. })
    }

    /// Whether other files use its blocks too.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared | Self::Encoded { shared: true, .. })
    }
}

/// A range of a file and its place on the device. All figures are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the file system's device; meaningless where nothing is addressed.
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// What it holds.
    pub kind: ExtentKind,
}

impl Extent {
    /// The file bytes that it covers.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.logical, self.length)
    }

    /// Where it ends on the device.
    pub fn physical_end(&self) -> u64 {
        let stored = match self.kind {
            ExtentKind::Encoded { stored, .. } => stored,
            _ => self.length,
        };
        self.physical.saturating_add(stored)
    }

    /// Whether `next` continues exactly where this one ends, in the file and on the device.
    pub fn continues_in(&self, next: &Extent) -> bool {
        self.kind == next.kind
            && self.logical.checked_add(self.length) == Some(next.logical)
            && (!self.kind.is_placed()
                || self.physical.checked_add(self.length) == Some(next.physical))
            && !self.kind.is_encoded()
    }
}

/// One file's size and extents, in file order, holes left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which file.
    pub file: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// Extents in ascending file order, without overlap.
    extents: Vec<Extent>,
}

impl Layout {
    /// A layout without extents yet.
    pub fn new(file: FileId, size: u64) -> Self {
        Self { file, size, extents: Vec::new() }
    }

    /// Adds the next extent. One that continues the last is joined to it; one that begins before the end of the
    /// last (the file changed while it was read) is dropped.
    pub fn push(&mut self, extent: Extent) {
        if let Some(last) = self.extents.last_mut() {
            if extent.logical < last.logical + last.length {
                return;
            }
            if last.continues_in(&extent) {
                last.length += extent.length;
                return;
            }
        }
        self.extents.push(extent);
    }

    /// The extents, adjacent ones joined.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Sets how many bytes each encoded extent occupies on the device, as `stored` returns it for the extent
    /// and the one after it.
    pub fn set_stored(&mut self, mut stored: impl FnMut(&Extent, Option<&Extent>) -> u64) {
        for at in 0..self.extents.len() {
            let ExtentKind::Encoded { shared, .. } = self.extents[at].kind else { continue };
            let stored = stored(&self.extents[at], self.extents.get(at + 1));
            self.extents[at].kind = ExtentKind::Encoded { stored, shared };
        }
    }

    /// The parts of the extents that are in `range`. A part of an encoded extent has the place of the whole
    /// extent.
    pub fn within(&self, range: ByteRange) -> impl Iterator<Item = Extent> + '_ {
        let first = self.extents.partition_point(|e| e.logical + e.length <= range.start);
        self.extents[first..].iter().take_while(move |e| e.logical < range.end).map(move |e| {
            let part = e.range().intersect(range);
            let skipped = if e.kind.is_encoded() { 0 } else { part.start - e.logical };
            let physical = e.physical.wrapping_add(skipped);
            Extent { logical: part.start, physical, length: part.len(), kind: e.kind }
        })
    }

    /// The part of the layout that is shared with other files.
    #[must_use]
    pub fn shared(&self) -> Self {
        let mut shared = Self::new(self.file, self.size);
        self.extents.iter().filter(|e| e.kind.is_shared()).for_each(|e| shared.push(*e));
        shared
    }

    /// Bytes on the device that `range` shares with others: the space that a copy of its own needs.
    pub fn shared_bytes(&self, range: ByteRange) -> u64 {
        let shared = self.within(range).filter(|e| e.kind.is_shared());
        shared.map(|e| e.physical_end() - e.physical).fold(0, u64::saturating_add)
    }

    /// Bytes on the device that the extents in `range` occupy.
    pub fn stored_bytes(&self, range: ByteRange) -> u64 {
        let addressed = self.within(range).filter(|e| e.kind.is_addressed());
        addressed.map(|e| e.physical_end() - e.physical).fold(0, u64::saturating_add)
    }

    /// The runs: maximal ranges of addressed data without a hole.
    pub fn runs(&self) -> impl Iterator<Item = ByteRange> + '_ {
        let addressed = self.extents.iter().filter(|e| e.kind.is_addressed());
        ByteRange::joined(addressed.map(Extent::range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(logical: u64, physical: u64, length: u64) -> Extent {
        Extent { logical, physical, length, kind: ExtentKind::Data }
    }

    fn layout(extents: &[Extent]) -> Layout {
        let id = FileId { device: 1, inode: 2, generation: 3 };
        let mut l = Layout::new(id, extents.last().map_or(0, |e| e.range().end));
        extents.iter().for_each(|e| l.push(*e));
        l
    }

    #[test]
    fn adjacent_extents_are_one() {
        let l = layout(&[data(0, 4096, 4096), data(4096, 8192, 4096), data(8192, 0, 4096)]);
        assert_eq!(l.extents().len(), 2);
        assert_eq!(l.breaks().collect::<Vec<_>>(), [8192]);
        assert_eq!(l.runs().collect::<Vec<_>>(), [ByteRange { start: 0, end: 12288 }]);
        assert_eq!(l.fragments(ByteRange { start: 4096, end: 8192 }), 1);
        assert_eq!(l.fragments(ByteRange { start: 4096, end: 8193 }), 2);
    }

    #[test]
    fn a_hole_is_no_break() {
        let l = layout(&[data(0, 0, 4096), data(8192, 8192, 4096)]);
        assert_eq!(l.breaks().count(), 0);
        assert_eq!(l.runs().count(), 2);
    }

    #[test]
    fn unwritten_space_is_no_fragment() {
        let mut middle = data(4096, 4096, 4096);
        middle.kind = ExtentKind::Unwritten;
        let l = layout(&[data(0, 0, 4096), middle, data(8192, 8192, 4096)]);
        assert_eq!(l.fragments(ByteRange { start: 0, end: 12288 }), 2);
        assert_eq!(l.breaks().count(), 0);
    }

    #[test]
    fn scattered_unwritten_space_stays_apart() {
        let unwritten = |logical, physical| Extent {
            kind: ExtentKind::Unwritten,
            ..data(logical, physical, 4096)
        };
        let l = layout(&[unwritten(0, 0), unwritten(4096, 4096), unwritten(8192, 40960)]);
        assert_eq!(l.extents().len(), 2);
    }
}
