//! The reads of programs that a trace has, whatever files are planned for and wherever their data is now: what is known of
//! how many of the requests that a device answered meanwhile were one read, and of who else read.

use crate::parallel;
use fragmend_layout::{Access, FileAccesses, Op};
use std::collections::BTreeMap;
use std::ops::{AddAssign, Mul};

/// Reads that reached a device: what missed the page cache, and direct reads. One that stands for others counts as all of
/// them, so that these are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedReads {
    /// How many.
    pub reads: f64,
    /// Of these, windows that were read ahead behind two others ([`crate::Request::streamed`]).
    pub streamed: f64,
    /// Their lengths in bytes.
    pub bytes: f64,
}

impl RecordedReads {
    /// Those of a trace, by the device number of the file system.
    pub fn by_device(files: &[FileAccesses]) -> BTreeMap<u64, Self> {
        let each = parallel::map(files.len(), |n| Self::of(&files[n].accesses));
        let mut sums: BTreeMap<u64, Self> = BTreeMap::new();
        for (file, reads) in files.iter().zip(each) {
            *sums.entry(file.file.device).or_default() += reads;
        }
        sums
    }

    /// Those of one file.
    fn of(accesses: &[Access]) -> Self {
        let (mut all, behind) = (Self::default(), Behind::of(accesses));
        for access in accesses.iter().filter(|a| a.is_read_by_device()) {
            let count = f64::from(access.count);
            let streamed = access.op == Op::Miss && behind.two(access);
            all += Self {
                reads: count,
                streamed: if streamed { count } else { 0.0 },
                bytes: count * f64::from(access.length),
            };
        }
        all
    }
}

impl AddAssign for RecordedReads {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.streamed += other.streamed;
        self.bytes += other.bytes;
    }
}

/// A part of them.
impl Mul<f64> for RecordedReads {
    type Output = Self;

    fn mul(self, share: f64) -> Self {
        let Self { reads, streamed, bytes } = self;
        Self { reads: reads * share, streamed: streamed * share, bytes: bytes * share }
    }
}

/// Where the misses of a file end that begin where another one ends, in ascending order.
struct Behind(Vec<u64>);

impl Behind {
    fn of(accesses: &[Access]) -> Self {
        let misses = || accesses.iter().filter(|a| a.op == Op::Miss).map(Access::range);
        let sorted = |mut ends: Vec<u64>| {
            ends.sort_unstable();
            ends
        };
        let all = sorted(misses().map(|range| range.end).collect());
        let behind = misses().filter(|range| all.binary_search(&range.start).is_ok());
        Self(sorted(behind.map(|range| range.end).collect()))
    }

    /// Whether a miss is behind two others.
    fn two(&self, miss: &Access) -> bool {
        self.0.binary_search(&miss.offset).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::FileId;

    const WINDOW: u32 = 128 << 10;

    fn access(op: Op, direct: bool, window: u64) -> Access {
        Access {
            offset: window * u64::from(WINDOW),
            length: WINDOW,
            count: 2,
            thread: 1,
            op,
            direct,
            windowed: false,
        }
    }

    #[test]
    fn what_the_device_reads_is_counted_by_file_system() {
        let seen = |device, accesses| FileAccesses {
            accesses,
            ..FileAccesses::of(FileId { device, inode: 12, generation: 1 })
        };
        let miss = |window| access(Op::Miss, false, window);
        let stream = vec![miss(2), miss(0), miss(3), miss(1), miss(9), access(Op::Read, false, 0)];
        let direct = [Op::Read, Op::Write].map(|op| access(op, true, 0)).to_vec();
        let files = [seen(7, stream), seen(7, direct), seen(8, vec![access(Op::Fault, false, 0)])];
        let found = RecordedReads::by_device(&files);
        let bytes = 12.0 * f64::from(WINDOW);
        assert_eq!(found[&7], RecordedReads { reads: 12.0, streamed: 4.0, bytes });
        assert_eq!(found[&8], RecordedReads::default());
        assert_eq!(
            found[&7] * 0.5,
            RecordedReads { reads: 6.0, streamed: 2.0, bytes: bytes / 2.0 }
        );
    }
}
