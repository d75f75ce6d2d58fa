//! Counts of a drive's operations, in units unless a field says otherwise.

/// What a drive has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that the drive accepted.
    pub commands: u64,
    /// Units that the host read.
    pub host_read: u64,
    /// Units that the host wrote.
    pub host_written: u64,
    /// Units that the host read out of the write buffer.
    pub buffer_read: u64,
    /// Units that were programmed for the host.
    pub programmed: u64,
    /// Units that were programmed because garbage collection moved them.
    pub collected: u64,
    /// Units that were programmed to even out wear.
    pub levelled: u64,
    /// Units that were programmed again to have the tail of a file in one flash page with what
    /// follows it.
    pub rejoined: u64,
    /// Units that were programmed with nothing in them, to fill a program unit.
    pub padded: u64,
    /// Units that the drive copied because the host asked for that.
    pub copied: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Die time of garbage collection and wear levelling, in nanoseconds.
    pub collecting_ns: u64,
    /// Writes of less than a unit for which the drive had to read the rest of it.
    pub merged_writes: u64,
    /// Hints that decided where a write went.
    pub hints_taken: u64,
    /// Hints that could not be followed: the predecessor is not mapped, or its die is full.
    pub hints_lost: u64,
    /// Overwrites that were sent away from a worn die.
    pub hints_refused: u64,
    /// Programs of the journal.
    pub journal_programs: u64,
    /// Flash pages that were sensed for reads of the host.
    pub pages_read: u64,
    /// Sum over such reads of the pages on the busiest die.
    pub busiest_pages: u64,
    /// Sum over such reads of an even share of their pages, rounded up.
    pub even_pages: u64,
}

/// Why a unit is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramCause {
    /// The host wrote it.
    Host,
    /// Garbage collection moves it out of a victim.
    Collected,
    /// Wear levelling moves it out of a block that is less worn than others.
    Levelled,
    /// It is the tail of a file that is appended to.
    Rejoined,
    /// The host asked for a copy.
    Copied,
}

impl Counters {
    /// The counter of units that are programmed for this cause.
    pub(crate) fn programmed_for(&mut self, cause: ProgramCause) -> &mut u64 {
        match cause {
            ProgramCause::Host => &mut self.programmed,
            ProgramCause::Collected => &mut self.collected,
            ProgramCause::Levelled => &mut self.levelled,
            ProgramCause::Rejoined => &mut self.rejoined,
            ProgramCause::Copied => &mut self.copied,
        }
    }

    /// All units that were programmed.
    pub fn flash_written(&self) -> u64 {
        let Self { programmed, collected, levelled, rejoined, padded, copied, .. } = self;
        programmed + collected + levelled + rejoined + padded + copied
    }

    /// Units programmed for each that the host wrote, in thousandths (write amplification).
    pub fn waf_per_mille(&self) -> u64 {
        (self.flash_written() * 1000).checked_div(self.host_written).unwrap_or(0)
    }

    /// The pages on the busiest die of a read over an even share of its pages, on average, in per
    /// cent.
    pub fn collision_percent(&self) -> u64 {
        (self.busiest_pages * 100).checked_div(self.even_pages).unwrap_or(100)
    }

    /// What has been counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        macro_rules! difference {
            ($($field:ident),*) => { Self { $($field: self.$field - before.$field),* } };
        }
        difference!(
            commands,
            host_read,
            host_written,
            buffer_read,
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
