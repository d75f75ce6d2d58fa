//! Runs all loads at once: first without the mover, for comparison, then beside it, until each has
//! done enough operations and enough ranges of its files have moved. Then all files are compared,
//! warm and cold, and the file system is checked.
//!
//! Nothing here depends on the machine's speed, except for two limits that only a hang reaches.

use super::Engine;
use super::load::{Failure, Load};
use super::mover::Mover;
use super::table::{Moves, Row, Side};
use crate::fragment::{interleaved, is_intact};
use crate::image::Image;
use crate::random::Random;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An operation that lasts longer counts as hung. The disk of a shared machine has stalled for 32 s.
const HANGS: Duration = Duration::from_secs(60);

/// How long a load first leaves its files closed. An engine that keeps others out needs that time,
/// more of it on a slow device: so each rest is a little longer than the one before.
const FIRST_REST: Duration = Duration::from_millis(40);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Bytes of each file that no load uses.
const STILL: u64 = 512 << 10;

/// When a run is complete.
#[derive(Clone, Copy, Debug)]
pub struct Goals {
    /// Operations of each load while nothing moves, and as many at least beside the mover.
    pub operations: u64,
    /// Ranges that must have moved of the files of each load that has any.
    pub moved: u64,
    /// A run that lasts longer counts as hung.
    pub patience: Duration,
}

/// One load and how it is used.
pub struct Worker {
    /// The load.
    pub load: Box<dyn Load>,
    /// The directory of its files alone; `None` if it has none.
    pub dir: Option<PathBuf>,
    /// Whether it closes its files from time to time, for a while.
    pub rests: bool,
    /// Whether the mover can move its files at all.
    pub movable: bool,
}

const ALONE: u8 = 0;
const BESIDE: u8 = 1;
const OVER: u8 = 2;

/// The state that all threads share.
struct Board {
    phase: AtomicU8,
    /// Operations so far, per load and phase.
    done: Vec<[AtomicU64; 2]>,
}

impl Board {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }
}

type Worked = Result<(Box<dyn Load>, [Side; 2]), Failure>;

/// Runs `workers` on `image` until `goals` are reached; returns a row for each kind of load.
///
/// # Panics
/// When a byte is not what it must be, the system refuses something, or anything hangs.
pub fn run(
    image: &Image,
    engine: &Engine,
    workers: Vec<Worker>,
    goals: Goals,
    seed: u64,
) -> Vec<Row> {
    let still = image.path().join("still");
    let files = ["one", "two", "three"].map(|name| still.join(name));
    std::fs::create_dir(&still).expect("a directory");
    files.iter().for_each(|file| interleaved(file, STILL, &[8192], true).expect("a file"));
    let mut crew = Crew::start(workers, goals.patience, seed);
    crew.until("operations alone", |crew| crew.least(ALONE) >= goals.operations);
    crew.board.phase.store(BESIDE, Ordering::Relaxed);
    let (mut mover, mut round) = (Mover::new(image.scratch(), engine), 0);
    crew.until("operations and moved ranges", |crew| {
        round += 1;
        let member = crew.next(round);
        if let Some(dir) = &member.dir {
            mover.round(dir).into_iter().for_each(|range| member.moves.receive(range));
        }
        crew.least(BESIDE) >= goals.operations && crew.has_moved(goals.moved)
    });
    mover.expect_still_files_to_move(&still);
    crew.board.phase.store(OVER, Ordering::Relaxed);
    mover.expect_the_real_thing();
    let dirs: Vec<PathBuf> = crew.members.iter().filter_map(|m| m.dir.clone()).collect();
    let (mut loads, rows) = crew.finish();
    for round in ["warm", "cold"] {
        for load in &mut loads {
            let verified = load.verify();
            verified.unwrap_or_else(|failure| panic!("{round}, in the end: {failure}"));
        }
        let intact = files.iter().all(|file| is_intact(file, STILL).expect("a file"));
        assert!(intact, "{round}: a file that no program uses is not what it was");
        let freed = dirs.iter().try_for_each(|dir| free_preallocated(dir));
        freed.expect("space behind the end of files can be freed");
        image.fsck();
    }
    rows
}

/// Frees what is preallocated behind the end of each file: where a file has so many extents that
/// their tree is three levels high, e2fsck (1.47) reports an index of such space as broken.
fn free_preallocated(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let file = File::options().write(true).open(entry?.path())?;
        file.set_len(file.metadata()?.len())?;
    }
    Ok(())
}

struct Crew {
    board: Arc<Board>,
    members: Vec<Member>,
    started: Instant,
    patience: Duration,
}

struct Member {
    kind: &'static str,
    dir: Option<PathBuf>,
    movable: bool,
    moves: Moves,
    thread: JoinHandle<Worked>,
}

impl Member {
    /// How many of its ranges have moved, or were tried where none can move; unlimited where it has
    /// no files.
    fn tried(&self) -> u64 {
        match &self.dir {
            None => u64::MAX,
            Some(_) if self.movable => self.moves.moved,
            Some(_) => self.moves.left_alone(),
        }
    }
}

impl Crew {
    fn start(workers: Vec<Worker>, patience: Duration, seed: u64) -> Self {
        let done = workers.iter().map(|_| Default::default()).collect();
        let board = Arc::new(Board { phase: AtomicU8::new(ALONE), done });
        let start = |(index, worker): (usize, Worker)| {
            let (kind, dir, movable) = (worker.load.kind(), worker.dir.clone(), worker.movable);
            let (board, random) = (Arc::clone(&board), Random::new(seed ^ index as u64));
            let thread = std::thread::spawn(move || work(worker, index, &board, random));
            Member { kind, dir, movable, moves: Moves::default(), thread }
        };
        let members = workers.into_iter().enumerate().map(start).collect();
        Self { board, members, started: Instant::now(), patience }
    }

    /// Waits until a condition holds, or a member has failed.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) && !self.members.iter().any(|m| m.thread.is_finished()) {
            assert!(self.started.elapsed() < self.patience, "too few {what}:{}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The operations of the load that has done the fewest.
    fn least(&self, phase: u8) -> u64 {
        let done = |load: &[AtomicU64; 2]| load[usize::from(phase)].load(Ordering::Relaxed);
        self.board.done.iter().map(done).min().unwrap_or(0)
    }

    /// The member whose files are moved next: each in turn, and between two turns the one with the fewest
    /// moved ranges.
    fn next(&mut self, round: usize) -> &mut Member {
        let turn = round / 2 % self.members.len();
        let fewest = (0..self.members.len()).min_by_key(|i| self.members[*i].tried());
        let next = if round.is_multiple_of(2) { fewest.unwrap_or(turn) } else { turn };
        &mut self.members[next]
    }

    /// Whether enough ranges of each member's files have moved, or were tried where none can move.
    fn has_moved(&self, goal: u64) -> bool {
        self.members.iter().all(|m| m.tried() >= goal)
    }

    fn state(&self) -> String {
        let row = |(m, done): (&Member, &[AtomicU64; 2])| {
            let [alone, beside] = done.each_ref().map(|n| n.load(Ordering::Relaxed));
            let Member { kind, moves, .. } = m;
            let Moves { moved, left_alone, .. } = moves;
            format!(
                "\n  {kind}: {alone} operations alone and {beside} beside the mover, \
                 {moved} ranges moved, left alone: {left_alone:?}"
            )
        };
        self.members.iter().zip(&self.board.done).map(row).collect()
    }

    /// Ends all of them; returns the loads, and a row for each kind.
    fn finish(self) -> (Vec<Box<dyn Load>>, Vec<Row>) {
        while self.members.iter().any(|m| !m.thread.is_finished()) {
            assert!(self.started.elapsed() < self.patience, "a thread hangs:{}", self.state());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut loads, mut rows) = (Vec::new(), Vec::<Row>::new());
        for member in self.members {
            let worked = member.thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
            let (load, sides) = worked.unwrap_or_else(|failure| panic!("{failure}"));
            for side in &sides {
                let longest = side.waits.quantile(1.0);
                assert!(longest < HANGS, "{} waited for {longest:?}", member.kind);
            }
            assert!(member.movable || member.moves.moved == 0, "{} cannot move", member.kind);
            let row = Row::new(member.kind, sides, member.moves);
            match rows.iter_mut().find(|r| r.kind == row.kind) {
                Some(same) => same.add(&row),
                None => rows.push(row),
            }
            loads.push(load);
        }
        (loads, rows)
    }
}

/// One load's own thread, until all is over.
fn work(worker: Worker, index: usize, board: &Board, mut random: Random) -> Worked {
    let Worker { mut load, rests, .. } = worker;
    let mut sides = [Side::default(), Side::default()];
    let mut rest = FIRST_REST;
    load.open()?;
    while board.phase() != OVER {
        let step = load.step()?;
        let mut waited = step.waited;
        if rests && random.below(24) == 0 {
            load.close()?;
            std::thread::sleep(rest.mul_f64(1.0 + random.unit()));
            if board.phase() == BESIDE {
                rest = (rest * 9 / 8).min(LONGEST_REST);
            }
            let started = Instant::now();
            load.open()?;
            // Opening a leased file waits, too.
            waited = waited.max(Some(started.elapsed()));
        }
        // An operation that ended beside the mover may have waited for it.
        let phase = usize::from(board.phase().min(BESIDE));
        let side = &mut sides[phase];
        side.compared += step.compared;
        if let Some(waited) = waited {
            side.waits.note(waited);
            board.done[index][phase].fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(load.pause());
    }
    load.close()?;
    Ok((load, sides))
}
