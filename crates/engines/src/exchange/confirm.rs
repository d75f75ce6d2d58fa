//! What is waited for after blocks have changed places: the copies are on the device, and are what they should be.

use super::{Exchange, GENTLE_REQUEST, LONG_WAIT, LONGEST_STEP, SHORT_WAIT, SHORTEST_STEP};
use crate::donor::Stage;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::places::Places;
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::cache;
use fragmend_sys::same::Same;
use std::time::Instant;

impl Exchange {
    /// Waits for all copies in flight, and checks whether the device has them. Returns what went wrong with
    /// them; if nothing did, none is in flight any more.
    pub(super) fn confirm(&mut self, file: &OpenFile) -> Option<Skip> {
        let started = Instant::now();
        let (mut wrong, mut alike) = (None, Vec::new());
        let most = if self.gentle { GENTLE_REQUEST.max(file.block) } else { LONGEST_STEP };
        let in_flight = self.in_flight.all().into_iter();
        let copies = in_flight.flat_map(|(index, copy)| copy.steps(most).map(move |c| (index, c)));
        for (index, range) in copies {
            self.breathe();
            match self.is_there(file, range) {
                Ok(true) => alike.push((index, range)),
                Ok(false) => {}
                Err(skip) => wrong = wrong.or(Some(skip)),
            }
        }
        if let Some(skip) = wrong {
            self.cause.get_or_insert_with(|| skip.detail.clone());
            self.unwritable.get_or_insert_with(|| skip.clone());
            return Some(skip);
        }
        if !self.in_flight.is_empty() {
            self.in_flight = Places::default();
            self.step = match std::mem::take(&mut self.worked) + started.elapsed() {
                took if took > LONG_WAIT => (self.step / 2).max(SHORTEST_STEP.max(file.block)),
                took if took < SHORT_WAIT => (self.step * 2).min(LONGEST_STEP),
                _ => self.step,
            };
        }
        for kept in std::mem::take(&mut self.kept) {
            self.breathe();
            drop(kept);
        }
        // Nobody has written since they were compared, so they need not be compared again to be dropped.
        for (index, range) in alike {
            if self.hold.is_held() && Stage::was_cold(&self.stage, index) {
                self.breathe();
                let _ = cache::drop_clean(&file.fd, range.start..range.end);
            }
        }
        self.breathe();
        self.undisturbed = None;
        None
    }

    /// Waits for the copies of a range, and checks whether the device has them. Returns whether all that is
    /// cached of the range is the same there, and remains so while the lease is held.
    fn is_there(&mut self, file: &OpenFile, range: ByteRange) -> Result<bool, Skip> {
        let span = range.start..range.end;
        let _ = cache::start_writeback(&file.fd, span.clone());
        let alone = self.hold.is_held();
        // Under the lease no writer waits for a read.
        let compare = if alone { &mut self.confirm } else { &mut self.compare };
        match compare.range(&file.fd, span.clone(), || true).map_err(skip_of)? {
            Same::Yes => Ok(alone),
            Same::Stopped => Ok(false),
            // The copies are there: the refused write was another one.
            Same::ButRefused(told) => {
                self.refuse(Some(told));
                Ok(false)
            }
            Same::No(_, told) | Same::Changing(told @ Some(_)) => {
                let silent = || Skip::new(SkipReason::Failed, "the disk has other bytes");
                Err(told.map_or_else(silent, skip_of))
            }
            Same::Changing(None) if alone => {
                Err(Skip::new(SkipReason::Busy, "it changes under a lease"))
            }
            // Another program writes during a forced move: the pages that it left alone are there, and errors
            // of its own writes are reported to it.
            Same::Changing(None) => Ok(false),
            Same::Unknown => cache::write_and_wait(&file.fd, span).map(|()| false).map_err(skip_of),
        }
    }
}
