//! A recording that goes on: what was accessed in each period is handed over as a [`Trace`], while the kernel side stays
//! loaded and attached. To load it costs a good part of a second of a processor, which a view that is drawn once a second, or a
//! daemon, cannot spend each time.
//!
//! Invariant: what was accessed between two hand-overs is in the trace of the later one, or in one of the counts of its
//! [`Meta`]. An access that completes while a period ends may be in the next one's, and so may one that the kernel side holds
//! back (a page fault whose pages are still being read).

use super::begun::{Begun, begin, unix_ns};
use super::intake::{Arrived, Intake};
use super::kernel::Kernel;
use super::loads::Answered;
use super::request::{self, Request};
use super::shared::Stats;
use super::watch::Watch;
use super::{Options, count_missed, describe, drain_last, interval};
use crate::file::window::Collector;
use crate::meta::Meta;
use crate::{Trace, TraceError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a rolling recording reports.
pub enum Rolled {
    /// Accesses are seen from now on.
    Attached,
    /// What was accessed since the last report, with what the disks answered meanwhile. Equal accesses are counted once where
    /// misses were recorded; [ranks](crate::FileAccesses::ranks) go on from one trace to the next.
    Window(Box<Trace>),
}

/// How a recording is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Rolling {
    /// How often.
    pub period: Duration,
    /// Whether what reaches a device is to stay in its order ([`FileAccesses::ranks`](crate::FileAccesses::ranks)), which
    /// matters on devices that seek: it needs memory for each access, not for each different one.
    pub ordered: bool,
}

/// Records until `stop` is set, and reports what was accessed each period; at the end, what was since the last one.
///
/// `report` is called in the thread that empties the buffer, and within the [overhead](Options::overhead): it must return soon
/// (a trace is handed to another thread), or accesses are lost. Of the options, those of the output and the duration do not
/// matter.
///
/// # Errors
/// When a filter cannot be applied, privilege or kernel support is missing; or accesses are to be folded in the kernel
/// ([`Options::max_ranges`]), whose table is complete at the end of a recording alone.
pub fn rolling(
    options: &Options,
    rolling: Rolling,
    stop: &AtomicBool,
    report: &mut dyn FnMut(Rolled),
) -> Result<(), TraceError> {
    let Rolling { period, ordered } = rolling;
    if options.max_ranges.is_some() {
        let why = "a recording that goes on is not folded in the kernel: leave out max_ranges";
        return Err(TraceError::Request(why.into()));
    }
    let request = request::resolve(options)?;
    let Begun { mut kernel, mut watch, started, answered, meta } = begin(options, &request)?;
    let mounts = request.mounts.clone();
    let find_path = Box::new(move |file| mounts.path_of(file));
    let collector = Collector::new(&request.device_meta, meta.has_misses(), ordered, find_path);
    let (arrived, events) = (Arrived::new(), kernel.events()?);
    let mut intake = Intake::new(&arrived, &events, collector)?;
    report(Rolled::Attached);

    let stats = Stats::default();
    let request = &request;
    let mut current = Period { options, request, started, meta, stats, skipped: Some(0), answered };
    let (interval, mut next) = (interval(options), started + period);
    loop {
        let over = stop.load(Ordering::Relaxed);
        let rest = watch.step(&mut kernel)?;
        let due = next.min(Instant::now() + rest.min(period));
        let goes_on = || Instant::now() < due && !stop.load(Ordering::Relaxed);
        let emptied = intake.drain(goes_on)?;
        if over {
            kernel.links().detach();
            drain_last(&mut intake)?;
            let stats = intake.append_kept(&kernel, false)?;
            let trace = current.end(&mut intake.sink, stats, &kernel, &mut watch)?;
            report(Rolled::Window(trace));
            return Ok(());
        }
        let now = Instant::now();
        if now >= next {
            // What has been counted by now is in the buffer, which is read once at most: more may arrive faster.
            intake.drain(|| !stop.load(Ordering::Relaxed))?;
            let stats = intake.stats(&kernel)?;
            let trace = current.end(&mut intake.sink, stats, &kernel, &mut watch)?;
            report(Rolled::Window(trace));
            // After a stop, or a slow report, there is one long period and not many short ones.
            next = if now - next < period { next + period } else { now + period };
        } else if emptied {
            std::thread::sleep(interval.min(due.saturating_duration_since(now)));
        }
    }
}

/// A period, and what had been counted when it began.
struct Period<'a> {
    options: &'a Options,
    request: &'a Request,
    started: Instant,
    meta: Meta,
    stats: Stats,
    skipped: Option<u64>,
    answered: Answered,
}

impl Period<'_> {
    /// Ends it, with what is counted by now: the next one begins. Returns what was accessed.
    fn end(
        &mut self,
        collector: &mut Collector,
        stats: Stats,
        kernel: &Kernel,
        watch: &mut Watch,
    ) -> Result<Box<Trace>, TraceError> {
        let (now, request) = (Instant::now(), self.request);
        let next = Meta::new(kernel.level, unix_ns());
        let mut meta = std::mem::replace(&mut self.meta, next);
        let lasted = now - std::mem::replace(&mut self.started, now);
        meta.duration_ns = u64::try_from(lasted.as_nanos()).unwrap_or(u64::MAX);
        let region_bytes = 1 << request.config.region_shift;
        (meta.sampling, meta.overhead) = watch.since_last(region_bytes, lasted);
        let skipped = kernel.skipped_runs();
        let before = std::mem::replace(&mut self.skipped, skipped);
        let skipped = skipped.zip(before).map(|(now, before)| now.saturating_sub(before));
        count_missed(&mut meta, &stats.since(self.stats), kernel, skipped);
        self.stats = stats;
        let answered = Answered::now(kernel, &request.disks)?;
        meta.loads = answered.since(&self.answered, &request.disks);
        self.answered = answered;
        describe(&mut meta, self.options, request);
        Ok(Box::new(collector.take(meta)))
    }
}
