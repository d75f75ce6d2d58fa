//! A day of the daemon on a clock that is compressed, killed a hundred times at any instant: in no 24 hours does it write more
//! than its budget, and nothing moves twice without a recording in between that shows it fragmented and read.
//!
//! The process that is killed is real, and so are its store and its planner. Its disk is a file to which one record is
//! appended before each thing that happens; it is read when the next process begins, and is the truth by which
//! the daemon is judged. The daemon itself never reads it.

mod support;

use fragmend_layout::FileId;
use fragmend_plan::{Plan, Survey};
use fragmend_watch::world::{Applied, Recorded};
use fragmend_watch::{Control, Daemon, Event, Policy, Store, Time, World};
use rustix::process::Signal;
use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const FILES: usize = 24;
const KILLS: u32 = 100;
/// Some 30 moves a day; what is fragmented again needs more.
const BUDGET: u64 = 40 << 20;
/// Bytes of one write.
const CHUNK: u64 = 64 << 10;
const CHILD: &str = "FRAGMEND_WATCH_TEST_CHILD";
/// Any time.
const BEGIN: i64 = 1_800_000_000_000;

/// What happened on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum What {
    /// A recording began.
    RecordingBegan,
    /// A file was read while it was fragmented.
    Shown,
    /// The recording ended.
    RecordingEnded,
    /// A move of a file began.
    MoveBegan,
    /// A chunk of it is written.
    Wrote,
    /// The file is in one fragment.
    Mended,
    /// Programs have fragmented it.
    Fragmented,
    /// Time has passed.
    Tick,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    what: What,
    at: i64,
    file: usize,
}

const RECORD: usize = 24;

/// The disk and its history.
struct Truth {
    log: File,
    records: Vec<Record>,
    fragmented: [bool; FILES],
}

impl Truth {
    fn open(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let log = OpenOptions::new().create(true).append(true).open(path).unwrap();
        let mut truth = Self { log, records: Vec::new(), fragmented: [true; FILES] };
        // A kill leaves no part of a record: it is one write.
        for record in bytes.chunks_exact(RECORD) {
            let number = |n: usize| u64::from_le_bytes(record[n * 8..][..8].try_into().unwrap());
            let all = [
                What::RecordingBegan,
                What::Shown,
                What::RecordingEnded,
                What::MoveBegan,
                What::Wrote,
                What::Mended,
                What::Fragmented,
                What::Tick,
            ];
            let what = all[number(0) as usize];
            truth.apply(Record { what, at: number(1).cast_signed(), file: number(2) as usize });
        }
        truth
    }

    fn apply(&mut self, record: Record) {
        match record.what {
            What::Mended => self.fragmented[record.file] = false,
            What::Fragmented => self.fragmented[record.file] = true,
            _ => {}
        }
        self.records.push(record);
    }

    fn put(&mut self, what: What, at: Time, file: usize) {
        let numbers = [what as u64, at.ms().cast_unsigned(), file as u64];
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        self.log.write_all(&bytes).unwrap();
        self.apply(Record { what, at: at.ms(), file });
    }

    fn now(&self) -> Time {
        Time::from_ms(self.records.last().map_or(BEGIN, |record| record.at))
    }
}

/// The world of a process that will be killed.
struct Killed {
    truth: Truth,
    random: fastrand::Rng,
    now: Cell<Time>,
    end: Option<Time>,
    files: Vec<FileId>,
}

impl Killed {
    /// A little real time, in which it may be killed.
    fn pass(&mut self, time: Duration) {
        self.now.set(self.now.get().after(time));
        std::thread::sleep(Duration::from_micros(self.random.u64(0..60)));
    }
}

impl World for Killed {
    type Error = Infallible;

    fn now(&self) -> Time {
        self.now.get()
    }

    fn wait(&mut self, until: Time, control: &Control) {
        self.now.set(until.max(self.now.get()));
        self.truth.put(What::Tick, self.now.get(), 0);
        if self.end.is_some_and(|end| self.now.get() >= end) {
            control.stop.store(true, Ordering::Relaxed);
        }
    }

    fn record(&mut self, policy: &Policy, _: &Control) -> Result<Recorded, Infallible> {
        self.truth.put(What::RecordingBegan, self.now(), 0);
        self.pass(policy.recording.window);
        for file in 0..FILES {
            if self.truth.fragmented[file] {
                self.truth.put(What::Shown, self.now(), file);
            }
        }
        self.truth.put(What::RecordingEnded, self.now(), 0);
        Ok(Recorded { accesses: 1, ..Recorded::default() })
    }

    fn survey(&mut self, _: &Policy) -> Result<Survey, Infallible> {
        let (_, memory, files) = support::disk(&self.truth.fragmented);
        let read: Vec<_> = files.iter().copied().enumerate().collect();
        self.files = files;
        Ok(support::survey(&memory, &read))
    }

    fn volume(&self, _: u64) -> Option<String> {
        Some("disk".into())
    }

    fn apply(&mut self, plan: &Plan, _: &Policy, control: &Control) -> Result<Applied, Infallible> {
        // An operator who changes nothing: the same recording is planned for again, after this move.
        if self.random.u32(0..3) == 0 {
            control.reload.store(true, Ordering::Relaxed);
        }
        let mut applied = Applied { has_moved_data: true, ..Applied::default() };
        for file in &plan.files {
            let n = self.files.iter().position(|known| *known == file.file).unwrap();
            self.truth.put(What::MoveBegan, self.now(), n);
            // Some move and, being no better there, move back: that is written, too.
            let moves_back = self.random.u32(0..4) == 0;
            let bytes: u64 = file.ranges.iter().map(|range| range.length).sum();
            for _ in 0..bytes.div_ceil(CHUNK) * if moves_back { 2 } else { 1 } {
                self.truth.put(What::Wrote, self.now(), n);
                applied.written_bytes += CHUNK;
                self.pass(Duration::from_millis(20));
            }
            if !moves_back {
                self.truth.put(What::Mended, self.now(), n);
                applied.moved.extend(file.ranges.iter().map(|range| range.range()));
                // Programs that fragment it at once.
                if self.random.bool() {
                    self.truth.put(What::Fragmented, self.now(), n);
                }
            }
        }
        Ok(applied)
    }

    fn copies(&self, _: u64) -> u64 {
        1
    }

    fn io_pressure_percent(&self) -> Option<f64> {
        None
    }
}

/// Works in `dir` until it is killed, or until `end`. Returns whether a move had to wait for the budget.
fn work(dir: &Path, seed: u64, end: Option<Time>) -> bool {
    let truth = Truth::open(&dir.join("truth"));
    let now = truth.now();
    let (store, aside) = Store::open(&dir.join("store/watch.db"), now).unwrap();
    assert_eq!(aside, None);
    let random = fastrand::Rng::with_seed(seed ^ truth.records.len() as u64);
    let world = Killed { truth, random, now: Cell::new(now), end, files: Vec::new() };
    let mut waited = false;
    let mut tell = |event: Event| {
        waited |= matches!(event, Event::Waiting { why, .. } if why.starts_with("budget"));
    };
    let policy = || support::policy(BUDGET, "");
    let daemon = Daemon::new(world, store, policy(), false, &mut tell).unwrap();
    daemon.run(&Control::default(), &|| Ok(policy())).unwrap();
    waited
}

#[test]
#[ignore = "a process that another test starts and kills"]
fn child() {
    let dir = PathBuf::from(std::env::var_os(CHILD).expect("started by the other test"));
    let seed = std::fs::read_to_string(dir.join("seed")).unwrap().parse().unwrap();
    work(&dir, seed, None);
}

#[test]
fn a_day_with_a_hundred_kills_keeps_to_its_budget_and_its_evidence() {
    let seed =
        std::env::var("FRAGMEND_SEED").map_or_else(|_| fastrand::u64(..), |s| s.parse().unwrap());
    println!("FRAGMEND_SEED={seed}");
    let dir = fragmend_testbed::scratch::directory("watch");
    std::fs::write(dir.path().join("seed"), seed.to_string()).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let truth = dir.path().join("truth");
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |stat| stat.len());
    for _ in 0..KILLS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--ignored", "--nocapture"]).env(CHILD, dir.path());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        // However fast this machine is: after so many records, and a moment.
        let wanted = length(&truth) + random.u64(0..80) * RECORD as u64;
        let start = Instant::now();
        while length(&truth) < wanted {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            assert!(start.elapsed() < Duration::from_secs(60), "it does nothing");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..3000)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{status}");
    }
    let day = Time::from_ms(BEGIN).after(Time::DAY);
    let day = day.max(Truth::open(&truth).now().after(Time::DAY / 4));
    assert!(work(dir.path(), seed, Some(day)), "the budget was in the way of nothing");
    let truth = Truth::open(&dir.path().join("truth"));
    assert!(truth.now() >= day);
    judge(&truth.records);
}

fn judge(records: &[Record]) {
    let wrote: Vec<i64> = records.iter().filter(|r| r.what == What::Wrote).map(|r| r.at).collect();
    let day = Time::DAY.as_millis() as i64;
    let (mut first, mut most) = (0, 0);
    for (n, at) in wrote.iter().enumerate() {
        while wrote[first] <= at - day {
            first += 1;
        }
        most = most.max((n + 1 - first) as u64 * CHUNK);
    }
    assert!(most <= BUDGET, "{most} bytes in 24 hours");

    // Of each file: whether a recording that began after its latest move has shown it, and ended.
    #[derive(Clone, Copy, Default)]
    struct Seen {
        moved: bool,
        shown: bool,
        proven: bool,
    }
    let mut files: HashMap<usize, Seen> = HashMap::new();
    let (mut moves, mut again, mut unfinished) = (0, 0, 0);
    let mut at_work: Option<usize> = None;
    for record in records {
        match record.what {
            What::RecordingBegan => files.values_mut().for_each(|seen| seen.shown = false),
            What::Shown => files.entry(record.file).or_default().shown = true,
            What::RecordingEnded => {
                files.values_mut().for_each(|seen| seen.proven |= seen.shown);
            }
            What::MoveBegan => {
                let seen = files.entry(record.file).or_default();
                assert!(
                    !seen.moved || seen.proven,
                    "file {} moved twice without evidence",
                    record.file
                );
                (moves, again) = (moves + 1, again + u32::from(seen.moved));
                unfinished += u32::from(at_work == Some(record.file));
                *seen = Seen { moved: true, ..Seen::default() };
                at_work = Some(record.file);
            }
            // What was shown while it moved, or before, is no evidence for the next move.
            What::Wrote => {
                let seen = files.entry(record.file).or_default();
                (seen.shown, seen.proven) = (false, false);
            }
            What::Mended => at_work = None,
            What::Fragmented | What::Tick => {}
        }
    }
    println!(
        "{moves} moves, {again} of them again, {unfinished} after one without end, at most {most} bytes in 24 hours"
    );
    // Otherwise nothing was tried.
    assert!(most * 4 >= BUDGET && again >= 5, "{moves} moves, {again} again, {most} bytes");
}

/// The judge itself finds what it is to find.
#[test]
fn the_judge_finds_a_second_move_without_evidence() {
    let record = |what, at, file| Record { what, at, file };
    let moved = |at| {
        [record(What::MoveBegan, at, 1), record(What::Wrote, at, 1), record(What::Mended, at, 1)]
    };
    let early = [record(What::RecordingBegan, 0, 0), record(What::Shown, 0, 1)];
    let ended = record(What::RecordingEnded, 2, 0);
    // Shown by a recording that began before the first move.
    let records = [&early[..], &moved(1), &[ended], &moved(3)].concat();
    let found = std::panic::catch_unwind(|| judge(&records)).unwrap_err();
    let found = found.downcast_ref::<String>().unwrap();
    assert!(found.contains("moved twice"), "{found}");
    let chunks = BUDGET / CHUNK + 1;
    let records: Vec<_> = (0..chunks as i64).map(|at| record(What::Wrote, at, 0)).collect();
    let found = std::panic::catch_unwind(|| judge(&records)).unwrap_err();
    assert!(found.downcast_ref::<String>().unwrap().contains("in 24 hours"));
}
