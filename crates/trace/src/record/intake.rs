//! Moves events from the kernel side's ring buffer to where they are kept, a trace file or memory: they are checked and
//! handed on in batches. An event that the kernel side should never produce is counted with those that it drops itself.

use super::kernel::Kernel;
use super::paths::Mounts;
use super::shared::{self, FoldKey, FoldValue, RawEvent, Stats};
use crate::event::is_possible;
use crate::file::window::Collector;
use crate::{Event, Op, TraceError, TraceWriter};
use fragmend_layout::FileId;
use libbpf_rs::{MapCore, MapHandle, RingBuffer, RingBufferBuilder};
use std::cell::{Cell, RefCell};
use zerocopy::FromBytes;

/// Events that are read from the buffer before they are written.
const BATCH: usize = 8 * 1024;

/// `BPF_RINGBUF_HDR_SZ`: what the kernel puts before each event.
const RECORD_HEADER: usize = 8;

/// Where events are kept.
pub(super) trait Sink {
    /// Takes events, in the order of their recording.
    fn append(&mut self, events: &[Event]) -> Result<(), TraceError>;
}

impl Sink for TraceWriter {
    fn append(&mut self, events: &[Event]) -> Result<(), TraceError> {
        Self::append(self, events)
    }
}

impl Sink for Collector {
    fn append(&mut self, events: &[Event]) -> Result<(), TraceError> {
        Self::append(self, events);
        Ok(())
    }
}

/// What the ring buffer's callback leaves behind.
pub(super) struct Arrived {
    batch: RefCell<Vec<Event>>,
    /// The number of impossible events.
    unreadable: Cell<u64>,
}

impl Arrived {
    pub fn new() -> Self {
        Self { batch: RefCell::new(Vec::with_capacity(BATCH)), unreadable: Cell::new(0) }
    }

    fn take(&self, bytes: &[u8]) {
        let raw = RawEvent::read_from_bytes(bytes).ok();
        self.batch.borrow_mut().extend(self.readable(raw.as_ref()));
    }

    /// Converts an event; counts it if it is impossible.
    fn readable(&self, raw: Option<&RawEvent>) -> Option<Event> {
        let event = raw.and_then(event_of);
        self.unreadable.update(|n| n + u64::from(event.is_none()));
        event
    }
}

/// The ring buffer and what its events are handed on to.
pub(super) struct Intake<'a, S> {
    ring: RingBuffer<'a>,
    arrived: &'a Arrived,
    /// The most events that the ring buffer holds.
    fits: usize,
    pub sink: S,
    /// Events handed on so far.
    pub rows: u64,
}

impl<'a, S: Sink> Intake<'a, S> {
    pub fn new(arrived: &'a Arrived, events: &MapHandle, sink: S) -> Result<Self, TraceError> {
        let failed =
            |e: libbpf_rs::Error| TraceError::Kernel(format!("cannot map the event buffer: {e}"));
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            arrived.take(bytes);
            0
        };
        builder.add(events, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        let fits = events.max_entries() as usize / (RECORD_HEADER + size_of::<RawEvent>());
        Ok(Self { ring, arrived, fits: fits.max(1), sink, rows: 0 })
    }

    /// Hands on what is in the ring buffer, while `goes_on` and at most as much as fits into it: events
    /// may arrive faster than they are handed on. Returns whether it was empty in the end.
    pub fn drain(&mut self, goes_on: impl Fn() -> bool) -> Result<bool, TraceError> {
        let mut left = self.fits;
        while left > 0 && goes_on() {
            let taken = self.ring.consume_raw_n(BATCH);
            let mut batch = self.arrived.batch.take();
            self.append(&batch)?;
            batch.clear();
            self.arrived.batch.replace(batch);
            match usize::try_from(taken) {
                Ok(taken) if taken >= BATCH => left = left.saturating_sub(taken),
                Ok(_) => return Ok(true),
                Err(_) => {
                    return Err(TraceError::Kernel(format!(
                        "cannot read the event buffer: {}",
                        std::io::Error::from_raw_os_error(-taken)
                    )));
                }
            }
        }
        Ok(false)
    }

    /// The kernel side's counters, with what was unreadable counted as dropped.
    pub fn stats(&self, kernel: &Kernel) -> Result<Stats, TraceError> {
        let stats = kernel.stats()?;
        Ok(Stats { dropped: stats.dropped + self.arrived.unreadable.get(), ..stats })
    }

    /// Hands on what the kernel side kept until it was detached: page faults that it held back, misses that may have
    /// gone on, and, of a `folded` recording, the counted ranges. Returns its counters, with these faults and misses
    /// counted as seen, what was unreadable as dropped, and what was sent and did not arrive as lost.
    pub fn append_kept(&mut self, kernel: &Kernel, folded: bool) -> Result<Stats, TraceError> {
        let mut stats = kernel.stats()?;
        stats.lost += stats.sent.saturating_sub(self.rows + self.arrived.unreadable.get());
        let held: Vec<Event> = kernel
            .held()
            .chain(kernel.fetched())
            .inspect(|raw| {
                if let Some(op) = Op::from_number((raw.kind & shared::KIND_OP_MASK) as u8) {
                    stats.events[op as usize] += 1;
                    stats.bytes[op as usize] += u64::from(raw.length);
                }
            })
            .filter_map(|raw| self.arrived.readable(Some(&raw)))
            .collect();
        self.append(&held)?;
        stats.dropped += self.arrived.unreadable.get();
        if folded {
            let ranges = kernel.folded(stats.ranges);
            // Each was at least one access.
            stats.lost += stats.ranges.saturating_sub(ranges.len() as u64);
            stats.dropped += self.append_ranges(ranges)?;
        }
        Ok(stats)
    }

    /// Writes the counted ranges in the order of their times, those that were recorded in several turns of the
    /// places as two rows; returns the number of accesses in impossible ranges.
    fn append_ranges(&mut self, ranges: Vec<(FoldKey, FoldValue)>) -> Result<u64, TraceError> {
        let mut ranges: Vec<_> = ranges.into_iter().flat_map(by_turns).collect();
        ranges.sort_unstable_by_key(|(key, value)| {
            let file = &key.file;
            let file = (file.device, file.inode, file.generation);
            (value.first_ns, file, key.offset, key.length, key.kind)
        });
        let (mut events, mut bad) = (Vec::with_capacity(BATCH.min(ranges.len())), 0);
        for batch in ranges.chunks(BATCH) {
            for (key, value) in batch {
                match folded_event(key, value) {
                    Some(event) => events.push(event),
                    None => bad += value.count,
                }
            }
            self.append(&events)?;
            events.clear();
        }
        Ok(bad)
    }

    fn append(&mut self, events: &[Event]) -> Result<(), TraceError> {
        self.rows += events.len() as u64;
        self.sink.append(events)
    }
}

/// Converts an event of the kernel side; `None` if it is impossible.
fn event_of(raw: &RawEvent) -> Option<Event> {
    let event = Event {
        time_ns: raw.time_ns,
        file: FileId {
            device: Mounts::st_dev(raw.device),
            inode: raw.inode,
            generation: raw.generation,
        },
        offset: raw.offset,
        length: raw.length,
        bytes: u64::from(raw.length).saturating_mul(raw.weight.into()),
        count: raw.weight,
        pid: raw.pid,
        thread: raw.thread,
        uid: raw.uid,
        comm: raw.comm,
        op: Op::from_number((raw.kind & shared::KIND_OP_MASK) as u8)?,
        direct: raw.kind & shared::KIND_DIRECT != 0,
        windowed: raw.kind & shared::KIND_WINDOWED != 0,
    };
    (raw.weight > 0 && is_possible(event.offset, event.length)).then_some(event)
}

/// A counted range; where it was recorded in several turns of the places, in two parts. The first one is the turn in which most
/// was counted, with its time and count. The rest is of turns that are not known, each of which has at most as many: its time is
/// the beginning of one of them, and no time of a part of one turn is a beginning, so that they can be told apart
/// (`file/turns.rs`). The bytes are divided as the counts are.
fn by_turns((key, value): (FoldKey, FoldValue)) -> impl Iterator<Item = (FoldKey, FoldValue)> {
    let begins = |ns: u64| ns >> shared::TURN_SHIFT << shared::TURN_SHIFT;
    let of_heaviest = begins(value.heaviest_ns);
    let times = [value.first_ns, value.last_ns].map(begins);
    let other = times.into_iter().find(|begins| *begins != of_heaviest);
    let parts = match other.filter(|_| value.heaviest > 0 && value.count > 1) {
        Some(other) => {
            // Counts of processors that counted at once may be in another turn.
            let count = u64::from(value.heaviest).min(value.count - 1);
            let bytes = u128::from(value.bytes) * u128::from(count) / u128::from(value.count);
            let bytes = bytes as u64;
            let heaviest = FoldValue { count, bytes, first_ns: value.heaviest_ns | 1, ..value };
            let (count, bytes) = (value.count - count, value.bytes - bytes);
            [Some(heaviest), Some(FoldValue { count, bytes, first_ns: other, ..value })]
        }
        None if value.heaviest > 0 => {
            [Some(FoldValue { first_ns: value.first_ns | 1, ..value }), None]
        }
        None => [Some(value), None],
    };
    parts.into_iter().flatten().map(move |part| (key, part))
}

fn folded_event(key: &FoldKey, value: &FoldValue) -> Option<Event> {
    let event = Event {
        time_ns: value.first_ns,
        file: FileId {
            device: Mounts::st_dev(key.file.device),
            inode: key.file.inode,
            generation: key.file.generation,
        },
        offset: key.offset,
        length: key.length,
        bytes: value.bytes,
        count: u32::try_from(value.count).unwrap_or(u32::MAX),
        pid: 0,
        thread: 0,
        uid: 0,
        comm: [0; 16],
        op: Op::from_number((key.kind & shared::KIND_OP_MASK) as u8)?,
        direct: key.kind & shared::KIND_DIRECT != 0,
        windowed: key.kind & shared::KIND_WINDOWED != 0,
    };
    is_possible(event.offset, event.length).then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::shared::FileKey;

    const TURN: u64 = 1 << shared::TURN_SHIFT;

    /// Time, count and bytes of the parts of a range.
    fn parts(value: FoldValue) -> Vec<(u64, u64, u64)> {
        let file = FileKey { inode: 1, device: 1, generation: 1 };
        let key = FoldKey { file, offset: 0, length: 8, kind: shared::KIND_DIRECT };
        by_turns((key, value)).map(|(_, part)| (part.first_ns, part.count, part.bytes)).collect()
    }

    #[test]
    fn the_heaviest_turn_is_kept_apart_from_the_rest() {
        // A burst of 64 in turn 5, and one access in turn 9.
        let burst = FoldValue {
            count: 65,
            first_ns: 5 * TURN + 2,
            bytes: 650,
            last_ns: 9 * TURN + 7,
            heaviest_ns: 5 * TURN + 3,
            heaviest: 64,
            present: 1,
        };
        assert_eq!(parts(burst), [(5 * TURN + 3, 64, 640), (9 * TURN, 1, 10)]);
        // The heaviest is the last one, or neither the first nor the last.
        let last = FoldValue { heaviest_ns: burst.last_ns, ..burst };
        assert_eq!(parts(last), [(9 * TURN + 7, 64, 640), (5 * TURN, 1, 10)]);
        let between = FoldValue { count: 300, bytes: 1000, heaviest_ns: 7 * TURN, ..burst };
        assert_eq!(parts(between), [(7 * TURN + 1, 64, 213), (5 * TURN, 236, 787)]);
        // More than there are: another processor counted meanwhile.
        let too_many = FoldValue { count: 64, bytes: u64::MAX, ..burst };
        let both = parts(too_many);
        assert_eq!(both.iter().map(|part| part.1).collect::<Vec<_>>(), [63, 1]);
        assert_eq!(both[0].2.checked_add(both[1].2), Some(u64::MAX));
    }

    #[test]
    fn what_is_of_one_turn_is_one_part() {
        let one = FoldValue {
            count: 64,
            first_ns: 5 * TURN,
            bytes: 640,
            last_ns: 6 * TURN - 1,
            heaviest_ns: 5 * TURN + 9,
            heaviest: 60,
            present: 60,
        };
        assert_eq!(parts(one), [(5 * TURN + 1, 64, 640)]);
        // One access is of one turn, and what is in none has its time.
        assert_eq!(parts(FoldValue { count: 1, last_ns: 9 * TURN, ..one }).len(), 1);
        let none = FoldValue { last_ns: 0, heaviest_ns: 0, heaviest: 0, present: 0, ..one };
        assert_eq!(parts(none), [(5 * TURN, 64, 640)]);
    }
}
