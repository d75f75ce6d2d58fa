//! Each barrier is left out once, and the power cuts find that.

use super::Segments;
use super::cuts::busy;
use super::drives::{small, small_zoned, small_zones, tight_lossy};
use crate::support::Kind;
use crate::support::cuts::{Cuts, Found};
use fragmend_layout::ByteRange;
use fragmend_simfs::file_system::Access;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{Barrier, CopyOrder, Discard, Settings, Victims};
use std::path::Path;

fn cut(settings: Settings, machine: fn(u64) -> Machine) -> Found {
    cut_kind(&Segments::new(settings), machine)
}

fn cut_kind(kind: &Segments, machine: fn(u64) -> Machine) -> Found {
    Cuts { ends_early: true, ..Cuts::new(kind, machine, 0..40, 60, &[0]) }.run()
}

/// Parameters under which a barrier matters often.
fn parameters(barrier: Barrier) -> Settings {
    let settings = Settings { omit: Some(barrier), discard: Discard::Blocks, ..small() };
    match barrier {
        Barrier::CopiesBeforeNodes => {
            Settings { cleaning: busy(Victims::Greedy, CopyOrder::Original, 1), ..settings }
        }
        _ => settings,
    }
}

#[test]
fn each_barrier_that_is_left_out_is_found() {
    let own = [Barrier::VersionInChain, Barrier::CopiesBeforeFlush];
    for barrier in Barrier::ALL.into_iter().filter(|barrier| !own.contains(barrier)) {
        let found = cut(parameters(barrier), tight_lossy);
        eprintln!("{barrier:?}: {} cuts, {:?}", found.cuts, found.disagreements);
        assert_ne!(found.disagreements, [] as [String; 0], "{barrier:?}");
    }
}

/// Makes a block durable again and again, by fsyncs and checkpoints, until its nodes have been in each section several times and old
/// ones, which are not discarded, are behind the log's end; and mounts after each checkpoint.
fn old_nodes_behind_the_log(omit: Option<Barrier>) -> Result<(), String> {
    let settings = Settings { omit, discard: Discard::Never, ..small() };
    let kind = Segments::new(settings);
    let machine = tight_lossy(1);
    kind.format(&machine).expect("it is made");
    let mut fs = kind.mount(&machine).expect("it is mounted");
    let file = fs.create(Path::new("/file")).expect("a new file");
    let range = ByteRange::at(0, fs.block_bytes());
    for turn in 0..1500 {
        fs.write(file, range, Access::Buffered).map_err(|error| error.to_string())?;
        fs.sync_file(file).map_err(|error| error.to_string())?;
        if turn % 7 == 6 {
            fs.sync().map_err(|error| error.to_string())?;
            let content = fs.content(file, 0..1).map_err(|error| error.to_string())?;
            machine.restart(0);
            fs = kind.mount(&machine).map_err(|error| error.to_string())?;
            fs.check()?;
            if fs.content(file, 0..1) != Ok(content) {
                return Err(format!("turn {turn}: an old node was rolled forward"));
            }
        }
    }
    Ok(())
}

#[test]
fn nodes_older_than_the_checkpoint_are_not_rolled_forward() {
    assert_eq!(old_nodes_behind_the_log(None), Ok(()));
    let found = old_nodes_behind_the_log(Some(Barrier::VersionInChain));
    assert!(found.is_err(), "an older version is needed to find it");
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
        let settings = Settings { omit: Some(barrier), ..small_zones() };
        let found = cut(settings, small_zoned);
        eprintln!("{barrier:?}: {} cuts, {:?}", found.cuts, found.disagreements);
        assert_ne!(found.disagreements, [] as [String; 0], "{barrier:?}");
    }
}

/// A drive that copies by itself loses what it has not completed.
#[test]
fn copies_that_are_not_waited_for_are_found() {
    let omit = Some(Barrier::CopiesBeforeFlush);
    let found = cut_kind(&Segments::in_device(Settings { omit, ..small_zones() }), small_zoned);
    eprintln!("{} cuts, {:?}", found.cuts, found.disagreements);
    assert_ne!(found.disagreements, [] as [String; 0]);
}
