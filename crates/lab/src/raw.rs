//! A drive without files: what was written in order is read, many commands at a time.

use crate::setup::Setup;
use fragmend_flash::command::{Command, Units};
use fragmend_flash::ssd::Ssd;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A flash drive whose first units were written in order, idle.
pub fn written(setup: &Setup, units: u32) -> Ssd {
    let mut ssd = setup.ssd();
    ssd.precondition(Units::new(0, units)).expect("room");
    ssd
}

/// How many nanoseconds reads take, so many under way at a time; the host pays `request_ns` for each.
pub fn read(
    mut ssd: Ssd,
    reads: impl Iterator<Item = Units>,
    depth: usize,
    request_ns: u64,
) -> u64 {
    let start = ssd.idle_at();
    let (mut now, mut last, mut under_way) = (start, start, BinaryHeap::new());
    for units in reads {
        if under_way.len() >= depth
            && let Some(Reverse(end)) = under_way.pop()
        {
            now = now.max(end);
        }
        now += request_ns;
        let done = ssd.submit(now, &Command::Read(units)).expect("a read").done_ns;
        under_way.push(Reverse(done));
        last = last.max(done);
    }
    last - start
}
