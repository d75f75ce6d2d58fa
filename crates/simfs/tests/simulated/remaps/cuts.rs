//! Power cuts (J-power): file system and mapping agree at every command, in its beginning, its middle and its end.

use super::{EXCLUSIVE, Moves, SHARED};
use crate::support::cuts::{Cuts, Found, Window};
use crate::support::drives;
use fragmend_simfs::mounted::{Omit, Primitive};
use std::ops::Range;

fn cuts(by: Primitive, omit: Option<Omit>, seeds: Range<u64>, steps: usize) -> Found {
    cuts_of(&Moves { by, small: Some((32, 16)), omit, beyond: false }, seeds, steps)
}

fn cuts_of(kind: &Moves, seeds: Range<u64>, steps: usize) -> Found {
    let (machine, journal) = (drives::short_log, kind.journal());
    let instants = &[0, 30_000, 220_000, u64::MAX / 4];
    // The mount checks, replays and discards with some thirty.
    let (mount_commands, ends_early) = (40, kind.omit.is_some());
    Cuts { kind, machine, seeds, steps, instants, journal, mount_commands, ends_early }.run()
}

/// Cuts were made while the drive did each of these.
fn assert_met(found: &Found, windows: &[Window]) {
    for window in windows {
        let here = found.windows.get(window);
        assert!(here.is_some_and(|here| here.cuts >= 8), "{window:?}: {here:?}");
    }
}

const OF_EXCLUSIVE: [Window; 6] = [
    Window::Remap,
    Window::LogFlush,
    Window::LogCommit,
    Window::JournalCommit,
    Window::Compaction,
    Window::Collection,
];
const OF_SHARED: [Window; 5] = [
    Window::Remap,
    Window::LogFlush,
    Window::JournalCommit,
    Window::Compaction,
    Window::Collection,
];

#[test]
fn file_system_and_mapping_agree_after_exclusive_remaps() {
    let found = cuts(EXCLUSIVE, None, 1..4, 80);
    found.assert_agrees(1500);
    assert_met(&found, &OF_EXCLUSIVE);
}

#[test]
fn file_system_and_mapping_agree_after_shared_remaps() {
    let found = cuts(SHARED, None, 1..4, 80);
    found.assert_agrees(1500);
    assert_met(&found, &OF_SHARED);
}

/// Files are remapped once they are written, and free space is gathered, beside all else.
#[test]
fn they_agree_where_files_and_free_space_are_joined_by_remaps() {
    for by in [EXCLUSIVE, SHARED] {
        let kind = Moves { by, small: Some((32, 16)), omit: None, beyond: true };
        let found = cuts_of(&kind, 11..12, 30);
        found.assert_agrees(250);
        assert_met(&found, &[Window::Remap, Window::LogFlush]);
    }
}

/// Each step of the commit protocol that is left out, or out of order, costs something at some cut.
#[test]
fn every_step_of_the_protocol_is_needed() {
    let missed: Vec<(Primitive, Omit)> = [
        (EXCLUSIVE, Omit::LogFlush),
        (EXCLUSIVE, Omit::LogCommit),
        (EXCLUSIVE, Omit::LogCommitLast),
        (EXCLUSIVE, Omit::LogDiscard),
        (EXCLUSIVE, Omit::RollBack),
        (EXCLUSIVE, Omit::RollBackFirst),
        (EXCLUSIVE, Omit::JournalSettled),
        (EXCLUSIVE, Omit::FreeAfterCommit),
        (EXCLUSIVE, Omit::TrimAfterCommit),
        (SHARED, Omit::LogFlush),
        (SHARED, Omit::FreeAfterCommit),
        (SHARED, Omit::TrimAfterCommit),
    ]
    .into_iter()
    .filter(|(by, omit)| {
        let found = cuts(*by, Some(*omit), 1..9, 80);
        println!("{by:?}, {omit:?}: after {} cuts: {:?}", found.cuts, found.disagreements);
        found.disagreements.is_empty()
    })
    .collect();
    assert_eq!(missed, [], "their lack was not noticed");
}

/// At least 100,000 distinct states.
#[test]
#[ignore = "minutes: cargo test -p fragmend-simfs --test simulated remaps -- --ignored --nocapture"]
fn file_system_and_mapping_agree_at_each_of_very_many_cuts() {
    let (exclusive, shared) = std::thread::scope(|scope| {
        let shared = scope.spawn(|| cuts(SHARED, None, 100..140, 120));
        (cuts(EXCLUSIVE, None, 100..140, 120), shared.join().expect("it ends"))
    });
    exclusive.assert_agrees(40_000);
    assert_met(&exclusive, &OF_EXCLUSIVE);
    shared.assert_agrees(40_000);
    assert_met(&shared, &OF_SHARED);
    let all = exclusive.states.union(&shared.states).count();
    println!("{all} distinct states of both");
    assert!(all >= 100_000, "{all} distinct states");
}
