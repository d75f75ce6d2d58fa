//! One call of `EXT4_IOC_MOVE_EXT`, and which blocks it has exchanged.

use super::{Exchange, STOPPED};
use crate::donor::Stage;
use crate::errno::skip_of;
use crate::mounted::OpenFile;
use crate::point::{Point, reached};
use crate::primitive;
use crate::turns::{all_data, cut_off, no_data};
use fragmend_apply::drive::{File, Step};
use fragmend_layout::{ByteRange, Extent, Layout, Skip, SkipReason};
use fragmend_scan::fiemap;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::move_ext::{Blocks, move_extents};
use fragmend_sys::signals::Undisturbed;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl Exchange {
    /// One call to the kernel; adds what it did to `done`.
    pub(super) fn exchange(
        &mut self,
        file: &OpenFile,
        index: usize,
        rest: ByteRange,
        done: &mut Step,
    ) -> Result<(), Skip> {
        let block = file.block;
        Stage::moved(&mut self.stage, index);
        let (donor, donor_start) = Stage::place(&self.stage, index, rest)?;
        let there = ByteRange::at(donor_start, rest.len());
        // Under the lease the file has no hole in it: see `step`.
        let places = if self.hold.is_held() { None } else { Some(places_of(donor, there)?) };
        let blocks = Blocks {
            orig: rest.start / block,
            donor: donor_start / block,
            len: rest.len() / block,
        };
        self.hold.exchanging();
        // The file's only durable blocks are the donor's from here on, until the copies are on the device:
        // no signal that can be deferred may end the process, and free them.
        self.undisturbed.get_or_insert_with(Undisturbed::begin);
        self.breathe();
        let started = Instant::now();
        // Safe to crash before, in and after this line: see the head of this file.
        let outcome = move_extents(&file.fd, donor, blocks);
        done.held = done.held.max(started.elapsed());
        reached(Point::Moved);
        let moved = (outcome.blocks * block).min(rest.len());
        let first = ByteRange::at(rest.start, moved);
        let exchanged = match places.filter(|_| moved < rest.len()) {
            Some(places) => taken_over(file, rest, &places, there.start),
            None => Ok(vec![first]),
        };
        // Not known, for want of memory: the first ones, and nothing is counted on behind them.
        let is_known = exchanged.is_ok();
        let exchanged = exchanged.unwrap_or_else(|_| vec![first]);
        for range in &exchanged {
            self.moved.note(index, *range);
            self.in_flight.note(index, *range);
        }
        done.moved += moved;
        done.by = Some(primitive::MOVE_EXT);
        if self.hold.is_lost() {
            // Before anything else: a program that has the file open now may be syncing it.
            self.hold.commit(file, Stage::donor(&self.stage))?;
            return Err(Skip::new(SkipReason::Busy, STOPPED));
        }
        // What a caller counts from the start on would be wrong.
        let is_prefix = is_known && (moved == 0 || exchanged == [first]);
        match outcome.error {
            _ if !is_prefix => Err(no_data()),
            Some(_) if file.size()? <= rest.start => {
                Err(Skip::new(SkipReason::SizeChanged, "the file ends before it now"))
            }
            Some(e) => Err(skip_of(e)),
            None if outcome.blocks < blocks.len => {
                Err(Skip::new(SkipReason::SizeChanged, "the kernel moved less than the range"))
            }
            None => Ok(()),
        }
    }
}

/// Where a range of a donor is on the device.
fn places_of(donor: &OwnedFd, range: ByteRange) -> Result<Layout, Skip> {
    fiemap::layout_within(&mut Fiemap::default(), donor, range, false).map_err(skip_of)
}

/// The parts of a range of the file that are now in the blocks that a donor had from `start` on, at `places`.
///
/// # Errors
/// The layout of the file cannot be read.
fn taken_over(
    file: &OpenFile,
    range: ByteRange,
    places: &Layout,
    start: u64,
) -> Result<Vec<ByteRange>, Skip> {
    let now = file.layout(range).or_else(|_| file.layout(range))?;
    let of_donor = |e: Extent| Extent { logical: e.logical - start + range.start, ..e };
    let donor = ByteRange::at(start, range.len());
    let mut taken = Vec::new();
    for was in places.within(donor).filter(|e| e.kind.is_placed()).map(of_donor) {
        for is in now.within(was.range()).filter(|e| e.kind.is_placed()) {
            if is.physical == was.physical + (is.logical - was.logical) {
                taken.push(is.range());
            }
        }
    }
    Ok(ByteRange::joined(taken).collect())
}

/// Checks that all of a range is data, and that the file reaches to its end.
pub(super) fn is_whole(file: &OpenFile, range: ByteRange) -> Result<(), Skip> {
    let whole = all_data(file, range);
    if file.size()?.next_multiple_of(file.block) < range.end { Err(cut_off()) } else { whole }
}
