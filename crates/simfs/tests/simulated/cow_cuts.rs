//! Power cuts of the file system in the manner of Btrfs, at every command of a load; and each barrier left out.

use crate::support::Kind;
use crate::support::cuts::{Cuts, Found};
use crate::support::drives;
use fragmend_simfs::cow::{Cow, Options};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Omit;
use std::ops::Range;
use std::rc::Rc;

/// A small one, whose files are in leaves.
#[derive(Clone, Copy, Default)]
struct Small {
    delayed_allocation: bool,
    nocow: bool,
    omit: Option<Omit>,
}

impl Small {
    fn options(&self, machine: &Machine) -> Options {
        let mut options = Options::of(machine);
        options.nocow = self.nocow;
        options.settings.delayed_allocation = self.delayed_allocation;
        options.settings.omit = self.omit;
        options
    }
}

impl Kind for Small {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        Cow::format(machine, &self.options(machine)).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(Cow::mount(machine, &self.options(machine))?))
    }

    fn shares(&self) -> bool {
        true
    }
}

fn cuts(kind: &Small, machine: fn(u64) -> Machine, seeds: Range<u64>, steps: usize) -> Found {
    let instants = &[0, 30_000, 220_000, u64::MAX / 4];
    let ends_early = kind.omit.is_some();
    Cuts { ends_early, ..Cuts::new(kind, machine, seeds, steps, instants) }.run()
}

const DELAYED: Small = Small { delayed_allocation: true, nocow: false, omit: None };
const AT_ONCE: Small = Small { delayed_allocation: false, ..DELAYED };
const NOCOW: Small = Small { nocow: true, ..AT_ONCE };

#[test]
fn nothing_synced_is_lost_on_a_drive_that_loses_any_part() {
    cuts(&DELAYED, drives::small_lossy, 1..4, 60).assert_agrees(1000);
    cuts(&NOCOW, drives::small_lossy, 4..6, 60).assert_agrees(1000);
}

#[test]
fn nothing_synced_is_lost_on_flash() {
    cuts(&AT_ONCE, drives::small_ssd, 1..3, 60).assert_agrees(500);
}

/// Each step of the commit protocol that is left out costs something at some cut.
#[test]
fn every_barrier_is_needed() {
    let all = [
        (Omit::OrderedData, AT_ONCE),
        (Omit::FlushBeforeCommit, AT_ONCE),
        (Omit::FlushAfterCommit, AT_ONCE),
        (Omit::FreeAfterCommit, AT_ONCE),
        (Omit::TrimAfterCommit, AT_ONCE),
        (Omit::DonorBeforeExchange, AT_ONCE),
        (Omit::SuperLast, AT_ONCE),
        (Omit::Unshare, NOCOW), // the fourth load shows it
        (Omit::FlushOfOverwrites, NOCOW),
    ];
    let missed: Vec<Omit> = all
        .into_iter()
        .filter(|(omit, kind)| {
            let kind = Small { omit: Some(*omit), ..*kind };
            let found = cuts(&kind, drives::small_lossy, 1..9, 60);
            println!("{omit:?}: after {} cuts: {:?}", found.cuts, found.disagreements);
            found.disagreements.is_empty()
        })
        .map(|(omit, _)| omit)
        .collect();
    assert_eq!(missed, [], "their lack was not noticed");
}

/// The same at tens of thousands of cuts.
#[test]
#[ignore = "minutes: cargo test -p fragmend-simfs --test simulated cow_cuts -- --ignored"]
fn nothing_synced_is_lost_at_any_of_very_many_cuts() {
    let lossy: fn(u64) -> Machine = drives::small_lossy;
    for (kind, machine) in
        [(DELAYED, lossy), (AT_ONCE, lossy), (NOCOW, lossy), (DELAYED, drives::small_ssd)]
    {
        cuts(&kind, machine, 100..110, 80).assert_agrees(5_000);
    }
}
