//! The file system in the manner of Btrfs: the conformance suite with the production planner and mover.

mod support;

use fragmend_conformance::cases;
use fragmend_simfs::cow::{Cow, Options};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use fragmend_simfs::machine::Machine;
use std::rc::Rc;
use support::Kind;
use support::drives;
use support::fixture::SimFixture;

/// It.
struct BtrfsLike;

impl Kind for BtrfsLike {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        Cow::format(machine, &Options::of(machine)).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(Cow::mount(machine, &Options::of(machine))?))
    }

    fn shares(&self) -> bool {
        true
    }
}

macro_rules! conforms {
    ($($case:ident)*) => {
        $(#[test] fn $case() {
            cases::$case(&SimFixture::new(BtrfsLike, drives::large(), 128 << 10));
        })*
    };
}

fragmend_conformance::cases_in_steps! { conforms what_is_shared_moves_only_if_that_is_asked_for }
