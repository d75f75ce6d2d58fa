//! One range of a batch: prepared, relocated part by part, looked at again, and its receipt.

use super::Run;
use super::tell::note_primitive;
use crate::look::Ready;
use crate::pace::{self, Pacer};
use crate::receipt::{Outcome, Receipt};
use fragmend_layout::{ByteRange, Movable, Moves, Skip, SkipReason};
use fragmend_plan::PlannedFile;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long what has moved goes back once this is told to end: the rest stays where it went, in one piece more.
const GOING_BACK: Duration = Duration::from_millis(300);
/// After so many steps in which nothing has moved, a range is left alone.
const STEPS_IN_VAIN: u32 = 1000;

/// How a range fares.
struct Course {
    receipt: Receipt,
    /// What moved how much of it.
    moved_by: Vec<(&'static str, u64)>,
    /// What else its owner should know.
    note: Option<String>,
    /// Why not all of it moved.
    problem: Option<Skip>,
}

impl Run<'_> {
    /// Prepares a range that moves as a whole, part by part.
    pub(super) fn prepare(
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
    pub(super) fn range(
        &mut self,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        ready: &Ready,
        index: usize,
        staged: u64,
        problem: Option<Skip>,
    ) {
        let moves = file.moves();
        if staged >= ready.pieces && moves != Moves::File {
            let detail = format!("{} pieces now, {staged} at best", ready.pieces);
            let skip = Skip::new(SkipReason::NoBetterPlace, detail);
            return self.skip(ready.planned, Some(ready.pieces), &skip, Some(file));
        }
        let started = Instant::now();
        let range = ready.planned.range();
        if let Some((now, skip)) = joined_meanwhile(file, range, staged) {
            return self.skip(ready.planned, Some(now), &skip, Some(file));
        }
        let receipt = self.blank(ready.planned, Outcome::Moved, Some(ready.pieces));
        let mut course = Course { receipt, moved_by: Vec::new(), note: None, problem };
        if moves.prepared_apart() {
            course.problem = self.prepare(file, planned, range, index).err();
        }
        self.relocate(file, planned, index, range, &mut course);
        let (whole, returns) = match moves {
            Moves::Parts { returns, .. } => (false, returns),
            _ => (true, false),
        };
        let pieces = |file: &mut dyn Movable| file.layout(range).map(|l| l.pieces(range));
        if returns && pieces(file).is_ok_and(|after| after > ready.pieces) {
            self.put_back(file, index, range, &mut course);
        }
        let looked = pieces(file);
        course.receipt.extents_after = looked.as_ref().ok().copied();
        if course.problem.is_none() || course.receipt.moved_bytes > 0 {
            course.problem = looked.err().or(course.problem);
        }
        let failed = course.problem.clone().filter(|skip| skip.reason == SkipReason::Failed);
        let (mut receipt, moved_by) = course.judge(ready, whole, returns);
        if receipt.outcome == Outcome::Moved
            && let Some(skip) = failed
        {
            self.note_failure(&skip);
        }
        for (primitive, bytes) in moved_by {
            self.count(primitive, bytes);
        }
        if receipt.outcome == Outcome::Moved {
            let takes = file.layout(range).map_or(0, |l| l.stored_bytes(range));
            receipt.space_cost_bytes = takes.saturating_sub(ready.own_space);
        }
        receipt.seconds = started.elapsed().as_secs_f64();
        self.unsettled.push(receipt.clone());
        self.receive(receipt, Some(file));
    }

    /// Relocates a range, part by part or as a whole, until it meets a problem, or until `stop`.
    fn relocate(
        &mut self,
        file: &mut dyn Movable,
        planned: &PlannedFile,
        index: usize,
        range: ByteRange,
        course: &mut Course,
    ) {
        let moves = file.moves();
        let in_group = matches!(moves, Moves::Groups { .. });
        let (step_bytes, stop) = (self.options.step_bytes, self.stop);
        let least = match moves {
            Moves::Parts { shortest, .. } => Some(shortest.max(self.block)),
            _ => None,
        };
        let pacer = self.pacer(planned);
        let mut undurable = None;
        let (mut at, mut in_vain) = (range.start, 0);
        while at < range.end && course.problem.is_none() {
            // Of a group, it may have moved already.
            if stop.load(Ordering::Relaxed) && !in_group {
                course.receipt.outcome = Outcome::Interrupted;
                break;
            }
            let part = match least {
                Some(least) => pacer.part(at, step_bytes.max(least), least).intersect(range),
                None => range,
            };
            let step = Instant::now();
            let done = file.relocate_until(index, part, stop);
            let receipt = &mut course.receipt;
            let held = done.held.as_secs_f64();
            receipt.longest_step_seconds = receipt.longest_step_seconds.max(held);
            note_primitive(receipt, &mut course.moved_by, &done);
            receipt.moved_bytes += done.moved;
            course.note = course.note.take().or(done.note);
            at += done.moved + done.passed;
            course.problem = done.skip;
            if done.goes_on {
                continue;
            }
            in_vain = if done.moved + done.passed > 0 { 0 } else { in_vain + 1 };
            if in_vain >= STEPS_IN_VAIN && course.problem.is_none() {
                course.problem = Some(Skip::new(SkipReason::Busy, "it does not get on"));
            }
            let all_is_well = course.problem.is_none();
            if in_group && all_is_well && at < range.end && stop.load(Ordering::Relaxed) {
                receipt.outcome = Outcome::Interrupted;
            }
            if least.is_none() {
                // What it leaves behind lies well enough.
                break;
            }
            if all_is_well {
                // What was prepared has been counted.
                let bytes = if moves.prepared_apart() { 0 } else { done.moved };
                let due = pacer.due(bytes, step.elapsed());
                undurable = pause(pacer, due, stop, file).err();
                course.problem.clone_from(&undurable);
            }
        }
        self.undurable = self.undurable.take().or(undurable);
    }

    /// Never makes it worse: what did move moves back.
    fn put_back(
        &self,
        file: &mut dyn Movable,
        index: usize,
        range: ByteRange,
        course: &mut Course,
    ) {
        let mut moved = ByteRange::at(range.start, course.receipt.moved_bytes);
        let until = Instant::now() + GOING_BACK;
        while !moved.is_empty() {
            let step = self.options.step_bytes.max(self.block);
            let part = ByteRange::at(moved.start, step).intersect(moved);
            let back = file.relocate(index, part);
            note_primitive(&mut course.receipt, &mut course.moved_by, &back);
            course.receipt.moved_bytes += back.moved;
            let held = back.held.as_secs_f64();
            course.receipt.longest_step_seconds = course.receipt.longest_step_seconds.max(held);
            moved.start += back.moved;
            let in_time = !self.stop.load(Ordering::Relaxed) || Instant::now() < until;
            if back.moved == 0 || back.skip.is_some() || !in_time {
                break;
            }
        }
    }
}

impl Course {
    /// Whether it came out better, and if not, why; and what moved how much.
    fn judge(
        self,
        ready: &Ready,
        whole: bool,
        returns: bool,
    ) -> (Receipt, Vec<(&'static str, u64)>) {
        let Self { mut receipt, moved_by, note, problem } = self;
        // A range that moves as a whole and could not be put back is no hole for the better, nor is one
        // that is stored in another way now.
        let spoiled = |skip: &Skip| whole || skip.reason == SkipReason::LayoutChanged;
        let ours = receipt.moved_bytes > 0 || whole;
        let there = ours && !problem.as_ref().is_some_and(spoiled);
        // No data is no fewer pieces.
        let fewer = |after| after > 0 && after < ready.pieces;
        let better = there && receipt.extents_after.is_some_and(fewer);
        if receipt.outcome == Outcome::Moved && !better {
            receipt.outcome = Outcome::Skipped;
            let skip = problem.unwrap_or_else(|| no_better(&receipt, ready, returns));
            (receipt.reason, receipt.detail) = (Some(skip.reason), Some(skip.detail));
        } else if let Some(skip) = problem {
            receipt.detail = Some(format!("in part: {}", skip.detail));
        }
        receipt.detail = match (receipt.detail.take(), note) {
            (Some(detail), Some(note)) => Some(format!("{detail}; {note}")),
            (detail, note) => detail.or(note),
        };
        (receipt, moved_by)
    }
}

/// Whether whoever uses the file has joined a range since it was looked at, so that nothing of that is
/// ours: in how many pieces it lies now, and why it is left alone.
fn joined_meanwhile(file: &mut dyn Movable, range: ByteRange, staged: u64) -> Option<(u64, Skip)> {
    if !matches!(file.moves(), Moves::Parts { .. } | Moves::Ranges) {
        return None;
    }
    match file.layout(range).ok()?.pieces(range) {
        1 => Some((1, Skip::new(SkipReason::AlreadyContiguous, ""))),
        now if now <= staged => {
            let detail = format!("{now} pieces now, {staged} at best");
            Some((now, Skip::new(SkipReason::NoBetterPlace, detail)))
        }
        _ => None,
    }
}

/// Why a range that met no problem is no better than it was.
fn no_better(receipt: &Receipt, ready: &Ready, returns: bool) -> Skip {
    if receipt.extents_after.is_none() {
        return Skip::new(SkipReason::Failed, "how it lies now cannot be told");
    }
    if receipt.extents_after == Some(0) {
        return Skip::new(SkipReason::LayoutChanged, "the range holds no data now");
    }
    if receipt.moved_bytes == 0 && receipt.extents_after == Some(1) {
        return Skip::new(SkipReason::AlreadyContiguous, "");
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
