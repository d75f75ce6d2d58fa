//! What a drive has done, in units unless it says otherwise.

use crate::slots::Cause;

/// Counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands taken.
    pub commands: u64,
    /// Read by the host.
    pub host_read: u64,
    /// Written by the host.
    pub host_written: u64,
    /// Read by the host out of the write buffer.
    pub buffer_read: u64,
    /// Written by the host over what was still in the write buffer.
    pub buffer_overwritten: u64,
    /// Programmed for the host.
    pub programmed: u64,
    /// Programmed because blocks were collected.
    pub collected: u64,
    /// Programmed to even out wear.
    pub levelled: u64,
    /// Programmed again, to have the tail of a file in one flash page with what follows it.
    pub rejoined: u64,
    /// Programmed with nothing in it.
    pub padded: u64,
    /// Copied by the drive because the host asked for that.
    pub copied: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Die time of collection and wear levelling, in nanoseconds.
    pub collecting_ns: u64,
    /// Writes of less than a unit that had to read the rest of it.
    pub merged_writes: u64,
    /// Hints that decided where something went.
    pub hints_taken: u64,
    /// Hints that led nowhere: the predecessor is not mapped, or its die is full.
    pub hints_lost: u64,
    /// Overwrites that were sent away from a worn die.
    pub hints_refused: u64,
    /// Programs of the journal of what the out-of-band areas do not say.
    pub journal_programs: u64,
    /// Flash pages sensed for reads of the host.
    pub pages_read: u64,
    /// Sum over such reads of the pages on the busiest die.
    pub busiest_pages: u64,
    /// Sum over such reads of an even share of their pages, rounded up.
    pub even_pages: u64,
}

impl Counters {
    /// What counts the units that are programmed for this.
    pub(crate) fn of(&mut self, cause: Cause) -> &mut u64 {
        match cause {
            Cause::Host => &mut self.programmed,
            Cause::Collected => &mut self.collected,
            Cause::Levelled => &mut self.levelled,
            Cause::Rejoined => &mut self.rejoined,
            Cause::Copied => &mut self.copied,
        }
    }

    /// All that was programmed.
    pub fn flash_written(&self) -> u64 {
        let Self { programmed, collected, levelled, rejoined, padded, copied, .. } = self;
        programmed + collected + levelled + rejoined + padded + copied
    }

    /// Flash writes for each of the host's, in thousandths (write amplification).
    pub fn waf_per_mille(&self) -> u64 {
        (self.flash_written() * 1000).checked_div(self.host_written).unwrap_or(0)
    }

    /// How many times an even share the busiest die's pages are on average, in per cent.
    pub fn collision_percent(&self) -> u64 {
        (self.busiest_pages * 100).checked_div(self.even_pages).unwrap_or(100)
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        macro_rules! less {
            ($($field:ident),*) => { Self { $($field: self.$field - before.$field),* } };
        }
        less!(
            commands,
            host_read,
            host_written,
            buffer_read,
            buffer_overwritten,
            programmed,
            collected,
            levelled,
            rejoined,
            padded,
            copied,
            erases,
            collecting_ns,
            merged_writes,
            hints_taken,
            hints_lost,
            hints_refused,
            journal_programs,
            pages_read,
            busiest_pages,
            even_pages
        )
    }
}
