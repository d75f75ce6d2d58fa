//! The plan, file by file, batch by batch, step by step. Knows nothing of file systems: that is
//! the engine's part, behind [`Volume`].

mod tell;

use crate::begin::{lock, volumes};
use crate::engine::{Choice, Refused};
use crate::look::{Ready, look};
use crate::pace::{self, Pacer, Rate};
use crate::receipt::{Event, Outcome, Receipt, Start, Summary};
use fragmend_layout::{ByteRange, Movable, Moves, PathText, Skip, SkipReason, Volume};
use fragmend_plan::{PlanSource, PlannedFile};
use fragmend_sys::priority::Prompt;
use fragmend_sys::process;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tell::note_primitive;

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

/// Applies `plan`, telling `tell` everything as it happens, until the end or until `stop`.
///
/// # Errors
/// [`ApplyError`] before anything was touched. What goes wrong later is in the receipts.
pub fn apply(
    plan: &dyn PlanSource,
    options: &Options,
    stop: &AtomicBool,
    mut tell: impl FnMut(Event),
) -> Result<Summary, ApplyError> {
    let totals = plan.totals();
    let volumes = volumes(plan, &totals, options)?;
    let _locks = if options.dry_run { Vec::new() } else { lock(volumes.values())? };
    tell(Event::Start(Start {
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
    tell(Event::Summary(summary.clone()));
    Ok(summary)
}

struct Run<'a> {
    options: &'a Options,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Event),
    pacers: HashMap<u64, Pacer>,
    /// Where the file system of the file in hand is mounted.
    root: PathBuf,
    /// What the file in hand is called now.
    path: PathText,
    /// Allocation block of the file in hand, in bytes: no step is shorter.
    block: u64,
    /// Receipts of the batch in hand: until it is settled, all may have to go back.
    unsettled: Vec<Receipt>,
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
                planned.ranges.iter().for_each(|r| self.skip(r, None, &skip));
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
                    Err((pieces, skip)) => self.skip(range, pieces, &skip),
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
            batch.iter().for_each(|r| self.skip(r.planned, Some(r.pieces), &skip));
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
                batch.iter().for_each(|r| self.skip(r.planned, Some(r.pieces), &skip));
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
        if range.is_empty() || self.stopped() || !file.is_dirty(range) {
            return;
        }
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
            let due = pacer.due(part.len(), step.elapsed());
            pause(pacer, due, stop, file)?;
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
        if staged >= ready.pieces && file.moves() != Moves::File {
            let detail = format!("{} pieces now, {staged} at best", ready.pieces);
            let skip = Skip::new(SkipReason::NoBetterPlace, detail);
            return self.skip(ready.planned, Some(ready.pieces), &skip);
        }
        let started = Instant::now();
        let range = ready.planned.range();
        let mut receipt = self.blank(ready.planned, Outcome::Moved, Some(ready.pieces));
        let moves = file.moves();
        let (whole, returns, shortest) = match moves {
            Moves::Parts { returns, shortest, .. } => (false, returns, shortest),
            _ => (true, false, 0),
        };
        if moves.prepared_apart() {
            problem = self.prepare(file, planned, range, index).err();
        }
        let (step_bytes, block, stop) = (self.options.step_bytes, self.block, self.stop);
        let pacer = self.pacer(planned);
        let least = shortest.max(block);
        let (mut moved_by, mut note) = (Vec::new(), None);
        let mut at = range.start;
        while at < range.end && problem.is_none() {
            // Of a group, it may have moved already.
            if stop.load(Ordering::Relaxed) && !matches!(moves, Moves::Groups { .. }) {
                receipt.outcome = Outcome::Interrupted;
                break;
            }
            let part = match whole {
                true => range,
                false => pacer.part(at, step_bytes.max(least), least).intersect(range),
            };
            let step = Instant::now();
            let done = file.relocate(index, part);
            let held = done.held.as_secs_f64();
            receipt.longest_step_seconds = receipt.longest_step_seconds.max(held);
            note_primitive(&mut receipt, &mut moved_by, &done);
            receipt.moved_bytes += done.moved;
            note = note.or(done.note);
            at += done.moved + done.passed;
            problem = done.skip;
            if whole {
                // What it leaves behind lies well enough.
                break;
            }
            if problem.is_none() {
                // What was prepared has been counted.
                let bytes = if moves.prepared_apart() { 0 } else { done.moved };
                let due = pacer.due(bytes, step.elapsed());
                problem = pause(pacer, due, stop, file).err();
            }
        }
        let pieces = |file: &mut dyn Movable| file.layout(range).map(|l| l.pieces(range)).ok();
        if returns && pieces(file).is_some_and(|after| after > ready.pieces) {
            // Never make it worse: what did move moves back.
            let mut moved = ByteRange::at(range.start, receipt.moved_bytes);
            while !moved.is_empty() {
                let part = ByteRange::at(moved.start, step_bytes.max(block)).intersect(moved);
                let back = file.relocate(index, part);
                note_primitive(&mut receipt, &mut moved_by, &back);
                receipt.moved_bytes += back.moved;
                moved.start += back.moved;
                if back.moved == 0 || back.skip.is_some() {
                    break;
                }
            }
        }
        receipt.extents_after = pieces(file);
        // A range that moves as a whole and could not be put back is no hole for the better, nor is one
        // that is stored in another way now.
        let spoiled = |skip: &Skip| whole || skip.reason == SkipReason::LayoutChanged;
        let there = !problem.as_ref().is_some_and(spoiled);
        // No data is no fewer pieces.
        let fewer = |after| after > 0 && after < ready.pieces;
        let better = there && receipt.extents_after.is_some_and(fewer);
        if receipt.outcome == Outcome::Moved && !better {
            receipt.outcome = Outcome::Skipped;
            let skip = problem.unwrap_or_else(|| {
                if receipt.extents_after == Some(0) {
                    return Skip::new(SkipReason::LayoutChanged, "the range holds no data now");
                }
                if ready.pieces <= 1 {
                    return Skip::new(SkipReason::AlreadyContiguous, "it moved with the others");
                }
                let lies = match receipt.extents_after {
                    // It stays where it went.
                    Some(after) if !returns => {
                        format!("it moved, and lies in {after} pieces after {}", ready.pieces)
                    }
                    _ => "it would not lie in fewer pieces".into(),
                };
                Skip::new(SkipReason::NoBetterPlace, lies)
            });
            (receipt.reason, receipt.detail) = (Some(skip.reason), Some(skip.detail));
        } else if let Some(skip) = problem {
            if skip.reason == SkipReason::Failed {
                self.note_failure(&skip);
            }
            receipt.detail = Some(format!("in part: {}", skip.detail));
        }
        receipt.detail = match (receipt.detail.take(), note) {
            (Some(detail), Some(note)) => Some(format!("{detail}; {note}")),
            (detail, note) => detail.or(note),
        };
        for (primitive, bytes) in moved_by {
            self.count(primitive, bytes);
        }
        if receipt.outcome == Outcome::Moved {
            let takes = file.layout(range).map_or(0, |l| l.stored_bytes(range));
            receipt.space_cost_bytes = takes.saturating_sub(ready.own_space);
        }
        receipt.seconds = started.elapsed().as_secs_f64();
        self.unsettled.push(receipt.clone());
        self.receive(receipt);
    }
}

/// Waits so long, or until `stop`; who comes for the file meanwhile is let in.
fn pause(
    pacer: &mut Pacer,
    long: Duration,
    stop: &AtomicBool,
    file: &mut dyn Movable,
) -> Result<(), Skip> {
    let until = Instant::now() + long;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left > pace::SHORT {
            file.let_others_in()?;
        }
        pacer.pause(left.min(pace::SHORT), stop);
        if left <= pace::SHORT || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

fn is_about_space(skip: &Skip) -> bool {
    matches!(skip.reason, SkipReason::NoSpace | SkipReason::Quota | SkipReason::FreeSpaceFloor)
}

/// The staged ranges in groups of at most so many bytes, or of one range. What is left alone is in
/// a group of its own.
fn groups(most: u64, ranges: &[ByteRange], better: impl Fn(usize) -> bool) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let (mut bytes, mut open) = (0, false);
    for (index, range) in ranges.iter().enumerate() {
        bytes += range.len();
        match groups.last_mut().filter(|_| open && bytes <= most && better(index)) {
            Some(group) => group.push(index),
            None => {
                groups.push(vec![index]);
                (bytes, open) = (range.len(), better(index));
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_full_and_leave_out_what_stays() {
        let ranges: Vec<ByteRange> =
            [4, 4, 4, 9, 1, 1].into_iter().map(|len| ByteRange::at(0, len)).collect();
        let groups = |most, stays: usize| groups(most, &ranges, |index| index != stays);
        assert_eq!(groups(0, 9), [vec![0], vec![1], vec![2], vec![3], vec![4], vec![5]]);
        assert_eq!(groups(8, 9), [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
        assert_eq!(groups(100, 9), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(groups(100, 2), [vec![0, 1], vec![2], vec![3, 4, 5]]);
    }
}
