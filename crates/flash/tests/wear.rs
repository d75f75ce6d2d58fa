//! Wear stays even: among the blocks of a die when most writes go to a few units, and among dies when a hint
//! would keep a hot file on one of them. Without levelling neither bound holds. The counters of wear, time
//! and traffic agree with each other.

mod support;

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Placement, Timing, Wear};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::nand::Work;
use fragmend_flash::ssd::Ssd;

const UNIT: u32 = 4096;

fn drive(wear: Wear) -> Drive {
    Drive {
        geometry: Geometry {
            blocks_per_plane: 64,
            pages_per_block: 16,
            over_provisioning_per_mille: 150,
            ..support::geometry(UNIT, 2)
        },
        timing: Timing::round(2 * UNIT),
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * 64,
            command_ns: 0,
            unit_ns: 0,
            protected: true,
            open_program_units: 4,
        },
        firmware: Firmware { placement: Placement::DieAffine, wear, ..Firmware::default() },
    }
}

/// A full drive after this many writes of a unit, of which one in a hundred goes to any unit, the others to
/// the first `hot` units.
fn worn(drive: &Drive, hot: u32, writes: u32, hint: Hint) -> Ssd {
    let mut ssd = Ssd::new(drive).expect("a drive");
    let all = ssd.shape().logical_units;
    ssd.precondition(Units::new(0, all)).expect("room");
    let mut now = 0;
    for n in 0..writes {
        let random = n.wrapping_mul(2_654_435_761) >> 8;
        let start = random % if n % 100 == 0 { all } else { hot };
        let write = Command::Write { units: Units::new(start, 1), hint, fua: false };
        now = ssd.submit(now, &write).expect("room").done_ns;
    }
    ssd.audit().expect("tables that agree");
    ssd
}

/// By how many erases the most worn block of a die exceeds the least worn one of the same die, at most.
fn block_spread(ssd: &Ssd) -> u32 {
    let shape = ssd.shape();
    let of_die = |die: u32| {
        let blocks = die * shape.blocks_per_die..(die + 1) * shape.blocks_per_die;
        let erases: Vec<u32> = blocks.map(|block| ssd.erases_of(block)).collect();
        erases.iter().max().unwrap_or(&0) - erases.iter().min().unwrap_or(&0)
    };
    (0..shape.dies).map(of_die).max().unwrap_or(0)
}

/// The same among dies, in erases for each block on average.
fn die_spread(ssd: &Ssd) -> u64 {
    let erases = (0..ssd.shape().dies).map(|die| ssd.erases_of_die(die));
    let (least, most) = (erases.clone().min().unwrap_or(0), erases.max().unwrap_or(0));
    (most - least) / u64::from(ssd.shape().blocks_per_die)
}

/// The wear of a die is checked after every few erases, and then one block at most is levelled, while a few
/// blocks are erased again and again. So the bound is a multiple of the spread of 8; what matters is that it
/// is a bound: twice the writes do not exceed it either.
#[test]
fn blocks_of_a_die_wear_evenly() {
    let spread = |block_spread, writes| {
        let ssd = worn(&drive(Wear { block_spread, die_spread: 0 }), 300, writes, Hint::None);
        assert_eq!(ssd.counters().levelled > 0, block_spread > 0);
        self::block_spread(&ssd)
    };
    let (with, longer) = (spread(8, 400_000), spread(8, 800_000));
    let (without, longer_without) = (spread(0, 400_000), spread(0, 800_000));
    println!("spread {with}, then {longer}; {without}, then {longer_without} without levelling");
    assert!(with <= 4 * 8 && longer <= 4 * 8, "{with}, {longer}");
    assert!(without > 32 * 8 && longer_without > without * 3 / 2, "{without}, {longer_without}");
}

/// Two units are overwritten on their die until that is worn, and then on others.
#[test]
fn a_hot_file_does_not_wear_out_one_die() {
    let with = worn(&drive(Wear { block_spread: 8, die_spread: 4 }), 2, 200_000, Hint::Overwrite);
    let without =
        worn(&drive(Wear { block_spread: 8, die_spread: 0 }), 2, 200_000, Hint::Overwrite);
    let (with, without) = ((die_spread(&with), with), (die_spread(&without), without));
    println!("spread {} with a limit, {} without", with.0, without.0);
    assert!(with.0 <= 5 && with.1.counters().hints_refused > 0, "{}", with.0);
    assert!(without.0 > 16 && without.1.counters().hints_refused == 0, "{}", without.0);
}

#[test]
fn the_counters_agree_with_each_other() {
    let drive = drive(Wear::default());
    let ssd = worn(&drive, 4000, 60_000, Hint::None);
    let (counters, shape) = (ssd.counters(), ssd.shape().clone());
    assert_eq!((counters.host_written, counters.commands), (60_000, 60_000));
    assert!(counters.waf_per_mille() > 1000 && counters.collected > 0);
    let wear = ssd.wear();
    let mean = counters.erases * 1000 / u64::from(shape.blocks());
    assert_eq!(wear.mean_per_mille, mean);
    assert!(u64::from(wear.least) * 1000 <= mean && mean <= u64::from(wear.most) * 1000);
    // Whole program units cross the channel, and the valid units that collection reads; those that are read
    // and not yet programmed are less than a program unit of each die.
    let (programs, moved) = (ssd.count(Work::Program), counters.collected + counters.levelled);
    let bytes = programs * u64::from(2 * UNIT) + moved * u64::from(UNIT);
    assert!((bytes..bytes + 4 * u64::from(2 * UNIT)).contains(&ssd.bus_bytes()));
    let idle = ssd.idle_at();
    let (dies, channels) = ssd.busy_dies_and_channels_ns();
    assert!(dies.iter().chain(&channels).all(|busy| *busy <= idle));
    let (of_dies, of_channels) = ssd.utilization_per_mille(idle);
    assert_eq!(of_dies, dies.iter().sum::<u64>() * 1000 / (idle * 4));
    assert!(of_dies > of_channels && of_channels > 0 && of_dies <= 1000);
    let busy: u64 = dies.iter().sum();
    assert!(counters.collecting_ns > 0 && counters.collecting_ns < busy);
}

#[test]
fn collisions_of_a_read_are_counted() {
    let mut ssd = Ssd::new(&drive(Wear::default())).expect("a drive");
    ssd.precondition(Units::new(0, 64)).expect("room");
    // A stripe unit of two units on each of four dies: a page on each; then an overwrite makes it two on one
    // die.
    let even = ssd.submit(0, &Command::Read(Units::new(0, 8))).expect("a read");
    assert_eq!(even.collision_percent, 100);
    ssd.precondition(Units::new(2, 2)).expect("room");
    let die = |ssd: &Ssd, unit| ssd.place_of(unit).map(|(die, _)| die);
    assert_eq!(die(&ssd, 2), die(&ssd, 0));
    let uneven = ssd.submit(even.done_ns, &Command::Read(Units::new(0, 8))).expect("a read");
    assert_eq!(uneven.collision_percent, 200);
    let counters = ssd.counters();
    assert_eq!((counters.pages_read, counters.busiest_pages, counters.even_pages), (8, 3, 2));
    assert_eq!(counters.collision_percent(), 150);
}

#[test]
fn copyback_keeps_the_channel_free() {
    let plain = drive(Wear::default());
    let mut copying = plain.clone();
    copying.firmware.copyback = true;
    let [plain, copying] = [plain, copying].map(|drive| worn(&drive, 4000, 60_000, Hint::None));
    assert_eq!(plain.count(Work::Copyback), 0);
    assert!(copying.count(Work::Copyback) > 0 && copying.bus_bytes() < plain.bus_bytes());
    assert!(copying.counters().collected > 0);
}

#[test]
fn tables_take_no_more_than_twelve_bytes_a_mapped_unit() {
    let mut large = drive(Wear::default());
    // The tables have a number for each program unit: where that is less than 16 KiB, they are larger.
    large.geometry.flash_page_bytes = 4 * UNIT;
    large.geometry.program_unit_bytes = 4 * UNIT;
    large.geometry.blocks_per_plane = 1024;
    large.geometry.pages_per_block = 128;
    large.geometry.over_provisioning_per_mille = 70;
    let ssd = Ssd::new(&large).expect("a drive");
    let units = ssd.shape().logical_units as usize;
    assert!(ssd.memory_bytes() <= 12 * units && ssd.memory_bytes() > ssd.mapping_bytes());
}
