//! The file system in the manner of ext4: the conformance suite with the production planner and mover.

mod support;

use fragmend_conformance::cases;
use fragmend_layout::{ByteRange, Volume};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use std::path::Path;
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

/// With `mb_stream_req` as FAST'24's artefact sets it, what a processor writes follows what it wrote before, whatever the file, and a run of
/// 2 MiB is one processor's.
#[test]
fn if_all_files_are_small_each_processor_writes_to_a_run_of_its_own() {
    const BYTES: u64 = 128 << 10;
    const RUN: u64 = 2 << 20;
    let machine = drives::large();
    let mut options = options(&machine);
    (options.all_small, options.settings.delayed_allocation) = (true, false);
    let fs = InPlace::format(&machine, &options).expect("it is made");
    let files = ["a", "b", "c"].map(|name| fs.create(Path::new(name)).expect("an inode"));
    let write = |file: usize, range| {
        fs.write(files[file], range, Access::Buffered).expect("space");
        let layout = fs.layout(files[file], Path::new("")).expect("a file");
        let extent = layout.extents().iter().rev().find(|extent| extent.logical <= range.start);
        extent.map(|extent| extent.physical + range.start - extent.logical)
    };
    let (one, other) = (machine.present(), machine.add_program());
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for (n, file) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        ones.extend(write(file, ByteRange::at(n * BYTES, BYTES)));
        machine.switch_to(other);
        others.extend(write(2, ByteRange::at(others.len() as u64 * 4096, 4096)));
        machine.switch_to(one);
    }
    let run = |first: u64, bytes| (0..4).map(|n| first + n * bytes).collect::<Vec<_>>();
    assert_eq!((&ones, &others), (&run(ones[0], BYTES), &run(others[0], 4096)));
    assert!(ones[0] % RUN == 0 && others[0] % RUN == 0 && ones[0] != others[0]);
    fs.sync().expect("space");
    fs.check().expect("sound tables");
}
