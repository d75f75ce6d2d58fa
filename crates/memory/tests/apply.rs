//! The generic half of `apply`, with any faults: on a volume in memory, with a virtual clock.

use fragmend_apply::{
    BesideReaders, Environment, Event, Options, Outcome, Rate, Receipt, Summary, Volumes, apply,
};
use fragmend_layout::{ByteRange, FileId, SkipReason, Volume};
use fragmend_memory::{Change, Fault, Memory, World};
use fragmend_plan::{Plan, PlanSource, Policy, Settings, Survey};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const DEVICE: u64 = 77;
const BLOCK: u64 = 4096;

/// A disk, the options, and the faults.
#[derive(Clone, Debug)]
struct Scenario {
    /// Per file: its blocks, the length of its runs on the disk in blocks, and after how many of those a hole
    /// follows.
    files: Vec<(u64, u64, u64)>,
    /// Free blocks between the runs of files, and behind all of them.
    gap: u64,
    spare: u64,
    options: Options,
    /// Each fault: after how many operations, which one, and to which file.
    faults: Vec<(u64, u8, usize)>,
    /// How many moves survive a cut although they were not durable.
    survivors: usize,
}

struct Fixture {
    world: Rc<World>,
    memory: Memory,
    files: Vec<FileId>,
    plan: Plan,
}

impl Scenario {
    /// The disk with its files, and a plan for all of them.
    fn fixture(&self) -> Fixture {
        let mut places: Vec<Vec<Option<u64>>> = vec![Vec::new(); self.files.len()];
        let mut at = 0;
        while self.files.iter().zip(&places).any(|(file, have)| (have.len() as u64) < file.0) {
            for ((blocks, run, hole), have) in self.files.iter().zip(&mut places) {
                let left = blocks - have.len() as u64;
                have.extend((at..at + left.min(*run)).map(Some));
                if left > *run && (have.len() as u64 / run).is_multiple_of(*hole) {
                    have.push(None);
                }
                at += left.min(*run) + self.gap;
            }
        }
        let world = Rc::new(World::new());
        let memory = Memory::new(&world, DEVICE, BLOCK, at + self.spare);
        let add = |(n, places): (usize, &Vec<_>)| {
            memory.add(Path::new(&format!("/memory/file-{n}")), places.len() as u64 * BLOCK, places)
        };
        let files = places.iter().enumerate().map(add).collect();
        let plan = planned(&memory);
        Fixture { world, memory, files, plan }
    }

    /// Arms the faults.
    fn spoil(&self, fixture: &Fixture) {
        for (after, what, file) in &self.faults {
            let file = fixture.files[file % fixture.files.len()];
            let size = fixture.plan.files.iter().find(|f| f.file == file).map_or(0, |f| f.size);
            let changes = [
                Change::Write,
                Change::Truncate(size / 2),
                Change::Punch(ByteRange { start: 0, end: BLOCK }),
                Change::Remove,
                Change::Replace,
            ];
            let fault = match what % 9 {
                0 => Fault::PowerCut,
                1 => Fault::Failed,
                2 => Fault::NoSpace,
                3 => Fault::Stop,
                n => Fault::Changed(file, changes[usize::from(n) - 4]),
            };
            fixture.memory.fault(fixture.memory.operations() + after, fault);
        }
    }

    /// The files that no fault changes.
    fn untouched(&self, fixture: &Fixture) -> Vec<FileId> {
        let touched = |n: usize| {
            self.faults
                .iter()
                .any(|(_, what, file)| what % 9 > 3 && file % fixture.files.len() == n)
        };
        (0..fixture.files.len()).filter(|n| !touched(*n)).map(|n| fixture.files[n]).collect()
    }
}

fn planned(memory: &Memory) -> Plan {
    let survey = Survey::of(memory, None).expect("all files are shown");
    fragmend_plan::make(survey, &Settings { policy: Policy::WholeFile, ..Settings::default() })
}

/// Applies, and returns the last receipt of each range.
fn applied(fixture: &Fixture, options: &Options) -> (Summary, BTreeMap<(String, u64), Receipt>) {
    let volume: Box<dyn Volume> = Box::new(fixture.memory.clone());
    let (volumes, mut last) = (Volumes::from([(DEVICE, volume)]), BTreeMap::new());
    let tell = |event: Event| {
        if let Event::Range(receipt) = event {
            last.insert((receipt.path.path.clone(), receipt.offset), receipt);
        }
    };
    let summary =
        apply(&fixture.plan, volumes, &*fixture.world, options, &fixture.world.stop, tell);
    (summary.expect("the volume is the plan's"), last)
}

fn fragments(memory: &Memory, file: FileId, range: ByteRange) -> u64 {
    memory.layout(file, Path::new("")).expect("it is there").fragments(range)
}

fn all(fixture: &Fixture, files: &[FileId]) -> Vec<u64> {
    let whole = ByteRange { start: 0, end: u64::MAX };
    files.iter().map(|file| fragments(&fixture.memory, *file, whole)).collect()
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        Just(Rate::Yielding),
        Just(Rate::Unlimited),
        (1u64..64).prop_map(|mib| Rate::BytesPerSecond(mib << 20)),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    (rate(), 0u64..40, 1u64..20, 1u64..80).prop_map(|(rate, floor, step, batch)| Options {
        rate,
        free_floor_bytes: Some(floor * BLOCK),
        step_bytes: step * BLOCK,
        batch_bytes: batch * BLOCK,
        ..Options::default()
    })
}

fn scenario(faults: usize) -> impl Strategy<Value = Scenario> {
    let file = (1u64..40, 1u64..4, 2u64..9);
    let fault = (1u64..160, any::<u8>(), any::<usize>());
    (
        prop::collection::vec(file, 1..6),
        0u64..3,
        0u64..90,
        options(),
        prop::collection::vec(fault, faults.min(1)..=faults),
        0usize..20,
    )
        .prop_map(|(files, gap, spare, options, faults, survivors)| Scenario {
            files,
            gap,
            spare,
            options,
            faults,
            survivors,
        })
}

/// Checks that each range has a receipt or is counted as not reached, and that the summary is that of the
/// receipts.
fn adds_up(plan: &Plan, summary: &Summary, last: &BTreeMap<(String, u64), Receipt>) {
    let coded = |detail: &str| detail.contains(&format!("{:?}", SkipReason::Failed));
    assert!(!summary.skipped.iter().any(|s| coded(&s.detail)), "{:?}", summary.skipped);
    let count = |outcome| last.values().filter(|r| r.outcome == outcome).count() as u64;
    assert_eq!(summary.ranges_moved, count(Outcome::Moved), "{summary:?}");
    assert_eq!(summary.ranges_skipped, count(Outcome::Skipped), "{summary:?}");
    let told = summary.ranges_moved + summary.ranges_skipped + summary.ranges_left;
    assert_eq!(told, plan.totals().ranges, "{summary:?}");
    assert!(summary.ranges_left >= count(Outcome::Interrupted), "{summary:?}");
    assert_eq!(summary.moved_bytes, summary.moved_by_primitive.values().sum::<u64>());
    for receipt in last.values() {
        let [before, after] = [receipt.extents_before, receipt.extents_after];
        assert!(receipt.outcome != Outcome::Moved || after < before, "{receipt:?}");
        assert_eq!(receipt.reason.is_some(), receipt.outcome == Outcome::Skipped, "{receipt:?}");
        let says_why = receipt.detail.as_ref().is_some_and(|why| why.starts_with("in part: "));
        let is_part = receipt.outcome == Outcome::Moved && says_why;
        assert_eq!(receipt.in_part, is_part, "{receipt:?}");
        assert!(!is_part || receipt.moved_bytes < receipt.length, "{receipt:?}");
    }
}

proptest! {
    // A failing case is printed and kept nowhere: that would need a `lib.rs` above this file.
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Without faults, each range is in as few fragments as its new place, and none in more than before.
    #[test]
    fn nothing_becomes_worse(scenario in scenario(0)) {
        let fixture = scenario.fixture();
        let (free, before) = (fixture.memory.free_bytes().unwrap(), all(&fixture, &fixture.files));
        let (summary, last) = applied(&fixture, &scenario.options);
        adds_up(&fixture.plan, &summary, &last);
        fixture.memory.check().unwrap();
        prop_assert!(!summary.failed() && !summary.interrupted, "{:?}", summary);
        prop_assert_eq!(summary.ranges_left, 0);
        for (before, after) in before.into_iter().zip(all(&fixture, &fixture.files)) {
            prop_assert!(after <= before, "{} and then {}", before, after);
        }
        let floor = scenario.options.free_floor_bytes.unwrap();
        prop_assert!(fixture.memory.least_free_bytes() >= floor.min(free));
        prop_assert_eq!(fixture.memory.free_bytes().unwrap(), free, "space is lost");
    }

    /// With any faults, at any operations: no byte changes, the receipts add up, and what was reported as
    /// moved is in its new place after a power cut.
    #[test]
    fn whatever_happens_no_byte_changes_and_no_receipt_lies(scenario in scenario(4)) {
        let fixture = scenario.fixture();
        let untouched = scenario.untouched(&fixture);
        let free = fixture.memory.free_bytes().unwrap();
        scenario.spoil(&fixture);
        let (summary, last) = applied(&fixture, &scenario.options);
        fixture.memory.check().unwrap();
        fixture.memory.restart(scenario.survivors);
        fixture.memory.check().unwrap();
        adds_up(&fixture.plan, &summary, &last);
        let floor = scenario.options.free_floor_bytes.unwrap();
        prop_assert!(fixture.memory.least_free_bytes() >= floor.min(free));
        for file in fixture.plan.files.iter().filter(|f| untouched.contains(&f.file)) {
            for range in &file.ranges {
                let told = last.get(&(file.path.path.clone(), range.offset));
                if let Some(told) = told.filter(|r| r.outcome == Outcome::Moved) {
                    let now = fragments(&fixture.memory, file.file, range.range());
                    prop_assert_eq!(Some(now), told.extents_after, "{:?}", told);
                }
            }
        }
    }

    /// An interrupted run can be continued: afterwards nothing is left that could be moved.
    #[test]
    fn what_was_cut_short_is_gone_on_with(scenario in scenario(2)) {
        let mut fixture = scenario.fixture();
        scenario.spoil(&fixture);
        applied(&fixture, &scenario.options);
        fixture.memory.restart(scenario.survivors);
        fixture.world.stop.store(false, Ordering::Relaxed);
        fixture.plan = planned(&fixture.memory);
        let (summary, last) = applied(&fixture, &scenario.options);
        fixture.memory.check().unwrap();
        prop_assert!(!summary.failed() && summary.ranges_left == 0, "{:?}", summary);
        let space = [SkipReason::NoBetterPlace, SkipReason::NoSpace, SkipReason::FreeSpaceFloor];
        for receipt in last.values().filter(|r| r.outcome != Outcome::Moved) {
            prop_assert!(receipt.reason.is_some_and(|why| space.contains(&why)), "{:?}", receipt);
        }
    }

    /// Two runs of one scenario have the same result.
    #[test]
    fn one_scenario_has_one_outcome(scenario in scenario(3)) {
        let run = || {
            let fixture = scenario.fixture();
            scenario.spoil(&fixture);
            let (summary, last) = applied(&fixture, &scenario.options);
            serde_json::to_string(&(summary, last.values().collect::<Vec<_>>())).unwrap()
        };
        prop_assert_eq!(run(), run());
    }
}

/// Some files in many fragments, and space for them elsewhere.
fn long() -> Scenario {
    Scenario {
        files: vec![(400, 1, 1000), (300, 2, 1000)],
        gap: 1,
        spare: 1000,
        options: Options {
            free_floor_bytes: Some(0),
            step_bytes: 16 * BLOCK,
            ..Options::default()
        },
        faults: Vec::new(),
        survivors: 0,
    }
}

/// Two files that move in several batches, into space that the earlier ones have left.
fn crowded(faults: Vec<(u64, u8, usize)>) -> Scenario {
    let options = Options {
        free_floor_bytes: Some(0),
        step_bytes: 2 * BLOCK,
        batch_bytes: 6 * BLOCK,
        ..Options::default()
    };
    Scenario {
        files: vec![(12, 1, 4), (12, 2, 3)],
        gap: 0,
        spare: 8,
        options,
        faults,
        survivors: 0,
    }
}

/// Applies with these faults, cuts the power, and returns how many operations there were.
fn survives(scenario: Scenario) -> u64 {
    let fixture = scenario.fixture();
    scenario.spoil(&fixture);
    applied(&fixture, &scenario.options);
    fixture.memory.check().unwrap_or_else(|why| panic!("{why}: {scenario:?}"));
    let operations = fixture.memory.operations();
    fixture.memory.restart(scenario.survivors);
    fixture.memory.check().unwrap_or_else(|why| panic!("{why}, after a cut: {scenario:?}"));
    operations
}

#[test]
fn no_write_of_another_program_is_lost_at_any_operation() {
    const WRITE: u8 = 4;
    let operations = survives(crowded(Vec::new()));
    for at in 1..=operations {
        for file in 0..2 {
            survives(crowded(vec![(at, WRITE, file)]));
        }
    }
}

#[test]
fn no_byte_is_lost_by_an_error_and_a_power_cut_at_any_two_operations() {
    const CUT: u8 = 0;
    const FAILED: u8 = 1;
    let operations = survives(crowded(Vec::new()));
    for failed in 1..=operations {
        for cut in failed + 1..=operations {
            survives(crowded(vec![(failed, FAILED, 0), (cut, CUT, 0)]));
        }
    }
}

/// Space that a failed move has left may be used by another program.
#[test]
fn what_is_written_where_a_copy_was_begun_outlasts_a_power_cut() {
    let operations = survives(crowded(Vec::new()));
    for failed in 1..=operations {
        let scenario = crowded(vec![(failed, 1, 0)]);
        let fixture = scenario.fixture();
        scenario.spoil(&fixture);
        applied(&fixture, &scenario.options);
        fill(&fixture.memory);
        fixture.memory.restart(0);
        fixture.memory.check().unwrap_or_else(|why| panic!("{why}: operation {failed}"));
    }
}

/// Another program writes a file into all space that is free.
fn fill(memory: &Memory) {
    let free: Vec<_> = memory.free_runs().into_iter().flatten().map(Some).collect();
    memory.add(Path::new("/memory/new"), free.len() as u64 * BLOCK, &free);
}

/// A receipt is reported once its range has been exchanged, and before that is committed.
#[test]
fn the_place_that_a_move_has_left_is_not_used_by_others_before_the_commit() {
    let mut cuts = 0;
    for chosen in 0.. {
        let fixture = crowded(Vec::new()).fixture();
        let (memory, mut receipts) = (&fixture.memory, 0);
        let tell = |event: Event| {
            let Event::Range(receipt) = event else { return };
            if receipts == chosen && receipt.moved_bytes > 0 {
                fill(memory);
                memory.fault(memory.operations() + 1, Fault::PowerCut);
                cuts += 1;
            }
            receipts += 1;
        };
        let volume: Box<dyn Volume> = Box::new(memory.clone());
        let (volumes, stop) = (Volumes::from([(DEVICE, volume)]), &fixture.world.stop);
        let options = crowded(Vec::new()).options;
        apply(&fixture.plan, volumes, &*fixture.world, &options, stop, tell).unwrap();
        memory.restart(0);
        memory.check().unwrap_or_else(|why| panic!("{why}: receipt {chosen}"));
        if receipts <= chosen {
            break;
        }
    }
    assert!(cuts > 1, "{cuts} cuts");
}

#[test]
fn no_more_bytes_a_second_go_than_were_asked_for() {
    const RATE: u64 = 1 << 20;
    let fixture = long().fixture();
    let options = Options { rate: Rate::BytesPerSecond(RATE), ..long().options };
    let (summary, _) = applied(&fixture, &options);
    assert_eq!((summary.moved_bytes, summary.ranges_left), (700 * BLOCK, 0));
    let due = (700 * BLOCK) as f64 / RATE as f64;
    assert!((due - 0.3..due + 0.3).contains(&summary.seconds), "{} s, {due} due", summary.seconds);
    assert!(summary.paused_seconds > due / 2.0, "{summary:?}");
    // The summary has the process's own I/O, and nothing else.
    assert_eq!((summary.read_bytes, summary.written_bytes), (700 * BLOCK, 700 * BLOCK));
}

#[test]
fn readers_go_first_and_without_readers_nothing_waits() {
    let alone = long().fixture();
    let (quiet, _) = applied(&alone, &long().options);
    assert_eq!((quiet.paused_seconds, quiet.beside_readers), (0.0, BesideReaders::default()));
    let fixture = long().fixture();
    fixture.world.others_read(Duration::ZERO..Duration::from_secs(3600), 50 << 20);
    let (beside, _) = applied(&fixture, &long().options);
    assert_eq!(beside.moved_bytes, quiet.moved_bytes);
    let with_pauses =
        BesideReaders { moved_gently_bytes: 0, moved_with_pauses_bytes: beside.moved_bytes };
    assert_eq!(beside.beside_readers, with_pauses);
    // In short steps, each followed by a pause of many times its length.
    assert!(beside.paused_seconds > 4.0 * quiet.seconds, "{beside:?}\n{quiet:?}");
    assert!(
        fixture.memory.operations() > 2 * alone.memory.operations(),
        "its steps are not shorter"
    );
}

#[test]
fn a_request_to_end_waits_for_one_step() {
    for at in (1..80).step_by(3) {
        let mut scenario = long();
        scenario.faults = vec![(at, 3, 0)];
        let fixture = scenario.fixture();
        scenario.spoil(&fixture);
        // At this rate a step is followed by a pause of a second.
        let rate = Rate::BytesPerSecond(64 << 10);
        let (summary, last) = applied(&fixture, &Options { rate, ..scenario.options.clone() });
        let waited = fixture.world.now() - fixture.world.stopped().expect("it was told to end");
        assert!(waited < Duration::from_millis(10), "operation {at}: {waited:?}");
        assert!(summary.interrupted && summary.ranges_left > 0, "{summary:?}");
        adds_up(&fixture.plan, &summary, &last);
        fixture.memory.check().unwrap();
    }
}

#[test]
fn what_could_not_be_made_durable_is_told_once_more() {
    let (mut commits, mut in_part, mut both) = (0, 0, 0);
    // One error, and a second one soon after it.
    for (at, after) in (1..200).flat_map(|at| [0, 1, 2, 3, 4].map(|after| (at, after))) {
        let mut scenario = long();
        scenario.faults = vec![(at, 1, 0), (at + after, 1, 0)];
        let fixture = scenario.fixture();
        scenario.spoil(&fixture);
        let mut told: BTreeMap<(String, u64), Vec<Receipt>> = BTreeMap::new();
        let tell = |event: Event| {
            if let Event::Range(receipt) = event {
                let range = (receipt.path.path.clone(), receipt.offset);
                told.entry(range).or_default().push(receipt);
            }
        };
        let volume: Box<dyn Volume> = Box::new(fixture.memory.clone());
        let (volumes, stop) = (Volumes::from([(DEVICE, volume)]), &fixture.world.stop);
        let summary = apply(&fixture.plan, volumes, &*fixture.world, &scenario.options, stop, tell);
        for twice in told.values().filter(|receipts| receipts.len() > 1) {
            commits += 1;
            both += usize::from(twice[0].in_part);
            let [was, is] = &twice[..] else { panic!("{twice:?}") };
            // How it is could not be told the first time, where that met the second error.
            let was_told =
                was.outcome == Outcome::Moved || after > 0 && was.extents_after.is_none();
            assert!(was_told && is.outcome == Outcome::Skipped, "{was:?}\n{is:?}");
            assert_eq!(is.reason, Some(SkipReason::Failed), "{is:?}");
            assert!(
                is.detail.as_ref().unwrap().contains("after a power cut is not known"),
                "{is:?}"
            );
        }
        let last: BTreeMap<(String, u64), Receipt> =
            told.into_iter().map(|(range, mut all)| (range, all.pop().unwrap())).collect();
        in_part += last.values().filter(|receipt| receipt.in_part).count();
        adds_up(&fixture.plan, &summary.unwrap(), &last);
    }
    println!(
        "{commits} commits failed, {in_part} ranges moved in part, {both} of them were not made durable"
    );
    assert!(commits > 0 && in_part > 0 && both > 0);
}
