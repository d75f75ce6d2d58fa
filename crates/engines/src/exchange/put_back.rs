//! Puts back what has changed places with the donor when its copies cannot be written.

use super::{Exchange, FIRST_WAIT};
use crate::donor::Stage;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use fragmend_apply::drive::File;
use fragmend_apply::drive::Step;
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::backoff::DoublingWait;
use fragmend_sys::same::Same;
use std::time::{Duration, Instant};

/// How long it is tried to put back what the disk refused, and the longest wait between two tries.
const PUTTING_BACK: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_millis(64);

impl Exchange {
    /// Exchanges all that is not on the device once more, and reads nothing from the new place: the page cache
    /// has the only copy. Returns how many bytes went back.
    pub(super) fn put_back(&mut self, file: &OpenFile) -> (u64, Result<(), Skip>) {
        // The lease was lost, or never held.
        let _ = self.hold.take(file, Stage::donor(&self.stage));
        // No descriptor's error is consumed: the next program that opens the file may be reported this one, and
        // finds all bytes.
        let ranges = self.in_flight.all();
        let mut back = 0;
        // Tried whatever the kernel returns, though others may wait for the lease as long: the data comes
        // first. Closing the donor frees the only good copy on the disk, and a moment later there may be no
        // space or memory. No signal that can be deferred ends the process in the middle.
        // Each page of each range is tried once, also after that time.
        let until = *self.back_by.get_or_insert_with(|| Instant::now() + PUTTING_BACK);
        let mut wait = DoublingWait::new(FIRST_WAIT, LONGEST_WAIT);
        let all = loop {
            let mut all = Ok(());
            // What has gone back is not in flight any more.
            for (index, range) in self.in_flight.all() {
                let (bytes, result) = self.put_range_back(file, index, range);
                back += bytes;
                all = all.and(result);
            }
            if all.is_ok() || Instant::now() > until {
                break all;
            }
            wait.sleep();
        };
        let written = self.moved_back(file, &ranges);
        let all = all.and(written).and(self.hold.commit(file, Stage::donor(&self.stage)));
        (self.undisturbed, self.kept) = (None, Vec::new());
        (back, all)
    }

    /// Puts back what it can of a range: a page that the kernel does not exchange stays in the new place, and
    /// the pages behind it go back. Holes that another program has punched since have nothing to put back.
    /// Returns how many bytes went back.
    fn put_range_back(
        &mut self,
        file: &OpenFile,
        index: usize,
        range: ByteRange,
    ) -> (u64, Result<(), Skip>) {
        let page = (rustix::param::page_size() as u64).max(file.block);
        let layout = match file.layout(range) {
            Ok(layout) => layout,
            Err(skip) => return (0, Err(skip)),
        };
        let data = layout.within(range).filter(|e| e.kind.is_addressed()).map(|e| e.range());
        let (mut back, mut all, mut kept) = (0, Ok(()), range.start);
        for run in ByteRange::joined(data) {
            self.in_flight.forget(ByteRange { start: kept, end: run.start });
            kept = run.end;
            let mut rest = run;
            while !rest.is_empty() {
                let mut done = Step::default();
                let result = self.exchange(file, index, rest, &mut done);
                back += done.moved;
                rest.start += done.moved;
                let Err(skip) = result else { break };
                // Punched in this moment: what has gone back is looked up anew.
                let is_unclear = skip.reason == SkipReason::LayoutChanged;
                all = all.and(Err(skip));
                if is_unclear {
                    return (back, all);
                }
                rest.start = (rest.start / page + 1) * page;
            }
        }
        // Behind the end of the file there is nothing to keep either.
        self.in_flight.forget(ByteRange { start: kept, end: range.end });
        (back, all)
    }

    /// Waits until what went back is written to its old place.
    fn moved_back(&mut self, file: &OpenFile, ranges: &[(usize, ByteRange)]) -> Result<(), Skip> {
        for (_, range) in ranges {
            match self.compare.range(&file.fd, range.start..range.end, || true).map_err(skip_of)? {
                Same::No(_, told) | Same::Changing(told @ Some(_)) => {
                    return Err(self.refuse(told));
                }
                Same::Unknown => rustix::fs::fsync(&file.fd).map_err(|e| skip_of(e.into()))?,
                _ => {}
            }
        }
        Ok(())
    }
}
