//! Moves that the drive makes itself (InDeF): which primitive ran, what crossed the link, and what the monitor chooses.

use super::Segments;
use super::drives::{large_zoned, large_zones};
use crate::support::{Kind, Seen};
use fragmend_apply::{Event, Options, Rate, Receipt};
use fragmend_conformance::apply_to;
use fragmend_layout::{
    ByteRange, Fate, FileId, Pace, ParallelUnits, Skip, Target, Terms, Underway, Volume,
};
use fragmend_plan::{Policy, Settings, Survey};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::monitor::Monitor;
use fragmend_simfs::segments::{LogStructured, Primitive, Settings as Parameters};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const BLOCK: u64 = 4096;
/// Bytes of the file.
const SIZE: u64 = 64 * BLOCK;

/// A file whose blocks are in the reverse order on the drive.
fn scattered(fs: &LogStructured, blocks: u64) -> FileId {
    let file = fs.create(Path::new("/file")).expect("a new file");
    for block in (0..blocks).rev() {
        fs.write(file, ByteRange::at(block * BLOCK, BLOCK), Access::Direct).expect("space");
    }
    fs.sync().expect("it is durable");
    file
}

fn mounted(kind: &Segments) -> (Machine, LogStructured) {
    let machine = large_zoned();
    kind.format(&machine).expect("it is made");
    kind.mount(&machine).expect("it is mounted");
    let fs = kind.last.borrow().clone().expect("it is mounted");
    (machine, fs)
}

/// Moves what is planned for all files; returns the receipts.
pub fn moved(machine: &Machine, fs: &LogStructured) -> Vec<Receipt> {
    let volume = || Seen(Rc::new(fs.clone()));
    let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
    let plan = fragmend_plan::make(Survey::of(&volume(), None).expect("all files"), &settings);
    let options = Options { rate: Rate::Unlimited, ..Options::DEFAULT };
    let mut receipts = Vec::new();
    if plan.files.is_empty() {
        return receipts;
    }
    apply_to(Box::new(volume()), machine, &plan, &options, &AtomicBool::new(false), &mut |event| {
        if let Event::Range(receipt) = event {
            receipts.push(receipt);
        }
    });
    receipts
}

#[test]
fn receipts_name_the_primitive_that_ran() {
    let mut waits = Vec::new();
    for primitive in [Primitive::ThroughHost, Primitive::BlockByBlock, Primitive::InDevice] {
        let kind = Segments::by(primitive, large_zones());
        let (machine, fs) = mounted(&kind);
        let file = scattered(&fs, SIZE / BLOCK);
        fs.drop_caches();
        let content = fs.content(file, 0..SIZE / BLOCK).expect("its content");
        machine.wait_until_idle();
        let (before, (spent, _)) = (machine.counters(), machine.spent());
        let receipts = moved(&machine, &fs);
        let used = machine.counters().since(&before);
        let by: Vec<_> = receipts.iter().map(|receipt| receipt.primitive.as_deref()).collect();
        assert_eq!(by, [Some(kind.primitive.name())], "{receipts:?}");
        assert_eq!((receipts[0].extents_before, receipts[0].extents_after), (Some(64), Some(1)));
        let in_device = kind.primitive == Primitive::InDevice;
        let blocks = SIZE / BLOCK;
        assert_eq!(used.copied, if in_device { blocks } else { 0 }, "the drive has copied");
        assert_eq!(used.host_read, if in_device { 0 } else { blocks }, "the host has read");
        waits.push(machine.spent().0.waiting - spent.waiting);
        // Nodes, tables and the checkpoint block are written in any case.
        assert_eq!(used.host_written >= blocks, !in_device, "{} written", used.host_written);
        assert_eq!(fs.content(file, 0..blocks).expect("its content"), content);
        fs.check().unwrap();
    }
    // Each block is sensed for 40 us, and four dies sense side by side.
    let [through_host, block_by_block, _] = waits[..] else { panic!("{waits:?}") };
    assert!(block_by_block > through_host + SIZE / BLOCK * 3 / 4 * 40_000, "{waits:?}");
}

#[test]
fn dirty_pages_are_split_off_and_written_by_the_host() {
    let kind = Segments::in_device(large_zones());
    let (machine, fs) = mounted(&kind);
    let file = scattered(&fs, SIZE / BLOCK);
    let mut movable = fs.open(file, Path::new("")).expect("an open file");
    fs.write(file, ByteRange::at(10 * BLOCK, 5 * BLOCK), Access::Buffered).expect("space");
    let content = fs.content(file, 0..SIZE / BLOCK).expect("its content");
    assert_eq!(movable.is_dirty(ByteRange::at(0, SIZE)), Some(true));
    let target = Target { range: ByteRange::at(0, SIZE), fragments: 64, anew: false };
    let mut pace = Fast(AtomicBool::new(false), Vec::new());
    let settled = movable.relocate(&[target], &Terms::default(), &mut pace).expect("space");
    assert_eq!(settled.durable, Ok(()));
    let [Fate::Begun(moved)] = &pace.1[..] else { panic!("{:?}", pace.1) };
    assert_eq!(moved.by, [("InDevice", SIZE)]);
    assert_eq!(moved.note.as_deref(), Some("5 dirty blocks went through the host"));
    assert_eq!((fs.counts().copied_in_device, machine.counters().copied), (59, 59));
    let layout = fs.layout(file, Path::new("")).expect("its layout");
    assert_eq!(layout.fragments(ByteRange::at(0, SIZE)), 1);
    // All of it is durable.
    machine.restart(0);
    let again = kind.mount(&machine).expect("it is mounted");
    assert_eq!(again.content(file, 0..SIZE / BLOCK).expect("its content"), content);
    again.check().unwrap();
}

/// A pace without limits, which keeps what it is told.
struct Fast(AtomicBool, Vec<Fate>);

impl Pace for Fast {
    fn stop(&self) -> &AtomicBool {
        &self.0
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn longest_step(&self) -> u64 {
        u64::MAX
    }

    fn step(&mut self, rest: ByteRange, _: u64) -> ByteRange {
        rest
    }

    fn in_one_go(&self, most: u64) -> u64 {
        most
    }

    fn pause(&mut self, _: &mut dyn Underway, _: u64, _: Duration) -> Result<(), Skip> {
        Ok(())
    }

    fn done(&mut self, _: &mut dyn Underway, _: usize, fate: Fate) -> Result<(), Skip> {
        self.1.push(fate);
        Ok(())
    }
}

#[test]
fn only_drives_with_zones_copy_by_themselves() {
    let machine = crate::support::drives::large();
    let parameters = Parameters { segment_bytes: 1 << 20, ..Parameters::default() };
    let fs = LogStructured::format(&machine, &parameters).expect("it is made");
    let refused = fs.set_primitive(Primitive::InDevice);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}

#[test]
fn the_monitor_sees_what_reaches_the_drive_and_the_planner_weighs_it() {
    let kind = Segments::new(large_zones());
    let (_, fs) = mounted(&kind);
    let file = scattered(&fs, 64);
    fs.write(file, ByteRange::at(SIZE, SIZE), Access::Direct).expect("space");
    fs.drop_caches();
    fs.set_monitor(Some(Monitor::new(1 << 20)));
    for half in [0, SIZE] {
        fs.read(file, ByteRange::at(half, SIZE), Access::Direct).expect("it is read");
    }
    // The second one is served from the page cache.
    for _ in 0..2 {
        fs.read(file, ByteRange::at(0, 2 * SIZE), Access::Buffered).expect("it is read");
    }
    let monitor = fs.set_monitor(None).expect("the monitor");
    let accesses = monitor.accesses(BLOCK, |inode| (inode == file.inode).then_some(file));
    let truncate_percent = Some(0.0);
    let settings = Settings { policy: Policy::Iodp, truncate_percent, ..Settings::default() };
    let mut survey = Survey::of(&Seen(Rc::new(fs.clone())), Some(accesses)).expect("all files");
    // Four dies, whose stripe unit is a page of 16 KiB.
    let chips = ParallelUnits { units: 4, unit_bytes: 4 * BLOCK };
    survey.devices.iter_mut().for_each(|device| device.profile.parallel_units = Some(chips));
    let plan = fragmend_plan::make(survey, &settings);
    let weighed = plan.summary.priorities.clone().expect("priorities");
    assert!(weighed.ranges > 0 && weighed.with_dopf == weighed.ranges, "{weighed:?}");
    let ranges: Vec<_> = plan.files.iter().flat_map(|file| &file.ranges).collect();
    let bytes: u64 = ranges.iter().map(|range| range.length).sum();
    assert_eq!(bytes, SIZE, "the fragmented half is planned: {ranges:?}");
}
