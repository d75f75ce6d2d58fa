//! What the disks answered: from the kernel side's tables to [`ObservedLoad`].

use super::kernel::Kernel;
use super::shared::{self, Answers, CLASSES, DEPTHS, LENGTHS, SHORTEST_LOG};
use crate::TraceError;
use fragmend_layout::{ObservedLoad, ObservedRequests};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::disks::Disk;

/// What the disks have answered up to a time, in the order of the request.
pub(super) struct Answered {
    disks: Vec<(Bursts, Vec<Answers>)>,
    /// The reads that each has completed by its own counter; `None` where they are not counted.
    reads: Vec<Option<u64>>,
}

/// Of a disk, what is counted of bursts of reads.
#[derive(Clone, Copy, Default)]
struct Bursts {
    reads: u64,
    in_flight_before: u64,
    bursts_before: u64,
}

impl Answered {
    /// When a recording begins: the tables, which are empty then, are not read, because that costs a part of what a
    /// recording may.
    pub fn nothing(kernel: &Kernel, disks: &[Disk]) -> Self {
        let watched = watched(kernel, disks);
        let nothing = || (Bursts::default(), vec![Answers::default(); CLASSES]);
        Self {
            disks: watched.iter().map(|_| nothing()).collect(),
            reads: watched.iter().map(counted_reads).collect(),
        }
    }

    /// Up to now; of no disk where the kernel does not show it.
    pub fn now(kernel: &Kernel, disks: &[Disk]) -> Result<Self, TraceError> {
        let watched = watched(kernel, disks);
        let of = |(disk, classes): (shared::Disk, Vec<Answers>)| {
            let bursts = Bursts {
                reads: disk.read_bursts,
                in_flight_before: disk.in_flight_before,
                bursts_before: disk.bursts_before,
            };
            (bursts, classes)
        };
        let answered = kernel.answers(watched.len())?.into_iter().map(of).collect();
        Ok(Self { disks: answered, reads: watched.iter().map(counted_reads).collect() })
    }

    /// The loads of these disks since `before`.
    pub fn since(&self, before: &Self, disks: &[Disk]) -> Vec<ObservedLoad> {
        let load = |(at, (bursts, classes)): (usize, &(Bursts, Vec<Answers>))| {
            let (past, past_classes) = &before.disks[at];
            let classes = classes.iter().zip(past_classes).map(|(now, past)| now.since(*past));
            let reads = self.reads[at].zip(before.reads[at]);
            ObservedLoad {
                device: disks[at].number,
                name: disks[at].name.clone(),
                requests: classes.enumerate().filter_map(class).collect(),
                read_bursts: bursts.reads.saturating_sub(past.reads),
                in_flight_before: bursts.in_flight_before.saturating_sub(past.in_flight_before),
                bursts_before: Some(bursts.bursts_before.saturating_sub(past.bursts_before)),
                counted_reads: reads.and_then(|(now, past)| now.checked_sub(past)),
            }
        };
        self.disks.iter().enumerate().map(load).collect()
    }
}

/// Those disks of which the kernel shows what they answer: all, or none.
fn watched<'a>(kernel: &Kernel, disks: &'a [Disk]) -> &'a [Disk] {
    if kernel.loads { disks } else { &[] }
}

/// The reads that a disk has completed so far; `None` where they are not counted.
fn counted_reads(disk: &Disk) -> Option<u64> {
    let device = BlockDevice::from_dev(disk.number).ok()?;
    let counts = device.attribute("queue/iostats").is_none_or(|on| on.trim() != "0");
    device.counters().ok().filter(|_| counts).map(|counters| counters.reads)
}

/// The requests of a class by its place in the table; `None` if there were none.
fn class((at, sum): (usize, Answers)) -> Option<ObservedRequests> {
    let (write, length, depth) = (at / (LENGTHS * DEPTHS), at / DEPTHS % LENGTHS, at % DEPTHS);
    (sum.count > 0).then_some(ObservedRequests {
        write: write == 1,
        up_to_bytes: 1 << (SHORTEST_LOG + length as u32),
        up_to_in_flight: 1 << depth,
        count: sum.count,
        bytes: sum.bytes,
        in_flight: sum.in_flight,
        total_ns: sum.total_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_of_the_table_is_a_class_of_its_own() {
        let one = Answers { count: 1, ..Answers::default() };
        let all: Vec<_> = (0..CLASSES).filter_map(|at| class((at, one))).collect();
        let key = |r: &ObservedRequests| (r.write, r.up_to_bytes, r.up_to_in_flight);
        assert!(all.is_sorted_by(|a, b| key(a) < key(b)));
        let of = |at: usize| key(&all[at]);
        assert_eq!(of(0), (false, 512, 1));
        assert_eq!(of(3 * DEPTHS + 5), (false, 4096, 32));
        assert_eq!(of(CLASSES - 1), (true, 4 << 30, 65536));
        assert_eq!(class((0, Answers::default())), None);
    }
}
