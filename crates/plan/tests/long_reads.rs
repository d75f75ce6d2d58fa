//! No trace makes planning last for hours: its work does not grow with requests times fragments, nor with requests times ranges.

mod support;

use fragmend_layout::{Access, Extent, ExtentKind, FileId, Layout};
use fragmend_plan::{Settings, make};
use rustix::time::{ClockId, clock_gettime};
use support::*;

/// Processor time of this process so far, in seconds: beside other tests an hour may pass in which it does nothing.
fn cpu_seconds() -> i64 {
    clock_gettime(ClockId::ProcessCPUTime).tv_sec
}

#[test]
fn many_reads_of_a_file_in_many_fragments_are_planned_in_seconds() {
    // Two fragments of 4 KiB and a hole, again and again: many short ranges.
    const FILE: u64 = 512 * MIB;
    let mut layout = Layout::new(FileId { device: DEVICE, inode: 12, generation: 1 }, FILE);
    for n in 0..FILE / (12 * KIB) {
        for k in 0..2 {
            let logical = n * 12 * KIB + k * 4 * KIB;
            let (physical, kind) = (logical * 3 + k * MIB, ExtentKind::Data);
            layout.push(Extent { logical, physical, length: 4 * KIB, kind });
        }
    }
    // Each of almost all of it: together they have 1.7e9 fragments, and would have 7e13 if they were split for each range.
    let reads: Vec<Access> =
        (0..20_000).map(|n| read(n * 4 * KIB, FILE - n * 4 * KIB, 3)).collect();
    let survey = survey(&layout, &reads, &serial());
    let began = cpu_seconds();
    let plan = make(survey, &Settings::default());
    assert!(plan.summary.worth, "{}", plan.summary.verdict);
    let ranges = &plan.files[0].ranges;
    assert_eq!((ranges.len() as u64, plan.summary.ranges), (FILE / (12 * KIB), FILE / (12 * KIB)));
    // The second range begins at 12 KiB: the first five reads have a part of it, and all have the last one.
    assert_eq!((ranges[1].seen, ranges[ranges.len() - 1].seen), (15, 60_000));
    let lasted = cpu_seconds() - began;
    println!("{lasted} s of the processor");
    assert!(lasted < 60, "{lasted} s of the processor");
}
