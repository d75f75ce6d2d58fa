//! What is dropped and read before blocks change places: the kernel exchanges single pages that are in the page
//! cache quickest.

use super::{AVERAGED, CHUNK, Exchange, GENTLE_PAIR, GENTLE_REQUEST, LONG_PART};
use crate::Mover;
use crate::bytes::read_at;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_apply::drive::File;
use fragmend_layout::{ByteRange, Layout, Skip};
use fragmend_sys::cache;
use fragmend_sys::same::Same;
use rustix::fs::{Advice, fadvise};
use std::num::NonZeroU64;
use std::time::Instant;

impl Exchange {
    /// Drops the cached pages of `part` that the device has as well. A folio that reaches beyond the part stays
    /// on the first try; on the second one, the pages around it are dropped, too. Returns whether none stayed:
    /// pages that a program has mapped do. Stops once `ends` returns true.
    fn make_room(
        &mut self,
        file: &OpenFile,
        part: ByteRange,
        ends: &dyn Fn() -> bool,
    ) -> Result<bool, Skip> {
        // A kernel that is too old to count pages has no large folios either.
        let cached = || cache::cached_pages(&file.fd, part.start..part.end).unwrap_or(0) > 0;
        // What is not dropped by then is exchanged in shorter turns.
        let until = Instant::now() + LONG_PART;
        for wide in [part, part.align_outward(cache::largest_folio())] {
            while cached() && (wide == part || Instant::now() < until) {
                let span = wide.start..wide.end;
                let hold = &self.hold;
                let in_time = || !ends() && (wide == part || Instant::now() < until);
                match self.compare.drop(&file.fd, span, || !hold.is_awaited() && in_time()) {
                    Ok(Same::Stopped) if !in_time() => break,
                    Ok(Same::Yes | Same::Unknown | Same::Changing(_)) => break,
                    // Once more: no program waits now.
                    Ok(Same::Stopped) => self.let_others_in(file)?,
                    Ok(Same::ButRefused(told)) => return Err(self.refuse(Some(told))),
                    Ok(Same::No(_, told)) => return Err(self.refuse(told)),
                    Err(e) => return Err(skip_of(e)),
                }
            }
        }
        let under = self.hold.number();
        let left = cache::cached_pages(&file.fd, part.start..part.end);
        // Before Linux 6.5 that is not known here.
        self.vacated = (under.filter(|_| matches!(left, Ok(0))), part);
        self.unpinned.note(file, part)?;
        Ok(left.unwrap_or(0) == 0)
    }

    /// Reads a part into the page cache and waits for it; other programs wait for no more than `CHUNK` bytes of
    /// it. Once they have written to the file, the rest is left: those pages would be dropped again. Returns
    /// whether it is cached in single pages. Stops once `ends` returns true.
    pub(super) fn prefetch(
        &mut self,
        file: &OpenFile,
        part: ByteRange,
        ends: &dyn Fn() -> bool,
    ) -> Result<bool, Skip> {
        let mut single = self.make_room(file, part, ends)?;
        for chunk in part.steps(CHUNK) {
            if ends() {
                return Ok(single);
            }
            let started = Instant::now();
            self.bring_in(file, chunk);
            self.worked += started.elapsed();
            if self.hold.is_awaited() {
                self.let_others_in(file)?;
                // They may read the part, too, with readahead, which makes large folios.
                single = false;
                if !self.hold.is_forced() && !self.unpinned.covers(file, part)? {
                    return Ok(single);
                }
            }
        }
        Ok(single)
    }

    /// Reads a part into the page cache and waits for it. Best effort: if it fails, the exchange reads for
    /// itself.
    pub(super) fn bring_in(&mut self, file: &OpenFile, part: ByteRange) {
        if self.gentle
            && let Ok(layout) = file.layout(part)
        {
            return self.bring_in_gently(file, part, &layout);
        }
        let _ = self.pages.bring_in(&file.fd, part);
        // Also pages whose read is in flight.
        self.read(file, part);
    }

    /// While others read, it reads little at a time, and never across a break: each time one request, or two small ones.
    fn bring_in_gently(&mut self, file: &OpenFile, part: ByteRange, layout: &Layout) {
        let fragments = layout.fragments_within(part).map(|fragment| fragment.range);
        let pieces: Vec<_> = fragments.flat_map(|range| range.steps(GENTLE_REQUEST)).collect();
        for pair in pieces.chunks(2) {
            if let [first, second] = pair
                && first.len() + second.len() <= GENTLE_PAIR
            {
                // In flight while the first one is waited for.
                let (at, len) = (second.start, NonZeroU64::new(second.len()));
                let _ = fadvise(&file.fd, at, len, Advice::WillNeed);
            }
            for piece in pair {
                let cached = cache::is_resident(&file.fd, piece.start..piece.end).unwrap_or(false);
                let started = Instant::now();
                self.read(file, *piece);
                if !cached {
                    self.request = (self.request * (AVERAGED - 1) + started.elapsed()) / AVERAGED;
                }
                self.breathe();
            }
        }
    }

    fn read(&mut self, file: &OpenFile, part: ByteRange) {
        self.scratch.resize(part.len() as usize, 0);
        let _ = read_at(&file.fd, &mut self.scratch, part.start);
    }
}
