//! Predicted beside counted time saved, by the production planner on the lab's drives in their own time: a probe, a file in
//! fragments, a load, a plan, and the same load once the planned ranges are contiguous. `benches/prediction.rs` of
//! `fragmend` does the same with a real file system on a served drive.

mod support;

use fragmend_device::probe::{self, Options, intervals::CannotTell};
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_lab::measured::WRITTEN;
use fragmend_layout::{
    Access, ByteRange, CostModel, DeviceProfile, Extent, ExtentKind, FileId, FsKind, Layout,
    ObservedLoad, ObservedRequests, Op,
};

use fragmend_plan::{Bill, Device, OneMore, Plan, Policy, Settings, Survey, SurveyedFile, Timed};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use support::Simulated;

/// Bytes of a block.
const UNIT: u64 = 4096;
const KIB: u64 = 1024;
/// More bursts of reads than there are in a load.
const MANY: u64 = 1 << 40;
/// Bytes of the file.
const FILE: u64 = 64 << 20;
/// The host's time for a request.
const REQUEST_NS: u64 = 500;
/// The longest request, in bytes.
const MAX_REQUEST: u64 = 1 << 20;

/// How the file came to be in fragments.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Written {
    /// In one go, into small holes.
    Together,
    /// Fragment by fragment, with much else in between.
    Apart,
}

/// A file on a drive, in fragments.
struct Bed {
    drive: Simulated,
    /// The drive's time, in nanoseconds.
    now: u64,
    layout: Layout,
    /// Where free space begins, in bytes.
    free: u64,
    rng: fastrand::Rng,
}

/// A load: reads of so many bytes, of which so many are in flight.
struct Load {
    name: &'static str,
    depth: usize,
    reads: fn(&mut fastrand::Rng) -> Vec<ByteRange>,
}

fn slots(rng: &mut fastrand::Rng, bytes: u64, count: u32) -> Vec<ByteRange> {
    (0..count).map(|_| ByteRange::at(rng.u64(0..FILE / bytes) * bytes, bytes)).collect()
}

const LOADS: [Load; 8] = [
    Load { name: "random 128 KiB", depth: 1, reads: |rng| slots(rng, 128 * KIB, 200) },
    Load { name: "random 32 KiB, depth 4", depth: 4, reads: |rng| slots(rng, 32 * KIB, 400) },
    Load { name: "random 64 KiB, depth 8", depth: 8, reads: |rng| slots(rng, 64 * KIB, 400) },
    Load { name: "random 128 KiB, depth 32", depth: 32, reads: |rng| slots(rng, 128 * KIB, 640) },
    Load {
        name: "stride 384 KiB",
        depth: 1,
        reads: |_| (0..100).map(|n| ByteRange::at(n * 384 * KIB % FILE, 128 * KIB)).collect(),
    },
    Load {
        name: "random sizes",
        depth: 1,
        reads: |rng| {
            let one = |rng: &mut fastrand::Rng| {
                let bytes = [4, 16, 64, 128, 512][rng.usize(0..5)] * KIB;
                ByteRange::at(rng.u64(0..(FILE - bytes) / UNIT) * UNIT, bytes)
            };
            (0..150).map(|_| one(rng)).collect()
        },
    },
    Load {
        name: "sequential",
        depth: 1,
        reads: |_| {
            (0..FILE / (128 * KIB)).map(|n| ByteRange::at(n * 128 * KIB, 128 * KIB)).collect()
        },
    },
    Load { name: "random 16 KiB", depth: 1, reads: |rng| slots(rng, 16 * KIB, 300) },
];

impl Bed {
    fn new(name: &str, written: Written, seed: u64) -> Self {
        let drive = Simulated::named(name);
        let now = drive.device.idle_at();
        let layout = Layout::new(FileId { device: 7, inode: 12, generation: 1 }, FILE);
        let mut bed = Self { drive, now, layout, free: 0, rng: fastrand::Rng::with_seed(seed) };
        bed.free = WRITTEN / 2;
        let (mut at, mut place) = (0, 0);
        while at < FILE {
            let length = ([4, 8, 16, 32][bed.rng.usize(0..4)] * KIB).min(FILE - at);
            bed.layout.push(Extent {
                logical: at,
                physical: place,
                length,
                kind: ExtentKind::Data,
            });
            bed.write(place, length);
            if written == Written::Apart {
                let other = bed.rng.u64(1..64);
                bed.write(WRITTEN - 64 * UNIT, other * UNIT);
            }
            at += length;
            place += length + [4, 16][bed.rng.usize(0..2)] * KIB;
        }
        bed
    }

    fn write(&mut self, place: u64, bytes: u64) {
        for part in ByteRange::at(place, bytes).steps(MAX_REQUEST) {
            let units = Units::new((part.start / UNIT) as u32, (part.len() / UNIT) as u32);
            let command = Command::Write { units, hint: Hint::None, fua: false };
            self.now = self.drive.device.submit(self.now, &command).expect("space").done_ns;
        }
        self.now = self.now.max(self.drive.device.idle_at());
    }

    /// The requests of a read.
    fn requests(&self, read: ByteRange) -> Vec<Units> {
        let parts = self.layout.extents().iter().filter(|e| e.range().overlaps(read));
        let mut out: Vec<Units> = Vec::new();
        for extent in parts {
            let part = extent.range().intersect(read);
            let at = ((extent.physical + part.start - extent.logical) / UNIT) as u32;
            let count = (part.len() / UNIT) as u32;
            match out.last_mut() {
                Some(last) if last.end() == at => last.count += count,
                _ => out.push(Units::new(at, count)),
            }
        }
        out
    }

    /// Runs a load: its nanoseconds, and what is observed meanwhile.
    fn run(&mut self, load: &Load, reads: &[ByteRange]) -> (u64, ObservedLoad) {
        let begun = self.now.max(self.drive.device.idle_at());
        let mut ready: BinaryHeap<Reverse<u64>> = (0..load.depth).map(|_| Reverse(begun)).collect();
        let mut ends: Vec<u64> = Vec::new();
        let mut seen = ObservedLoad::default();
        let (mut last, mut host, mut requests) = (begun, begun, 0);
        for read in reads {
            let Reverse(mut at) = ready.pop().expect("a reader");
            at = at.max(host);
            ends.retain(|end| *end > at);
            seen.read_bursts += 1;
            seen.in_flight_before += ends.len() as u64;
            let busy = ready.iter().filter(|Reverse(done)| *done > at).count();
            seen.bursts_before = Some(seen.bursts_before.unwrap_or_default() + busy as u64);
            let mut done = at;
            for units in self.requests(*read) {
                at += REQUEST_NS;
                let end =
                    self.drive.device.submit(at, &Command::Read(units)).expect("a read").done_ns;
                ends.push(end);
                done = done.max(end);
                requests += 1;
            }
            host = at;
            ready.push(Reverse(done));
            last = last.max(done);
        }
        seen.requests.push(ObservedRequests {
            write: false,
            up_to_bytes: 1 << 17,
            up_to_in_flight: 1,
            count: requests,
            bytes: requests << 14,
            in_flight: requests,
            total_ns: requests,
        });
        self.now = last;
        (last - begun, seen)
    }

    /// What one more request costs, by the time of a load.
    fn one_more(
        &self,
        cost: &CostModel,
        reads: &[ByteRange],
        load: &ObservedLoad,
        ns: u64,
    ) -> Option<OneMore> {
        let settings = Settings::default();
        let now = plan(&self.layout, cost, reads, load, &settings, None).summary;
        // At the same depth, whatever number of requests a read has.
        let before = ((now.depth - 1.0) * MANY as f64) as u64;
        let load = ObservedLoad { read_bursts: MANY, bursts_before: Some(before), ..load.clone() };
        let mut whole = Layout::new(self.layout.file, FILE);
        whole.push(Extent { logical: 0, physical: 0, length: FILE, kind: ExtentKind::Data });
        let whole = plan(&whole, cost, reads, &load, &settings, None).summary;
        OneMore::of(ns as f64 / 1e9, reads.len() as u64, Bill::before(&now), Bill::before(&whole))
    }

    /// Makes the planned ranges contiguous, one after the other, with what a journal writes in between.
    fn apply(&mut self, plan: &Plan) {
        let ranges: Vec<ByteRange> =
            plan.files.iter().flat_map(|f| f.ranges.iter().map(|r| r.range())).collect();
        let mut after = Layout::new(self.layout.file, FILE);
        let mut parts: Vec<Extent> = Vec::new();
        let place = |range: ByteRange, bed: &mut Self| {
            let at = bed.free;
            bed.free += range.len() + UNIT;
            bed.write(at, range.len());
            let journal = bed.rng.u64(1..6);
            bed.write(WRITTEN - 64 * UNIT, journal * UNIT);
            Extent {
                logical: range.start,
                physical: at,
                length: range.len(),
                kind: ExtentKind::Data,
            }
        };
        for range in &ranges {
            let extent = place(*range, self);
            parts.push(extent);
        }
        for extent in self.layout.extents() {
            let mut rest = extent.range();
            for range in ranges.iter().filter(|r| r.overlaps(extent.range())) {
                if rest.start < range.start {
                    let cut = ByteRange { start: rest.start, end: range.start };
                    parts.push(Extent {
                        logical: cut.start,
                        physical: extent.physical + cut.start - extent.logical,
                        length: cut.len(),
                        kind: extent.kind,
                    });
                }
                rest.start = rest.start.max(range.end).min(rest.end);
            }
            if !rest.is_empty() {
                parts.push(Extent {
                    logical: rest.start,
                    physical: extent.physical + rest.start - extent.logical,
                    length: rest.len(),
                    kind: extent.kind,
                });
            }
        }
        parts.sort_by_key(|e| e.logical);
        parts.into_iter().for_each(|e| after.push(e));
        self.layout = after;
    }
}

fn plan(
    layout: &Layout,
    cost: &CostModel,
    reads: &[ByteRange],
    load: &ObservedLoad,
    settings: &Settings,
    one_more: Option<OneMore>,
) -> Plan {
    let profile = DeviceProfile {
        cost: cost.clone(),
        max_request_bytes: MAX_REQUEST,
        ..DeviceProfile::unknown()
    };
    let device = Device {
        device: 7,
        mount: std::path::Path::new("/mnt").into(),
        file_system: FsKind::Ext4,
        total_bytes: WRITTEN,
        block_bytes: UNIT,
        profile,
    };
    let access = |range: &ByteRange| Access {
        offset: range.start,
        length: range.len() as u32,
        count: 1,
        thread: 1,
        op: Op::Read,
        direct: true,
        windowed: false,
    };
    let accesses = reads.iter().map(access).collect();
    let file = SurveyedFile::new("/mnt/f".into(), layout.clone(), accesses, &device);
    let survey = Survey {
        files: vec![file],
        devices: vec![device],
        misses: true,
        ordered: true,
        loads: BTreeMap::from([(7, load.clone())]),
        timed: Timed {
            one_more: one_more.map(|one| (7, one)).into_iter().collect(),
            why_not: None,
        },
        ..Survey::default()
    };
    fragmend_plan::make(survey, settings)
}

fn probed(name: &str) -> CostModel {
    let mut drive = Simulated::named(name);
    let options = Options { no_geometry: Some(CannotTell::NotAsked), ..Options::default() };
    probe::probe(&mut drive, &options, &|| false, &mut |_| {}).expect("a drive").costs
}

/// How far the predicted time saved may be from the counted, as a share of it; and, where nothing is worth moving, as a share
/// of the time.
const BAND: f64 = 0.15;
const SAME: f64 = 0.03;

/// Plans for a load with the time that it takes now, mends, and runs it again; where nothing is worth moving, the whole file
/// is mended. Returns whether prediction and count agree.
fn meets(name: &str, written: Written, load: &Load, cost: &CostModel) -> bool {
    let mut bed = Bed::new(name, written, 1);
    let reads = (load.reads)(&mut fastrand::Rng::with_seed(5));
    let (before, seen) = bed.run(load, &reads);
    let one_more = bed.one_more(cost, &reads, &seen, before);
    let planned = |policy| {
        let settings = Settings { policy, ..Settings::default() };
        plan(&bed.layout, cost, &reads, &seen, &settings, one_more)
    };
    let gain = planned(Policy::Gain);
    let why = gain.summary.why;
    let moves = gain.summary.bytes_to_move > 0;
    let made = if moves { gain } else { planned(Policy::WholeFile) };
    bed.apply(&made);
    let (after, _) = bed.run(load, &reads);
    let summary = &made.summary;
    let [before, after] = [before, after].map(|ns| ns as f64 / 1e9);
    let (saved, predicted) = (before - after, summary.seconds_before - summary.seconds_after);
    let off = (predicted - saved).abs();
    let agree = off < BAND * saved.abs() || (!moves && off < SAME * before);
    println!(
        "{name}, written {written:?}, {}: {:.1} MiB {}; {:.2} ms before, predicted {:.2}; {:.2} ms after, predicted {:.2}; \
         saved {:.1} %, predicted {:.1} %{}",
        load.name,
        summary.bytes_to_move as f64 / f64::from(1 << 20),
        why.map_or("moved".to_owned(), |why| format!("moved all the same ({why:?})")),
        before * 1e3,
        summary.seconds_before * 1e3,
        after * 1e3,
        summary.seconds_after * 1e3,
        100.0 * saved / before,
        100.0 * predicted / before,
        if agree { "" } else { ": OUTSIDE" }
    );
    agree
}

/// The lab's drives on which it matters little, much and in both directions. Reads that continue each other, of which two
/// touch one flash page, are quicker than the same reads at random places, which no model here knows.
#[test]
fn what_is_predicted_is_counted() {
    for (written, least) in [(Written::Together, 20), (Written::Apart, 15)] {
        let mut agreed = 0;
        for name in ["sata-a", "nvme-a", "nvme-b"] {
            let cost = probed(name);
            agreed += LOADS.iter().filter(|load| meets(name, written, load, &cost)).count();
        }
        println!("written {written:?}: {agreed} of {} agree", 3 * LOADS.len());
        assert!(agreed >= least, "{written:?}: {agreed}");
    }
}
