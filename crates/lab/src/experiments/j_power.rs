//! janusd, section 4.1: a power cut at any point of a remap, a log flush, a journal commit, a compaction or a collection leaves file system
//! and mapping in agreement, with nothing lost.
//!
//! A load of programs' calls, and of moves by remaps, is cut before and after every command, at several instants, on a small drive that
//! collects and whose log is compacted soon; one mount in two is cut off, too. Each cut is a mount, a comparison with what must be durable,
//! a check of the tables, more of the load, and another cut. `simfs/tests/simulated/remaps` does the same at more than 100,000 states, and leaves out
//! each step of the protocol to see it fail.

use crate::experiment::{Experiment, Results};
use crate::row::{Band, Row};
use fragmend_flash::command::Units;
use fragmend_simfs::cuts::{Cuts, Found, Kind, Window, drives};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Primitive, Remap};
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "J-power",
    source: "janusd, section 4.1",
    about: "power cuts at every step of remaps and of their commit",
    is_long: false,
    run,
};

/// Blocks of the journal, and inodes.
const JOURNAL: u32 = 32;
const INODES: u32 = 16;
/// Steps of the load.
const STEPS: usize = 24;
/// Nanoseconds between a command and the cut: at once, while a log program is under way, after that, and as late as possible.
const INSTANTS: [u64; 4] = [0, 30_000, 220_000, u64::MAX / 4];

/// A small file system that moves files by remaps.
struct Remaps {
    shared: bool,
}

impl Remaps {
    fn options(&self, machine: &Machine) -> Options {
        let mut options = Options::of(machine);
        (options.blocks_per_group, options.journal_blocks, options.inodes) = (400, JOURNAL, INODES);
        (options.reservation, options.locality) = (false, false);
        options.settings.delayed_allocation = false;
        // Files are remapped once they are written, so that a short load has many remaps.
        options.defrag_on_write = true;
        options.primitive = Primitive::Remap(Remap { shared: self.shared, or_copy: false });
        options
    }
}

impl Kind for Remaps {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &self.options(machine))?;
        Ok(machine.flush()?)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &self.options(machine))?))
    }
}

fn machine(_: u64) -> Machine {
    Machine::new(Box::new(drives::written_with_short_log()), true, drives::path())
}

fn cuts(shared: bool, seed: u64) -> Found {
    let kind = &Remaps { shared };
    let (seeds, instants) = (seed..seed + 1, &INSTANTS);
    let (journal, mount_commands) = (Some(Units::new(1, JOURNAL)), 40);
    Cuts {
        kind,
        machine,
        seeds,
        steps: STEPS,
        instants,
        journal,
        mount_commands,
        ends_early: false,
    }
    .run()
}

fn run(seed: u64) -> Results {
    let mut rows = Vec::new();
    for (shared, name) in [(false, "exclusive"), (true, "shared")] {
        let found = cuts(shared, seed);
        let mut of = |what: &str, states: usize, disagreements: u64| {
            let what = format!("{name} remaps, {what}");
            rows.push(Row::ours(format!("{what}: distinct states"), "", states as f64));
            let wrong = disagreements as f64;
            rows.push(Row::new(format!("{what}: disagreements"), "", 0.0, wrong, Band::Exact));
        };
        of("all cuts", found.states.len(), found.disagreements.len() as u64);
        for (window, what) in [
            (Window::Remap, "during a remap"),
            (Window::LogFlush, "during a log flush"),
            (Window::LogCommit, "during the completion flag"),
            (Window::JournalCommit, "during a journal commit"),
            (Window::Compaction, "during a compaction"),
            (Window::Collection, "during collection"),
        ] {
            // A shared remap has no completion flag; what a seed's load does not meet has no row.
            if let Some(here) = found.windows.get(&window) {
                of(what, here.states.len(), here.disagreements);
            }
        }
    }
    Results { rows, plots: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_step_is_cut_and_nothing_disagrees() {
        let rows = run(42).rows;
        assert!(rows.iter().all(|row| row.within), "{rows:#?}");
        for what in ["remap", "log flush", "flag", "journal commit", "compaction", "collection"] {
            let states = |row: &&Row| row.name.contains(what) && row.name.contains("states");
            let met = rows.iter().find(states).unwrap_or_else(|| panic!("no cut during a {what}"));
            assert!(met.ours >= 4.0, "{met:?}");
        }
    }
}
