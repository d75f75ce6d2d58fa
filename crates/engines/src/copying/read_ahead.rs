//! Reads ahead of the copy, so that the device has many of a range's extents to read at once.
//!
//! Only where no other program reads from the device, and where it has answered quickly: what is requested, others
//! would wait for. And only where nothing is cached and a later change would show, as for
//! [`crate::unpinned`]: as long as the file's time of change stays, what is cached of such a part is what the
//! device has, and none of it was here before.

use super::{Copy, STEP};
use crate::mounted::OpenFile;
use crate::pages::Pages;
use crate::turns::State;
use crate::unpinned::COARSEST;
use crate::warm::{drop_cached, is_cold};
use fragmend_layout::{ByteRange, Skip};
use rustix::fs::Advice;
use std::num::NonZeroU64;

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
    pub fn request(&mut self, file: &OpenFile, copies: &[Copy], index: usize) -> Result<(), Skip> {
        let copied = copies.get(index).map_or(0, |copy| copy.end);
        self.parts.retain(|(of, part)| (*of, part.end) > (index, copied));
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

    /// Whether all that is cached of a part was requested here, and is what the device has.
    ///
    /// # Errors
    /// A system error.
    pub fn covers(&self, file: &OpenFile, part: ByteRange) -> Result<bool, Skip> {
        let is_in = |(_, have): &(usize, ByteRange)| have.intersect(part) == part;
        Ok(self.parts.iter().any(is_in) && State::of(file)? == self.state)
    }

    /// Drops what was requested in vain.
    pub fn end(&mut self, file: &OpenFile, pages: &mut Pages) {
        let mut buffer = Vec::new();
        for (_, part) in std::mem::take(self).parts {
            // Waits for what is in flight: a page that is being read cannot be dropped. Best effort.
            buffer.resize(part.len() as usize, 0);
            let _ = pages.read(&file.fd, part, &mut buffer);
            drop_cached(file, [part]);
        }
    }
}
