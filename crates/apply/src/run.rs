//! The plan, file by file, batch by batch, step by step. Knows nothing of file systems: that is
//! the engine's part, behind [`Volume`].

mod group;
mod range;
mod tell;

use crate::begin::{lock, volumes};
use crate::engine::{Choice, Refused};
use crate::look::{Ready, look};
use crate::pace::{Pacer, Rate};
use crate::receipt::{Event, Listener, Receipt, Start, Summary};
use fragmend_layout::{ByteRange, Movable, Moves, PathText, Skip, SkipReason, Volume};
use fragmend_plan::{PlanSource, PlannedFile};
use fragmend_sys::priority::Prompt;
use fragmend_sys::process;
use group::groups;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Version of the events.
pub const SCHEMA_VERSION: u32 = 1;

/// Bytes of a file that are written out without a look at `stop`.
const WRITE_BACK_STEP: u64 = 1 << 20;

/// How to apply.
#[derive(Clone, Debug)]
pub struct Options {
    /// How fast.
    pub rate: Rate,
    /// Leave at least so many bytes free on the file system; `None` is a twentieth of it.
    pub free_floor_bytes: Option<u64>,
    /// Which engine moves the data.
    pub engine: Choice,
    /// Take file systems that promise no order after a crash.
    pub force: bool,
    /// Also move what is shared with other files or snapshots, which takes space.
    pub unshare: bool,
    /// Look and tell, move nothing.
    pub dry_run: bool,
    /// Bytes exchanged in one step: as long as a step takes, writers of the file wait.
    pub step_bytes: u64,
    /// Bytes staged at once: so much free space is needed beside the data.
    pub batch_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rate: Rate::Yielding,
            free_floor_bytes: None,
            engine: Choice::Native,
            force: false,
            unshare: false,
            dry_run: false,
            step_bytes: 256 << 10,
            batch_bytes: 64 << 20,
        }
    }
}

/// Why nothing was touched at all.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A file system of the plan cannot be mended.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file system of the plan is not mounted here.
    #[error("{0}: the file system of this plan is not mounted; mount it, or make a new plan")]
    NotMounted(String),
    /// Something else is mounted where the plan's file system was.
    #[error("{0}: its device number has changed since the plan was made; make a new plan")]
    Renumbered(String),
    /// The plan's block size is not the file system's.
    #[error(
        "{mount}: the plan says blocks of {planned} bytes, the file system has {found}; nothing was touched; make a new plan"
    )]
    BlockSize {
        /// Where it is mounted.
        mount: String,
        /// As the plan says, in bytes.
        planned: u64,
        /// As it is, in bytes.
        found: u64,
    },
    /// Another process is mending this file system.
    #[error("{0}: another fragmend is at work there; wait for it to end")]
    AtWork(String),
    /// Nobody can be told that this file system is being mended.
    #[error("{0}: cannot lock /run/fragmend against others at work there: {1}")]
    NoLock(String, std::io::Error),
    /// The mount table cannot be read.
    #[error("cannot read the mount table: {0}")]
    Mounts(std::io::Error),
}

/// Applies `plan`, telling `tell` everything as it happens, until the end or until `stop`. Who listens
/// slowly holds it up, but only where nobody is kept out of a file.
///
/// # Errors
/// [`ApplyError`] before anything was touched. What goes wrong later is in the receipts.
pub fn apply(
    plan: &dyn PlanSource,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl Listener,
) -> Result<Summary, ApplyError> {
    let totals = plan.totals();
    let volumes = volumes(plan, &totals, options)?;
    let locks = if options.dry_run { Vec::new() } else { lock(volumes.values())? };
    tell.tell(Event::Start(Start {
        schema_version: SCHEMA_VERSION,
        bytes_to_move: totals.bytes,
        ranges: totals.ranges,
        files: totals.files,
    }));
    // Where an I/O scheduler knows priorities, everybody else comes first.
    let _ = process::set_idle_io_priority();
    let started = Instant::now();
    let account = process::io_account().unwrap_or_default();
    let mut run = Run {
        options,
        stop,
        tell: &mut tell,
        pacers: HashMap::new(),
        block: 1,
        root: PathBuf::new(),
        path: Path::new("").into(),
        unsettled: Vec::new(),
        undurable: None,
        summary: Summary {
            schema_version: SCHEMA_VERSION,
            dry_run: options.dry_run,
            ..Summary::default()
        },
    };
    let mut done = 0;
    let read = plan.each(&mut |file| {
        done += file.ranges.len() as u64;
        if let Some(volume) = volumes.get(&file.file.device) {
            run.file(&**volume, file);
            // Of a batch that was never staged.
            if let Some(skip) = run.undurable.take() {
                run.note_failure(&skip);
            }
            // Nothing of it is open any more.
            run.tell.catch_up(None);
        }
    });
    if let Err(error) = read {
        // Somebody writes to the plan: what was done so far is whole, the rest is not to be trusted.
        run.path = Path::new("").into();
        run.note_failure(&Skip::new(SkipReason::Failed, format!("the plan has changed: {error}")));
        run.summary.ranges_left += totals.ranges.saturating_sub(done);
    }
    let paused = run.pacers.values().map(|p| p.paused).sum::<Duration>();
    let mut summary = run.summary;
    summary.paused_seconds = paused.as_secs_f64();
    summary.seconds = started.elapsed().as_secs_f64();
    summary.interrupted = stop.load(Ordering::Relaxed) && summary.ranges_left > 0;
    let now = process::io_account().unwrap_or_default();
    summary.written_bytes = now.write_bytes - account.write_bytes;
    summary.read_bytes = now.read_bytes - account.read_bytes;
    // Others may begin, however long it takes to tell.
    drop(locks);
    tell.tell(Event::Summary(summary.clone()));
    tell.catch_up(None);
    Ok(summary)
}

struct Run<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: &'a mut dyn Listener,
    pacers: HashMap<u64, Pacer>,
    /// Where the file system of the file in hand is mounted.
    root: PathBuf,
    /// What the file in hand is called now.
    path: PathText,
    /// Allocation block of the file in hand, in bytes: no step is shorter.
    block: u64,
    /// Receipts of the batch in hand: until it is settled, all may have to go back.
    unsettled: Vec<Receipt>,
    /// Why something of it is not known to be durable.
    undurable: Option<Skip>,
    summary: Summary,
}

impl Run<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn file(&mut self, volume: &dyn Volume, planned: &PlannedFile) {
        if self.stopped() {
            self.summary.ranges_left += planned.ranges.len() as u64;
            return;
        }
        self.block = volume.block_bytes();
        self.root = volume.root().to_owned();
        let path = planned.path.to_path().unwrap_or_default();
        let opened = volume.open(planned.file, &path);
        // Renamed since the plan was made, perhaps: receipts name the file as it is called now.
        let found = opened.as_ref().ok().and_then(|file| file.path()).filter(|p| *p != path);
        self.path = found.map_or_else(|| planned.path.clone(), |p| p.as_path().into());
        let mut file = match opened {
            Ok(file) => file,
            Err(skip) => {
                planned.ranges.iter().for_each(|r| self.skip(r, None, &skip, None));
                return;
            }
        };
        let mut rest = planned.ranges.iter().peekable();
        while rest.peek().is_some() {
            if self.stopped() {
                self.summary.ranges_left += rest.count() as u64;
                return;
            }
            let mut batch: Vec<Ready> = Vec::new();
            let mut bytes = 0;
            let whole = file.moves() == Moves::File;
            let fits = |bytes: u64| whole || bytes <= self.options.batch_bytes;
            while let Some(range) = rest.next_if(|r| batch.is_empty() || fits(bytes + r.length)) {
                match look(&mut *file, range, self.block, self.options.unshare) {
                    Ok(ready) => {
                        bytes += range.length;
                        batch.push(ready);
                    }
                    Err((pieces, skip)) => self.skip(range, pieces, &skip, Some(&mut *file)),
                }
            }
            self.batch(volume, &mut *file, planned, &batch);
        }
    }

    /// Stages all of the batch, or halves of it where there is no room for all.
    fn batch(
        &mut self,
        volume: &dyn Volume,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        batch: &[Ready],
    ) {
        if batch.iter().all(|ready| ready.pieces <= 1) {
            let skip = Skip::new(SkipReason::AlreadyContiguous, "");
            let mut left =
                |r: &Ready| self.skip(r.planned, Some(r.pieces), &skip, Some(&mut *file));
            batch.iter().for_each(&mut left);
            return;
        }
        if !self.options.dry_run {
            self.write_back(file, ByteRange { start: 0, end: file.size().unwrap_or(0) });
            if self.stopped() {
                self.summary.ranges_left += batch.len() as u64;
                return;
            }
        }
        let ranges: Vec<ByteRange> = batch.iter().map(|r| r.planned.range()).collect();
        let need = file.need(&ranges);
        if self.options.dry_run && need.is_ok() {
            batch.iter().for_each(|ready| self.would_move(ready));
            return;
        }
        let room = need.and_then(|need| self.room_for(volume, need));
        file.set_floor(self.floor(volume));
        file.set_unshare(self.options.unshare);
        let staged = room.and_then(|()| file.stage(&ranges));
        match staged {
            Ok(pieces) => {
                let whole = file.moves() == Moves::File;
                let better = |index: usize| whole || pieces[index] < batch[index].pieces;
                let mut problems: Vec<Option<Skip>> = vec![None; batch.len()];
                for index in (0..batch.len()).filter(|i| whole && better(*i)) {
                    problems[index] = self.prepare(file, planned, ranges[index], index).err();
                }
                for group in groups(self.group_bytes(file.moves()), &ranges, better) {
                    if self.stopped() {
                        self.summary.ranges_left += group.len() as u64;
                        continue;
                    }
                    if let Moves::Groups { .. } = file.moves() {
                        for &index in group.iter().filter(|i| better(**i)) {
                            problems[index] =
                                self.prepare(file, planned, ranges[index], index).err();
                        }
                        if self.stopped() {
                            self.summary.ranges_left += group.len() as u64;
                            continue;
                        }
                        let fine = |index: &usize| problems[*index].is_none() && better(*index);
                        let fine: Vec<usize> = group.iter().copied().filter(fine).collect();
                        file.announce(&fine);
                    }
                    for index in group {
                        let problem = problems[index].take();
                        self.range(file, planned, &batch[index], index, pieces[index], problem);
                    }
                }
                // Somebody waits for the end.
                let prompt = self.stopped().then(Prompt::begin);
                let settled = file.settle();
                drop(prompt);
                let held = file.kept_out().as_secs_f64();
                self.summary.longest_step_seconds = self.summary.longest_step_seconds.max(held);
                let undurable = self.undurable.take().map_or(Ok(()), Err);
                let settled = settled.and(undurable);
                let told = std::mem::take(&mut self.unsettled);
                if let Err(skip) = settled {
                    told.iter().for_each(|receipt| self.unsettle(file, receipt, &skip));
                    self.note_failure(&skip);
                }
            }
            Err(skip)
                if batch.len() > 1 && is_about_space(&skip) && file.moves() != Moves::File =>
            {
                let (first, second) = batch.split_at(batch.len() / 2);
                self.batch(volume, file, planned, first);
                self.batch(volume, file, planned, second);
            }
            Err(skip) => {
                let mut left =
                    |r: &Ready| self.skip(r.planned, Some(r.pieces), &skip, Some(&mut *file));
                batch.iter().for_each(&mut left);
            }
        }
    }

    /// As much as is relocated together: as much as the engine can, and the pace allows in a moment.
    fn group_bytes(&self, moves: Moves) -> u64 {
        match (moves, self.options.rate) {
            (Moves::Groups { bytes }, Rate::BytesPerSecond(rate)) => bytes.min(rate / 20),
            (Moves::Groups { bytes }, _) => bytes,
            _ => 0,
        }
    }

    /// Writes out what others have left dirty, step by step until `stop`: staging waits for all of it
    /// at once, on a slow disk for long. Errors are met again there.
    fn write_back(&self, file: &dyn Movable, range: ByteRange) {
        if range.is_empty() || self.stopped() {
            return;
        }
        let range = match file.is_dirty(range) {
            Some(false) => return,
            Some(true) => range,
            // Where nobody tells (before Linux 6.5), no time goes into holes.
            None => match file.next_data(range.start).filter(|at| *at < range.end) {
                Some(at) => ByteRange { start: at.max(range.start), ..range },
                None => return,
            },
        };
        if range.len() <= WRITE_BACK_STEP {
            return file.write_back(range);
        }
        // By halves, so that a hole of any size is one look.
        let half = range.start + (range.len() / 2).next_multiple_of(WRITE_BACK_STEP);
        self.write_back(file, ByteRange { end: half, ..range });
        self.write_back(file, ByteRange { start: half, ..range });
    }

    /// So much stays free on the file system, in bytes.
    fn floor(&self, volume: &dyn Volume) -> u64 {
        self.options.free_floor_bytes.unwrap_or(volume.total_bytes() / 20)
    }

    /// Whether staging leaves the free space above the floor.
    fn room_for(&self, volume: &dyn Volume, need: u64) -> Result<(), Skip> {
        let floor = self.floor(volume);
        let free = volume.free_bytes()?;
        if free < need.saturating_add(floor) {
            let detail = format!("{free} bytes free, {need} needed above the floor of {floor}");
            return Err(Skip::new(SkipReason::FreeSpaceFloor, detail));
        }
        Ok(())
    }

    fn pacer(&mut self, planned: &PlannedFile) -> &mut Pacer {
        let (rate, device) = (self.options.rate, planned.file.device);
        self.pacers.entry(device).or_insert_with(|| Pacer::new(rate, &self.root, device))
    }
}

fn is_about_space(skip: &Skip) -> bool {
    matches!(skip.reason, SkipReason::NoSpace | SkipReason::Quota | SkipReason::FreeSpaceFloor)
}
