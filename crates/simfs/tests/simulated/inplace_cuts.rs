//! Power cuts of the file system in the manner of ext4, at every command of a load; and each barrier left out.

use crate::support::Kind;
use crate::support::cuts::{Cuts, Found};
use crate::support::drives;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Omit, Primitive};
use std::ops::Range;
use std::rc::Rc;

/// A small one: two groups, a journal that wraps now and then, files in leaves.
#[derive(Clone, Copy, Default)]
struct Small {
    delayed_allocation: bool,
    reservation: bool,
    omit: Option<Omit>,
    /// Blocks of the journal, or 0 for those of most tests.
    journal: u32,
    /// Whether the journal is on a drive of its own, and all files are small.
    apart: bool,
    /// Whether data moves block by block.
    by_block: bool,
}

impl Small {
    fn options(&self, machine: &Machine) -> Options {
        let mut options = Options::of(machine);
        (options.blocks_per_group, options.journal_blocks, options.inodes) = (700, 48, 16);
        if self.journal > 0 {
            options.journal_blocks = self.journal;
        }
        (options.reservation, options.locality) = (self.reservation, self.reservation);
        if self.apart {
            options.journal_blocks = drives::APART;
            (options.journal_last, options.locality, options.all_small) = (true, true, true);
        }
        options.settings.delayed_allocation = self.delayed_allocation;
        options.settings.omit = self.omit;
        if self.by_block {
            options.primitive = Primitive::CopyByBlock;
        }
        options
    }
}

impl Kind for Small {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &self.options(machine))?;
        machine.flush()?;
        Ok(())
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &self.options(machine))?))
    }
}

fn cuts(kind: &Small, machine: fn(u64) -> Machine, seeds: Range<u64>, steps: usize) -> Found {
    let instants = &[0, 30_000, 220_000, u64::MAX / 4];
    let ends_early = kind.omit.is_some();
    Cuts { ends_early, ..Cuts::new(kind, machine, seeds, steps, instants) }.run()
}

const AT_ONCE: Small = Small {
    delayed_allocation: false,
    reservation: false,
    omit: None,
    journal: 0,
    apart: false,
    by_block: false,
};
const DELAYED: Small = Small {
    delayed_allocation: true,
    reservation: true,
    omit: None,
    journal: 0,
    apart: false,
    by_block: false,
};
/// As FAST'24's artefact mounts it.
const APART: Small = Small { apart: true, ..AT_ONCE };

#[test]
fn nothing_synced_is_lost_on_a_drive_that_loses_any_part() {
    cuts(&DELAYED, drives::small_lossy, 1..4, 60).assert_agrees(1000);
    cuts(&AT_ONCE, drives::small_lossy, 4..6, 60).assert_agrees(1000);
}

#[test]
fn nothing_synced_is_lost_where_data_moves_block_by_block() {
    let by_block = Small { by_block: true, ..DELAYED };
    cuts(&by_block, drives::small_lossy, 6..8, 60).assert_agrees(600);
}

#[test]
fn nothing_synced_is_lost_where_the_journal_is_on_a_drive_of_its_own() {
    cuts(&APART, drives::two_lossy, 1..3, 60).assert_agrees(600);
}

#[test]
fn nothing_synced_is_lost_on_flash() {
    cuts(&DELAYED, drives::small_ssd, 1..3, 60).assert_agrees(500);
}

/// Each step of the commit protocol that is left out costs something at some cut.
#[test]
fn every_barrier_is_needed() {
    // Each with the first load that shows it.
    let all = [
        (Omit::OrderedData, 1),
        (Omit::FlushBeforeCommit, 1),
        (Omit::FlushAfterCommit, 1),
        (Omit::FreeAfterCommit, 1),
        (Omit::TrimAfterCommit, 1),
        (Omit::DonorBeforeExchange, 1),
        (Omit::FlushBeforeTail, 1),
        (Omit::FlushAfterTail, 2),
        (Omit::Revoke, 4),
        (Omit::Forget, 1),
        (Omit::FlushOfOverwrites, 1),
    ];
    let missed: Vec<Omit> = all
        .into_iter()
        .filter(|(omit, seed)| {
            // In a short journal what is replayed wrongly is soon met.
            let journal = if *omit == Omit::FlushAfterTail { 24 } else { 0 };
            let kind = Small { omit: Some(*omit), journal, ..AT_ONCE };
            let found = cuts(&kind, drives::small_lossy, *seed..seed + 8, 60);
            println!("{omit:?}: after {} cuts: {:?}", found.cuts, found.disagreements);
            found.disagreements.is_empty()
        })
        .map(|(omit, _)| omit)
        .collect();
    assert_eq!(missed, [], "their lack was not noticed");
}

/// The same at tens of thousands of cuts.
#[test]
#[ignore = "minutes: cargo test -p fragmend-simfs --test simulated inplace_cuts -- --ignored"]
fn nothing_synced_is_lost_at_any_of_very_many_cuts() {
    let lossy: fn(u64) -> Machine = drives::small_lossy;
    let short = Small { journal: 24, ..AT_ONCE };
    for (kind, machine) in
        [(DELAYED, lossy), (AT_ONCE, lossy), (short, lossy), (DELAYED, drives::small_ssd)]
    {
        cuts(&kind, machine, 100..110, 80).assert_agrees(5_000);
    }
}
