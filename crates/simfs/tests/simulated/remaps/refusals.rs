//! What moved a file, what the drive wrote for it, and what happens where the drive does not remap.

use super::{EXCLUSIVE, Moves, SHARED};
use crate::support::{Kind, Seen, drives, lossy::Lossy};
use fragmend_apply::{Options, Rate, Receipt, Volumes};
use fragmend_layout::{ByteRange, FileId, SkipReason};
use fragmend_plan::{Policy, Settings, Survey};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::{Primitive, Remap};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

/// A file of so many blocks, each of which is an extent.
fn scattered(fs: &dyn FileSystem, blocks: u64) -> FileId {
    let file = fs.create(Path::new("/f")).expect("a new file");
    let block = fs.block_bytes();
    for n in (0..blocks).rev() {
        fs.write(file, ByteRange::at(n * block, block), Access::Direct).expect("space");
    }
    fs.sync().expect("it is durable");
    file
}

/// Moves all fragmented files; returns the receipts.
fn apply(fs: &Rc<dyn FileSystem>) -> Vec<Receipt> {
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let survey = Survey::of(&Seen(Rc::clone(fs)), None).expect("all files are shown");
    let plan = fragmend_plan::make(survey, &settings);
    let volumes = Volumes::from([(
        plan.devices[0].device,
        Box::new(Seen(Rc::clone(fs))) as Box<dyn fragmend_layout::Volume>,
    )]);
    let options = Options { rate: Rate::Unlimited, free_floor_bytes: Some(0), ..Options::DEFAULT };
    let mut receipts = Vec::new();
    let machine = fs.machine().clone();
    let stop = AtomicBool::new(false);
    fragmend_apply::apply(&plan, volumes, &machine, &options, &stop, &mut |event| {
        if let fragmend_apply::Event::Range(receipt) = event {
            receipts.push(receipt.clone());
        }
    })
    .expect("the volume is the plan's");
    receipts
}

fn on(machine: &Machine, by: Primitive) -> (Rc<dyn FileSystem>, Vec<u64>) {
    let kind = Moves { by, small: Some((32, 16)), omit: None, beyond: false };
    kind.format(machine).expect("it is made");
    let fs = kind.mount(machine).expect("it is mounted");
    let file = scattered(&*fs, 40);
    let content = fs.content(file, 0..40).expect("its content");
    (fs, content)
}

#[test]
fn the_receipt_names_what_moved_a_file_and_the_drive_writes_none_of_its_data() {
    for (by, name) in [(EXCLUSIVE, "remap"), (SHARED, "shared remap")] {
        let machine = drives::short_log(0);
        let (fs, content) = on(&machine, by);
        let before = machine.counters();
        let receipts = apply(&fs);
        let done = machine.counters().since(&before);
        assert_eq!(receipts.len(), 1);
        assert_eq!(receipts[0].primitive.as_deref(), Some(name), "{:?}", receipts[0]);
        assert_eq!((receipts[0].extents_before, receipts[0].extents_after), (Some(40), Some(1)));
        assert_eq!(receipts[0].fallback, None);
        assert_eq!(done.remapped, 40);
        // The journal alone: inode, leaf, bitmap, descriptor, commit, and what mounting and syncing write.
        assert!(done.host_written < 40, "{} blocks", done.host_written);
        let file = fs.find(Path::new("/f")).expect("it is there");
        assert_eq!(fs.content(file, 0..40).expect("its content"), content);
        fs.check().unwrap();
    }
}

#[test]
fn where_the_drive_does_not_remap_the_file_is_left_alone_or_copied_as_asked() {
    let without = || Machine::new(Box::new(Lossy::new(512, 700, 1)), true, drives::path());
    for shared in [false, true] {
        let (fs, content) = on(&without(), Primitive::Remap(Remap { shared, or_copy: false }));
        let receipts = apply(&fs);
        assert_eq!(receipts[0].primitive, None);
        assert_eq!(receipts[0].reason, Some(SkipReason::Unsupported));
        let why = receipts[0].detail.clone().expect("why");
        assert!(why.contains("not supported by this drive"), "{why}");
        let file = fs.find(Path::new("/f")).expect("it is there");
        assert_eq!(fs.content(file, 0..40).expect("its content"), content);
        fs.check().unwrap();

        let (fs, content) = on(&without(), Primitive::Remap(Remap { shared, or_copy: true }));
        let receipts = apply(&fs);
        assert_eq!(receipts[0].primitive.as_deref(), Some("copy and exchange"));
        let why = receipts[0].fallback.clone().expect("why it was copied");
        assert!(why.contains("does not remap"), "{why}");
        let file = fs.find(Path::new("/f")).expect("it is there");
        assert_eq!(fs.content(file, 0..40).expect("its content"), content);
        fs.check().unwrap();
    }
}
