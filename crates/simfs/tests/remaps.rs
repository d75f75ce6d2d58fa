//! Moves by remapping in the drive, on both kinds of file systems: conformance, receipts, power cuts.

mod support;

use fragmend_apply::{Options, Rate};
use fragmend_conformance::{Fixture, cases};
use fragmend_plan::{Policy, Settings, Survey};
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Omit, Primitive};
use std::rc::Rc;
use support::cuts::{Cuts, Found};
use support::fixture::SimFixture;
use support::{Kind, drives};

/// The one or the other.
#[derive(Clone, Copy, Debug)]
struct Remapped {
    is_cow: bool,
    is_small: bool,
    shared: bool,
    omit: Option<Omit>,
}

impl Remapped {
    fn inplace(&self, machine: &Machine) -> inplace::Options {
        let mut options = inplace::Options::of(machine);
        (options.reservation, options.inodes) = (false, 512);
        if self.is_small {
            (options.blocks_per_group, options.journal_blocks, options.inodes) = (700, 48, 16);
        }
        options.settings.primitive = Primitive::Remap { shared: self.shared };
        options.settings.omit = self.omit;
        options
    }

    fn cow(&self, machine: &Machine) -> cow::Options {
        let mut options = cow::Options::of(machine);
        options.settings.primitive = Primitive::Remap { shared: self.shared };
        options.settings.omit = self.omit;
        options
    }
}

impl Kind for Remapped {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        if self.is_cow {
            Cow::format(machine, &self.cow(machine)).map(drop)?;
        } else {
            InPlace::format(machine, &self.inplace(machine)).map(drop)?;
        }
        machine.flush()?;
        Ok(())
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        if self.is_cow {
            Ok(Rc::new(Cow::mount(machine, &self.cow(machine))?))
        } else {
            Ok(Rc::new(InPlace::mount(machine, &self.inplace(machine))?))
        }
    }

    fn shares(&self) -> bool {
        self.is_cow
    }

    fn moves_often(&self) -> bool {
        true
    }
}

const SHARED: Remapped = Remapped { is_cow: false, is_small: false, shared: true, omit: None };
const EXCLUSIVE: Remapped = Remapped { shared: false, ..SHARED };
const ALL: [Remapped; 4] = [
    SHARED,
    Remapped { is_cow: true, ..SHARED },
    EXCLUSIVE,
    Remapped { is_cow: true, ..EXCLUSIVE },
];

fn fixture(kind: Remapped) -> SimFixture<Remapped> {
    SimFixture::new(kind, drives::large(), 128 << 10)
}

#[test]
fn the_cases_of_moves_hold() {
    let all: [fn(&dyn Fixture); 6] = [
        cases::fragments_are_joined,
        cases::a_part_moves_and_the_rest_stays,
        cases::holes_unwritten_space_and_the_end_stay,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        cases::space_is_returned_after_a_move,
        cases::what_is_slow_in_one_extent_is_written_anew,
    ];
    for kind in ALL {
        all.iter().for_each(|case| case(&fixture(kind)));
    }
}

/// A receipt names the primitive; what was remapped was neither read nor written.
#[test]
fn remapped_data_is_not_copied() {
    for kind in ALL {
        let fixture = fixture(kind);
        let path = fixture.fragmented("file", 1 << 20);
        let machine = fixture.mounted().machine().clone();
        let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
        let plan =
            fragmend_plan::make(Survey::of(&*fixture.volume(), None).expect("all"), &settings);
        let options = Options { rate: Rate::Unlimited, ..Options::DEFAULT };
        let before = machine.counters();
        let (summary, receipts) = fixture.apply(&plan, &options);
        let after = machine.counters();
        assert_eq!((summary.ranges_moved, summary.moved_bytes), (1, 1 << 20), "{kind:?}");
        let named = format!("{receipts:?}");
        assert!(named.contains(Primitive::Remap { shared: kind.shared }.name()), "{named}");
        assert!(!named.contains(Primitive::Copy.name()), "{named}");
        assert_eq!(after.host_read, before.host_read, "{kind:?}");
        assert!(after.host_written - before.host_written < 40, "{kind:?}: metadata alone");
        let layout = fixture.volume().layout(fixture.identity(&path), &path).expect("its layout");
        assert_eq!(layout.extents().len(), 1);
    }
}

fn cuts(kind: &dyn Kind, seeds: std::ops::Range<u64>, ends_early: bool) -> Found {
    // What is left out shows while the log is being programmed.
    let instants: &[u64] =
        if ends_early { &[220_000] } else { &[0, 30_000, 220_000, u64::MAX / 4] };
    let machine = drives::small_ssd;
    Cuts { kind, machine, seeds, steps: 40, instants, ends_early }.run()
}

#[test]
fn power_cuts_lose_nothing_that_was_synced() {
    for kind in ALL {
        cuts(&Remapped { is_small: true, ..kind }, 1..2, false).assert_agrees(300);
    }
}

/// The same at very many cuts.
#[test]
#[ignore = "minutes: cargo test -p fragmend-simfs --test remaps -- --ignored"]
fn very_many_power_cuts_lose_nothing_that_was_synced() {
    for kind in ALL {
        cuts(&Remapped { is_small: true, ..kind }, 100..110, false).assert_agrees(4_000);
    }
}

/// Each step of the protocol between the drive's log and the commit that is left out costs something at some cut.
#[test]
fn every_barrier_is_needed() {
    let mut all = ALL.map(|kind| (Omit::FlushOfRemaps, kind)).to_vec();
    for omit in [Omit::CommitOfRemaps, Omit::MarkOfRemaps, Omit::UnmarkBeforeRemap] {
        all.extend([EXCLUSIVE, Remapped { is_cow: true, ..EXCLUSIVE }].map(|kind| (omit, kind)));
    }
    let mut missed = Vec::new();
    for (omit, kind) in all {
        let kind = Remapped { is_small: true, omit: Some(omit), ..kind };
        let found = cuts(&kind, 1..9, true);
        println!("{kind:?}: after {} cuts: {:?}", found.cuts, found.disagreements);
        if found.disagreements.is_empty() {
            missed.push(kind);
        }
    }
    assert!(missed.is_empty(), "their lack was not noticed: {missed:?}");
}
