//! The plan, file by file, batch by batch, step by step. It knows nothing of file systems: that is the engine's
//! part, behind [`Volume`].

mod batch;
mod tell;

use crate::environment::Environment;
use crate::look::{Ready, already_contiguous, look};
use crate::pace::{Pacer, Rate};
use crate::receipt::{Event, FreeSegments, Listener, Receipt, Start, Summary};
use batch::Batch;
use fragmend_layout::{
    ByteRange, Movable, PathText, Settled, Skip, SkipReason, Target, Terms, Underway, Volume,
    schema,
};
use fragmend_plan::{PlanSource, PlannedFile, Totals};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of a file that are written back between two checks of `stop`.
const WRITE_BACK_STEP: u64 = 1 << 20;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How fast.
    pub rate: Rate,
    /// The bytes that must stay free on the file system; `None` is a twentieth of it.
    pub free_floor_bytes: Option<u64>,
    /// Also move data that is shared with other files or snapshots, which needs space.
    pub unshare: bool,
    /// Only check and report; move nothing.
    pub dry_run: bool,
    /// Bytes exchanged in one step: as long as a step lasts, writers of the file wait.
    pub step_bytes: u64,
    /// Bytes staged at once: this much free space is needed beside the data.
    pub batch_bytes: u64,
}

impl Options {
    /// The values for moving data beside a service that is in use.
    pub const DEFAULT: Self = Self {
        rate: Rate::Yielding,
        free_floor_bytes: None,
        unshare: false,
        dry_run: false,
        step_bytes: 256 << 10,
        batch_bytes: 64 << 20,
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The volumes of a plan, by the device number of their files' identities.
pub type Volumes = HashMap<u64, Box<dyn Volume>>;

/// Why a plan was refused before anything was touched.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The caller has no volume for a file system of the plan.
    #[error("{0}: nothing to move files on was given for this file system of the plan")]
    NoVolume(String),
    /// The plan's block size is not the file system's.
    #[error(
        "{mount}: the plan says blocks of {planned} bytes, the file system has {found}; nothing was touched; make a new plan"
    )]
    BlockSize {
        /// Where it is mounted.
        mount: String,
        /// The plan's block size, in bytes.
        planned: u64,
        /// The file system's block size, in bytes.
        found: u64,
    },
}

/// Applies `plan` to its end or until `stop`, and reports each event to `tell` as it happens. A slow listener
/// delays the run, but only while no program is kept out of a file. The volumes are dropped, and with them what
/// they have locked, before the summary is reported.
///
/// # Errors
/// [`ApplyError`] before anything was touched. What goes wrong later is in the receipts.
pub fn apply(
    plan: &dyn PlanSource,
    volumes: Volumes,
    environment: &dyn Environment,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl Listener,
) -> Result<Summary, ApplyError> {
    let totals = plan.totals();
    are_as_planned(plan, &totals, &volumes)?;
    tell.tell(Event::Start(Start {
        schema_version: schema::DOCUMENT,
        bytes_to_move: totals.bytes,
        ranges: totals.ranges,
        files: totals.files,
    }));
    environment.give_way();
    let (started, before) = (environment.now(), environment.own_io());
    let free_segments_before = free_segments(&volumes);
    let mut run = Run {
        environment,
        options,
        stop,
        tell: &mut tell,
        pacers: HashMap::new(),
        on: None,
        block: 1,
        path: Path::new("").into(),
        unsettled: Vec::new(),
        undurable: None,
        summary: Summary {
            schema_version: schema::DOCUMENT,
            dry_run: options.dry_run,
            ..Summary::default()
        },
    };
    let mut done = 0;
    let read = plan.each(&mut |file| {
        done += file.ranges.len() as u64;
        if let Some(volume) = volumes.get(&file.file.device) {
            run.file(&**volume, file);
            // The error of a batch that was never staged.
            if let Some(skip) = run.undurable.take() {
                run.note_failure(&skip);
            }
            // No descriptor of the file is open any more.
            run.tell.catch_up(None);
        }
    });
    if let Err(error) = read {
        // The plan is being written to: what was done so far is complete, the rest is not to be trusted.
        run.path = Path::new("").into();
        run.note_failure(&Skip::new(SkipReason::Failed, format!("the plan has changed: {error}")));
        run.summary.ranges_left += totals.ranges.saturating_sub(done);
    }
    let paused = run.pacers.values().map(|p| p.paused).sum::<Duration>();
    let mut summary = run.summary;
    run.pacers.values().for_each(|pacer| summary.beside_readers += pacer.beside);
    summary.paused_seconds = paused.as_secs_f64();
    summary.seconds = (environment.now() - started).as_secs_f64();
    summary.interrupted = stop.load(Ordering::Relaxed) && summary.ranges_left > 0;
    let after = environment.own_io();
    summary.written_bytes = after.written_bytes - before.written_bytes;
    summary.read_bytes = after.read_bytes - before.read_bytes;
    let free_segments = free_segments_before.zip(free_segments(&volumes));
    summary.free_segments =
        free_segments.map(|(before, after)| Box::new(FreeSegments { before, after }));
    // Other programs may begin now, however long the report needs.
    drop(volumes);
    tell.tell(Event::Summary(summary.clone()));
    tell.catch_up(None);
    Ok(summary)
}

/// Free segments of all volumes that have any; each is one file system.
fn free_segments(volumes: &Volumes) -> Option<u64> {
    let free: Vec<u64> = volumes.values().filter_map(|volume| volume.free_segments()).collect();
    (!free.is_empty()).then(|| free.iter().sum())
}

/// Checks that there is a volume for each device of the plan's files, with the block size of the plan.
fn are_as_planned(
    plan: &dyn PlanSource,
    totals: &Totals,
    volumes: &Volumes,
) -> Result<(), ApplyError> {
    for device in plan.devices().iter().filter(|d| totals.devices.contains(&d.device)) {
        let mount = device.mount.path.clone();
        let Some(volume) = volumes.get(&device.device) else {
            return Err(ApplyError::NoVolume(mount));
        };
        let (planned, found) = (device.block_bytes, volume.block_bytes());
        if planned != found {
            return Err(ApplyError::BlockSize { mount, planned, found });
        }
    }
    Ok(())
}

struct Run<'a> {
    environment: &'a dyn Environment,
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: &'a mut dyn Listener,
    pacers: HashMap<u64, Pacer<'a>>,
    /// The device of the current file.
    on: Option<u64>,
    /// The present path of the current file.
    path: PathText,
    /// Allocation block of the current file, in bytes: no step is shorter.
    block: u64,
    /// Receipts of the current batch: until it is settled, all of it may have to move back. With each where the range was,
    /// if it was contiguous there, and is written anew.
    unsettled: Vec<(Receipt, Option<u64>)>,
    /// Why a move of the current batch is not known to be durable.
    undurable: Option<Skip>,
    summary: Summary,
}

impl<'a> Run<'a> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn file(&mut self, volume: &dyn Volume, planned: &PlannedFile) {
        if self.stopped() {
            self.summary.ranges_left += planned.ranges.len() as u64;
            return;
        }
        self.block = volume.block_bytes();
        let path = planned.path.to_path().unwrap_or_default();
        let opened = volume.open(planned.file, &path);
        // It may have been renamed since the plan was made: receipts give its present path.
        let found = opened.as_ref().ok().and_then(|file| file.path()).filter(|p| *p != path);
        self.path = found.map_or_else(|| planned.path.clone(), |p| p.as_path().into());
        let mut file = match opened {
            Ok(file) => file,
            Err(skip) => {
                planned.ranges.iter().for_each(|r| self.leave(r, None, &skip, None));
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
            let all = file.all_or_nothing();
            let fits = |bytes: u64| all || bytes <= self.options.batch_bytes;
            while let Some(range) = rest.next_if(|r| batch.is_empty() || fits(bytes + r.length)) {
                match look(&mut *file, range, self.block, self.options.unshare) {
                    Ok(ready) => {
                        bytes += range.length;
                        batch.push(ready);
                    }
                    Err((fragments, skip)) => self.leave(range, fragments, &skip, Some(&mut *file)),
                }
            }
            self.batch(volume, &mut *file, planned, &batch);
        }
    }

    /// Relocates the whole batch, or one half after the other where there is not enough space for all of it.
    fn batch(
        &mut self,
        volume: &dyn Volume,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        batch: &[Ready],
    ) {
        if batch.iter().all(|ready| ready.fragments <= 1 && !ready.anew) {
            for ready in batch {
                let slow = ready.planned.slow_at.is_some();
                let refused = file.writes_anew().err().filter(|_| slow);
                let skip = refused.unwrap_or_else(|| already_contiguous(ready.planned));
                self.leave(ready.planned, Some(ready.fragments), &skip, Some(&mut *file));
            }
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
        let room = file.need(&ranges).and_then(|need| self.room_for(volume, need));
        if self.options.dry_run && room.is_ok() {
            batch.iter().for_each(|ready| self.would_move(ready));
            return;
        }
        let terms = Terms { floor: self.floor(volume), unshare: self.options.unshare };
        let target =
            |r: &Ready| Target { range: r.planned.range(), fragments: r.fragments, anew: r.anew };
        let targets: Vec<Target> = batch.iter().map(target).collect();
        let device = planned.file.device;
        let mut pace = Batch { run: &mut *self, device, ready: batch, done: 0 };
        let settled = room.and_then(|()| file.relocate(&targets, &terms, &mut pace));
        let done = pace.done;
        match settled {
            Ok(settled) => {
                self.summary.ranges_left += (batch.len() - done) as u64;
                self.settled(file, settled);
            }
            Err(skip) if batch.len() > 1 && is_about_space(&skip) && !file.all_or_nothing() => {
                let (first, second) = batch.split_at(batch.len() / 2);
                self.batch(volume, file, planned, first);
                self.batch(volume, file, planned, second);
            }
            Err(skip) => self.leave_all(batch, &skip, file),
        }
    }

    /// Ends a batch whose ranges were reported; reports them again if they may not be durable.
    fn settled(&mut self, file: &mut dyn Underway, settled: Settled) {
        let held = settled.held.as_secs_f64();
        self.summary.longest_step_seconds = self.summary.longest_step_seconds.max(held);
        let undurable = self.undurable.take().map_or(Ok(()), Err);
        let told = std::mem::take(&mut self.unsettled);
        if let Err(skip) = settled.durable.and(undurable) {
            told.iter().for_each(|told| self.unsettle(file, told, &skip));
            self.note_failure(&skip);
        }
    }

    /// Writes back what others have left dirty, step by step until `stop`: staging would wait for all of it at
    /// once, which can be long on a slow disk. Errors occur again there, and are handled there.
    fn write_back(&self, file: &dyn Movable, range: ByteRange) {
        if range.is_empty() || self.stopped() {
            return;
        }
        let range = match file.is_dirty(range) {
            Some(false) => return,
            Some(true) => range,
            // Where the kernel cannot report dirty pages (before Linux 6.5), holes are skipped.
            None => match file.next_data(range.start).filter(|at| *at < range.end) {
                Some(at) => ByteRange { start: at.max(range.start), ..range },
                None => return,
            },
        };
        if range.len() <= WRITE_BACK_STEP {
            return file.write_back(range, self.stop);
        }
        // By halves, so that a hole of any size needs one look.
        let half = range.start + (range.len() / 2).next_multiple_of(WRITE_BACK_STEP);
        self.write_back(file, ByteRange { end: half, ..range });
        self.write_back(file, ByteRange { start: half, ..range });
    }

    /// The bytes that must stay free on the file system.
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

    fn pacer(&mut self, device: u64) -> &mut Pacer<'a> {
        let (rate, world) = (self.options.rate, self.environment);
        let pacer = self.pacers.entry(device).or_insert_with(|| Pacer::new(rate, world, device));
        if self.on.replace(device) != Some(device) {
            pacer.begin();
        }
        pacer
    }
}

fn is_about_space(skip: &Skip) -> bool {
    matches!(skip.reason, SkipReason::NoSpace | SkipReason::Quota | SkipReason::FreeSpaceFloor)
}
