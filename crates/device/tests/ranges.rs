//! Files on a simulated drive: what was overwritten so that it came to be on one die is slow, whatever the extent map
//! says.

mod support;

use fragmend_device::probe::meter::Meter;
use fragmend_device::probe::ranges::{self, Mapping};
use fragmend_device::probe::{self, Options, intervals::CannotTell};
use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_lab::measured::{WRITTEN, written};
use fragmend_lab::presets;
use std::time::Duration;
use support::Simulated;

const MIB: u64 = 1 << 20;

#[test]
fn what_was_overwritten_is_slow_although_it_is_contiguous() {
    for (name, stripe_units) in [("nvme-a", 32), ("sata-b", 16)] {
        let drive = presets::named(name).expect("a drive");
        let unit = drive.flash().geometry.stripe_unit_bytes / 4096;
        let mut ssd = written(drive.flash(), WRITTEN);
        // FAST'24's worst case: a stripe unit of the file, then others' data on all other dies.
        let (file, dummy) = (64 * 256_u32, 200 * 256_u32);
        for n in 0..8 * 256 / unit {
            ssd.precondition(Units::new(file + n * unit, unit)).expect("space");
            ssd.precondition(Units::new(dummy, (stripe_units - 1) * unit)).expect("space");
        }
        let mut drive = Simulated::of(&drive);
        drive.device = Box::new(ssd);
        let no_geometry = Some(CannotTell::NotAsked);
        // The drive is probed where nothing was overwritten.
        let within = vec![0..60 * MIB, 80 * MIB..190 * MIB];
        let options = Options { no_geometry, within, ..Options::default() };
        let costs =
            probe::probe(&mut drive, &options, &|| false, &mut |_| {}).expect("a drive").costs;
        let mapping =
            |n: u64| Mapping { range: n * MIB..(n + 1) * MIB, fragments: 1, physical: n * MIB };
        let mappings: Vec<Mapping> = (40..100).map(mapping).collect();
        let limits = ranges::most(&drive, &mappings, Duration::from_secs(60));
        let mut meter = Meter::new(&mut drive, limits, &|| false);
        let parts = ranges::measure(&mut meter, 3, (mappings, 60 * MIB), &costs).expect("reads");
        assert!(parts.complete && meter.spent().requests <= limits.requests);
        let slow: Vec<u64> = parts
            .parts
            .iter()
            .filter(|part| part.is_slow_inside())
            .map(|part| part.range.start / MIB)
            .collect();
        assert_eq!(slow, (64..72).collect::<Vec<_>>(), "{name}");
        let ratios: Vec<f64> = parts.parts.iter().map(ranges::Part::ratio).collect();
        println!("{name}: {:.2} in order, {:.2} overwritten", ratios[0], ratios[30]);
    }
}
