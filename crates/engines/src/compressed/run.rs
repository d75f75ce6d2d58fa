//! The compressed runs of a range of Btrfs, and how they are compressed.

use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_layout::{ByteRange, Layout, Skip, SkipReason, stored_alike};
use fragmend_sys::btrfs::{self, Compressed, Compression};
use std::collections::HashMap;

/// A run of whole extents that follow each other in the file, with one compression but for a few plain blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressedRun {
    pub range: ByteRange,
    pub compression: Compression,
    /// Bytes of the file that are compressed.
    pub encoded: u64,
}

/// The compressed extents that overlap a range.
pub(super) fn extents(file: &OpenFile, range: ByteRange) -> Result<Vec<Compressed>, Skip> {
    let inode = rustix::fs::fstat(&file.fd).map_err(|e| skip_of(e.into()))?.st_ino;
    btrfs::compressed(&file.fd, inode, range.start..range.end).map_err(|e| match skip_of(e) {
        Skip { reason: SkipReason::PermissionDenied, .. } => Skip::new(
            SkipReason::PermissionDenied,
            "telling how it is compressed needs CAP_SYS_ADMIN: run as root",
        ),
        skip => skip,
    })
}

/// The runs of a range that has this layout and these compressed extents. Plain blocks belong to the compressed
/// run before them.
pub(super) fn runs(
    layout: &Layout,
    range: ByteRange,
    compressed: &[Compressed],
) -> Vec<CompressedRun> {
    let how: HashMap<u64, Compression> =
        compressed.iter().map(|c| (c.logical, c.compression)).collect();
    let mut out: Vec<CompressedRun> = Vec::new();
    let addressed = layout.extents().iter().filter(|e| e.kind.is_addressed());
    for part in stored_alike(addressed).into_iter().filter(|part| part.encoded) {
        for whole in layout.within(part.range).map(|e| e.range()) {
            let last = out.last_mut().filter(|s| s.range.end == whole.start);
            match (how.get(&whole.start), last) {
                _ if whole.intersect(range) != whole => {}
                (None, None) => {}
                (None, Some(last)) => last.range.end = whole.end,
                (Some(c), Some(last)) if last.compression == *c => {
                    last.range.end = whole.end;
                    last.encoded += whole.len();
                }
                (Some(c), _) => {
                    out.push(CompressedRun { range: whole, compression: *c, encoded: whole.len() });
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{Extent, ExtentKind, FileId};

    #[test]
    fn runs_are_whole_extents_of_one_compression() {
        use Compression::{Lzo, Zstd};
        const K: u64 = 8 << 10;
        let mut layout = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 0);
        let mut compressed = Vec::new();
        let how =
            [None, Some(Zstd), Some(Zstd), None, Some(Zstd), Some(Lzo), None, None, Some(Lzo)];
        for (at, how) in how.into_iter().enumerate() {
            let (logical, physical) = (at as u64 * K, (at as u64) << 30);
            let kind = match how {
                Some(_) => ExtentKind::Encoded { stored: 4096, shared: false },
                None => ExtentKind::Data,
            };
            layout.push(Extent { logical, physical, length: K, kind });
            compressed.extend(how.map(|compression| Compressed {
                logical,
                length: K,
                physical,
                stored: 4096,
                compression,
            }));
        }
        let found = |end| {
            let range = ByteRange { start: 0, end };
            let flat = |s: CompressedRun| {
                (s.range.start / K, s.range.end / K, s.compression, s.encoded / K)
            };
            runs(&layout, range, &compressed).into_iter().map(flat).collect::<Vec<_>>()
        };
        assert_eq!(found(9 * K), [(1, 5, Zstd, 3), (5, 9, Lzo, 2)]);
        assert_eq!(found(9 * K - 1), [(1, 5, Zstd, 3), (5, 8, Lzo, 1)], "the last is cut");
    }
}
