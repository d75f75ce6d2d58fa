//! No page that a device writes to is exchanged: see `fragmend_sys::same::Vacated`.

use super::{CHUNK, Exchange, SHORT_HOLD};
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::turns::{held, unknown};
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::same::{Same, Vacated};
use std::time::{Duration, Instant};

/// How long pages are compared at once where no program waits.
const LONGEST_LOOK: Duration = Duration::from_millis(300);

impl Exchange {
    /// Ensures that nothing besides the page cache refers to pages of a range, under the lease that is held: a
    /// device that writes to a page of which the kernel exchanges the blocks writes to neither of the two
    /// places. Where others have the file open, a move that is forced does without. Returns what of the range
    /// may be exchanged, and whether it is cached in single pages, if all of it was in `single` ones: less of it, if
    /// the lease was released since they were read. Stops once `ends` returns true.
    pub(super) fn vacate(
        &mut self,
        file: &OpenFile,
        rest: ByteRange,
        single: bool,
        ends: &dyn Fn() -> bool,
    ) -> Result<(ByteRange, bool), Skip> {
        let (under, vacated) = self.vacated;
        let Some(number) = self.hold.number() else {
            let lost = || Skip::new(SkipReason::Busy, "others may have opened it");
            return self.hold.is_forced().then_some((rest, single)).ok_or_else(lost);
        };
        if under == Some(number) && vacated.intersect(rest) == rest {
            return Ok((rest, single));
        }
        // No program is let in between this and the exchange: so it is short.
        let first = ByteRange::at(rest.start, self.look).intersect(rest);
        if self.unpinned.covers(file, rest)? {
            // Others may have dropped pages.
            let started = Instant::now();
            self.bring_in(file, first);
            self.look = if started.elapsed() > SHORT_HOLD / 2 {
                (self.look / 2).max(file.block)
            } else {
                (self.look * 2).min(CHUNK)
            };
            return Ok((first, single));
        }
        let started = Instant::now();
        let span = first.start..first.end;
        let hold = &self.hold;
        let in_time = || {
            let most = if hold.is_awaited() { SHORT_HOLD } else { LONGEST_LOOK };
            started.elapsed() < most && !ends()
        };
        let vacated = self.compare.vacate(&file.fd, span, in_time);
        match vacated.map_err(skip_of)? {
            Vacated::Yes => {}
            Vacated::Held => return Err(held()),
            Vacated::No(Same::ButRefused(told)) => return Err(self.refuse(Some(told))),
            Vacated::No(Same::No(_, told)) => return Err(self.refuse(told)),
            // Data that goes through the journal, or is encrypted, never comes here.
            Vacated::No(Same::Unknown) => return Err(unknown()),
            Vacated::No(Same::Yes | Same::Stopped | Same::Changing(_)) => {
                // Where programs come faster than so much is read, less of it moves.
                self.look = (self.look / 2).max(file.block);
                return Err(Skip::new(SkipReason::Busy, "its pages cannot be compared in time"));
            }
        }
        self.look = (self.look * 2).min(CHUNK);
        self.vacated = (Some(number), first);
        self.bring_in(file, first);
        Ok((first, true))
    }
}
