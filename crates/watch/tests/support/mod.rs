//! A disk of small files on a volume in memory, each of which is fragmented or not, and read as a whole again and again.

use fragmend_layout::{Access, CostModel, DeviceProfile, FileAccesses, FileId, Op};
use fragmend_memory::{Memory, World as Clock};
use fragmend_plan::Survey;
use fragmend_watch::Policy;
use std::path::PathBuf;
use std::rc::Rc;

/// Device number of the disk.
pub const DEVICE: u64 = 77;
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks of a file.
pub const BLOCKS: u64 = 256;
/// Bytes of a file.
pub const FILE: u64 = BLOCK * BLOCKS;
/// Every so many blocks a fragmented file is elsewhere.
const RUN: u64 = 8;

/// The disk, with a file for each entry, which says whether it is fragmented.
pub fn disk(fragmented: &[bool]) -> (Rc<Clock>, Memory, Vec<FileId>) {
    let clock = Rc::new(Clock::new());
    let files = fragmented.len() as u64;
    // Each file has a place of twice its size, and there is as much space behind them.
    let memory = Memory::new(&clock, DEVICE, BLOCK, 4 * files * BLOCKS);
    let add = |(n, fragmented): (usize, &bool)| {
        let first = 2 * n as u64 * BLOCKS;
        let place = |block: u64| {
            let gaps = if *fragmented { block / RUN * RUN } else { 0 };
            Some(first + block + gaps)
        };
        let places: Vec<_> = (0..BLOCKS).map(place).collect();
        memory.add(&path(n), FILE, &places)
    };
    let ids = fragmented.iter().enumerate().map(add).collect();
    (clock, memory, ids)
}

/// Where a file is.
pub fn path(n: usize) -> PathBuf {
    format!("/srv/{n}").into()
}

/// The survey of a recording in which each of these files was read as a whole, past the page cache.
pub fn survey(memory: &Memory, read: &[(usize, FileId)]) -> Survey {
    let access = |offset| Access {
        offset,
        length: 128 << 10,
        count: 8,
        thread: 1,
        op: Op::Read,
        direct: true,
        windowed: false,
    };
    let file = |(n, file): &(usize, FileId)| FileAccesses {
        path: Some(path(*n)),
        accesses: (0..FILE).step_by(128 << 10).map(access).collect(),
        ..FileAccesses::of(*file)
    };
    let mut survey = Survey::of(memory, Some(read.iter().map(file).collect())).expect("a survey");
    // Every break is waited for.
    let card = DeviceProfile { name: "mmcblk0".into(), ..DeviceProfile::unknown() }.kind();
    survey.devices.iter_mut().for_each(|device| device.profile.cost = CostModel::guessed(card));
    survey
}

/// Everything moves, at once and at any hour, within `budget` bytes of any 24 hours.
pub fn policy(budget: u64, more: &str) -> Policy {
    let text = format!(
        "paths = [\"/srv\"]\ntime_zone = \"UTC\"\n{more}\n[recording]\nwindow = \"1m\"\nevery = \"5m\"\n[planning]\nevery = \"13m\"\n\
         [budget]\nbytes_per_day = \"{budget}\"\n[recurrence]\nadvise_after = 1000000\n[[rule]]\nmode = \"move\"\nmin_gain_s_per_gib = 0\n"
    );
    Policy::parse(&text).expect("a policy")
}
