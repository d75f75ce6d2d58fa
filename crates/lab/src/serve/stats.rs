//! The document of the file `stats` beside a served drive.

use super::drive::Drive;
use super::mode::ModeName;
use super::tally::Count;
use fragmend_flash::counters::Counters;
use fragmend_layout::schema;
use schemars::JsonSchema;
use serde::Serialize;

/// What a served drive has done since counting began: when serving did, or at the last `reset-stats`. All times
/// are virtual.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Stats {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Whether virtual time is added up, or requests really last that long.
    pub mode: ModeName,
    /// The virtual time, as in the file `clock`: since serving began.
    #[schemars(extend("x-unit" = "ns"))]
    pub clock_ns: u64,
    /// Virtual time that has passed.
    #[schemars(extend("x-unit" = "ns"))]
    pub elapsed_ns: u64,
    /// Virtual time that has passed while a request was in flight.
    #[schemars(extend("x-unit" = "ns"))]
    pub busy_ns: u64,
    /// Commands that the drive carried out: requests, and parts of those that cover units in part.
    pub commands: u64,
    /// Reads.
    pub reads: Count,
    /// Writes.
    pub writes: Count,
    /// Discards.
    pub discards: Count,
    /// Zeroed ranges.
    pub zeroes: Count,
    /// Flushes.
    pub flushes: Count,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests in flight on average, while any was.
    pub in_flight_mean: f64,
    /// The most requests in flight.
    pub in_flight_max: u64,
    /// Requests that failed: the drive had no free block, or the data's file no space. Since serving began.
    pub failed: u64,
    /// How often virtual time advanced because the machine had nothing else to do. Since serving began.
    pub advanced_idle: u64,
    /// How often it advanced because as many requests were in flight as at any of the last answers. Since serving
    /// began.
    pub advanced_caught_up: u64,
    /// How often it advanced because no request had arrived for the settling time. Since serving began.
    pub advanced_settled: u64,
    /// The settling time.
    #[schemars(extend("x-unit" = "us"))]
    pub settle_us: u64,
    /// The drive's own counts.
    pub device: Inside,
}

/// What went on in the drive, in mapping units where nothing else is said. What does not apply to a kind of drive
/// is 0.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Inside {
    /// Units that the host wrote.
    pub host_written_units: u64,
    /// Units that were programmed, for whatever reason.
    pub flash_written_units: u64,
    /// Units programmed for each unit that the host wrote.
    #[schemars(extend("x-unit" = "per mille"))]
    pub write_amplification_per_mille: u64,
    /// Units that garbage collection moved.
    pub collected_units: u64,
    /// Units that wear levelling moved.
    pub levelled_units: u64,
    /// Units that were programmed without data, to fill a program unit.
    pub padded_units: u64,
    /// Blocks that were erased.
    pub erases: u64,
    /// Die time of garbage collection and wear levelling.
    #[schemars(extend("x-unit" = "ns"))]
    pub collecting_ns: u64,
    /// Writes of less than whole units.
    pub merged_writes: u64,
    /// Units that were read out of the write buffer.
    pub buffer_read_units: u64,
    /// Flash pages that were sensed for reads.
    pub pages_read: u64,
    /// The pages on the busiest die of a read over an even share of its pages, on average; 100 is even.
    #[schemars(extend("x-unit" = "%"))]
    pub collision_percent: u64,
}

impl From<Counters> for Inside {
    fn from(counters: Counters) -> Self {
        Self {
            host_written_units: counters.host_written,
            flash_written_units: counters.flash_written(),
            write_amplification_per_mille: counters.waf_per_mille(),
            collected_units: counters.collected,
            levelled_units: counters.levelled,
            padded_units: counters.padded,
            erases: counters.erases,
            collecting_ns: counters.collecting_ns,
            merged_writes: counters.merged_writes,
            buffer_read_units: counters.buffer_read,
            pages_read: counters.pages_read,
            collision_percent: counters.collision_percent(),
        }
    }
}

impl Drive {
    /// The virtual time now, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        let now = self.inner().virtual_now();
        let mut state = self.state();
        if let Some(now) = now {
            state.table.advance(now);
        }
        state.table.now()
    }

    /// What it has done since counting began.
    pub fn stats(&self) -> Stats {
        let clock_ns = self.clock_ns();
        let state = self.state();
        let (tally, counters) = (state.table.tally(), state.table.counters());
        Stats {
            schema_version: schema::DOCUMENT,
            mode: self.inner().mode.name(),
            clock_ns,
            elapsed_ns: tally.elapsed_ns,
            busy_ns: tally.busy_ns,
            commands: counters.commands,
            reads: tally.reads,
            writes: tally.writes,
            discards: tally.discards,
            zeroes: tally.zeroes,
            flushes: tally.flushes,
            in_flight: state.table.in_flight() as u64,
            in_flight_mean: tally.in_flight_mean(),
            in_flight_max: tally.in_flight_max as u64,
            failed: state.failed,
            advanced_idle: state.idle,
            advanced_caught_up: state.caught_up,
            advanced_settled: state.settled,
            settle_us: state.settle.as_micros() as u64,
            device: counters.into(),
        }
    }
}
