//! Each barrier is left out once, and the power cuts find that.

use crate::Segments;
use crate::drives::{small, small_zoned, small_zones, tight_lossy};
use crate::support::cuts::{Cuts, Found};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{Barrier, Discard, Settings};

fn cut(settings: Settings, machine: fn(u64) -> Machine) -> Found {
    let kind = Segments::new(settings);
    Cuts {
        kind: &kind,
        machine,
        seeds: 0..12,
        steps: 60,
        instants: &[0],
        journal: None,
        mount_commands: 6,
        ends_early: true,
    }
    .run()
}

#[test]
fn each_barrier_that_is_left_out_is_found() {
    for barrier in Barrier::ALL {
        let without = Some(barrier);
        let settings = Settings { without, discard: Discard::Blocks, ..small() };
        let found = cut(settings, tight_lossy);
        eprintln!("{barrier:?}: {} cuts, {:?}", found.cuts, found.disagreements);
        assert_ne!(found.disagreements, [] as [String; 0], "{barrier:?}");
    }
}

/// On a drive that keeps whatever it has acknowledged, flushes do not matter; order and reuse do.
#[test]
fn in_zones_too() {
    let barriers = [
        Barrier::NodesBeforeCheckpoint,
        Barrier::NodesInTable,
        Barrier::SectionsInTable,
        Barrier::HeldUntilCheckpoint,
        Barrier::DiscardAfterCheckpoint,
        Barrier::CheckpointForNames,
    ];
    for barrier in barriers {
        let settings = Settings { without: Some(barrier), ..small_zones() };
        let found = cut(settings, small_zoned);
        eprintln!("{barrier:?}: {} cuts, {:?}", found.cuts, found.disagreements);
        assert_ne!(found.disagreements, [] as [String; 0], "{barrier:?}");
    }
}
