//! A contiguous range that is written anew, as a probe has found it slow: whatever goes wrong at any operation, no byte is
//! lost, no receipt lies, and the next run does what is left and repeats nothing.

use fragmend_apply::{Environment, Event, Options, Outcome, Rate, Receipt, Summary, Volumes};
use fragmend_layout::{ByteRange, FileAccesses, FileId, SkipReason, Volume};
use fragmend_memory::{Fault, Memory, World};
use fragmend_plan::{Plan, Settings, SlowRange, Survey};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const BLOCK: u64 = 4096;
/// Blocks of the file, of which those in the middle are slow, and its first place on the disk.
const BLOCKS: u64 = 24;
const SLOW: ByteRange = ByteRange { start: 6 * BLOCK, end: 18 * BLOCK };
const PLACE: u64 = 3;

struct Disk {
    world: Rc<World>,
    memory: Memory,
    file: FileId,
    content: Vec<u64>,
    plan: Plan,
}

impl Disk {
    fn new() -> Self {
        let world = Rc::new(World::new());
        let memory = Memory::new(&world, 7, BLOCK, 100);
        let places: Vec<_> = (PLACE..PLACE + BLOCKS).map(Some).collect();
        let file = memory.add(Path::new("/memory/file"), BLOCKS * BLOCK, &places);
        let seen = FileAccesses::of(file);
        let mut survey = Survey::of(&memory, Some(vec![seen])).expect("it is shown");
        survey.files[0].slow = vec![SlowRange {
            range: SLOW,
            physical: (PLACE + 6) * BLOCK,
            fragments: 1,
            ns: 5_000_000,
            expected_ns: 1_000_000,
            part_bytes: SLOW.len(),
            granularity_bytes: None,
        }];
        let settings = Settings { min_gain_s_per_gib: Some(0.0), ..Settings::default() };
        let plan = fragmend_plan::make(survey, &settings);
        assert_eq!(plan.files[0].ranges.len(), 1, "{plan:?}");
        assert_eq!(plan.files[0].ranges[0].slow_at, Some((PLACE + 6) * BLOCK));
        let content = memory.read(file, 0..BLOCKS).expect("a file");
        Self { world, memory, file, content, plan }
    }

    /// The last receipt of the range.
    fn apply(&self) -> (Summary, Option<Receipt>) {
        let volume: Box<dyn Volume> = Box::new(self.memory.clone());
        let (volumes, mut last) = (Volumes::from([(7, volume)]), None);
        let tell = |event: Event| {
            if let Event::Range(receipt) = event {
                last = Some(receipt);
            }
        };
        let options = Options {
            rate: Rate::Unlimited,
            free_floor_bytes: Some(0),
            step_bytes: 4 * BLOCK,
            ..Options::DEFAULT
        };
        let world: &dyn Environment = &*self.world;
        let stop = &self.world.stop;
        let summary = fragmend_apply::apply(&self.plan, volumes, world, &options, stop, tell);
        (summary.expect("the volume is the plan's"), last)
    }

    /// Fragments of the slow range, and where it begins.
    fn place(&self) -> (u64, u64) {
        let layout = self.memory.layout(self.file, Path::new("")).expect("it is there");
        let first = layout.fragments_within(SLOW).next().expect("data");
        (layout.fragments(SLOW), first.physical / BLOCK)
    }

    fn intact(&self, what: &str) {
        self.memory.check().unwrap_or_else(|why| panic!("{why}: {what}"));
        assert_eq!(self.memory.read(self.file, 0..BLOCKS).unwrap(), self.content, "{what}");
    }
}

#[test]
fn it_moves_once() {
    let disk = Disk::new();
    let (summary, receipt) = disk.apply();
    let receipt = receipt.expect("a receipt");
    assert_eq!((receipt.outcome, receipt.moved_bytes), (Outcome::Moved, SLOW.len()));
    assert_eq!((receipt.extents_before, receipt.extents_after), (Some(1), Some(1)));
    assert!(!summary.failed() && !summary.improvable(), "{summary:?}");
    let now = disk.place();
    assert!(now.0 == 1 && now.1 >= PLACE + BLOCKS, "{now:?}");
    disk.intact("moved");
    let (summary, receipt) = disk.apply();
    assert_eq!((summary.moved_bytes, disk.place()), (0, now));
    assert_eq!(receipt.expect("a receipt").reason, Some(SkipReason::AlreadyContiguous));
}

/// Where the only free space is in two runs, it would be in more fragments: it stays.
#[test]
fn no_worse_place_is_taken() {
    let disk = Disk::new();
    let free: Vec<u64> = disk.memory.free_runs().into_iter().flatten().collect();
    let others = free.iter().enumerate().filter(|(n, _)| n % 8 == 0);
    let places: Vec<_> = others.map(|(_, place)| Some(*place)).collect();
    disk.memory.add(Path::new("/memory/other"), places.len() as u64 * BLOCK, &places);
    let (summary, receipt) = disk.apply();
    assert_eq!((summary.moved_bytes, disk.place()), (0, (1, PLACE + 6)));
    assert_eq!(receipt.expect("a receipt").reason, Some(SkipReason::NoBetterPlace));
    disk.intact("left alone");
}

#[test]
fn nothing_is_lost_and_nothing_is_told_wrongly_whatever_happens_when() {
    let operations = {
        let disk = Disk::new();
        disk.apply();
        disk.memory.operations()
    };
    for fault in [Fault::PowerCut, Fault::Failed, Fault::NoSpace, Fault::Stop] {
        for at in 1..=operations {
            for survivors in [0, 5, 100] {
                let what = format!("{fault:?} at {at}, {survivors} survive");
                let disk = Disk::new();
                let began = disk.memory.operations();
                disk.memory.fault(began + at, fault);
                let (_, receipt) = disk.apply();
                disk.intact(&what);
                disk.memory.restart(survivors);
                disk.intact(&what);
                let moved = receipt.is_some_and(|r| r.outcome == Outcome::Moved);
                let (fragments, place) = disk.place();
                if moved {
                    assert!(fragments == 1 && place != PLACE + 6, "{place}: {what}");
                }
                // In part it may have moved: then it is in two fragments, and the next run joins them.
                disk.world.stop.store(false, Ordering::Relaxed);
                let (summary, _) = disk.apply();
                let (fragments, place) = disk.place();
                assert!(fragments == 1 && place != PLACE + 6, "{place}: {what}");
                assert!(summary.moved_bytes == 0 || !moved, "{what}");
                disk.intact(&what);
            }
        }
    }
}
