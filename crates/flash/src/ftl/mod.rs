//! The flash translation layer of a drive: takes written units into the write buffer, programs them to the
//! open blocks of the dies, and frees space by garbage collection.
//!
//! | module | its job |
//! |---|---|
//! | `buffer` | the write buffer, where program units are assembled |
//! | `place`, `append` | which die and which program unit a write goes to |
//! | `program` | programs a program unit |
//! | `open` | opens and erases blocks |
//! | `collect` | garbage collection and wear levelling |
//! | `access` | reads, trims, flushes |
//! | `in_flight` | programs and erases that have not ended |
//! | `journal` | which units were trimmed |
//! | `defrag_log`, `remap` | remaps, and what they have changed; spreading units over the dies |
//! | `recover` | power cuts |
//! | `audit` | checks that the tables agree |
//!
//! **What survives a power cut.** Acknowledged data that was not flushed may be lost; flushed data may not,
//! and no older data may come back in its place. So a block is erased only after the successors of all its
//! units are programmed ([`crate::space::Blocks::safe_at`]), and after the trims among them are in the
//! journal. That suffices at every instant, because only an erase destroys data. It is also why a block is
//! erased when it is opened and not when it becomes free: by then the erase seldom has to wait.

mod access;
mod append;
mod audit;
mod buffer;
mod collect;
mod defrag_log;
mod in_flight;
mod journal;
mod open;
mod place;
mod program;
mod recover;
mod remap;

use crate::counters::Counters;
use crate::device::Bytes;
use crate::drive::{Drive, Firmware};
use crate::geometry::Shape;
use crate::nand::Nand;
use crate::pages::PageRun;
use crate::space::{FlashSpace, Location};
use buffer::WriteBuffer;
use collect::Collector;
use defrag_log::DefragLog;
use in_flight::{InFlight, OperationKind};
use journal::Journal;
use place::Placer;

/// There is no free block, and garbage collection cannot free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// The state of a translation layer.
#[derive(Clone, Debug)]
pub(crate) struct Ftl {
    shape: Shape,
    firmware: Firmware,
    /// Whether the write buffer survives a power cut.
    protected: bool,
    space: FlashSpace,
    buffer: WriteBuffer,
    placer: Placer,
    collector: Collector,
    nand: Nand,
    in_flight: InFlight,
    journal: Journal,
    log: DefragLog,
    counters: Counters,
    /// The time of the last command; no later one is earlier.
    now: u64,
    /// Whether operations need time: those of preconditioning do not.
    timed: bool,
    /// Memory for the pages of a read, kept from one read to the next.
    runs: Vec<PageRun>,
    /// For each die the pages of the present read; 0 between reads.
    pages_on_die: Vec<u32>,
}

impl Ftl {
    /// The translation layer of a new drive.
    pub fn new(drive: &Drive, shape: Shape, keeps_content: bool) -> Self {
        Self {
            firmware: drive.firmware,
            protected: drive.buffer.protected,
            space: FlashSpace::new(&shape, keeps_content),
            buffer: WriteBuffer::new(&drive.buffer, &shape),
            placer: Placer::new(&shape, drive.buffer.open_program_units),
            collector: Collector::new(&shape),
            nand: Nand::new(drive, &shape),
            in_flight: InFlight::new(shape.dies),
            journal: Journal::default(),
            log: DefragLog::new(drive.firmware.defrag_log_bytes, &shape),
            counters: Counters::default(),
            now: 0,
            timed: true,
            runs: Vec::new(),
            pages_on_die: vec![0; shape.dies as usize],
            shape,
        }
    }

    /// The shape of the drive.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The flash space.
    pub fn space(&self) -> &FlashSpace {
        &self.space
    }

    /// The dies, the channels and the link.
    pub fn nand(&self) -> &Nand {
        &self.nand
    }

    /// The dies, the channels and the link, for transfers that need no translation.
    pub fn nand_mut(&mut self) -> &mut Nand {
        &mut self.nand
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters, for the drive to count its commands.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The time of the last command.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Advances the clock to this time, unless it is there already, and removes the operations in flight that
    /// have ended by then; returns the time.
    pub fn advance_to(&mut self, at: u64) -> u64 {
        self.now = self.now.max(at);
        while let Some(ended) = self.in_flight.pop_ended(self.now, &self.nand) {
            self.end(&ended);
        }
        self.now
    }

    /// Runs an action whose operations need no time.
    pub fn untimed<T>(&mut self, action: impl FnOnce(&mut Self) -> T) -> T {
        let timed = std::mem::replace(&mut self.timed, false);
        let done = action(self);
        self.timed = timed;
        done
    }

    /// Accounts for an operation that has ended.
    fn end(&mut self, ended: &OperationKind) {
        match ended {
            OperationKind::Program { buffered_bytes, .. } => {
                self.buffer.end_program(*buffered_bytes);
            }
            OperationKind::Erase(_)
            | OperationKind::LogErase { .. }
            | OperationKind::LogProgram { .. } => {}
            OperationKind::Journal { notes } => self.journal.end_write(*notes),
        }
    }

    /// When the program of a physical unit ends; 0 if it is not in flight.
    fn end_of_program(&self, physical: u32) -> u64 {
        let first = physical - physical % self.shape.units_per_program;
        let die = self.shape.die_of(physical);
        self.in_flight.end_of_program(die, first, &self.nand).unwrap_or(0)
    }

    /// The content of a logical unit, where the drive keeps it.
    pub fn bytes(&self, logical: u32) -> Bytes {
        match self.space.map().locate(logical) {
            Location::Unmapped => None,
            Location::Buffered(place) => self.buffer.member(place).bytes.clone(),
            Location::Flash(physical) => self.space.bytes(physical),
        }
    }
}
