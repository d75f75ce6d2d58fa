//! Counts of a drive's operations, in units unless a field says otherwise.

/// The counts of a drive since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands that the drive carried out; of a flash SSD also those that were unsupported or lacked space.
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
    /// Units that were programmed because wear levelling moved them.
    pub levelled: u64,
    /// Units that were programmed again so that the tail of a file is in one flash page with the append after
    /// it.
    pub rejoined: u64,
    /// Units that were programmed without data, to fill a program unit.
    pub padded: u64,
    /// Units that were programmed for copy commands of the host.
    pub copied: u64,
    /// Units that were programmed for physical defragmentation.
    pub spread: u64,
    /// Flash pages that were moved within their plane without a transfer.
    pub copybacks: u64,
    /// Units whose mapping a remap has changed.
    pub remapped: u64,
    /// Program units that were programmed with entries of the defrag log.
    pub log_programs: u64,
    /// Those of them that compaction has programmed.
    pub log_compacted: u64,
    /// Blocks that were erased; those of the defrag log are not counted.
    pub erases: u64,
    /// Die time of garbage collection and wear levelling, in nanoseconds.
    pub collecting_ns: u64,
    /// Writes of less than whole units (read-modify-write).
    pub merged_writes: u64,
    /// Hints that were followed; of an overwrite, each unit counts.
    pub hints_taken: u64,
    /// Hints that could not be followed, because the predecessor, or the unit to overwrite, is not mapped.
    pub hints_lost: u64,
    /// Units of overwrites that were placed on another die because theirs is worn.
    pub hints_refused: u64,
    /// Programs of the journal.
    pub journal_programs: u64,
    /// Flash pages that were sensed for reads of the host.
    pub pages_read: u64,
    /// Sum over these reads of the pages on the busiest die.
    pub busiest_pages: u64,
    /// Sum over these reads of an even share of their pages for each die, rounded up.
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
    /// It is in the tail of a file that is appended to.
    Rejoined,
    /// The host asked for a copy.
    Copied,
    /// The host asked for units to be spread over the dies.
    Spread,
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
            ProgramCause::Spread => &mut self.spread,
        }
    }

    /// All units that were programmed.
    pub fn flash_written(&self) -> u64 {
        let Self { programmed, collected, levelled, rejoined, padded, copied, spread, .. } = self;
        programmed + collected + levelled + rejoined + padded + copied + spread
    }

    /// Write amplification: units programmed for each unit that the host wrote, in thousandths.
    pub fn waf_per_mille(&self) -> u64 {
        (self.flash_written() * 1000).checked_div(self.host_written).unwrap_or(0)
    }

    /// The pages on the busiest die of a read over an even share of its pages, on average, in per
    /// cent.
    pub fn collision_percent(&self) -> u64 {
        (self.busiest_pages * 100).checked_div(self.even_pages).unwrap_or(100)
    }

    /// The counts since `before`.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |now, before| now - before)
    }

    /// The sum of the counts of two drives.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        macro_rules! combined {
            ($($field:ident),*) => { Self { $($field: combine(self.$field, other.$field)),* } };
        }
        combined!(
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
            spread,
            copybacks,
            remapped,
            log_programs,
            log_compacted,
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
