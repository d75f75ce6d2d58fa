//! A batch that is being relocated, as its engine sees it: how fast it may go, and where the result of each
//! range is reported.

use super::Run;
use super::tell::names_of;
use crate::look::Ready;
use crate::pace::{self, Pacer};
use crate::receipt::{Outcome, Receipt};
use fragmend_layout::{ByteRange, Fate, Layout, Moved, Pace, Skip, SkipReason, Underway};
use fragmend_plan::PlannedRange;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Some ranges of one file, and the run of `apply` that they belong to.
pub(super) struct Batch<'r, 'a> {
    pub run: &'r mut Run<'a>,
    /// The device number of the file.
    pub device: u64,
    pub ready: &'r [Ready<'r>],
    /// How many of them are finished.
    pub done: usize,
}

impl Pace for Batch<'_, '_> {
    fn stop(&self) -> &AtomicBool {
        self.run.stop
    }

    fn now(&self) -> Duration {
        self.run.environment.now()
    }

    fn longest_step(&self) -> u64 {
        self.run.options.step_bytes
    }

    fn others_read(&self) -> bool {
        self.run.pacers.get(&self.device).is_some_and(Pacer::is_pressed)
    }

    fn set_gentle(&mut self, gentle: bool) {
        self.run.pacer(self.device).gentle = gentle;
    }

    fn step(&mut self, rest: ByteRange, least: u64) -> ByteRange {
        let full = self.longest_step().max(least);
        self.run.pacer(self.device).part(rest.start, full, least).intersect(rest)
    }

    fn in_one_go(&self, most: u64) -> u64 {
        match self.run.options.rate {
            // As much as the rate allows in a twentieth of a second.
            pace::Rate::BytesPerSecond(rate) => most.min(rate / 20),
            _ => most,
        }
    }

    fn pause(&mut self, file: &mut dyn Underway, bytes: u64, took: Duration) -> Result<(), Skip> {
        let stop = self.run.stop;
        let pacer = self.run.pacer(self.device);
        let until = pacer.due(bytes, took) + pacer.now();
        loop {
            let left = until.saturating_sub(pacer.now());
            if left > pace::SHORT {
                file.let_others_in()?;
            }
            pacer.pause(left.min(pace::SHORT), stop);
            if left <= pace::SHORT || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn done(&mut self, file: &mut dyn Underway, index: usize, fate: Fate) -> Result<(), Skip> {
        self.done += 1;
        let ready = &self.ready[index];
        match fate {
            Fate::Left { fragments, skip } => {
                self.run.skip(ready.planned, Some(fragments), &skip, Some(file))
            }
            Fate::Begun(moved) => self.run.moved(file, ready, moved),
        }
    }
}

impl Run<'_> {
    /// Checks a range that an engine has finished, and reports its receipt.
    fn moved(&mut self, file: &mut dyn Underway, ready: &Ready, moved: Moved) -> Result<(), Skip> {
        let looking = self.environment.now();
        let range = ready.planned.range();
        let looked = file.layout(range);
        // What goes back where a move failed is at its old place, in as many fragments.
        let is_back = moved.returns && looked.as_ref().is_ok_and(|l| is_at(l, ready.planned));
        let looked = looked.map(|l| l.fragments(range));
        let mut receipt = self.blank(ready.planned, Outcome::Moved, Some(ready.fragments));
        receipt.moved_bytes = moved.bytes;
        receipt.primitive = (moved.bytes > 0).then(|| names_of(&moved));
        receipt.fallback.clone_from(&moved.fallback);
        receipt.longest_step_seconds = moved.held.as_secs_f64();
        receipt.extents_after = looked.as_ref().ok().copied();
        let mut problem = moved.skip.clone();
        if problem.is_none() || moved.bytes > 0 {
            problem = looked.err().or(problem);
        }
        let failed = problem.clone().filter(|skip| skip.reason == SkipReason::Failed);
        judge(&mut receipt, &moved, problem, (ready, is_back));
        if receipt.outcome == Outcome::Moved
            && let Some(skip) = failed
        {
            self.note_failure(&skip);
        }
        for (primitive, bytes) in &moved.by {
            self.count(primitive, *bytes);
        }
        if receipt.outcome == Outcome::Moved {
            let takes = file.layout(range).map_or(0, |l| l.stored_bytes(range));
            receipt.space_cost_bytes = takes.saturating_sub(ready.own_space);
        }
        receipt.seconds = (moved.took + (self.environment.now() - looking)).as_secs_f64();
        self.unsettled.push((receipt.clone(), ready.planned.slow_at.filter(|_| ready.anew)));
        self.receive(receipt, Some(file))
    }
}

/// Whether a range is at the place at which it was measured to be slow.
fn is_at(layout: &Layout, planned: &PlannedRange) -> bool {
    let first = layout.fragments_within(planned.range()).next();
    planned.slow_at.is_some() && first.map(|fragment| fragment.physical) == planned.slow_at
}

/// Sets whether the range came out better, and if not, why. `is_back` is whether it is where it was.
fn judge(
    receipt: &mut Receipt,
    moved: &Moved,
    problem: Option<Skip>,
    (ready, is_back): (&Ready, bool),
) {
    if moved.interrupted {
        receipt.outcome = Outcome::Interrupted;
    }
    // A range that moves as a whole and could not be put back is not better because of a hole in it, nor is one
    // that is stored in another way now.
    let spoiled = |skip: &Skip| moved.whole || skip.reason == SkipReason::LayoutChanged;
    let ours = receipt.moved_bytes > 0 || moved.whole;
    let there = ours && !problem.as_ref().is_some_and(spoiled);
    // All of what is written anew must be, and be elsewhere.
    let anew = |after| {
        let all = receipt.moved_bytes >= receipt.length;
        ready.anew && after == ready.fragments && all && !is_back
    };
    // A range without data is not in fewer fragments.
    let fewer = |after| after > 0 && (after < ready.fragments || anew(after));
    let better = there && receipt.extents_after.is_some_and(fewer);
    if receipt.outcome == Outcome::Moved && !better {
        receipt.outcome = Outcome::Skipped;
        let back = moved.returns && (is_back || !ready.anew);
        let skip = problem.unwrap_or_else(|| no_better(receipt, ready, back));
        (receipt.reason, receipt.detail) = (Some(skip.reason), Some(skip.detail));
    } else if let Some(skip) = problem {
        receipt.in_part = receipt.outcome == Outcome::Moved;
        receipt.detail = Some(format!("in part: {}", skip.detail));
    }
    receipt.detail = match (receipt.detail.take(), moved.note.clone()) {
        (Some(detail), Some(note)) => Some(format!("{detail}; {note}")),
        (detail, note) => detail.or(note),
    };
}

/// Why a range that met no problem is no better than before.
fn no_better(receipt: &Receipt, ready: &Ready, returns: bool) -> Skip {
    if receipt.extents_after.is_none() {
        return Skip::new(SkipReason::Failed, "how it is now cannot be told");
    }
    if receipt.extents_after == Some(0) {
        return Skip::new(SkipReason::LayoutChanged, "the range holds no data now");
    }
    if receipt.moved_bytes == 0 && receipt.extents_after == Some(1) && !ready.anew {
        return Skip::new(SkipReason::AlreadyContiguous, "");
    }
    if ready.fragments <= 1 && !ready.anew {
        return Skip::new(SkipReason::AlreadyContiguous, "it moved with the others");
    }
    let why = match receipt.extents_after {
        // It does not move back.
        Some(after) if !returns => {
            format!("it moved, and is in {after} fragments after {}", ready.fragments)
        }
        _ => "it would not be in fewer fragments".into(),
    };
    Skip::new(SkipReason::NoBetterPlace, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::PathText;

    /// The outcome for a contiguous range of 8192 bytes that was to be written anew.
    fn judged(moved_bytes: u64, extents_after: Option<u64>, is_back: bool) -> Outcome {
        let planned = PlannedRange {
            offset: 0,
            length: 8192,
            extents: 1,
            seen: 0,
            requests_before: 1,
            requests_after: 1,
            seconds_saved: 0.1,
            space_cost_bytes: 0,
            slow_at: Some(4096),
            reason: String::new(),
        };
        let ready =
            Ready { planned: &planned, fragments: 1, anew: true, own_space: 8192, space_cost: 0 };
        let path = PathText { path: "/a".into(), path_bytes: None };
        let mut receipt = Receipt::blank(path, &planned, Outcome::Moved, Some(1));
        (receipt.extents_after, receipt.moved_bytes) = (extents_after, moved_bytes);
        let moved = Moved { bytes: moved_bytes, returns: true, ..Moved::default() };
        judge(&mut receipt, &moved, None, (&ready, is_back));
        let skipped = receipt.outcome == Outcome::Skipped;
        assert_eq!(receipt.reason, skipped.then_some(SkipReason::NoBetterPlace), "{receipt:?}");
        receipt.outcome
    }

    #[test]
    fn what_is_written_anew_is_all_elsewhere_and_in_as_few_fragments() {
        assert_eq!(judged(8192, Some(1), false), Outcome::Moved);
        // There and back is twice as many bytes.
        assert_eq!(judged(16384, Some(1), true), Outcome::Skipped);
        assert_eq!(judged(8192, Some(1), true), Outcome::Skipped);
        assert_eq!(judged(8192, Some(2), false), Outcome::Skipped);
        assert_eq!(judged(4096, Some(1), false), Outcome::Skipped);
        assert_eq!(judged(0, Some(1), true), Outcome::Skipped);
    }
}
