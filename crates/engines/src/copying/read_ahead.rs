//! Reads ahead of the copy, so that the device has many of a range's extents to read at once.
//!
//! Only where no other program reads from the device, and where it has answered quickly: what is requested, others
//! would wait for. And only where nothing is cached and a later change would show, as for
//! [`crate::unpinned`]: as long as the file's time of change stays, what is cached of such a part is what the
//! device has, and none of it was here before.

use super::{Copy, LOOK, STEP};
use crate::mounted::OpenFile;
use crate::pages::Pages;
use crate::turns::State;
use crate::unpinned::COARSEST;
use crate::warm::{RESTORING, drop_until, is_cold};
use fragmend_layout::{ByteRange, Skip};
use rustix::fs::Advice;
use std::num::NonZeroU64;
use std::time::Instant;

/// Bytes that are requested beyond what is copied next.
const MOST: u64 = 1 << 20;

/// What has been requested of one file and not been copied yet.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The file's, before the first of them was requested.
    state: State,
    /// Each with the index of its range.
    parts: Vec<(usize, ByteRange)>,
    /// Index and offset in the file of what is requested next.
    next: (usize, u64),
}

impl ReadAhead {
    /// Requests parts of the ranges that move, beyond what is copied of this one.
    ///
    /// # Errors
    /// A system error.
    pub fn request(
        &mut self,
        file: &OpenFile,
        copies: &[Copy],
        index: usize,
        pages: &mut Pages,
    ) -> Result<(), Skip> {
        let copied = copies.get(index).map_or(0, |copy| copy.end);
        let is_next = |(of, part): &(usize, ByteRange)| (*of, part.end) > (index, copied);
        let (next, past): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.parts).into_iter().partition(is_next);
        self.parts = next;
        // Of ranges that were left before all of it was copied.
        drop_read(file, pages, in_vain(past, copies), Instant::now() + RESTORING);
        self.next = self.next.max((index, copied));
        let state = State::of(file)?;
        if self.parts.is_empty() {
            self.state = state;
        }
        // After a change nothing more until what was requested before it is copied.
        if state != self.state || !state.is_older_than(COARSEST) {
            return Ok(());
        }
        let mut underway: u64 = self.parts.iter().map(|(_, part)| part.len()).sum();
        while underway < MOST
            && let Some(copy) = copies.get(self.next.0)
        {
            let (of, from) = self.next;
            let part = ByteRange::at(from.max(copy.range.start), STEP).intersect(copy.range);
            if part.is_empty() || !copy.moves {
                self.next = (of + 1, 0);
                continue;
            }
            self.next = (of, part.end);
            if let Some(length) = NonZeroU64::new(part.len()).filter(|_| is_cold(file, part)) {
                self.parts.push((of, part));
                underway += part.len();
                let _ = rustix::fs::fadvise(&file.fd, part.start, Some(length), Advice::WillNeed);
            }
        }
        Ok(())
    }

    /// Whether all of a part was requested here, so that nothing of it was cached before.
    pub fn has(&self, part: ByteRange) -> bool {
        // A step of the copy may begin in one of them and end in the next; none of them overlap.
        let have: u64 = self.parts.iter().map(|(_, have)| have.intersect(part).len()).sum();
        !part.is_empty() && have == part.len()
    }

    /// Whether what is cached of the parts that were requested is what the device has.
    ///
    /// # Errors
    /// A system error.
    pub fn is_current(&self, file: &OpenFile) -> Result<bool, Skip> {
        Ok(State::of(file)? == self.state)
    }

    /// Drops what was requested in vain, until this moment.
    pub fn end(&mut self, file: &OpenFile, copies: &[Copy], pages: &mut Pages, until: Instant) {
        drop_read(file, pages, in_vain(std::mem::take(self).parts, copies), until);
    }
}

/// Those of the parts that have not been copied.
fn in_vain(parts: Vec<(usize, ByteRange)>, copies: &[Copy]) -> impl Iterator<Item = ByteRange> {
    let is_left = move |(of, part): &(usize, ByteRange)| {
        copies.get(*of).is_none_or(|copy| part.end > copy.end)
    };
    parts.into_iter().filter(is_left).map(|(_, part)| part)
}

/// Drops parts that are being read, best effort and until this moment: a request to end waits for it.
fn drop_read(
    file: &OpenFile,
    pages: &mut Pages,
    parts: impl IntoIterator<Item = ByteRange>,
    until: Instant,
) {
    let mut buffer = Vec::new();
    for part in parts {
        // Waits for what is in flight: a page that is being read cannot be dropped.
        for step in part.steps(LOOK) {
            if Instant::now() >= until {
                return;
            }
            buffer.resize(step.len() as usize, 0);
            let _ = pages.read(&file.fd, step, &mut buffer);
        }
        drop_until(file, part, until);
    }
}
