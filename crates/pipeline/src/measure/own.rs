//! What a recorded service had its disks do, of all that they did.

use fragmend_layout::{Access, FileAccesses, Op, Recorded};
use fragmend_trace::Trace;

/// By so many standard deviations, what a recording of a part of all places stands for may be too little.
const DEVIATIONS: f64 = 3.0;

/// Bytes of a service, by the trace of it: the most that they can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    /// Read from its disks; `None` where misses were not recorded.
    pub read_bytes: Option<u64>,
    /// Written, through the page cache or past it.
    pub written_bytes: u64,
}

impl Own {
    /// By a trace.
    pub fn of(trace: &Trace) -> Self {
        let meta = &trace.meta;
        let unseen = [meta.lost, meta.unplaced, meta.unseen_splices, meta.unseen_uring];
        let unseen = unseen.into_iter().fold(meta.unseen_compat, u64::saturating_add);
        let wrote = |access: &Access| access.op == Op::Write;
        Self {
            read_bytes: meta
                .has_misses()
                .then(|| bytes(&trace.files, unseen, Access::is_read_by_device)),
            written_bytes: bytes(&trace.files, unseen, wrote),
        }
    }
}

/// The most that these accesses can be in bytes, with so many `unseen` of their mean length. Where a recorded access stands for
/// `c`, each of these has the variance `c - 1`, and those of one turn were recorded together.
fn bytes(files: &[FileAccesses], unseen: u64, are: impl Fn(&Access) -> bool) -> u64 {
    let (mut sum, mut accesses, mut variance) = (0.0, 0.0, 0.0);
    for file in files {
        for (n, access) in file.accesses.iter().enumerate() {
            if !are(access) {
                continue;
            }
            let (length, count) = (f64::from(access.length), f64::from(access.count));
            (sum, accesses) = (sum + length * count, accesses + count);
            if let Some(recorded) = file.recorded.get(n) {
                let times = f64::from(recorded.times.max(1));
                let each = (count / times).max(1.0);
                let together = if recorded.turn == Recorded::MANY { 1.0 } else { times };
                variance += count * together * (each - 1.0) * length * length;
            }
        }
    }
    let mean = sum / f64::max(accesses, 1.0);
    (sum + unseen as f64 * mean + DEVIATIONS * variance.sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::FileId;

    fn access(op: Op, direct: bool, count: u32) -> Access {
        Access { offset: 0, length: 4096, count, thread: 0, op, direct, windowed: false }
    }

    #[test]
    fn what_was_recorded_in_part_may_be_more() {
        let mut file = FileAccesses::of(FileId { device: 1, inode: 2, generation: 3 });
        file.accesses = vec![
            access(Op::Miss, false, 2),
            access(Op::Read, true, 1),
            access(Op::Read, false, 9),
            access(Op::Write, false, 1),
        ];
        let pages = |file: &FileAccesses, unseen| {
            bytes(std::slice::from_ref(file), unseen, Access::is_read_by_device) / 4096
        };
        assert_eq!((pages(&file, 0), pages(&file, 2)), (3, 5));
        // One read that stands for 64, of variance 64 * 63.
        file.accesses = vec![access(Op::Miss, false, 64)];
        file.recorded = vec![Recorded { turn: 1, times: 1, most: 64 }];
        assert_eq!(pages(&file, 0), 64 + (3.0 * (64.0f64 * 63.0).sqrt()) as u64);
        // As often as that by itself.
        file.recorded = vec![Recorded { turn: 1, times: 64, most: 64 }];
        assert_eq!(pages(&file, 0), 64);
    }
}
