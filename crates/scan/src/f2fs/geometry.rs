//! The super block and the checkpoint of F2FS (include/linux/f2fs_fs.h: `struct f2fs_super_block`, `struct f2fs_checkpoint`),
//! as far as segments are concerned. Nothing that is read is trusted: a number that makes no sense is refused.

use crate::ext4::bytes::{join, le32};

/// `F2FS_SUPER_MAGIC`.
const MAGIC: u32 = 0xF2F5_2010;
/// Logs of data and of nodes that a checkpoint has space for (`MAX_ACTIVE_DATA_LOGS`, `MAX_ACTIVE_NODE_LOGS`).
const LOGS: usize = 8;

/// Where the segments of a file system are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments of a section.
    pub section_segments: u32,
    /// Segments that hold data and nodes.
    pub segments: u32,
    /// Byte of the device at which the first of them begins.
    pub start: u64,
    /// The block of the first checkpoint pack.
    checkpoint: u32,
}

impl Geometry {
    /// Where the super block begins on the device (`F2FS_SUPER_OFFSET`).
    pub const AT: u64 = 1024;
    /// Bytes of it that are needed.
    pub const BYTES: usize = 128;

    /// Parses the super block.
    ///
    /// # Errors
    /// Why it is none, or makes no sense.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let number = |at| le32(bytes, at).ok_or("it is cut short");
        if number(0)? != MAGIC {
            return Err("there is no F2FS");
        }
        let (log_block, log_segment) = (number(16)?, number(20)?);
        if !(12..=16).contains(&log_block) || log_segment != 9 {
            return Err("its blocks or segments have a size that F2FS does not have");
        }
        let geometry = Self {
            block_bytes: 1 << log_block,
            segment_blocks: 1 << log_segment,
            section_segments: number(24)?,
            segments: number(68)?,
            start: u64::from(number(92)?) << log_block,
            checkpoint: number(76)?,
        };
        let blocks = join(number(36)?, number(40)?);
        let first = u64::from(number(92)?);
        let end = first + u64::from(geometry.segments) * u64::from(geometry.segment_blocks);
        if end > blocks || blocks > u64::from(u32::MAX) {
            return Err("its segments are beyond its end");
        }
        if geometry.segments == 0
            || geometry.section_segments == 0
            || !geometry.segments.is_multiple_of(geometry.section_segments)
        {
            return Err("its sections are not in whole segments");
        }
        if u64::from(geometry.checkpoint) + 2 * u64::from(geometry.segment_blocks) > first {
            return Err("its checkpoints are not before its segments");
        }
        Ok(geometry)
    }

    /// Where the two checkpoint packs begin on the device, in bytes: one in each of two segments.
    pub fn checkpoints(&self) -> [u64; 2] {
        let blocks =
            [0, self.segment_blocks].map(|more| u64::from(self.checkpoint) + u64::from(more));
        blocks.map(|block| block * self.block_bytes)
    }
}

/// The segments in which the logs of the later of two checkpoints are open. Numbers beyond the last segment stand for logs that
/// there are not.
pub fn open_logs(packs: [&[u8]; 2]) -> Vec<u32> {
    let version = |pack: &[u8]| Some(join(le32(pack, 0)?, le32(pack, 4)?));
    // A pack that was cut short would be the one that is not valid, and its file system is mounted: no power was cut since.
    let Some(last) = packs.into_iter().max_by_key(|pack| version(pack)) else { return Vec::new() };
    let (nodes, data) = (36, 84);
    let logs = [nodes, data].into_iter().flat_map(|at| (0..LOGS).map(move |n| at + 4 * n));
    logs.filter_map(|at| le32(last, at)).filter(|segment| *segment != u32::MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The super block that `mkfs.f2fs` makes on 320 MiB.
    pub fn sound() -> [u8; Geometry::BYTES] {
        let mut bytes = [0; Geometry::BYTES];
        let mut put =
            |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(0, MAGIC);
        put(16, 12);
        put(20, 9);
        put(24, 1);
        put(36, 81920);
        put(68, 152);
        put(76, 512);
        put(92, 4096);
        bytes
    }

    #[test]
    fn segments_are_where_the_super_block_has_them() {
        let geometry = Geometry::parse(&sound()).unwrap();
        let expected = Geometry {
            block_bytes: 4096,
            segment_blocks: 512,
            section_segments: 1,
            segments: 152,
            start: 4096 * 4096,
            checkpoint: 512,
        };
        assert_eq!(geometry, expected);
        assert_eq!(geometry.checkpoints(), [2 << 20, 4 << 20]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let spoiled = |at: usize, value: u32| {
            let mut bytes = sound();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            Geometry::parse(&bytes).unwrap_err()
        };
        assert_eq!(spoiled(0, 0xEF53), "there is no F2FS");
        for (at, value) in [(16, 11), (16, 17), (16, u32::MAX), (20, 8), (20, 10)] {
            assert!(spoiled(at, value).contains("a size"), "{at} {value}");
        }
        for (at, value) in [(68, 153), (68, u32::MAX), (36, 4096), (40, 1), (92, u32::MAX)] {
            assert!(spoiled(at, value).contains("beyond"), "{at} {value}");
        }
        for (at, value) in [(24, 0), (24, 3), (24, u32::MAX), (68, 0)] {
            assert!(spoiled(at, value).contains("whole segments"), "{at} {value}");
        }
        assert!(spoiled(76, 3073).contains("checkpoints"));
        assert!(Geometry::parse(&sound()[..90]).unwrap_err().contains("short"));
    }

    #[test]
    fn the_logs_are_those_of_the_later_checkpoint() {
        let pack = |version: u64, first: u32| {
            let mut bytes = [0xFF; 512];
            bytes[..8].copy_from_slice(&version.to_le_bytes());
            for (n, at) in [36, 40, 44, 84, 88, 92].into_iter().enumerate() {
                bytes[at..at + 4].copy_from_slice(&(first + n as u32).to_le_bytes());
            }
            bytes
        };
        let (old, new) = (pack(7, 100), pack(1 << 33, 20));
        assert_eq!(open_logs([&old, &new]), [20, 21, 22, 23, 24, 25]);
        assert_eq!(open_logs([&new, &old]), [20, 21, 22, 23, 24, 25]);
        assert_eq!(open_logs([&[], &[0; 3]]), [0u32; 0]);
    }
}
