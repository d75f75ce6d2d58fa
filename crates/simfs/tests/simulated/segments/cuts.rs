//! Power cuts at every command of loads, with the mover and the cleaner at work.

use super::Segments;
use super::drives::{small, small_zoned, small_zones, tight_lossy};
use crate::support::cuts::Cuts;
use crate::support::drives::small_ssd;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::{Cleaning, CopyOrder, Discard, Settings, Victims};
use std::ops::Range;

/// Cuts loads everywhere; returns how many cuts there were, and how many blocks the cleaner has copied.
fn cut(
    settings: Settings,
    machine: fn(u64) -> Machine,
    seeds: Range<u64>,
    steps: usize,
    instants: &[u64],
) -> (u64, u64) {
    cut_kind(&Segments::new(settings), machine, seeds, steps, instants)
}

fn cut_kind(
    kind: &Segments,
    machine: fn(u64) -> Machine,
    seeds: Range<u64>,
    steps: usize,
    instants: &[u64],
) -> (u64, u64) {
    let cuts = Cuts::new(kind, machine, seeds, steps, instants);
    let found = Cuts { ends_early: true, ..cuts }.run();
    eprintln!("{} cuts, {} states, {} copied", found.cuts, found.states.len(), kind.copied());
    assert_eq!(found.disagreements, [] as [String; 0]);
    (found.cuts, kind.copied())
}

#[test]
fn nothing_durable_is_lost_on_a_drive_that_loses_all_else() {
    cut(small(), tight_lossy, 0..6, 40, &[0]);
}

/// A cleaner that works all the time.
pub fn busy(victims: Victims, order: CopyOrder, batch: u32) -> Cleaning {
    Cleaning { foreground: victims, background: victims, every_ns: 200_000, order, batch }
}

#[test]
fn nothing_durable_is_lost_while_the_cleaner_works() {
    let sorted = busy(Victims::FragmentationAware { candidates: 4 }, CopyOrder::Inode, 2);
    for (cleaning, discard) in [
        (sorted, Discard::Blocks),
        (busy(Victims::Greedy, CopyOrder::Original, 1), Discard::Sections),
        (busy(Victims::CostBenefit, CopyOrder::Inode, 1), Discard::Never),
    ] {
        let settings = Settings { cleaning, discard, ..small() };
        let (_, copied) = cut(settings, tight_lossy, 0..3, 50, &[0]);
        assert!(copied > 1000, "{copied} blocks copied");
    }
}

#[test]
fn nothing_durable_is_lost_in_place() {
    cut(Settings { in_place: true, ..small() }, tight_lossy, 0..4, 40, &[0]);
}

#[test]
fn nothing_durable_is_lost_on_flash() {
    cut(small(), small_ssd, 0..3, 30, &[0, 150_000]);
}

#[test]
fn nothing_durable_is_lost_in_zones() {
    let cleaning = busy(Victims::FragmentationAware { candidates: 4 }, CopyOrder::Inode, 1);
    let settings = Settings { cleaning, ..small_zones() };
    let (_, copied) = cut(settings, small_zoned, 0..4, 60, &[0]);
    assert!(copied > 1000, "{copied} blocks copied");
}

#[test]
fn nothing_durable_is_lost_while_the_drive_copies() {
    let kind = Segments::in_device(small_zones());
    let (_, copied) = cut_kind(&kind, small_zoned, 4..7, 60, &[0, 120_000]);
    assert!(copied > 1000, "{copied} blocks copied");
}

#[test]
#[ignore = "minutes: cargo test --release -p fragmend-simfs --test simulated tens_of_thousands -- --ignored --nocapture"]
fn tens_of_thousands_of_states() {
    let sorted = busy(Victims::FragmentationAware { candidates: 4 }, CopyOrder::Inode, 2);
    let greedy = busy(Victims::Greedy, CopyOrder::Original, 1);
    let discard = Discard::Blocks;
    cut(Settings { cleaning: sorted, discard, ..small() }, tight_lossy, 100..140, 80, &[0]);
    cut(Settings { cleaning: greedy, ..small() }, tight_lossy, 200..240, 80, &[0]);
    cut(Settings { in_place: true, ..small() }, tight_lossy, 300..320, 80, &[0]);
    cut(Settings { cleaning: sorted, ..small() }, small_ssd, 400..410, 60, &[0, 40_000, 250_000]);
    cut(Settings { cleaning: sorted, ..small_zones() }, small_zoned, 500..540, 80, &[0]);
    let in_device = Segments::in_device(Settings { cleaning: greedy, ..small_zones() });
    cut_kind(&in_device, small_zoned, 600..640, 80, &[0]);
}
