//! What reads cost on each device of a plan: the model, the depth that was seen, and the price of a byte.
//!
//! A device whose cost was probed keeps it. Where it is only guessed, what was observed while recording replaces the
//! guess, if the requests that were seen determine a model ([`CostModel::observed`]); if not, the guess stays and the
//! plan says why.

use crate::file::Device;
use crate::fragments::Bill;
use crate::input::Settings;
use crate::recorded::RecordedReads;
use crate::select::price::Price;
use fragmend_layout::{CostModel, CostSource, ObservedLoad, Split, Undetermined, Unseeking};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What reads cost on one device, at the depth that was seen.
#[derive(Clone, Debug)]
pub struct Costs {
    /// By length and number of requests.
    pub model: CostModel,
    /// How many reads of programs are in flight at a time.
    pub depth: f64,
    /// Whether that was seen; if not, it is 1.
    pub depth_seen: bool,
    /// Whether one thread alone has read, in an order that is known ([`crate::one_thread`]).
    pub one_thread: bool,
    /// How many reads of a stream are in flight, if nothing else is in flight beside it: then others are alone.
    pub streams: Option<f64>,
    /// Nanoseconds of a seek to where a moved range may be, which is not known when it is planned: a third of the
    /// file system away, the mean distance of two places.
    pub far_ns: u64,
    /// What a byte that is written must save.
    pub price: Price,
    /// The same in seconds per GiB.
    pub min_gain_s_per_gib: f64,
    /// Why the requests that were observed are not where the model comes from, if there were any.
    pub undetermined: Option<Undetermined>,
    /// What one more request of a read costs where the data is now, if that was measured.
    pub one_more: Option<OneMore>,
}

/// What one more request of a read costs where the data is now: a sample of the recorded reads was timed. The model knows
/// what reads cost whose data is contiguous, but not how the drive has placed the fragments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneMore {
    /// Nanoseconds, of elapsed time at the depth at which the sample was replayed; below zero where a split read is quicker.
    pub ns: f64,
    /// Reads of the sample.
    pub reads: u64,
}

/// What fragments cost where they are.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// By the device number of the file system, where that was measured.
    pub one_more: BTreeMap<u64, OneMore>,
    /// Why it was not, if it was to be.
    pub why_not: Option<String>,
}

impl OneMore {
    /// Of a sample that lasted so many seconds, by what the planner says of it `now` and with all of its files `contiguous`.
    /// `None` where contiguous files would need as many requests.
    pub fn of(seconds: f64, reads: u64, now: Bill, contiguous: Bill) -> Option<Self> {
        let more = now.requests.checked_sub(contiguous.requests).filter(|n| *n > 0)?;
        let ns = (seconds - contiguous.seconds()) * 1e9 / more as f64;
        ns.is_finite().then_some(Self { ns, reads })
    }
}

/// A move has to pay for itself within so many replays of what was recorded, if nothing else is asked for.
pub const REPLAYS: f64 = 16.0;
/// Reads of a stream have no more than one other in flight, but for what a measured depth is off.
const MOST_BESIDE: f64 = 1.1;
/// Of one thread, in flight are at most the window that it waits for, the next one, and the last one of the stream before. More are of
/// another kind: a program may ask for pages that it does not wait for (`POSIX_FADV_WILLNEED`).
const MOST_OF_ONE_THREAD: f64 = 3.0;
const GIB: u64 = 1 << 30;

/// How many reads of a stream are in flight if `depth` reads are on average and this share of them is of streams; `None` if
/// others are in flight at a time, too. Of `one_thread`, others are not: what the last window of a stream meets is the beginning of another.
///
/// While a program that reads a file through the page cache waits for a window, the kernel has the next one in flight
/// (`page_cache_async_ra`, mm/readahead.c). Where no more reads than that were in flight, it is those.
pub fn in_flight_of_streams(depth: f64, streamed: f64, one_thread: bool) -> Option<f64> {
    if one_thread {
        return (depth > 1.0 && depth <= MOST_OF_ONE_THREAD).then_some(2.0);
    }
    let beside = (depth - 1.0) / streamed;
    (depth > 1.0 && beside <= MOST_BESIDE).then(|| 1.0 + beside.min(1.0))
}

impl Costs {
    /// Of a device, for reads one after the other.
    pub fn of(device: &Device, load: Option<&ObservedLoad>, settings: &Settings) -> Self {
        let profile = &device.profile;
        let mut model = profile.cost.clone();
        let mut undetermined = None;
        if let (CostSource::Guessed, Some(load)) = (model.source, load) {
            match CostModel::observed(load, profile.rotational) {
                Ok(observed) => model = observed,
                Err(why) => undetermined = Some(why),
            }
        }
        // It reads and writes each byte; of writing no more is known than that it is no quicker.
        let moved_s = 2.0 * model.stream_ns(GIB) / 1e9;
        let min_gain_s_per_gib = settings.min_gain_s_per_gib.unwrap_or(moved_s / REPLAYS);
        Self {
            far_ns: model.seek_either_ns(device.total_bytes / 3),
            model,
            depth: 1.0,
            depth_seen: false,
            one_thread: false,
            streams: None,
            price: Price::per_gib(min_gain_s_per_gib),
            min_gain_s_per_gib,
            undetermined,
            one_more: None,
        }
    }

    /// The same at the depth of `load`, in which these reads were.
    #[must_use]
    pub fn at_depth_of(mut self, load: &ObservedLoad, reads: &RecordedReads) -> Self {
        if let Some(depth) = load.depth(reads.reads) {
            (self.depth, self.depth_seen) = (depth, true);
            let streamed = reads.streamed / reads.reads.max(1.0);
            let streams = in_flight_of_streams(depth, streamed, self.one_thread);
            self.streams = streams.filter(|_| !self.seeks());
        }
        self
    }

    /// Whether the device seeks.
    pub fn seeks(&self) -> bool {
        !self.model.seeks().is_empty()
    }

    /// Whether a read costs more where a part of it has moved and the rest has not than where it crosses another break.
    pub fn tears(&self) -> bool {
        self.far_ns > 0 || self.model.knows_neighbours()
    }

    /// Prices reads at the depth that was seen.
    pub fn clock(&self) -> Clock<'_> {
        let known = FxHashMap::default();
        Clock {
            model: &self.model,
            depth: self.depth,
            streams: self.streams,
            apart: false,
            one_more: self.one_more,
            known,
        }
    }

    /// Prices reads whose requests are at places that have nothing to do with each other.
    pub fn clock_apart(&self) -> Clock<'_> {
        Clock { apart: true, ..self.clock() }
    }

    /// Prices reads one after the other.
    pub fn clock_alone(&self) -> Clock<'_> {
        Clock { depth: 1.0, streams: None, one_more: None, ..self.clock() }
    }
}

/// Prices reads, and remembers the prices: there are many more reads than kinds of them.
#[derive(Debug)]
pub struct Clock<'a> {
    model: &'a CostModel,
    depth: f64,
    /// How many reads of a stream are in flight, if nothing else is.
    streams: Option<f64>,
    /// Whether the requests of a read are not neighbours.
    apart: bool,
    /// What each request after the first costs, where that was measured.
    one_more: Option<OneMore>,
    /// By bytes and [`kind`].
    known: FxHashMap<(u64, u64), Unseeking>,
}

/// More kinds of reads than this are not remembered.
const MOST_KNOWN: usize = 1 << 14;

/// Of reads of equal length, those with equal numbers cost the same but for their seeks: requests, and whether the read is torn
/// and of a stream. There are fewer than 2^62 requests, for each has a byte of a file.
fn kind(split: Split) -> u64 {
    split.requests << 2 | u64::from(split.torn) << 1 | u64::from(split.streamed)
}

impl Clock<'_> {
    /// Whether such a read is in flight beside the one that it continues, and nothing else is.
    pub fn is_of_stream(&self, split: Split) -> bool {
        split.streamed && self.streams.is_some_and(|streams| streams > 1.0)
    }

    /// Nanoseconds of elapsed time of one such read; none if it reads nothing.
    pub fn read_ns(&mut self, split: Split) -> f64 {
        if split.requests == 0 {
            return 0.0;
        }
        let (streamed, depth) = match self.streams {
            Some(streams) if split.streamed => (true, streams),
            Some(_) => (false, 1.0),
            None => (false, self.depth),
        };
        let split = Split { streamed, ..split };
        let key = (split.bytes, kind(split));
        if let Some(known) = self.known.get(&key) {
            return known.read_ns(split.seek_ns);
        }
        let found = if let Some(more) = self.one_more {
            self.model.unseeking_with(split, depth, more.ns)
        } else if self.apart {
            self.model.unseeking_apart(split, depth)
        } else {
            self.model.unseeking(split, depth)
        };
        if self.known.len() > MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, found);
        found.read_ns(split.seek_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{DeviceKind, DeviceProfile, ObservedRequests};

    /// What a drive of this kind answers to every class of requests.
    pub(crate) fn load_of(kind: DeviceKind) -> ObservedLoad {
        let drive = CostModel::guessed(kind);
        let class = |(bytes, n): (u64, u32)| {
            let many = u64::from(n);
            let split = Split { requests: many, ..Split::whole(bytes * many) };
            ObservedRequests {
                write: false,
                up_to_bytes: bytes,
                up_to_in_flight: n,
                count: 100,
                bytes: 100 * bytes,
                in_flight: 100 * many,
                total_ns: 100 * drive.read_ns(split, 1.0) as u64,
            }
        };
        let lengths = [4096, 1 << 15, 1 << 17];
        let classes = lengths.into_iter().flat_map(|bytes| [1, 4, 32].map(|n| (bytes, n)));
        ObservedLoad { requests: classes.map(class).collect(), ..ObservedLoad::default() }
    }

    fn device(cost: CostModel, rotational: bool) -> Device {
        let profile = DeviceProfile { cost, rotational, ..DeviceProfile::unknown() };
        Device { profile, ..Device::example() }
    }

    #[test]
    fn probed_goes_before_observed_and_that_before_guessed() {
        let (seen, settings) = (load_of(DeviceKind::Card), Settings::default());
        let guess = CostModel::guessed(DeviceKind::Flash);
        let of = |device: &Device, load| Costs::of(device, load, &settings);
        let guessed = of(&device(guess.clone(), false), None);
        assert_eq!((guessed.model.source, guessed.undetermined), (CostSource::Guessed, None));
        let observed = of(&device(guess.clone(), false), Some(&seen));
        assert_eq!(observed.model.source, CostSource::Observed);
        let probed =
            CostModel::new(CostSource::Probed, guess.reads().to_vec(), Vec::new()).unwrap();
        assert_eq!(of(&device(probed, false), Some(&seen)).model.source, CostSource::Probed);
        // Where it is not determined, the guess stays, and why is known.
        let disk = of(&device(CostModel::guessed(DeviceKind::Disk), true), Some(&seen));
        assert_eq!(disk.model.source, CostSource::Guessed);
        assert_eq!(disk.undetermined, Some(Undetermined::Seeks));
        assert!(disk.far_ns > 4_000_000, "{}", disk.far_ns);
    }

    #[test]
    fn the_default_price_is_a_sixteenth_of_a_move() {
        let price = |kind, settings: &Settings| {
            Costs::of(&device(CostModel::guessed(kind), false), None, settings).min_gain_s_per_gib
        };
        // 100 and 550 MB/s, there and back.
        let default = Settings::default();
        let of = |rate: f64| 2.0 * GIB as f64 / rate / 16.0;
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.07;
        assert!(close(price(DeviceKind::Card, &default), of(100e6)));
        assert!(close(price(DeviceKind::Flash, &default), of(550e6)));
        let asked = Settings { min_gain_s_per_gib: Some(3.0), ..default };
        assert_eq!(price(DeviceKind::Card, &asked), 3.0);
    }

    #[test]
    fn depth_is_what_was_seen_or_one() {
        let costs = Costs::of(&Device::example(), None, &Settings::default());
        assert_eq!((costs.depth, costs.depth_seen), (1.0, false));
        let nothing =
            costs.clone().at_depth_of(&ObservedLoad::default(), &RecordedReads::default());
        assert_eq!((nothing.depth, nothing.depth_seen), (1.0, false));
        let bursts_before = Some(6);
        let load = ObservedLoad { read_bursts: 2, bursts_before, ..ObservedLoad::default() };
        let costs = costs.at_depth_of(&load, &RecordedReads::default());
        assert_eq!((costs.depth, costs.depth_seen), (4.0, true));
        // A clock says what the model says.
        let split = Split { requests: 4, ..Split::whole(1 << 17) };
        let (mut deep, mut alone) = (costs.clock(), costs.clock_alone());
        for _ in 0..2 {
            assert_eq!(deep.read_ns(split), costs.model.read_ns(split, 4.0));
            assert_eq!(alone.read_ns(split), costs.model.read_ns(split, 1.0));
        }
        assert_eq!(deep.read_ns(Split { requests: 0, ..Split::whole(0) }), 0.0);
    }

    #[test]
    fn one_thread_has_a_stream_in_flight_and_nothing_else() {
        // Half of the reads are of streams, and more is in flight on average than one beside each of these.
        assert_eq!(in_flight_of_streams(1.9, 0.5, false), None);
        assert_eq!(in_flight_of_streams(1.9, 0.5, true), Some(2.0));
        assert_eq!(in_flight_of_streams(1.25, 0.5, false), Some(1.5));
        assert_eq!(in_flight_of_streams(1.0, 0.5, true), None);
        assert_eq!(in_flight_of_streams(3.1, 0.5, true), None);
    }
}
