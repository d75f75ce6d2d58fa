//! Costs of simulated drives, beside what the simulation itself says of many more reads.

mod support;

use fragmend_device::probe::area::Content;
use fragmend_device::probe::intervals::CannotTell;
use fragmend_device::probe::reader::{Failed, Read, Reader};
use fragmend_device::probe::{self, Measured, Options, ProbeError};
use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_lab::measured::{WRITTEN, written};
use fragmend_lab::presets;
use fragmend_layout::{CostSource, RequestCost};
use std::time::Duration;
use support::{Noise, Simulated};

fn probed(drive: &mut Simulated) -> Measured {
    let no_geometry = Some(CannotTell::NotAsked);
    let options = Options { no_geometry, ..Options::default() };
    let most = probe::most(drive, &options);
    let measured = probe::probe(drive, &options, &|| false, &mut |_| {}).expect("a drive");
    assert!(measured.spent.bytes <= most.bytes && measured.spent.requests <= most.requests);
    assert!(measured.complete);
    assert_eq!(measured.costs.source, CostSource::Probed);
    measured
}

/// By how much two figures differ, as a share of the second.
fn off(ours: u64, theirs: f64) -> f64 {
    (ours as f64 - theirs).abs() / theirs
}

/// Mean times of many reads that begin at random units of what is written.
fn simulated(drive: &mut Simulated, length: u64, depth: u32) -> (f64, f64) {
    let mut rng = fastrand::Rng::with_seed(99);
    let mut elapsed = |count: u32| {
        let place = |_| {
            let at = rng.u64(0..=(WRITTEN - length) / 4096) * 4096;
            Read { at, bytes: length as u32 }
        };
        let reads: Vec<Read> = (0..count).map(place).collect();
        drive.elapsed(&reads, depth, &|| false).expect("reads") as f64
    };
    let bursts = 300;
    let burst = (0..bursts).map(|_| elapsed(depth)).sum::<f64>() / f64::from(bursts);
    // Without the beginning and the end of a run.
    let (few, many) = (elapsed(500), elapsed(4500));
    (burst, (many - few) / 4000.0)
}

#[test]
fn costs_are_those_of_the_simulation() {
    for name in ["nvmevirt-fast24", "nvme-a", "nvme-c", "sata-b", "optane"] {
        let mut drive = Simulated::named(name);
        for noise in [Noise::default(), Noise { jitter: 0.05, outliers: 0.05, phases: 0 }] {
            drive.noise = noise;
            let measured = probed(&mut drive);
            drive.noise = Noise::default();
            let mut errors = Vec::new();
            let few = |cost: &&RequestCost| cost.request_bytes <= 128 << 10 || cost.in_flight <= 4;
            for cost in measured.costs.reads().iter().filter(few) {
                let (burst, interval) = simulated(&mut drive, cost.request_bytes, cost.in_flight);
                errors.extend([off(cost.burst_ns, burst), off(cost.interval_ns, interval)]);
            }
            let worst = errors.iter().copied().fold(0.0, f64::max);
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            println!(
                "{name}, {noise:?}: within {:.1} %, {:.1} % on average; {} requests, {} MiB",
                worst * 100.0,
                mean * 100.0,
                measured.spent.requests,
                measured.spent.bytes >> 20
            );
            let most = if noise.jitter > 0.0 { 0.15 } else { 0.1 };
            assert!(worst < most && mean < 0.03, "{name}");
        }
    }
}

/// Reads of what was never written are quick, and no part of the costs of a drive that is nearly empty.
#[test]
fn costs_are_those_of_what_holds_data() {
    let setup = presets::named("nvme-a").expect("a drive");
    let mut ssd = written(setup.flash(), 0);
    ssd.precondition(Units::new(40 * 256, 64 * 256)).expect("space");
    let mut drive = Simulated::of(&setup);
    (drive.device, drive.written) = (Box::new(ssd), 40 << 20..104 << 20);
    let measured = probed(&mut drive);
    assert_eq!(measured.content, Content::Data);
    let single = measured.costs.reads()[0];
    // As where everything is written: sensing, channel, link, firmware, host.
    let full = probed(&mut Simulated::named("nvme-a")).costs.reads()[0];
    assert!(off(single.burst_ns, full.burst_ns as f64) < 0.02, "{single:?}, {full:?}");
}

/// A device that does one thing at a time costs the same at any depth.
#[test]
fn costs_of_a_card_are_in_proportion() {
    let measured = probed(&mut Simulated::named("microsd"));
    for cost in measured.costs.reads() {
        // A command, a segment of the map that is not in memory, and the transfer (its file).
        let one = 624_000.0 + cost.request_bytes as f64 * 10.0;
        let rate = cost.burst_ns as f64 / f64::from(cost.in_flight);
        assert!(rate < one * 1.02 && rate > one * 0.2, "{cost:?}");
    }
    let single = measured.costs.reads()[0];
    // Some segments of the map are still in memory.
    assert!(off(single.burst_ns, 665_000.0) < 0.06, "{single:?}");
    assert!(measured.costs.seeks().is_empty());
}

/// One part of a drive in many requests keeps its dies as busy as in one: where stripe units are small, it lasts hardly
/// longer, while as many requests at random places meet on dies.
#[test]
fn a_split_is_measured_as_neighbours() {
    let measured = probed(&mut Simulated::named("sata-a"));
    let of = |bytes: u64, n: u32| {
        let mut all = measured.costs.reads().iter();
        *all.find(|c| (c.request_bytes, c.in_flight) == (bytes, n)).expect("measured")
    };
    let (whole, parts) = (of(128 << 10, 1), of(4 << 10, 32));
    let split = parts.split_ns.expect("measured");
    assert!(off(split, whole.burst_ns as f64) < 0.2, "{whole:?}, {parts:?}");
    assert!(parts.burst_ns as f64 > 1.4 * split as f64, "{parts:?}");
    assert_eq!((whole.split_ns, of(1 << 20, 32).split_ns), (None, None));
}

/// A disk's seeks are a table of their own, and no part of the costs of requests.
#[test]
fn a_disk_has_seeks() {
    let measured = probed(&mut Simulated::named("hdd"));
    let costs = measured.costs.reads();
    // A command, the gap and the transfer, as they follow each other.
    let one = |bytes: f64| 50_500.0 + (bytes + 4096.0) / 0.15;
    assert!(costs[0].burst_ns < 100_000, "{:?}", costs[0]);
    let long = costs.iter().find(|c| c.request_bytes == 512 << 10 && c.in_flight == 1).unwrap();
    assert!(off(long.burst_ns, one(524_288.0)) < 0.05, "{long:?}");
    let seeks = measured.costs.seeks();
    assert!(seeks.len() > 10, "{seeks:?}");
    // Forward the bytes between pass under the head, as far as the disk reads ahead; backward it must turn once. Farther it
    // turns by a half, on average, and seeks.
    for near in seeks.iter().filter(|seek| seek.distance_bytes <= 1 << 20) {
        let passed = near.distance_bytes as f64 / 0.15;
        let forward = passed - 4096.0 / 0.15;
        assert!((near.ns as f64 - forward).abs() < 0.1 * passed + 1.0, "{near:?}");
        let back = near.back_ns.expect("both directions");
        assert!(off(back, 8_333_333.0 - passed) < 0.1 || passed > 5e6, "{near:?}");
    }
    let far = seeks.last().unwrap();
    assert!((10_000_000..20_000_000).contains(&far.ns), "{far:?}");
    let middle = seeks.iter().find(|seek| seek.distance_bytes > 1 << 30).unwrap();
    assert!((4_000_000..8_000_000).contains(&middle.ns), "{middle:?}");
    assert_eq!(measured.geometry.cannot_tell, Some(CannotTell::NotAsked));
}

/// A whole probe keeps to what it said, on drives of any kind, and stops when it is asked to.
#[test]
fn a_probe_keeps_to_its_budget() {
    for name in ["nvme-b", "microsd", "hdd"] {
        let mut drive = Simulated::named(name);
        let options = Options::default();
        let most = probe::most(&drive, &options);
        let measured = probe::probe(&mut drive, &options, &|| false, &mut |_| {}).unwrap();
        assert!(measured.spent.bytes <= most.bytes && measured.spent.requests <= most.requests);
        let why = measured.geometry.cannot_tell;
        match name {
            "nvme-b" => assert_eq!(why, None),
            "hdd" => assert_eq!(why, Some(CannotTell::Seeks)),
            _ => assert_eq!(why, Some(CannotTell::OneAtATime)),
        }
    }
    let (mut drive, none) =
        (Simulated::named("nvme-a"), Options { time: Duration::ZERO, ..Options::default() });
    let spent = probe::probe(&mut drive, &none, &|| false, &mut |_| {});
    assert!(matches!(spent, Err(ProbeError::Failed(Failed::Spent))), "{spent:?}");
    let asked = std::cell::Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 2000
    };
    let stopped = probe::probe(&mut drive, &Options::default(), &stop, &mut |_| {});
    assert!(matches!(stopped, Err(ProbeError::Failed(Failed::Stopped))));
    assert_eq!(asked.get(), 2001);
}
