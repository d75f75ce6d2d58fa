//! Reads of a drive without files, many at a time.

use crate::setup::Setup;
use fragmend_flash::command::{Command, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::Drive;
use fragmend_flash::ssd::Ssd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An idle flash drive whose first units were written in order.
pub fn preconditioned(setup: &Setup, units: u32) -> Ssd {
    written(setup.flash(), units)
}

/// The same of a drive's description.
///
/// # Panics
/// It is inconsistent, or has fewer units.
pub fn written(drive: &Drive, units: u32) -> Ssd {
    let mut ssd = Ssd::new(drive).expect("a consistent drive");
    ssd.precondition(Units::new(0, units)).expect("room");
    ssd
}

/// How many nanoseconds reads last with `depth` of them in flight; the host spends `request_ns` on each.
pub fn read(
    mut ssd: Ssd,
    reads: impl Iterator<Item = Units>,
    depth: usize,
    request_ns: u64,
) -> u64 {
    let start = ssd.idle_at();
    read_from(&mut ssd, start, reads, depth, request_ns) - start
}

/// The same from `start` on; returns when the last read is done.
pub fn read_from(
    device: &mut dyn Device,
    start: u64,
    reads: impl Iterator<Item = Units>,
    depth: usize,
    request_ns: u64,
) -> u64 {
    let (mut now, mut last, mut in_flight) = (start, start, BinaryHeap::new());
    for units in reads {
        if in_flight.len() >= depth
            && let Some(Reverse(end)) = in_flight.pop()
        {
            now = now.max(end);
        }
        now += request_ns;
        let done = device.submit(now, &Command::Read(units)).expect("a read").done_ns;
        in_flight.push(Reverse(done));
        last = last.max(done);
    }
    last
}
