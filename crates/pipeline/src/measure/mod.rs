//! Prediction meets measurement: what reads cost before the ranges of a plan are moved, and afterwards.
//!
//! | module | its job |
//! |---|---|
//! | [`reads`] | which reads of the device are replayed, and how |
//! | `parts` | what each read that one thread caused was issued after |
//! | [`sample`] | the recorded reads, and what is predicted for them |
//! | `surveyed` | its files, as long as they are those that were surveyed |
//! | [`watch`] | a service that is watched again |
//! | `own` | what the service had its disks do, of all that they did |
//! | [`moved`] | the ranges that were moved, for which is predicted |
//! | `verdict` | how much of what was predicted was saved, if that can be told |
//!
//! The same reads are replayed past the page cache on both layouts, some rounds each; or the service is watched
//! again. What could not be measured is no error: the [`Measurement`] says why.

mod moved;
mod own;
mod parts;
mod reads;
mod sample;
mod surveyed;
mod verdict;
mod watch;

use crate::event::{LeftOut, Replayed};
use crate::{Event, Observer};
use fragmend_apply::measurement::{MeasuredBy, Measurement, Method, NotMeasured};
use fragmend_device::probe::clock::ClockKind;
use fragmend_device::replay::{FileRead, Replayer};
use fragmend_plan::{Basis, Device, OneMore, Plan};
use fragmend_sys::block::BlockDevice;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use moved::Moved;
use parts::Parts;
use reads::{InFlight, Read, Run};
pub use sample::Sample;
pub use verdict::replayed;
pub use watch::{Seen, Watched, watched_again};

/// Rounds on each layout. On a served drive they differ only by what else reads it.
pub const ROUNDS: u32 = 3;
/// The longest that a round may last, by the clock on the wall: what the first one does not reach is left out.
const LONGEST_ROUND: Duration = Duration::from_secs(5);
/// How long any other may last, or the first run of consecutive reads: another load may make the disk slow.
const TOO_LONG: Duration = Duration::from_secs(20);

/// Why something could not be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CouldNot {
    /// By name.
    pub why: NotMeasured,
    /// In words.
    pub detail: String,
}

impl CouldNot {
    fn new(why: NotMeasured, detail: impl Into<String>) -> Self {
        Self { why, detail: detail.into() }
    }

    fn interrupted() -> Self {
        Self::new(NotMeasured::Interrupted, "it was stopped")
    }

    fn too_slow() -> Self {
        let detail = format!(
            "a round lasts more than {} s beside what else uses the disk",
            TOO_LONG.as_secs()
        );
        Self::new(NotMeasured::Failed, detail)
    }

    fn failed(error: &io::Error) -> Self {
        Self::new(NotMeasured::Failed, error.to_string())
    }
}

/// The rounds on one layout.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    /// Seconds of each, in ascending order.
    seconds: Vec<f64>,
    /// Whose clock it was.
    clock: MeasuredBy,
    /// Bytes that the devices read and wrote meanwhile for others, as far as they count them.
    others_bytes: u64,
}

impl Rounds {
    fn median(&self) -> f64 {
        self.seconds[self.seconds.len() / 2]
    }

    /// Seconds by which they are apart.
    fn spread(&self) -> f64 {
        self.seconds[self.seconds.len() - 1] - self.seconds[0]
    }

    /// The same as a share of the median.
    fn noise(&self) -> f64 {
        self.spread() / self.median().max(f64::MIN_POSITIVE)
    }
}

/// Replays the sample on the present layout. The `first` time, what is not reached in time is left out of it.
///
/// # Errors
/// See [`CouldNot`].
pub fn replay(
    sample: &mut Sample,
    first: bool,
    stop: &AtomicBool,
    observe: &Observer,
) -> Result<Rounds, CouldNot> {
    let left_out = if first { surveyed::leave_out_others(sample)? } else { LeftOut::default() };
    let mut disks = Disk::open(sample)?;
    if !first && data_bytes(&disks, sample)? < sample.data_bytes {
        let detail = "a file has holes now where it was read, which need no device";
        return Err(CouldNot::new(NotMeasured::Failed, detail));
    }
    let before = counted_bytes(&disks);
    let (reads, bytes) = sample.size();
    let (rounds, recorded_reads) = (ROUNDS, sample.recorded);
    observe(Event::ToReplay(Replayed { reads, bytes, rounds, recorded_reads, left_out }));
    let mut seconds = Vec::new();
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let (mut sum, mut done) = (Duration::ZERO, 0);
        for run in &sample.runs {
            if first && round == 0 && done > 0 && begun.elapsed() > LONGEST_ROUND {
                break;
            }
            sum += elapsed(&mut disks, &sample.parts(run, first), begun, stop)?;
            done += 1;
            observe(Event::Replayed(run.reads.len() as u64));
        }
        if first && round == 0 {
            sample.runs.truncate(done);
        }
        seconds.push(sum.as_secs_f64());
    }
    let all = counted_bytes(&disks).saturating_sub(before);
    if first {
        sample.data_bytes = data_bytes(&disks, sample)?;
    }
    seconds.sort_by(f64::total_cmp);
    let served = disks.iter().all(|disk| disk.replayer.clock() == ClockKind::Served);
    let clock = if served { MeasuredBy::Served } else { MeasuredBy::Wall };
    let own = sample.data_bytes.saturating_mul(ROUNDS.into());
    Ok(Rounds { seconds, clock, others_bytes: all.saturating_sub(own) })
}

/// How long a run of reads lasts, of a round that has `begun` then.
fn elapsed(
    disks: &mut [Disk],
    run: &Parts,
    begun: Instant,
    stop: &AtomicBool,
) -> Result<Duration, CouldNot> {
    let is_over = || stop.load(Ordering::Relaxed) || begun.elapsed() > TOO_LONG;
    let disk = disks.iter_mut().find(|disk| disk.device == run.device);
    let disk = disk.expect("a disk is opened for each run of the sample");
    match disk.elapsed(run, &is_over).map_err(|e| CouldNot::failed(&e))? {
        Some(elapsed) => Ok(elapsed),
        None if stop.load(Ordering::Relaxed) => Err(CouldNot::interrupted()),
        None => Err(CouldNot::too_slow()),
    }
}

/// Seconds for these runs of reads: the quicker of two rounds.
fn control(sample: &Sample, runs: &[Run], stop: &AtomicBool) -> Result<f64, CouldNot> {
    let mut disks = Disk::open(sample)?;
    let mut round = || {
        let begun = Instant::now();
        let of = |run| elapsed(&mut disks, &sample.parts(run, true), begun, stop);
        runs.iter().map(of).sum::<Result<Duration, CouldNot>>()
    };
    Ok(round()?.min(round()?).as_secs_f64())
}

/// Bytes that the disks have read and written so far; file systems may share one.
fn counted_bytes(disks: &[Disk]) -> u64 {
    let first = |(n, disk): &(usize, &Disk)| {
        !disks[..*n].iter().any(|known| known.below.disk() == disk.below.disk())
    };
    let of = |disk: &Disk| disk.below.counters().map_or(0, |c| c.read_bytes + c.written_bytes);
    disks.iter().enumerate().filter(first).map(|(_, disk)| of(disk)).sum()
}

/// What one more request of a read costs where the data is now, by the [replayed](replay) rounds on the present layout, and by
/// the device number of the file system. Whether the device is as it was probed is measured for that: the first part of each
/// read that is in one piece is timed.
///
/// # Errors
/// See [`CouldNot`]; that of `rounds` is passed on.
pub fn one_more(
    sample: &Sample,
    rounds: &Result<Rounds, CouldNot>,
    stop: &AtomicBool,
) -> Result<BTreeMap<u64, OneMore>, CouldNot> {
    let rounds = rounds.as_ref().map_err(Clone::clone)?;
    sample.one_more(rounds, |runs| control(sample, runs, stop))
}

/// Whether it may pay to time reads before a plan is carried out: reads were recorded, and what they cost was probed on a
/// device that does not seek and does more than one request at a time.
pub fn may_time(plan: &Plan) -> bool {
    let known = |device: &Device| device.profile.cost.places_matter();
    let traced = plan.summary.basis.is_some_and(Basis::is_traced);
    traced && plan.summary.requests_before > 0 && plan.devices.iter().any(known)
}

/// Bytes of all reads that are data, and no hole.
fn data_bytes(disks: &[Disk], sample: &Sample) -> Result<u64, CouldNot> {
    let mut bytes = 0;
    for run in &sample.runs {
        let Some(disk) = disks.iter().find(|disk| disk.device == run.device) else { continue };
        let of_run = disk.replayer.data_bytes(&disk.reads(&run.reads));
        bytes += of_run.map_err(|e| CouldNot::failed(&e))?;
    }
    Ok(bytes)
}

/// The files of a sample on one file system.
struct Disk {
    /// Its device number.
    device: u64,
    /// The whole disk below.
    below: BlockDevice,
    replayer: Replayer,
    /// The index in `replayer` of each file of the sample.
    files: Vec<Option<usize>>,
}

impl Disk {
    /// Opens the files of the sample, by device.
    fn open(sample: &Sample) -> Result<Vec<Self>, CouldNot> {
        let mut numbers: Vec<u64> = sample.runs.iter().map(|run| run.device).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            let detail =
                "no read of the device was recorded that can be repeated past the page cache";
            return Err(CouldNot::new(NotMeasured::NothingToRead, detail));
        }
        numbers.into_iter().map(|device| Self::open_one(sample, device)).collect()
    }

    fn open_one(sample: &Sample, device: u64) -> Result<Self, CouldNot> {
        let mut files = vec![None; sample.files.len()];
        let (mut opened, mut below, mut longest) = (Vec::new(), None, 0);
        let runs = sample.runs.iter().filter(|run| run.device == device);
        for Read { file: index, range, .. } in runs.flat_map(|run| &run.reads) {
            longest = longest.max(range.len());
            if files[*index].is_some() {
                continue;
            }
            let file = surveyed::open(sample, *index, range.end)?;
            if below.is_none() {
                let under = BlockDevice::under(&sample.files[*index].path, device);
                let unknown = |e| failed(format_args!("{}: {e}", sample.name(*index)));
                below = Some(under.map_err(unknown)?);
            }
            files[*index] = Some(opened.len());
            opened.push(file);
        }
        let nothing = || CouldNot::new(NotMeasured::NothingToRead, "no file is left");
        let below = below.ok_or_else(nothing)?;
        let replayer = Replayer::new(opened, &below, longest.next_multiple_of(4096) as u32)
            .map_err(|e| {
                CouldNot::new(NotMeasured::Refused, format!("io_uring cannot be used: {e}"))
            })?;
        Ok(Self { device, below: below.whole(), replayer, files })
    }

    /// The reads of a run as the replayer has them.
    fn reads(&self, reads: &[Read]) -> Vec<FileRead> {
        let place = |Read { file, range, .. }: &Read| {
            Some((self.files[*file]?, range.start, range.len() as u32))
        };
        reads.iter().filter_map(place).collect()
    }

    fn elapsed(&mut self, run: &Parts, ended: &dyn Fn() -> bool) -> io::Result<Option<Duration>> {
        let reads = self.reads(&run.reads);
        match run.in_flight {
            InFlight::AsRead => self.replayer.elapsed_in_order(&reads, &run.needs, ended),
            InFlight::Always(depth) => self.replayer.elapsed(&reads, depth, ended),
        }
    }
}

fn empty(method: Method) -> Measurement {
    Measurement {
        method,
        predicted: None,
        predicted_ranges: 0,
        planned_ranges: 0,
        fitted: false,
        measured: None,
        not_measured: None,
        saved_of_predicted: None,
        no_verdict: None,
        detail: String::new(),
        clock: None,
        noise: None,
        rounds: 0,
        reads: 0,
        read_bytes: 0,
        recorded_reads: 0,
        in_flight: 0.0,
        read_bytes_again: None,
    }
}

fn refuse(measurement: &mut Measurement, why: CouldNot) {
    (measurement.not_measured, measurement.detail) = (Some(why.why), why.detail);
}

/// Nothing moved: there is nothing to compare.
pub fn nothing_moved() -> CouldNot {
    CouldNot::new(NotMeasured::NothingMoved, "nothing was moved, so there is nothing to compare")
}

/// Another reason, with which nothing can be measured at all.
pub fn failed(detail: impl std::fmt::Display) -> CouldNot {
    CouldNot::new(NotMeasured::Failed, detail.to_string())
}

/// A measurement that has not even begun.
pub fn not_measured(method: Method, why: CouldNot) -> Measurement {
    let mut measurement = empty(method);
    refuse(&mut measurement, why);
    measurement
}

/// The run was stopped.
pub fn interrupted() -> CouldNot {
    CouldNot::interrupted()
}
