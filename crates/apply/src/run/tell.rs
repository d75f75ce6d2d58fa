//! What a run reports: the receipt of each range, and the summary of all.

use super::Run;
use crate::look::Ready;
use crate::receipt::{Event, Outcome, Receipt};
use fragmend_layout::{ByteRange, Moved, Skip, SkipReason, Underway};
use fragmend_plan::PlannedRange;
use std::time::Duration;

/// How long a listener is waited for while programs may be kept out of a file: so short that they do not
/// notice.
const PROMPT: Duration = Duration::from_millis(20);

impl Run<'_> {
    /// Reports a range whose move could not be made durable once more, in its present state. The data is in its
    /// old or its new place, and intact in both; what cannot be promised is that the move survives a power cut.
    pub(super) fn unsettle(
        &mut self,
        file: &mut dyn Underway,
        (told, was_at): &(Receipt, Option<u64>),
        skip: &Skip,
    ) {
        if told.moved_bytes == 0 {
            return;
        }
        let mut receipt = told.clone();
        let range = ByteRange::at(receipt.offset, receipt.length);
        let now = file.layout(range).ok();
        let after = now.as_ref().map(|l| l.fragments(range));
        let place = now.and_then(|l| l.fragments_within(range).next()).map(|f| f.physical);
        let was_moved = receipt.outcome == Outcome::Moved;
        let (is_back, goes_back) = match was_at {
            // It is in as many fragments at either place.
            Some(_) => (place == *was_at, place == *was_at && was_moved),
            None => {
                let is_back = after.is_some() && after >= receipt.extents_before;
                (is_back, is_back && after != receipt.extents_after)
            }
        };
        if goes_back {
            let names = receipt.primitive.as_deref().unwrap_or_default();
            self.count(names.split(", ").next().unwrap_or_default(), receipt.moved_bytes);
            receipt.moved_bytes *= 2;
        }
        receipt.extents_after = after;
        if receipt.outcome == Outcome::Moved {
            (receipt.outcome, receipt.in_part) = (Outcome::Skipped, false);
            (receipt.reason, receipt.detail) = (Some(skip.reason), None);
            if is_back {
                receipt.space_cost_bytes = 0;
            }
        }
        let before = receipt.detail.take().map_or(String::new(), |detail| format!("{detail}; "));
        let lasts = if is_back { "" } else { "; where it is after a power cut is not known" };
        receipt.detail = Some(format!("{before}{}{lasts}", skip.detail));
        let s = &mut self.summary;
        s.moved_bytes += receipt.moved_bytes - told.moved_bytes;
        if told.outcome == Outcome::Moved {
            s.ranges_moved -= 1;
            s.extents_before -= told.extents_before.unwrap_or(0);
            s.extents_after -= told.extents_after.unwrap_or(0);
            s.space_cost_bytes -= told.space_cost_bytes;
            s.end(&receipt);
        }
        self.tell.tell(Event::Range(receipt));
    }

    /// Waits for a slow listener, while no program is kept out of the file.
    ///
    /// # Errors
    /// Others could not be let in. They are let in when the batch is settled or the file closed, and the
    /// listener is waited for then.
    fn wait_for_listener(&mut self, file: Option<&mut dyn Underway>) -> Result<(), Skip> {
        if !self.tell.catch_up(Some(PROMPT)) {
            file.map_or(Ok(()), Underway::release)?;
            self.tell.catch_up(None);
        }
        Ok(())
    }

    /// Adds to the bytes that a primitive has moved.
    pub(super) fn count(&mut self, primitive: &str, bytes: u64) {
        *self.summary.moved_by_primitive.entry(primitive.to_owned()).or_default() += bytes;
    }

    pub(super) fn would_move(&mut self, ready: &Ready) {
        self.summary.ranges_left += 1;
        let mut receipt = self.blank(ready.planned, Outcome::WouldMove, Some(ready.fragments));
        receipt.space_cost_bytes = ready.space_cost;
        self.summary.space_cost_bytes += ready.space_cost;
        self.tell.tell(Event::Range(receipt));
        // No file is open from which a program could be kept out.
        let _ = self.wait_for_listener(None);
    }

    /// Reports a range that is left alone before anything was begun.
    pub(super) fn leave(
        &mut self,
        range: &PlannedRange,
        fragments: Option<u64>,
        skip: &Skip,
        file: Option<&mut dyn Underway>,
    ) {
        if let Err(skip) = self.skip(range, fragments, skip, file) {
            self.undurable.get_or_insert(skip);
        }
    }

    /// Does the same for all ranges of a batch.
    pub(super) fn leave_all(&mut self, batch: &[Ready], skip: &Skip, file: &mut dyn Underway) {
        for ready in batch {
            self.leave(ready.planned, Some(ready.fragments), skip, Some(&mut *file));
        }
    }

    /// Reports a range that is left alone.
    ///
    /// # Errors
    /// Others could not be let in, see [`Self::wait_for_listener`].
    pub(super) fn skip(
        &mut self,
        range: &PlannedRange,
        fragments: Option<u64>,
        skip: &Skip,
        file: Option<&mut dyn Underway>,
    ) -> Result<(), Skip> {
        let mut receipt = self.blank(range, Outcome::Skipped, fragments);
        receipt.extents_after = fragments;
        receipt.reason = Some(skip.reason);
        receipt.detail = (!skip.detail.is_empty()).then(|| skip.detail.clone());
        self.receive(receipt, file)
    }

    /// Counts a receipt and reports it; `file` is its file, where that is open.
    ///
    /// # Errors
    /// Others could not be let in, see [`Self::wait_for_listener`].
    pub(super) fn receive(
        &mut self,
        receipt: Receipt,
        file: Option<&mut dyn Underway>,
    ) -> Result<(), Skip> {
        let s = &mut self.summary;
        s.moved_bytes += receipt.moved_bytes;
        s.ranges_by_fallback += u64::from(receipt.fallback.is_some());
        s.longest_step_seconds = s.longest_step_seconds.max(receipt.longest_step_seconds);
        s.end(&receipt);
        self.tell.tell(Event::Range(receipt));
        self.wait_for_listener(file)
    }

    /// Counts a failure of a file as a whole, after its ranges had their receipts.
    pub(super) fn note_failure(&mut self, skip: &Skip) {
        let detail = match skip.detail.as_str() {
            "" => skip.reason.to_string(),
            detail => format!("{detail} ({})", skip.reason),
        };
        self.summary.leave(&self.path, SkipReason::Failed, Some(&detail), 0, 0);
    }

    /// A receipt for a range of the current file, with nothing done yet.
    pub(super) fn blank(
        &self,
        range: &PlannedRange,
        outcome: Outcome,
        fragments: Option<u64>,
    ) -> Receipt {
        Receipt::blank(self.path.clone(), range, outcome, fragments)
    }
}

/// The names of the primitives that moved the bytes, for the receipt: more than one where a fallback moved the
/// rest.
pub(super) fn names_of(moved: &Moved) -> String {
    debug_assert!(!moved.by.is_empty(), "bytes that moved have a primitive");
    let names: Vec<&str> = moved.by.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}
