//! Drives whose values are fitted to data sheets have what these state: throughput in order, and single units at random. (What janusd's drives
//! have beside that, a raised latency, is held against the paper by a test of `experiments/phone`.)

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::host::Host;
use fragmend_lab::random::Random;
use fragmend_lab::{presets, raw};

/// Units of 4 KiB of a call, and of what is read and written in order.
const CALL: u32 = 128;
const ALL: u32 = 64 * CALL;

fn mb_per_second(units: u32, ns: u64) -> f64 {
    f64::from(units) * 4096.0 / (ns as f64 / 1e9) / 1e6
}

/// MB/s of calls of 512 KiB, so many in flight as the host's queue is deep; reads of 4 KiB a second; MB/s of writes.
fn figures(name: &str) -> (f64, f64, f64) {
    let setup = presets::named(name).unwrap();
    let mut drive = setup.device();
    drive.precondition(Units::new(0, 16 * ALL)).unwrap();
    let depth = (setup.host.queue_depth as usize).min(32);
    let start = drive.idle_at();
    let in_order = (0..ALL / CALL).map(|call| Units::new(call * CALL, CALL));
    let (ns, mut random) = (setup.host.request_ns, Random::new(1, "clean"));
    // One call after the other costs the host its whole path; several in flight hide it.
    let read = if depth == 1 {
        let mut host = Host::new(&setup.host, &mut *drive, start);
        in_order.for_each(|units| host.read(&[units]).unwrap());
        host.now
    } else {
        raw::read_from(&mut *drive, start, in_order, depth, ns)
    };
    let from = drive.idle_at();
    let places = (0..1000).map(|_| Units::new(random.below(16 * ALL), 1));
    let singles = if depth == 1 {
        let mut host = Host::new(&setup.host, &mut *drive, from);
        places.for_each(|units| host.read(&[units]).unwrap());
        host.now
    } else {
        raw::read_from(&mut *drive, from, places, depth, ns)
    };
    let begin = drive.idle_at();
    let mut host = Host::new(&setup.host, &mut *drive, begin);
    (0..2 * ALL / CALL)
        .for_each(|n| host.write(&[Units::new(n * CALL, CALL)], Hint::None).unwrap());
    host.command(&Command::Flush).unwrap();
    let written = host.now - begin;
    let each = 1000.0 / ((singles - from) as f64 / 1e9);
    (mb_per_second(ALL, read - start), each, mb_per_second(2 * ALL, written))
}

#[test]
fn drives_are_as_fast_as_their_data_sheets_say() {
    for (name, read, singles, written) in [
        ("emmc-5.0", 250.0, 7_000.0, Some(90.0)),
        ("ufs-2.0", 350.0, 19_000.0, Some(150.0)),
        ("sd-kingston", 22.0, 733.0, None),
        ("ssd-intel-530", 540.0, 41_000.0, Some(490.0)),
    ] {
        let ours = figures(name);
        println!("{name}: {ours:?}");
        let near = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs() < 0.03;
        assert!(near(ours.0, read), "{name}: {} MB/s in order", ours.0);
        assert!(near(ours.1, singles), "{name}: {} reads a second", ours.1);
        assert!(
            written.is_none_or(|written| near(ours.2, written)),
            "{name}: {} MB/s written",
            ours.2
        );
    }
}

#[test]
fn janusds_drives_are_emmc_with_a_raised_latency_and_the_same_with_more_channels() {
    let [emmc, mmc, ufs] =
        ["emmc-5.0", "simmmc", "simufs"].map(|name| presets::named(name).unwrap());
    let (mut bare, mut fewer) = (mmc.flash().clone(), ufs.flash().clone());
    assert!(bare.timing.link_latency_ns > 0 && mmc.host.queue_depth == 1);
    bare.timing.link_latency_ns = 0;
    assert_eq!((&bare, &mmc.host), (emmc.flash(), &emmc.host));
    assert_eq!(fewer.geometry.channels, 2 * mmc.flash().geometry.channels);
    fewer.geometry.channels /= 2;
    fewer.geometry.blocks_per_plane *= 2;
    assert_eq!((&fewer, &ufs.host), (mmc.flash(), &mmc.host));
}
