//! The file system in the manner of ext4: the conformance suite with the production planner and mover.

mod support;

use fragmend_conformance::cases;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use std::rc::Rc;
use support::Kind;
use support::drives;
use support::fixture::SimFixture;

/// It, without reservation, so that a file can be fragmented.
struct Ext4Like;

fn options(machine: &Machine) -> Options {
    let mut options = Options::of(machine);
    (options.reservation, options.inodes) = (false, 512);
    options
}

impl Kind for Ext4Like {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &options(machine)).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &options(machine))?))
    }
}

macro_rules! conforms {
    ($($case:ident)*) => {
        $(#[test] fn $case() {
            cases::$case(&SimFixture::new(Ext4Like, drives::large(), 128 << 10));
        })*
    };
}

fragmend_conformance::cases_in_steps! { conforms }
