//! This machine as a world: recordings, surveys and moves of `fragmend-pipeline`.

mod programs;

use crate::activity::Activity;
use crate::daemon::Control;
use crate::notify::Notify;
use crate::world::{Applied, Recorded, World};
use crate::{Policy, Time};
use fragmend_apply::{Event, Listener, Options, Outcome};
use fragmend_engines::begin::Wanted;
use fragmend_layout::ByteRange;
use fragmend_pipeline::{Error, Recording, Survey};
use fragmend_plan::Plan;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::input;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::available_parallelism;
use std::time::Duration;

/// The longest time for which a signal is not seen while nothing is done.
const LOOK: Duration = Duration::from_millis(500);
/// The buffer between kernel and recorder, for some 16,000 accesses. All of it is resident, twice.
const BUFFER_BYTES: u32 = 1 << 20;
/// How often it is emptied: each time wakes a processor.
const EMPTIED_EVERY: Duration = Duration::from_millis(100);

/// This machine.
pub struct Live {
    notify: Arc<Notify>,
    recording: Option<Recording>,
    /// Lasting names of file systems, by device number.
    volumes: BTreeMap<u64, String>,
}

/// What the world returns.
type Result<T> = std::result::Result<T, Error>;

impl Live {
    /// This machine; signs of life go to `notify`.
    pub fn new(notify: Arc<Notify>) -> Self {
        Self { notify, recording: None, volumes: BTreeMap::new() }
    }

    /// A recording of a policy's paths within its limits, which has not begun.
    fn recording(policy: &Policy) -> Result<Recording> {
        let mut recording = Recording::new(policy.paths.clone(), policy.recording.window, None)?;
        let processors = available_parallelism().map_or(1, |n| n.get());
        let options = recording.options();
        options.overhead = Some(policy.recording.overhead_percent / processors as f64);
        options.buffer_bytes = BUFFER_BYTES;
        options.interval = Some(EMPTIED_EVERY);
        Ok(recording)
    }
}

impl World for Live {
    type Error = Error;

    fn now(&self) -> Time {
        Time::now()
    }

    fn wait(&mut self, until: Time, control: &Control) {
        loop {
            self.notify.alive();
            let left = until.since(self.now());
            if left.is_zero() || control.is_set() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn record(&mut self, policy: &Policy, control: &Control) -> Result<Recorded> {
        // The file of the one before is freed first.
        self.recording = None;
        let mut recording = Self::recording(policy)?;
        let summary = recording.run(&control.stop, &|_| self.notify.alive())?;
        let mut activity = Activity::default();
        recording.each_event(&mut |event| activity.add(event))?;
        activity.look_up(&programs::cgroup_of);
        self.recording = Some(recording);
        Ok(Recorded { accesses: summary.events(), lost: summary.meta.lost, activity })
    }

    fn survey(&mut self, policy: &Policy) -> Result<Survey> {
        let Some(recording) = &self.recording else { return Ok(Survey::default()) };
        let trace = recording.counted_trace()?;
        let mut survey =
            fragmend_pipeline::survey(Some(trace), &policy.paths, &|_| self.notify.alive())?;
        survey.drives = fragmend_pipeline::drives(&survey.devices);
        let named = |device: &fragmend_plan::Device| {
            let root = std::fs::File::open(device.mount.to_path()?).ok()?;
            Some((device.device, FsId::of(root).ok()?.name()))
        };
        self.volumes = survey.devices.iter().filter_map(named).collect();
        Ok(survey)
    }

    fn volume(&self, device: u64) -> Option<String> {
        self.volumes.get(&device).cloned()
    }

    fn apply(&mut self, plan: &Plan, policy: &Policy, control: &Control) -> Result<Applied> {
        let options = Options { rate: policy.yielding.rate, ..Options::default() };
        let mut receipts = Receipts { notify: &self.notify, applied: Applied::default() };
        let may_move = || !control.is_set() && policy.hours.allow(Time::now());
        let summary = while_allowed(&may_move, |stop| {
            fragmend_pipeline::apply(plan, &Wanted::default(), &options, stop, &mut receipts)
        })?;
        let mut applied = receipts.applied;
        // What the kernel charged may be in the page cache still; what was exchanged was copied before.
        applied.written_bytes = summary.written_bytes.max(summary.moved_bytes);
        applied.stopped = summary.interrupted;
        applied.failed = summary.failed();
        Ok(applied)
    }

    fn io_pressure_percent(&self) -> Option<f64> {
        const LONGEST: u64 = 4096;
        io_pressure(&input::read_text("/proc/pressure/io".as_ref(), LONGEST).ok()?)
    }
}

/// Does `work`, and asks it to stop at the next safe point once it is not allowed any more: the daemon is to end, the policy
/// has changed, or the hours in which data may move are over.
fn while_allowed<T>(
    is_allowed: &(dyn Fn() -> bool + Sync),
    work: impl FnOnce(&AtomicBool) -> T,
) -> T {
    let stop = AtomicBool::new(false);
    let (working, ended) = mpsc::channel::<Infallible>();
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if !is_allowed() {
                    return stop.store(true, Ordering::Relaxed);
                }
            }
        });
        let done = work(stop);
        drop(working);
        done
    })
}

/// `some avg10` of a pressure file (Documentation/accounting/psi.rst), in per cent.
fn io_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    value.parse().ok().filter(|percent: &f64| percent.is_finite())
}

/// Keeps what matters of the receipts.
struct Receipts<'a> {
    notify: &'a Notify,
    applied: Applied,
}

impl Listener for &mut Receipts<'_> {
    fn tell(&mut self, event: Event) {
        self.notify.alive();
        let Event::Range(receipt) = event else { return };
        let range = ByteRange::at(receipt.offset, receipt.length);
        // A range that moved and could not be made durable is reported once more, as left alone.
        self.applied.moved.retain(|moved| moved.start != range.start);
        match (receipt.outcome, receipt.reason) {
            (Outcome::Moved, _) => self.applied.moved.push(range),
            (_, Some(reason)) if self.applied.left_alone.is_none() => {
                let detail = receipt.detail.filter(|detail| !detail.is_empty());
                let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
                self.applied.left_alone = Some(format!("{reason}{detail}"));
            }
            _ => {}
        }
    }

    fn catch_up(&mut self, _: Option<Duration>) -> bool {
        self.notify.alive();
        true
    }
}

/// Checks that the paths of a policy exist, and that data can be moved on their file systems where a rule says so.
///
/// # Errors
/// The first path that does not exist, or whose file system is refused.
pub fn check(policy: &Policy) -> Result<()> {
    if policy.moves() {
        return fragmend_pipeline::can_move(&policy.paths, &Wanted::default());
    }
    fragmend_pipeline::absolute(&policy.paths).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_any_more_is_stopped() {
        let allowed = AtomicBool::new(true);
        let stopped = while_allowed(&|| allowed.load(Ordering::Relaxed), |stop| {
            assert!(!stop.load(Ordering::Relaxed));
            allowed.store(false, Ordering::Relaxed);
            (0..100).any(|_| {
                std::thread::sleep(LOOK / 10);
                stop.load(Ordering::Relaxed)
            })
        });
        assert!(stopped);
        assert!(!while_allowed(&|| true, |stop| stop.load(Ordering::Relaxed)));
    }

    #[test]
    fn pressure_is_that_of_some_in_ten_seconds() {
        let text = "some avg10=39.39 avg60=46.67 avg300=40.51 total=3230433152\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(io_pressure(text), Some(39.39));
        for other in ["", "full avg10=1.00", "some avg60=1", "some avg10=x", "some avg10=nan"] {
            assert_eq!(io_pressure(other), None, "{other}");
        }
    }
}
