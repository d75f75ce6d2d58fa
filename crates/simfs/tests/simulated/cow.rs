//! The file system in the manner of Btrfs: the conformance suite with the production planner and mover.

use crate::support::Kind;
use crate::support::drives;
use crate::support::fixture::SimFixture;
use fragmend_conformance::cases;
use fragmend_layout::{ByteRange, FileId, Volume};
use fragmend_simfs::cow::{Cow, Options};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

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

/// As on Btrfs, whose log tree leaves it pinned.
#[test]
fn what_syncs_of_a_file_free_is_allocated_again_after_the_next_commit_of_all() {
    let machine = drives::large();
    let files = Cow::format(&machine, &Options::of(&machine)).unwrap();
    let write = |file: FileId| {
        files.write(file, ByteRange::at(0, 4096), Access::Buffered).unwrap();
        files.sync_file(file).unwrap();
        files.layout(file, Path::new("")).unwrap().extents()[0].physical
    };
    let file = files.create(Path::new("/file")).unwrap();
    let places: BTreeSet<u64> = (0..20).map(|_| write(file)).collect();
    assert_eq!(places.len(), 20, "none was used twice");
    assert_eq!(files.check(), Ok(()));
    files.sync().unwrap();
    assert_eq!(files.check(), Ok(()));
    let other = files.create(Path::new("/other")).unwrap();
    assert_eq!(Some(&write(other)), places.first());
    // Nor is space refused while there is some.
    let most = files.free_bytes().unwrap() / 2;
    for _ in 0..6 {
        files.write(other, ByteRange::at(0, most), Access::Buffered).unwrap();
        files.sync_file(other).unwrap();
    }
    assert_eq!(files.check(), Ok(()));
}
