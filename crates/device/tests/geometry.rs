//! Stripe and die allocation granularity of simulated drives: right, or nothing; never wrong.

mod support;

use fragmend_device::probe::intervals::{CannotTell, Geometry};
use fragmend_device::probe::{self, Options};
use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_flash::drive::Drive;
use fragmend_lab::measured::{WRITTEN, written};
use fragmend_lab::presets;
use support::{Noise, Simulated};

const KIB: u64 = 1024;

/// Reads at intervals alone.
fn geometry(drive: &mut Simulated, seed: u64) -> Geometry {
    use fastrand::Rng;
    use probe::meter::Meter;
    let options = Options { seed, ..Options::default() };
    let limits = probe::most(drive, &options);
    let mut meter = Meter::new(drive, limits, &|| false);
    let mut rng = Rng::with_seed(seed);
    let mut areas = probe::area::find(&mut meter, &mut rng, &[]).expect("areas");
    probe::area::fill(&mut meter, &mut rng, &mut areas).expect("areas");
    probe::intervals::measure(&mut meter, &mut rng, &areas, options.search).expect("reads")
}

/// Granularity and stripe, in KiB.
fn found(geometry: &Geometry) -> (Option<u64>, Option<u64>) {
    let kib = |sure: Option<probe::intervals::Sure>| sure.map(|sure| sure.bytes / KIB);
    (kib(geometry.granularity), kib(geometry.stripe))
}

/// How often it was right, and how often there was no answer; panics where it was wrong.
#[derive(Debug, Default)]
struct Score {
    right: u32,
    none: u32,
}

impl Score {
    fn add(&mut self, what: &str, geometry: &Geometry, granularity: u64, stripe: u64) {
        match found(geometry) {
            (Some(g), Some(s)) if (g, s) == (granularity, stripe) => self.right += 1,
            (g, s) => {
                let wrong = g.is_some_and(|g| g != granularity) || s.is_some_and(|s| s != stripe);
                assert!(!wrong, "{what}: {g:?} / {s:?} instead of {granularity} / {stripe}");
                self.none += 1;
            }
        }
    }
}

const DRIVES: [(&str, u64, u64); 8] = [
    ("nvmevirt-fast24", 32, 256),
    ("nvme-a", 32, 1024),
    ("nvme-b", 32, 256),
    ("nvme-c", 8, 584),
    ("nvme-d", 4, 604),
    ("sata-a", 4, 32),
    ("sata-b", 16, 256),
    ("sata-850pro", 4, 32),
];

#[test]
fn drives_of_the_lab_show_their_geometry() {
    for (name, granularity, stripe) in DRIVES {
        let mut drive = Simulated::named(name);
        let mut score = Score::default();
        for seed in 0..20 {
            score.add(name, &geometry(&mut drive, seed), granularity, stripe);
        }
        println!("{name}: {score:?}");
        assert!(score.right >= 19, "{name}: {score:?}");
    }
}

/// A drive of so many dies and units of so many KiB, with the times of this drive of the lab.
fn made(like: &str, dies: u64, unit_kib: u64) -> Drive {
    let mut drive = presets::named(like).expect("a drive").flash().clone();
    let geometry = &mut drive.geometry;
    let channels = [8, 6, 4, 3].into_iter().find(|n| dies.is_multiple_of(*n)).unwrap_or(dies);
    geometry.channels = channels as u32;
    geometry.dies_per_channel = (dies / channels) as u32;
    geometry.stripe_unit_bytes = (unit_kib * KIB) as u32;
    let (page, unit) = (geometry.flash_page_bytes, geometry.stripe_unit_bytes);
    if !page.is_multiple_of(unit) {
        geometry.flash_page_bytes = unit;
    }
    geometry.program_unit_bytes = geometry.flash_page_bytes;
    // Space for what is written, and the spare blocks.
    let block = u64::from(geometry.flash_page_bytes) * u64::from(geometry.pages_per_block);
    geometry.blocks_per_plane = (WRITTEN * 2 / dies / block + 16) as u32;
    geometry.over_provisioning_per_mille = 600;
    drive.buffer.bytes = 256 << 20;
    drive
}

/// Every granularity from 4 to 64 KiB with every stripe from 32 KiB to 2 MiB, and odd ones.
fn geometries() -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for unit in [4, 8, 16, 32, 64] {
        for stripe in [32, 64, 128, 256, 512, 1024, 2048] {
            if stripe >= 2 * unit {
                all.push((unit, stripe / unit));
            }
        }
    }
    // Dies, and units, that are no powers of two.
    all.extend([
        (8, 73),
        (4, 151),
        (4, 146),
        (16, 12),
        (32, 12),
        (4, 12),
        (64, 12),
        (16, 6),
        (8, 3),
    ]);
    all.extend([
        (32, 24),
        (32, 48),
        (16, 20),
        (16, 7),
        (32, 11),
        (64, 13),
        (8, 100),
        (4, 37),
        (32, 37),
    ]);
    all.extend([(12, 16), (24, 8), (48, 12), (20, 5), (36, 31), (12, 2), (60, 30)]);
    all
}

#[test]
fn any_geometry_is_found() {
    let mut score = Score::default();
    let mut failed = Vec::new();
    for (n, (unit, dies)) in geometries().into_iter().enumerate() {
        for like in ["nvme-a", "sata-b"] {
            let mut drive =
                Simulated::new(Box::new(written(&made(like, dies, unit), WRITTEN)), WRITTEN);
            let what = format!("{dies} dies of {unit} KiB as {like}");
            let before = score.right;
            let geometry = geometry(&mut drive, n as u64);
            score.add(&what, &geometry, unit, unit * dies);
            if score.right == before {
                failed.push((what, found(&geometry), geometry.cannot_tell));
            }
        }
    }
    println!("{score:?}, {failed:?}");
    assert!(score.right * 100 >= (score.right + score.none) * 95, "{score:?}: {failed:?}");
}

#[test]
fn noise_makes_it_silent_but_never_wrong() {
    for (jitter, outliers, phases) in [
        (0.05, 0.0, 0),
        (0.2, 0.02, 0),
        (0.1, 0.02, 7),
        (0.1, 0.0, 40),
        (0.5, 0.0, 0),
        (0.5, 0.1, 0),
    ] {
        let mut score = Score::default();
        for (name, granularity, stripe) in DRIVES {
            let mut drive = Simulated::named(name);
            drive.noise = Noise { jitter, outliers, phases };
            for seed in 0..4 {
                score.add(name, &geometry(&mut drive, seed), granularity, stripe);
            }
        }
        println!("jitter {jitter}, outliers {outliers}, phases {phases}: {score:?}");
        if jitter <= 0.2 && phases == 0 {
            assert!(score.right >= 31, "{score:?}");
        }
    }
}

#[test]
fn drives_without_turns_of_dies_show_nothing() {
    for (name, why) in [
        ("microsd", Some(CannotTell::OneAtATime)),
        ("hdd", Some(CannotTell::OneAtATime)),
        // Where a row of it begins is pseudo-random, but some distances collide a little more than others: there
        // are several ways not to be a stripe.
        ("optane", None),
        ("ramdisk", Some(CannotTell::NoPattern)),
    ] {
        for noise in [Noise::default(), Noise { jitter: 0.5, outliers: 0.1, phases: 0 }] {
            let mut drive = Simulated::named(name);
            drive.noise = noise;
            for seed in 0..5 {
                let geometry = geometry(&mut drive, seed);
                assert_eq!(found(&geometry), (None, None), "{name}");
                let said = geometry.cannot_tell;
                assert!(
                    said.is_some() && (noise.jitter > 0.0 || why.is_none() || said == why),
                    "{name}: {said:?}"
                );
            }
        }
    }
}

/// Data that was written in another order than it is read in has no stripe; where a little of it was written again,
/// the answer may be missing, but not wrong.
#[test]
fn an_aged_drive_shows_nothing_wrong() {
    let mut rng = fastrand::Rng::with_seed(5);
    for (name, granularity, stripe) in DRIVES {
        let drive = presets::named(name).expect("a drive").flash().clone();
        let units = (WRITTEN / 4096) as u32;
        // In extents of 4 to 128 KiB, in random order.
        let mut ssd = written(&drive, 0);
        let mut extents = Vec::new();
        let mut at = 0;
        while at < units {
            let count = rng.u32(1..=32).min(units - at);
            extents.push(Units::new(at, count));
            at += count;
        }
        rng.shuffle(&mut extents);
        extents.iter().for_each(|extent| ssd.precondition(*extent).expect("space"));
        let found_there = found(&geometry(&mut Simulated::new(Box::new(ssd), WRITTEN), 1));
        assert_eq!(found_there, (None, None), "{name}");
        for share in [0.02, 0.2, 0.6] {
            let mut ssd = written(&drive, WRITTEN);
            let again = extents.iter().filter(|_| rng.f64() < share);
            again.for_each(|extent| ssd.precondition(*extent).expect("space"));
            let mut score = Score::default();
            let geometry = geometry(&mut Simulated::new(Box::new(ssd), WRITTEN), 2);
            score.add(name, &geometry, granularity, stripe);
            println!("{name}, {share} of it written again: {score:?}");
        }
    }
}

/// Where one part was written in order and another by two writers in turn, each part shows its own pattern: none is told.
#[test]
fn places_that_were_written_differently_contradict_each_other() {
    const PLACE: u64 = 128 << 20;
    const TURN: u32 = 8;
    let drive = presets::named("nvme-b").expect("a drive").flash().clone();
    let ask = |turns: [bool; 2]| {
        let mut ssd = written(&drive, 0);
        let units = (PLACE / 4096) as u32;
        for (place, in_turns) in (0..).zip(turns) {
            let start = place * 2 * units;
            let half = units / 2;
            for at in (0..half).step_by(TURN as usize) {
                let first = if in_turns { [at, half + at] } else { [2 * at, 2 * at + TURN] };
                for at in first {
                    ssd.precondition(Units::new(start + at, TURN)).expect("space");
                }
            }
        }
        let places = vec![0..PLACE, 2 * PLACE..3 * PLACE];
        let content = probe::area::Content::Data;
        let areas = probe::area::Areas { ranges: places.clone(), filled: places, content };
        let mut drive = Simulated::new(Box::new(ssd), 3 * PLACE);
        let options = Options::default();
        let limits = probe::most(&drive, &options);
        let mut meter = probe::meter::Meter::new(&mut drive, limits, &|| false);
        let mut rng = fastrand::Rng::with_seed(3);
        let found = probe::intervals::measure(&mut meter, &mut rng, &areas, options.search);
        let geometry = found.expect("reads");
        (self::found(&geometry), geometry.cannot_tell)
    };
    assert_eq!(ask([false, false]), ((Some(32), Some(256)), None));
    let differ = ((None, None), Some(CannotTell::PlacesDiffer));
    assert_eq!((ask([false, true]), ask([true, false])), (differ, differ));
    // What cannot be told by reading: the pattern of the turns is everywhere.
    assert_eq!(ask([true, true]), ((Some(32), Some(128)), None));
}

/// What is found is the turn of whatever answers one read at a time: of channels whose transfers last longer than reads, and
/// of planes that read alone. Where these are not one after the other in the stripe, nothing is told.
#[test]
fn what_else_takes_turns_counts_as_dies() {
    let like = |change: &dyn Fn(&mut Drive)| {
        let mut drive = presets::named("nvme-b").expect("a drive").flash().clone();
        change(&mut drive);
        let of = &drive.geometry;
        let dies = u64::from(of.channels * of.dies_per_channel);
        let block = u64::from(of.flash_page_bytes) * u64::from(of.pages_per_block);
        let planes = dies * u64::from(of.planes_per_die);
        drive.geometry.blocks_per_plane = (WRITTEN * 2 / planes / block + 16) as u32;
        drive.geometry.over_provisioning_per_mille = 600;
        drive
    };
    let slow_channels = like(&|drive| {
        (drive.geometry.channels, drive.geometry.dies_per_channel) = (4, 2);
        drive.timing.channel_bytes_per_second = 400_000_000;
    });
    let planes_in_turn = like(&|drive| {
        (drive.geometry.channels, drive.geometry.dies_per_channel) = (4, 2);
        drive.geometry.planes_per_die = 2;
        drive.geometry.stripe_unit_bytes = 64 << 10;
        drive.timing.read_ns = vec![5000];
        drive.timing.small_read_ns = Vec::new();
        drive.timing.small_read_bytes = 0;
        drive.timing.channel_bytes_per_second = 838_000_000;
    });
    let planes_by_blocks = like(&|drive| {
        let of = &mut drive.geometry;
        (of.channels, of.dies_per_channel, of.planes_per_die) = (2, 4, 2);
        (of.planes_together, of.planes_read_alone, of.pages_per_block) = (false, true, 48);
        (of.flash_page_bytes, of.program_unit_bytes) = (8 << 10, 8 << 10);
        of.stripe_unit_bytes = 16 << 10;
        drive.timing.read_ns = vec![19_700];
        drive.timing.channel_bytes_per_second = 838_000_000;
    });
    for (name, drive, turn) in [
        // Two dies on each of four channels.
        ("slow channels", slow_channels, Some((32, 128))),
        // Eight dies of two planes.
        ("planes in turn", planes_in_turn, Some((32, 512))),
        // Planes change with each block, every 3 MiB of the stripe.
        ("planes by blocks", planes_by_blocks, None),
    ] {
        for seed in 0..20 {
            let mut drive = Simulated::new(Box::new(written(&drive, WRITTEN)), WRITTEN);
            let geometry = geometry(&mut drive, seed);
            let expected = (turn.map(|turn| turn.0), turn.map(|turn| turn.1));
            assert_eq!(found(&geometry), expected, "{name}, seed {seed}");
        }
    }
}

/// Stripes that are larger than what is searched first.
#[test]
fn a_large_stripe_is_found_or_not_but_never_wrong() {
    let mut score = Score::default();
    for (n, (unit, dies)) in
        [(32, 128), (64, 64), (64, 96), (64, 73), (128, 128), (32, 146), (256, 37)]
            .into_iter()
            .enumerate()
    {
        let drive = written(&made("nvme-a", dies, unit), WRITTEN);
        let geometry = geometry(&mut Simulated::new(Box::new(drive), WRITTEN), n as u64);
        score.add(&format!("{dies} dies of {unit} KiB"), &geometry, unit, unit * dies);
    }
    println!("{score:?}");
}

/// A drive that holds little shows its geometry there.
#[test]
fn a_nearly_empty_drive_shows_its_geometry() {
    let mut score = Score::default();
    for (n, (name, granularity, stripe)) in DRIVES.into_iter().enumerate() {
        let setup = presets::named(name).expect("a drive");
        let mut ssd = written(setup.flash(), 0);
        ssd.precondition(Units::new(37 * 256, 90 * 256)).expect("space");
        let mut drive = Simulated::of(&setup);
        (drive.device, drive.written) = (Box::new(ssd), 37 << 20..127 << 20);
        score.add(name, &geometry(&mut drive, n as u64), granularity, stripe);
    }
    println!("{score:?}");
    assert!(score.right >= 7, "{score:?}");
}

/// What was never written is answered without the dies.
#[test]
fn a_drive_that_was_never_written_shows_nothing() {
    for (name, ..) in DRIVES {
        let drive = written(presets::named(name).expect("a drive").flash(), 0);
        let mut drive = Simulated::new(Box::new(drive), 0);
        assert_eq!(found(&geometry(&mut drive, 1)), (None, None), "{name}");
    }
}
