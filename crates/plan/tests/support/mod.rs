//! Surveys of one file on one device, for tests of plans in time.

#![allow(dead_code)] // each test file uses its part

pub mod thinned;

use fragmend_layout::{
    Access, CostModel, CostSource, DeviceProfile, Extent, ExtentKind, FileId, FsKind, Layout,
    ObservedLoad, Op, RequestCost,
};
use fragmend_plan::{Device, Plan, Policy, Settings, Survey, SurveyedFile, make};
use std::path::Path;

pub const KIB: u64 = 1024;
pub const MIB: u64 = 1024 * KIB;
pub const BLOCK: u64 = 4096;
pub const DEVICE: u64 = 7;

/// A device that serves requests one after the other: 500 us each, and 10 ns a byte.
pub fn serial() -> CostModel {
    let one = |bytes: u64| 500_000 + 10 * bytes;
    model(|bytes, n| [one(bytes) * u64::from(n), one(bytes)])
}

/// A device on which any eight requests overlap, 80 us each eight; bytes cost nothing.
pub fn eight_abreast() -> CostModel {
    model(|_, n| {
        let turns = u64::from(n).div_ceil(8);
        [80_000 * turns, 80_000 / u64::from(n.min(8))]
    })
}

/// The time from each length and number in flight: of a burst, and between two completions.
pub fn model(ns: impl Fn(u64, u32) -> [u64; 2]) -> CostModel {
    let cost = |request_bytes: u64, in_flight: u32| {
        let [burst_ns, interval_ns] = ns(request_bytes, in_flight);
        RequestCost {
            request_bytes,
            in_flight,
            burst_ns,
            interval_ns,
            split_ns: None,
            stream_ns: None,
        }
    };
    let reads = [BLOCK, MIB].into_iter().flat_map(|bytes| (1..=64).map(move |n| (bytes, n)));
    let reads = reads.map(|(bytes, n)| cost(bytes, n)).collect();
    CostModel::new(CostSource::Probed, reads, Vec::new()).expect("figures that make sense")
}

/// A file whose fragments have these lengths, none of which continues the one before.
pub fn scattered(lengths: impl IntoIterator<Item = u64>) -> Layout {
    let lengths: Vec<u64> = lengths.into_iter().collect();
    let id = FileId { device: DEVICE, inode: 12, generation: 1 };
    let mut layout = Layout::new(id, lengths.iter().sum());
    let mut logical = 0;
    for (n, length) in lengths.into_iter().enumerate() {
        let physical = (n as u64 + 1) * 64 * MIB;
        layout.push(Extent { logical, physical, length, kind: ExtentKind::Data });
        logical += length;
    }
    layout
}

/// A file with extents of 64 KiB at these places.
pub fn placed(places: &[u64]) -> Layout {
    placed_in(FileId { device: DEVICE, inode: 12, generation: 1 }, places)
}

/// The same of another file.
pub fn placed_in(id: FileId, places: &[u64]) -> Layout {
    let mut layout = Layout::new(id, places.len() as u64 * 64 * KIB);
    for (n, physical) in places.iter().enumerate() {
        let (logical, length) = (n as u64 * 64 * KIB, 64 * KIB);
        layout.push(Extent { logical, physical: *physical, length, kind: ExtentKind::Data });
    }
    layout
}

/// A direct read.
pub fn read(offset: u64, length: u64, count: u32) -> Access {
    Access {
        offset,
        length: u32::try_from(length).expect("short"),
        count,
        thread: 1,
        op: Op::Read,
        direct: true,
        windowed: false,
    }
}

/// Accesses, each with its rank.
pub type Ranked = Vec<(Access, u32)>;

/// The file on a device, with these accesses.
pub fn ranked(path: &str, layout: Layout, accesses: Ranked, device: &Device) -> SurveyedFile {
    let (accesses, ranks) = accesses.into_iter().unzip();
    SurveyedFile { ranks, ..SurveyedFile::new(path.into(), layout, accesses, device) }
}

/// A device of these costs.
pub fn device(cost: CostModel) -> Device {
    Device {
        device: DEVICE,
        mount: Path::new("/mnt").into(),
        file_system: FsKind::Ext4,
        total_bytes: 1 << 40,
        block_bytes: BLOCK,
        profile: DeviceProfile { cost, ..DeviceProfile::unknown() },
    }
}

/// A file that was read so, on a device of these costs.
pub fn survey(layout: &Layout, accesses: &[Access], cost: &CostModel) -> Survey {
    let device = device(cost.clone());
    let file = SurveyedFile::new("/mnt/file".into(), layout.clone(), accesses.to_vec(), &device);
    Survey { files: vec![file], devices: vec![device], ..Survey::default() }
}

/// A file that was read so, in this order, on a device of these costs.
pub fn survey_in_order(layout: &Layout, accesses: Ranked, cost: &CostModel) -> Survey {
    let device = device(cost.clone());
    let file = ranked("/mnt/file", layout.clone(), accesses, &device);
    Survey { files: vec![file], devices: vec![device], ordered: true, ..Survey::default() }
}

/// With a depth that was seen: so many others in flight when a read began.
pub fn deep(mut survey: Survey, others: u64) -> Survey {
    let bursts_before = Some(others);
    let load = ObservedLoad { read_bursts: 1, bursts_before, ..ObservedLoad::default() };
    survey.loads.insert(DEVICE, load);
    survey
}

/// Any move that saves time is worth it.
pub fn any_gain(policy: Policy, budget_bytes: Option<u64>) -> Settings {
    Settings { policy, budget_bytes, min_gain_s_per_gib: Some(0.0), ..Settings::default() }
}

/// The plan by a policy within a budget, whatever its price.
pub fn planned(
    layout: &Layout,
    accesses: &[Access],
    cost: &CostModel,
    policy: Policy,
    budget: Option<u64>,
) -> Plan {
    make(survey(layout, accesses, cost), &any_gain(policy, budget))
}

/// Numbers that look random, the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
