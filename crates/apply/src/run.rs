//! The plan, file by file, batch by batch, step by step. Knows nothing of file systems: that is
//! the engine's part, behind [`Volume`].

use crate::engine::{Choice, Refused, volume_for};
use crate::look::{Ready, look};
use crate::pace::{Pacer, Rate};
use crate::receipt::{Event, Outcome, Receipt, Start, Summary};
use fragmend_layout::{ByteRange, Movable, Skip, SkipReason, Volume};
use fragmend_plan::{Plan, PlannedFile, PlannedRange};
use fragmend_sys::{mounts, process};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Version of the events.
pub const SCHEMA_VERSION: u32 = 1;

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
    /// The mount table cannot be read.
    #[error("cannot read the mount table: {0}")]
    Mounts(std::io::Error),
}

/// Applies `plan`, telling `tell` everything as it happens, until the end or until `stop`.
///
/// # Errors
/// [`ApplyError`] before anything was touched. What goes wrong later is in the receipts.
pub fn apply(
    plan: &Plan,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl FnMut(Event),
) -> Result<Summary, ApplyError> {
    let volumes = volumes(plan, options)?;
    let _locks = if options.dry_run { Vec::new() } else { lock(volumes.values())? };
    let ranges: usize = plan.files.iter().map(|f| f.ranges.len()).sum();
    tell(Event::Start(Start {
        schema_version: SCHEMA_VERSION,
        bytes_to_move: plan.bytes_to_move(),
        ranges: ranges as u64,
        files: plan.files.len() as u64,
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
        summary: Summary {
            schema_version: SCHEMA_VERSION,
            dry_run: options.dry_run,
            ..Summary::default()
        },
    };
    for file in &plan.files {
        run.file(&*volumes[&file.file.device], file);
    }
    let paused = run.pacers.values().map(|p| p.paused).sum::<Duration>();
    let mut summary = run.summary;
    summary.paused_seconds = paused.as_secs_f64();
    summary.seconds = started.elapsed().as_secs_f64();
    summary.interrupted = stop.load(Ordering::Relaxed) && summary.ranges_left > 0;
    let now = process::io_account().unwrap_or_default();
    summary.written_bytes = now.write_bytes - account.write_bytes;
    summary.read_bytes = now.read_bytes - account.read_bytes;
    tell(Event::Summary(summary.clone()));
    Ok(summary)
}

/// The engines for all devices of the plan: all of them, or an error before anything is touched.
fn volumes(plan: &Plan, options: &Options) -> Result<HashMap<u64, Box<dyn Volume>>, ApplyError> {
    let mounts = mounts::all().map_err(ApplyError::Mounts)?;
    let mut volumes = HashMap::new();
    for device in &plan.devices {
        if !plan.files.iter().any(|f| f.file.device == device.device) {
            continue;
        }
        let recorded = device.mount.to_path().unwrap_or_default();
        let mount = mounts::of_root(&mounts, device.device, &recorded).ok_or_else(|| {
            let there = mounts.iter().any(|m| m.point == recorded);
            let name = device.mount.path.clone();
            if there { ApplyError::Renumbered(name) } else { ApplyError::NotMounted(name) }
        })?;
        let volume = volume_for(&mount, &options.engine, options.force)?;
        let (planned, found) = (device.block_bytes, volume.block_bytes());
        if planned != found {
            let mount = mount.point.display().to_string();
            return Err(ApplyError::BlockSize { mount, planned, found });
        }
        volumes.insert(device.device, volume);
    }
    Ok(volumes)
}

/// One mending at a time per file system: two would undo each other's choices and move the same
/// data twice. The lock is on the root directory, and goes with the process.
fn lock<'a>(
    volumes: impl Iterator<Item = &'a Box<dyn Volume>>,
) -> Result<Vec<std::fs::File>, ApplyError> {
    let mut locks = Vec::new();
    for volume in volumes {
        let Ok(root) = std::fs::File::open(volume.root()) else { continue };
        let take =
            || rustix::fs::flock(&root, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        // One that has just ended may be held for a moment by a child that it started.
        let mut tries = 0..10;
        let mut taken = take();
        while taken == Err(rustix::io::Errno::WOULDBLOCK) && tries.next().is_some() {
            std::thread::sleep(Duration::from_millis(20));
            taken = take();
        }
        match taken {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(ApplyError::AtWork(volume.root().display().to_string()));
            }
            // A file system without locks is no reason not to mend it.
            _ => locks.push(root),
        }
    }
    Ok(locks)
}

struct Run<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Event),
    pacers: HashMap<u64, Pacer>,
    /// Where the file system of the file in hand is mounted.
    root: PathBuf,
    /// Allocation block of the file in hand, in bytes: no step is shorter.
    block: u64,
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
        let renamed = found.map(|p| PlannedFile { path: p.as_path().into(), ..planned.clone() });
        let planned = renamed.as_ref().unwrap_or(planned);
        let mut file = match opened {
            Ok(file) => file,
            Err(skip) => {
                planned.ranges.iter().for_each(|r| self.skip(planned, r, None, &skip));
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
            while let Some(range) =
                rest.next_if(|r| batch.is_empty() || bytes + r.length <= self.options.batch_bytes)
            {
                match look(&mut *file, range, self.block, self.options.unshare) {
                    Ok(ready) => {
                        bytes += range.length;
                        batch.push(ready);
                    }
                    Err((pieces, skip)) => self.skip(planned, range, pieces, &skip),
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
        if batch.is_empty() {
            return;
        }
        if self.options.dry_run {
            batch.iter().for_each(|ready| self.would_move(planned, ready));
            return;
        }
        let ranges: Vec<ByteRange> = batch.iter().map(|r| r.planned.range()).collect();
        let staged = self.room_for(volume, &ranges).and_then(|()| file.stage(&ranges));
        match staged {
            Ok(pieces) => {
                let better = |index: usize| pieces[index] < batch[index].pieces;
                let mut problems: Vec<Option<Skip>> = vec![None; batch.len()];
                let ahead = file.prepares_ahead();
                for index in (0..batch.len()).filter(|i| ahead && better(*i)) {
                    problems[index] = self.prepare(file, planned, ranges[index], index).err();
                }
                for (index, (ready, problem)) in batch.iter().zip(problems).enumerate() {
                    if self.stopped() {
                        self.summary.ranges_left += 1;
                    } else {
                        self.range(file, planned, ready, index, pieces[index], problem);
                    }
                }
                if let Err(skip) = file.settle() {
                    // The data is where it was or where it went, both intact; what cannot be
                    // promised is that the move survives a power cut.
                    self.note_failure(planned, &skip);
                }
            }
            Err(skip) if batch.len() > 1 && is_about_space(&skip) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                self.batch(volume, file, planned, first);
                self.batch(volume, file, planned, second);
            }
            Err(skip) => {
                batch.iter().for_each(|r| self.skip(planned, r.planned, Some(r.pieces), &skip));
            }
        }
    }

    /// Whether staging leaves the free space above the floor.
    fn room_for(&self, volume: &dyn Volume, ranges: &[ByteRange]) -> Result<(), Skip> {
        let floor = self.options.free_floor_bytes.unwrap_or(volume.total_bytes() / 20);
        let need: u64 = ranges.iter().map(|r| r.len()).sum();
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

    /// Prepares a range that moves as a whole, part by part.
    fn prepare(
        &mut self,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        range: ByteRange,
        index: usize,
    ) -> Result<(), Skip> {
        let (step_bytes, block, stop) = (self.options.step_bytes, self.block, self.stop);
        let pacer = self.pacer(planned);
        let mut at = range.start;
        while at < range.end && !stop.load(Ordering::Relaxed) {
            let part = pacer.part(at, step_bytes.max(block), block).intersect(range);
            let step = Instant::now();
            file.prepare(index, part)?;
            pacer.after_step(part.len(), step.elapsed(), stop);
            at = part.end;
        }
        Ok(())
    }

    /// Relocates a staged range, unless it has met a problem already, and gives its receipt.
    fn range(
        &mut self,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        ready: &Ready,
        index: usize,
        staged: u64,
        mut problem: Option<Skip>,
    ) {
        if staged >= ready.pieces {
            let detail = format!("{} pieces now, {staged} at best", ready.pieces);
            let skip = Skip::new(SkipReason::NoBetterPlace, detail);
            return self.skip(planned, ready.planned, Some(ready.pieces), &skip);
        }
        let started = Instant::now();
        let range = ready.planned.range();
        let mut receipt = blank(planned, ready.planned, Outcome::Moved, Some(ready.pieces));
        let whole = file.moves_whole_ranges();
        if whole && !file.prepares_ahead() {
            problem = self.prepare(file, planned, range, index).err();
        }
        let (step_bytes, block, stop) = (self.options.step_bytes, self.block, self.stop);
        let pacer = self.pacer(planned);
        while receipt.moved_bytes < range.len() && problem.is_none() {
            if stop.load(Ordering::Relaxed) {
                receipt.outcome = Outcome::Interrupted;
                break;
            }
            let at = range.start + receipt.moved_bytes;
            let part = match whole {
                true => range,
                false => pacer.part(at, step_bytes.max(block), block).intersect(range),
            };
            let step = Instant::now();
            let done = file.relocate(index, part);
            let held = done.held.as_secs_f64();
            receipt.longest_step_seconds = receipt.longest_step_seconds.max(held);
            receipt.moved_bytes += done.moved;
            problem = done.skip;
            if whole {
                // What it leaves behind lies well enough.
                break;
            }
            if problem.is_none() {
                pacer.after_step(done.moved, step.elapsed(), stop);
            }
        }
        let pieces = |file: &mut dyn Movable| file.layout(range).map(|l| l.pieces(range)).ok();
        if !whole && pieces(file).is_some_and(|after| after > ready.pieces) {
            // Never make it worse: what did move moves back.
            let moved = ByteRange::at(range.start, receipt.moved_bytes);
            receipt.moved_bytes += file.relocate(index, moved).moved;
        }
        receipt.extents_after = pieces(file);
        // A range that moves as a whole and could not be put back is no hole for the better.
        let there = !whole || problem.is_none();
        let better = there && receipt.extents_after.is_some_and(|after| after < ready.pieces);
        if receipt.outcome == Outcome::Moved && !better {
            receipt.outcome = Outcome::Skipped;
            let skip = problem.unwrap_or_else(|| {
                let lies = match receipt.extents_after {
                    // It moved as a whole, and stays there.
                    Some(after) if whole => {
                        format!("it moved, and lies in {after} pieces after {}", ready.pieces)
                    }
                    _ => "it would not lie in fewer pieces".into(),
                };
                Skip::new(SkipReason::NoBetterPlace, lies)
            });
            (receipt.reason, receipt.detail) = (Some(skip.reason), Some(skip.detail));
        } else if let Some(skip) = problem {
            receipt.detail = Some(format!("in part: {}", skip.detail));
        }
        if receipt.outcome == Outcome::Moved {
            let takes = file.layout(range).map_or(0, |l| l.stored_bytes(range));
            receipt.space_cost_bytes = takes.saturating_sub(ready.own_space);
        }
        receipt.seconds = started.elapsed().as_secs_f64();
        self.receive(receipt);
    }

    fn would_move(&mut self, planned: &PlannedFile, ready: &Ready) {
        self.summary.ranges_left += 1;
        let mut receipt = blank(planned, ready.planned, Outcome::WouldMove, Some(ready.pieces));
        receipt.space_cost_bytes = ready.space_cost;
        self.summary.space_cost_bytes += ready.space_cost;
        (self.tell)(Event::Range(receipt));
    }

    fn skip(
        &mut self,
        planned: &PlannedFile,
        range: &PlannedRange,
        pieces: Option<u64>,
        skip: &Skip,
    ) {
        let mut receipt = blank(planned, range, Outcome::Skipped, pieces);
        receipt.extents_after = pieces;
        receipt.reason = Some(skip.reason);
        receipt.detail = (!skip.detail.is_empty()).then(|| skip.detail.clone());
        self.receive(receipt);
    }

    fn receive(&mut self, receipt: Receipt) {
        let s = &mut self.summary;
        s.moved_bytes += receipt.moved_bytes;
        s.longest_step_seconds = s.longest_step_seconds.max(receipt.longest_step_seconds);
        match receipt.outcome {
            Outcome::Moved => {
                s.ranges_moved += 1;
                s.extents_before += receipt.extents_before.unwrap_or(0);
                s.extents_after += receipt.extents_after.unwrap_or(0);
                s.space_cost_bytes += receipt.space_cost_bytes;
            }
            Outcome::Interrupted => s.ranges_left += 1,
            Outcome::Skipped | Outcome::WouldMove => s.skip(&receipt),
        }
        (self.tell)(Event::Range(receipt));
    }

    /// Something went wrong with a file as a whole, after its ranges had their receipts.
    fn note_failure(&mut self, planned: &PlannedFile, skip: &Skip) {
        self.summary.skipped.push(crate::receipt::Skipped {
            path: planned.path.clone(),
            reason: SkipReason::Failed,
            detail: format!("{} ({:?})", skip.detail, skip.reason),
            ranges: 0,
            bytes: 0,
        });
    }
}

fn is_about_space(skip: &Skip) -> bool {
    matches!(skip.reason, SkipReason::NoSpace | SkipReason::Quota | SkipReason::FreeSpaceFloor)
}

fn blank(
    planned: &PlannedFile,
    range: &PlannedRange,
    outcome: Outcome,
    extents_before: Option<u64>,
) -> Receipt {
    Receipt {
        path: planned.path.clone(),
        offset: range.offset,
        length: range.length,
        outcome,
        extents_before,
        extents_after: None,
        moved_bytes: 0,
        space_cost_bytes: 0,
        seconds: 0.0,
        longest_step_seconds: 0.0,
        reason: None,
        detail: None,
    }
}
