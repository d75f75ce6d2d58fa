//! What the disks answered: from the kernel side's tables to [`ObservedLoad`].

use super::kernel::Kernel;
use super::shared::{Answers, DEPTHS, LENGTHS, SHORTEST_LOG};
use crate::TraceError;
use fragmend_layout::{ObservedLoad, ObservedRequests};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::disks::Disk;

/// The reads that each of these disks has completed so far; `None` where they are not counted.
pub(super) fn counted_reads(disks: &[Disk]) -> Vec<Option<u64>> {
    let reads = |disk: &Disk| {
        let device = BlockDevice::from_dev(disk.number).ok()?;
        let counts = device.attribute("queue/iostats").is_none_or(|on| on.trim() != "0");
        device.counters().ok().filter(|_| counts).map(|counters| counters.reads)
    };
    disks.iter().map(reads).collect()
}

/// The loads of these disks, in the order of the request, with [`counted_reads`] of before; to be called after detaching.
pub(super) fn of(
    kernel: &Kernel,
    disks: &[Disk],
    before: &[Option<u64>],
) -> Result<Vec<ObservedLoad>, TraceError> {
    if !kernel.loads {
        return Ok(Vec::new());
    }
    let now = counted_reads(disks);
    let counted = before.iter().zip(now).map(|(before, now)| now?.checked_sub((*before)?));
    let load = |((index, disk), counted_reads): ((usize, &Disk), Option<u64>)| {
        let (state, classes) = kernel.answers(index)?;
        Ok(ObservedLoad {
            device: disk.number,
            name: disk.name.clone(),
            requests: classes.iter().enumerate().filter_map(class).collect(),
            read_bursts: state.read_bursts,
            in_flight_before: state.in_flight_before,
            bursts_before: Some(state.bursts_before),
            counted_reads,
        })
    };
    disks.iter().enumerate().zip(counted).map(load).collect()
}

/// The requests of a class by its place in the table; `None` if there were none.
fn class((at, sum): (usize, &Answers)) -> Option<ObservedRequests> {
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
    use super::super::shared::CLASSES;
    use super::*;

    #[test]
    fn each_place_of_the_table_is_a_class_of_its_own() {
        let one = Answers { count: 1, ..Answers::default() };
        let all: Vec<_> = (0..CLASSES).filter_map(|at| class((at, &one))).collect();
        let key = |r: &ObservedRequests| (r.write, r.up_to_bytes, r.up_to_in_flight);
        assert!(all.is_sorted_by(|a, b| key(a) < key(b)));
        let of = |at: usize| key(&all[at]);
        assert_eq!(of(0), (false, 512, 1));
        assert_eq!(of(3 * DEPTHS + 5), (false, 4096, 32));
        assert_eq!(of(CLASSES - 1), (true, 4 << 30, 65536));
        assert_eq!(class((0, &Answers::default())), None);
    }
}
