//! The file system in the manner of ext4: the conformance suite with the production planner and mover.

use crate::support::Kind;
use crate::support::drives;
use crate::support::fixture::SimFixture;
use fragmend_apply::{Options as Run, Rate};
use fragmend_conformance::{apply_to, cases};
use fragmend_layout::{ByteRange, Volume};
use fragmend_plan::{Policy, Settings, Survey};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{InPlace, Options};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Primitive;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

/// It, without reservation, so that a file can be fragmented.
struct Ext4Like(Primitive);

fn options(machine: &Machine) -> Options {
    let mut options = Options::of(machine);
    (options.reservation, options.inodes) = (false, 512);
    options
}

impl Ext4Like {
    fn options(&self, machine: &Machine) -> Options {
        Options { primitive: self.0, ..options(machine) }
    }
}

impl Kind for Ext4Like {
    fn format(&self, machine: &Machine) -> Result<(), Error> {
        InPlace::format(machine, &self.options(machine)).map(drop)
    }

    fn mount(&self, machine: &Machine) -> Result<Rc<dyn FileSystem>, Error> {
        Ok(Rc::new(InPlace::mount(machine, &self.options(machine))?))
    }
}

macro_rules! conforms {
    ($($case:ident)*) => {
        mod copies { use super::*; $(#[test] fn $case() {
            let kind = Ext4Like(Primitive::Copy);
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
        mod by_block { use super::*; $(#[test] fn $case() {
            let kind = Ext4Like(Primitive::CopyByBlock);
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
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

/// ext4's ioctl waits for each block of a range that is not in the page cache, e4defrag's reads being of 4 KiB; a copy reads all of it at once.
#[test]
fn a_block_that_is_moved_by_itself_is_waited_for() {
    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 64;
    let moved = |primitive, cached| {
        let (machine, kind) = (drives::large(), Ext4Like(primitive));
        let fs = InPlace::format(&machine, &kind.options(&machine)).expect("it is made");
        let [file, other] =
            ["/file", "/other"].map(|path| fs.create(Path::new(path)).expect("an inode"));
        for block in 0..BLOCKS {
            for file in [file, other] {
                fs.write(file, ByteRange::at(block * BLOCK, BLOCK), Access::Direct).expect("space");
            }
        }
        fs.sync().expect("space");
        fs.drop_caches();
        if cached {
            fs.read(file, ByteRange::at(0, BLOCKS * BLOCK), Access::Buffered).expect("a file");
        }
        machine.wait_until_idle();
        let content = fs.content(file, 0..BLOCKS).expect("a file");
        let (before, (spent, _)) = (machine.counters(), machine.spent());
        let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
        let mut survey = Survey::of(&fs, None).expect("all files");
        survey.files.retain(|one| one.layout.file == file);
        let plan = fragmend_plan::make(survey, &settings);
        let free = Run { rate: Rate::Unlimited, ..Run::DEFAULT };
        let volume = || Box::new(fs.clone());
        apply_to(volume(), &machine, &plan, &free, &AtomicBool::new(false), &mut |_| {});
        let used = machine.counters().since(&before);
        assert_eq!(fs.content(file, 0..BLOCKS).expect("a file"), content);
        let layout = fs.layout(file, Path::new("")).expect("a file");
        assert_eq!(layout.fragments(ByteRange::at(0, BLOCKS * BLOCK)), 1);
        fs.check().expect("sound tables");
        (used.host_read, machine.spent().0.waiting - spent.waiting)
    };
    let (at_once, by_block) = (moved(Primitive::Copy, false), moved(Primitive::CopyByBlock, false));
    assert_eq!((at_once.0, by_block.0), (BLOCKS, BLOCKS));
    assert_eq!(moved(Primitive::CopyByBlock, true).0, 0, "it is in the page cache");
    // A sensing of the drive lasts 40 us, and four dies sense side by side.
    assert!(by_block.1 > at_once.1 + BLOCKS * 3 / 4 * 40_000, "{at_once:?} {by_block:?}");
}
