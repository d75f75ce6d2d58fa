//! A day of the daemon on a clock that is compressed, with the planner and the mover that ship, on a volume in memory.

mod support;

use fragmend_apply::{Environment, Event as Receipt, Options, Outcome, Volumes, apply};
use fragmend_layout::{ByteRange, FileId, Op, Volume};
use fragmend_memory::{Change, Memory, World as Clock};
use fragmend_plan::{Plan, Survey};
use fragmend_trace::Event as Access;
use fragmend_watch::activity::Activity;
use fragmend_watch::policy::PolicyError;
use fragmend_watch::world::{Applied, Recorded};
use fragmend_watch::{Control, Daemon, Event, Policy, Status, Store, Time, World};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FILES: usize = 6;

/// A machine with a disk in memory. The daemon's clock is the disk's and what was slept.
struct Day {
    clock: Rc<Clock>,
    memory: Memory,
    files: Vec<FileId>,
    slept: Cell<Duration>,
    end: Time,
    /// When each byte count was written.
    writes: Rc<RefCell<Vec<(Time, u64)>>>,
    /// The files that programs fragment while they are watched, how often.
    spoiled: [bool; FILES],
    pressure: f64,
    /// How often the disk keeps each byte, and once something has moved: data is converted meanwhile.
    copies: u64,
    converted: u64,
    /// The disk refuses a part of each move.
    fails: bool,
}

impl Day {
    fn new(spoiled: [bool; FILES]) -> Self {
        let (clock, memory, files) = support::disk(&[true; FILES]);
        let end = Time::from_ms(0).after(Time::DAY);
        let (slept, writes, pressure, fails) = Default::default();
        let (copies, converted) = (1, 1);
        Self {
            clock,
            memory,
            files,
            slept,
            end,
            writes,
            spoiled,
            pressure,
            copies,
            converted,
            fails,
        }
    }

    /// Programs write every eighth block of a file elsewhere, as copy on write does.
    fn fragment(&self, file: FileId) {
        let runs = self.memory.free_runs();
        let places: Vec<u64> =
            runs.into_iter().rev().flat_map(|run| run.rev().step_by(2)).collect();
        for (block, place) in (0..support::BLOCKS).step_by(8).zip(places) {
            let range = ByteRange::at(block * support::BLOCK, support::BLOCK);
            self.memory.change(file, Change::Punch(range));
            self.memory.extend(file, block, &[place]);
        }
    }

    fn fragments(&self) -> Vec<u64> {
        fragments(&self.memory, &self.files)
    }
}

fn fragments(memory: &Memory, files: &[FileId]) -> Vec<u64> {
    let whole = ByteRange { start: 0, end: u64::MAX };
    let of = |file: &FileId| memory.layout(*file, Path::new("")).unwrap().fragments(whole);
    files.iter().map(of).collect()
}

/// A write to a file by a database.
fn write(file: FileId, offset: u64) -> Access {
    let mut comm = [0; 16];
    comm[..8].copy_from_slice(b"postgres");
    Access {
        time_ns: 0,
        file,
        offset,
        length: 4096,
        bytes: 4096,
        count: 1,
        pid: 10,
        thread: 10,
        uid: 0,
        comm,
        op: Op::Write,
        direct: false,
        windowed: false,
    }
}

impl World for Day {
    type Error = Infallible;

    fn now(&self) -> Time {
        Time::from_ms(0).after(self.clock.now() + self.slept.get())
    }

    fn wait(&mut self, until: Time, control: &Control) {
        self.slept.set(self.slept.get() + until.since(self.now()));
        if self.now() >= self.end {
            control.stop.store(true, Ordering::Relaxed);
        }
    }

    fn record(&mut self, policy: &Policy, _: &Control) -> Result<Recorded, Infallible> {
        self.slept.set(self.slept.get() + policy.recording.window);
        let mut activity = Activity::default();
        for (file, _) in self.files.iter().zip(self.spoiled).filter(|(_, spoiled)| *spoiled) {
            (0..support::BLOCKS)
                .rev()
                .step_by(8)
                .for_each(|block| activity.add(&write(*file, block * support::BLOCK)));
        }
        activity.look_up(&|pid| Some(format!("slice/{pid}")));
        Ok(Recorded { accesses: 1, activity, ..Recorded::default() })
    }

    fn survey(&mut self, _: &Policy) -> Result<Survey, Infallible> {
        let read: Vec<_> = self.files.iter().copied().enumerate().collect();
        Ok(support::survey(&self.memory, &read))
    }

    fn volume(&self, _: u64) -> Option<String> {
        Some(self.memory.label())
    }

    fn apply(
        &mut self,
        plan: &Plan,
        policy: &Policy,
        control: &Control,
    ) -> Result<Applied, Infallible> {
        let volume: Box<dyn Volume> = Box::new(self.memory.clone());
        let options =
            Options { rate: policy.yielding.rate, free_floor_bytes: Some(0), ..Options::default() };
        let mut moved = Vec::new();
        let tell = |event: Receipt| {
            if let Receipt::Range(receipt) = event
                && receipt.outcome == Outcome::Moved
            {
                moved.push(ByteRange::at(receipt.offset, receipt.length));
            }
        };
        let volumes = Volumes::from([(support::DEVICE, volume)]);
        let summary = apply(plan, volumes, &*self.clock, &options, &control.stop, tell).unwrap();
        self.memory.check().unwrap();
        self.copies = self.converted;
        self.writes.borrow_mut().push((self.now(), summary.moved_bytes * self.copies));
        for file in &plan.files {
            let n = self.files.iter().position(|known| *known == file.file).unwrap();
            if self.spoiled[n] {
                self.fragment(file.file);
            }
        }
        Ok(Applied {
            written_bytes: summary.written_bytes.max(summary.moved_bytes),
            has_moved_data: summary.moved_bytes > 0,
            moved,
            failed: self.fails,
            ..Applied::default()
        })
    }

    fn copies(&self, _: u64) -> u64 {
        self.copies
    }

    fn io_pressure_percent(&self) -> Option<f64> {
        Some(self.pressure)
    }
}

/// What a day came to.
struct Came {
    status: Status,
    events: Vec<Event>,
    /// Fragments of each file.
    fragments: Vec<u64>,
    writes: Vec<(Time, u64)>,
}

impl Came {
    fn moves_of(&self, n: usize) -> usize {
        let is = |event: &&Event| matches!(event, Event::Moved { path, .. } if path.path == format!("/srv/{n}"));
        self.events.iter().filter(is).count()
    }
}

/// Lets a day go by.
fn pass(day: Day, policy: Policy) -> Came {
    let dir = fragmend_testbed::scratch::directory("watch");
    let (store, _) = Store::open(&dir.path().join("store/watch.db"), day.now()).unwrap();
    let (memory, files) = (day.memory.clone(), day.files.clone());
    let (writes, mut events) = (Rc::clone(&day.writes), Vec::new());
    let fails = day.fails;
    let mut tell = |event| events.push(event);
    let daemon = Daemon::new(day, store, policy, false, &mut tell).unwrap();
    let status = daemon.run(&Control::default(), &|| unreachable!("nobody asks for it")).unwrap();
    let failed = events.iter().filter(|event| matches!(event, Event::Failed { .. })).count() as u64;
    let expected = if fails { status.moves } else { 0 };
    assert_eq!((status.failures, failed), (expected, expected), "{events:?}");
    Came { status, events, fragments: fragments(&memory, &files), writes: writes.take() }
}

#[test]
fn without_a_rule_files_are_advised_on_and_stay() {
    let day = Day::new([false; FILES]);
    let before = day.fragments();
    let came = pass(day, Policy::parse("paths = [\"/srv\"]\n[planning]\nevery = \"6h\"").unwrap());
    assert_eq!((came.fragments, came.status.moves, came.writes.len()), (before, 0, 0));
    let advised = came.events.iter().filter(|event| matches!(event, Event::Advice { .. })).count();
    assert_eq!(advised as u64, FILES as u64 * came.status.plans);
    assert!(came.status.plans >= 4 && came.status.recordings >= 90, "{:?}", came.status);
}

#[test]
fn what_pays_moves_in_its_hours_within_its_budget_and_once() {
    // Four files a day: a move may write twice its bytes, and 1 MiB besides.
    let budget = 10 * support::FILE + support::FILE / 2;
    let policy = || support::policy(budget, "hours = [\"01:00-03:00\", \"22:30-23:00\"]");
    let came = pass(Day::new([false; FILES]), policy());
    let minutes: Vec<i64> = came.writes.iter().map(|(at, _)| at.ms() / 60_000).collect();
    assert!(
        minutes.iter().all(|m| (60..180).contains(m) || (1350..1380).contains(m)),
        "{minutes:?}"
    );
    let written: u64 = came.writes.iter().map(|(_, bytes)| bytes).sum();
    assert!(written > 3 * support::FILE && written <= budget, "{written} of {budget}");
    let whole = came.fragments.iter().filter(|n| **n == 1).count() as u64;
    // The last one is moved as far as the budget permits.
    assert_eq!(whole, written / support::FILE, "{:?}", came.fragments);
    let waited = |words: &str| {
        came.events.iter().any(|e| matches!(e, Event::Waiting { why, .. } if why.contains(words)))
    };
    assert!(waited("an allowed hour") && waited("budget"), "{:?}", came.events);
    // With more of it, all of them.
    let came = pass(Day::new([false; FILES]), support::policy(1 << 30, ""));
    assert_eq!((came.fragments, came.status.moves), (vec![1; FILES], FILES as u64));
}

/// What a move of a file is debited with, of one copy: all of it there and back, and metadata.
const DEBIT: u64 = 2 * support::FILE + (1 << 20);
/// What it is settled at: all of it, an eighth and 1 MiB for metadata.
const SETTLED: u64 = support::FILE + support::FILE / 8 + (1 << 20);

/// What each move was debited with, and what it was settled at.
fn debits(came: &Came) -> Vec<(u64, u64)> {
    let left = |event: &Event| match event {
        Event::Status(status) => Some(status.budget_left_bytes),
        _ => None,
    };
    let debit = |(n, event): (usize, &Event)| {
        let Event::Moved { written_bytes, .. } = event else { return None };
        let before: Vec<u64> = came.events[..n].iter().rev().filter_map(left).take(2).collect();
        let after = came.events[n..].iter().find_map(left).unwrap();
        assert_eq!(before[1] - after, *written_bytes, "{:?}", came.events);
        Some((before[1] - before[0], *written_bytes))
    };
    came.events.iter().enumerate().filter_map(debit).collect()
}

#[test]
fn what_the_disk_keeps_twice_is_held_and_settled_twice() {
    let budget = 15 * support::FILE;
    let day = Day { copies: 2, converted: 2, ..Day::new([false; FILES]) };
    let came = pass(day, support::policy(budget, ""));
    // After three moves less is left than one may write.
    assert_eq!(debits(&came), [(2 * DEBIT, 2 * SETTLED); 3]);
    let written: u64 = came.writes.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!((written, came.status.written_bytes), (6 * support::FILE, 6 * SETTLED));
}

#[test]
fn what_is_converted_once_it_was_planned_counts_as_it_is_kept_then() {
    let day = Day { converted: 2, ..Day::new([false; FILES]) };
    let came = pass(day, support::policy(1 << 30, ""));
    // It is converted while the first move lasts.
    let (first, then) = ((DEBIT, 2 * SETTLED), (2 * DEBIT, 2 * SETTLED));
    assert_eq!(debits(&came), [first, then, then, then, then, then]);
}

#[test]
fn while_programs_wait_for_io_nothing_begins() {
    let day = Day { pressure: 21.0, ..Day::new([false; FILES]) };
    let came = pass(day, support::policy(1 << 30, ""));
    assert_eq!(came.status.moves, 0);
    let day = Day { pressure: 20.0, ..Day::new([false; FILES]) };
    assert_eq!(pass(day, support::policy(1 << 30, "")).status.moves, FILES as u64);
}

#[test]
fn a_move_that_the_disk_refuses_is_a_failure() {
    let day = Day { fails: true, ..Day::new([false; FILES]) };
    assert!(pass(day, support::policy(1 << 30, "")).status.failures > 0);
}

#[test]
fn what_is_fragmented_again_and_again_is_advised_on_with_its_writer() {
    let mut spoiled = [false; FILES];
    spoiled[2] = true;
    let text = "paths = [\"/srv\"]\n[recording]\nevery = \"5m\"\n[planning]\nevery = \"13m\"\n[budget]\nbytes_per_day = \"1G\"\n\
                [recurrence]\nadvise_after = 3\n[[rule]]\nmode = \"move\"\nmin_gain_s_per_gib = 0\n";
    let came = pass(Day::new(spoiled), Policy::parse(text).unwrap());
    assert_eq!((came.moves_of(2), came.moves_of(1), came.status.recurrences), (3, 1, 3));
    let again = came.events.iter().filter_map(|event| match event {
        Event::FragmentedAgain { times, program, cgroup, pattern, .. } => {
            Some((*times, program.as_deref(), cgroup.as_deref(), pattern.name()))
        }
        _ => None,
    });
    let expected = [1, 2, 3].map(|n| (n, Some("postgres"), Some("slice/10"), "overwrites"));
    assert_eq!(again.collect::<Vec<_>>(), expected);
    let last = came.events.iter().rev().find_map(|event| match event {
        Event::Advice { path, why, .. } => Some((path.path.as_str(), why.as_str())),
        _ => None,
    });
    assert!(
        last.is_some_and(|(path, why)| path == "/srv/2" && why.contains("3 times")),
        "{last:?}"
    );
}

#[test]
fn a_wrong_policy_keeps_the_one_before_and_a_right_one_takes_its_place() {
    let dir = fragmend_testbed::scratch::directory("watch");
    let day = Day::new([false; FILES]);
    let (store, _) = Store::open(&dir.path().join("store/watch.db"), day.now()).unwrap();
    let (control, reads) = (Control::default(), Cell::new(0));
    let reread = || {
        reads.set(reads.get() + 1);
        let wrong = || PolicyError::Wrong { path: "watch.toml".into(), what: "line 1: no".into() };
        if reads.get() == 1 { Err(wrong()) } else { Ok(support::policy(1 << 30, "")) }
    };
    let (reload, mut events) = (control.reload.clone(), Vec::new());
    let mut tell = |event: Event| {
        // As SIGHUP does, after the first and the second plan.
        if matches!(event, Event::Planned { .. }) && reads_left(&events) {
            reload.store(true, Ordering::Relaxed);
        }
        events.push(event);
    };
    let advise = Policy::parse("paths = [\"/srv\"]").unwrap();
    let daemon = Daemon::new(day, store, advise, false, &mut tell).unwrap();
    let status = daemon.run(&control, &reread).unwrap();
    assert_eq!((status.policies_refused, status.moves), (1, FILES as u64));
    let order: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::PolicyRefused { why } => Some(why.as_str()),
            Event::Reloaded => Some("reloaded"),
            Event::Moved { .. } => Some("moved"),
            _ => None,
        })
        .take(3)
        .collect();
    assert_eq!(order, ["watch.toml: line 1: no", "reloaded", "moved"]);
}

fn reads_left(events: &[Event]) -> bool {
    events.iter().filter(|event| matches!(event, Event::Planned { .. })).count() < 2
}
