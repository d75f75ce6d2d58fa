//! The recorder, period by period, and what is made of it: what files lose now, and a plan from everything that was seen. Two
//! threads: the recorder must not wait for a plan.
//!
//! What this costs is limited twice: the recorder by its own budget, and what is made of its periods by the processor time of
//! that thread. Periods that come meanwhile are joined, so nothing that was seen is left out of a plan.

use fragmend_known::Recogniser;
use fragmend_layout::{ByteRange, FileId, Layout};
use fragmend_pipeline::{Survey, plan_with_losses, unobserved};
use fragmend_plan::{FileLoss, Settings};
use fragmend_top::{Change, Offer, map, state::Period};
use fragmend_trace::record::{Options, Rolled};
use fragmend_trace::{Joined, Level, Trace};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the recorder may cost, in per cent of one processor.
const RECORDING: f64 = 1.0;
/// The share of a processor for what is made of it,
const ANALYSIS: f64 = 0.005;
/// and how long that can be saved up.
const SAVED: Duration = Duration::from_secs(20);
/// A plan is not made more often.
const PLAN_EVERY: Duration = Duration::from_secs(5);
/// Accesses of which a plan is made, at most: of more, it begins anew.
const MOST_ACCESSES: usize = 1 << 20;
/// Files of a period that are looked at for what they are to their programs: those that lose most,
const NAMED: usize = 32;
/// and how many are remembered, so that each is opened once.
const MOST_NAMED: usize = 1 << 16;

/// Both threads; they end with the process.
pub struct Watch {
    forget: Arc<AtomicBool>,
}

/// Periods that wait to be looked at, joined.
#[derive(Default)]
struct Waiting {
    periods: Mutex<Option<Joined>>,
    came: Condvar,
}

impl Waiting {
    fn add(&self, trace: Trace) {
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *periods {
            Some(joined) => joined.add(trace),
            None => *periods = Some(Joined::new(trace)),
        }
        self.came.notify_one();
    }

    fn take(&self) -> Trace {
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match periods.take() {
                Some(joined) => return joined.into_trace(),
                None => {
                    periods = self.came.wait(periods).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Watch {
    /// Begins to record what is read below `path`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        path: PathBuf,
        period: Duration,
        settings: Settings,
        send: Sender<Change>,
    ) -> std::io::Result<Self> {
        let (forget, waiting) = (Arc::<AtomicBool>::default(), Arc::<Waiting>::default());
        let (recorded, reported) = (Arc::clone(&waiting), send.clone());
        let mut options = Options::new("the trace", vec![path.clone()]);
        options.level = Level::Miss;
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        options.overhead = Some(RECORDING / processors);
        let record = move || {
            let _pool = in_this_thread();
            let never = AtomicBool::new(false);
            let report = &mut |rolled| match rolled {
                Rolled::Attached => drop(reported.send(Change::Attached)),
                Rolled::Window(trace) => {
                    drop(reported.send(Change::Period(period_of(&trace))));
                    recorded.add(*trace);
                }
            };
            if let Err(error) = fragmend_pipeline::rolling(&options, period, &never, report) {
                let why = format!("{:#}", anyhow::Error::from(error));
                drop(reported.send(Change::NotRecording(why)));
            }
        };
        let mut analyst = Analyst {
            path,
            settings,
            send,
            forget: Arc::clone(&forget),
            recogniser: Recogniser::default(),
            looked_at: HashSet::new(),
        };
        let analyse = move || {
            let _pool = in_this_thread();
            analyst.work(&waiting);
        };
        std::thread::Builder::new().name("recorder".into()).spawn(record)?;
        std::thread::Builder::new().name("analysis".into()).spawn(analyse)?;
        Ok(Self { forget })
    }

    /// Forgets what was recorded so far: data has moved.
    pub fn forget(&self) {
        self.forget.store(true, Ordering::Relaxed);
    }
}

/// What disks answered in a period.
fn period_of(trace: &Trace) -> Period {
    let meta = &trace.meta;
    Period {
        seconds: meta.duration_ns as f64 / 1e9,
        watched: meta.sampling.map_or(meta.duration_ns, |s| s.watched_ns) as f64 / 1e9,
        loads: meta.loads.clone(),
        lost: meta.lost,
        places: meta.sampling.map_or(1.0, |sampling| f64::from(sampling.places_ppm) / 1e6),
    }
}

/// Makes losses and plans.
struct Analyst {
    path: PathBuf,
    settings: Settings,
    send: Sender<Change>,
    forget: Arc<AtomicBool>,
    recogniser: Recogniser,
    looked_at: HashSet<FileId>,
}

impl Analyst {
    fn work(&mut self, waiting: &Waiting) {
        let mut seen: Option<Joined> = None;
        let mut planned = Instant::now();
        let mut allowance = Allowance::new(Instant::now());
        loop {
            let period = waiting.take();
            if self.forget.swap(false, Ordering::Relaxed) {
                seen = None;
            }
            match &mut seen {
                Some(seen) if seen.accesses() < MOST_ACCESSES => seen.add(period.clone()),
                _ => seen = Some(Joined::new(period.clone())),
            }
            self.losses(period);
            if planned.elapsed() >= PLAN_EVERY
                && let Some(seen) = &seen
            {
                self.offer(seen.trace().clone());
                planned = Instant::now();
            }
            std::thread::sleep(allowance.spend(Instant::now(), thread_time()));
        }
    }

    fn survey(&self, trace: Trace) -> Option<Survey> {
        if trace.files.is_empty() {
            return Some(Survey::default());
        }
        let path = std::slice::from_ref(&self.path);
        match fragmend_pipeline::survey(Some(trace), path, &unobserved) {
            Ok(survey) => Some(survey),
            Err(error) => {
                drop(self.send.send(Change::Notice(error.to_string())));
                None
            }
        }
    }

    /// What files lost in a period.
    fn losses(&mut self, period: Trace) {
        let seconds = period.meta.duration_ns as f64 / 1e9;
        let Some(survey) = self.survey(period) else { return };
        let read = |file: &fragmend_plan::SurveyedFile| -> Vec<ByteRange> {
            let read = file.accesses.iter().filter(|access| access.is_read_by_device());
            read.flat_map(|access| map::places(&file.layout, access.range())).collect()
        };
        let read = survey.files.iter().flat_map(read).collect();
        let (_, losses) = plan_with_losses(survey, &self.settings);
        let known = self.known(&losses);
        drop(self.send.send(Change::Losses { losses, seconds, read }));
        known.into_iter().for_each(|(file, what)| drop(self.send.send(Change::Known(file, what))));
    }

    /// What files are to their programs, of those that lose most and were not looked at yet.
    fn known(&mut self, losses: &[FileLoss]) -> Vec<(FileId, String)> {
        let mut losses: Vec<&FileLoss> = losses.iter().collect();
        losses.sort_by(|a, b| b.seconds_lost.total_cmp(&a.seconds_lost));
        if self.looked_at.len() >= MOST_NAMED {
            self.looked_at.clear();
        }
        let mut known = Vec::new();
        for loss in losses.into_iter().take(NAMED) {
            if self.looked_at.insert(loss.file) {
                let found = self.recogniser.at(&loss.path, loss.file.inode);
                known.extend(found.map(|found| (loss.file, found.to_string())));
            }
        }
        known
    }

    /// A plan from everything that was seen.
    fn offer(&self, seen: Trace) {
        let recorded = Duration::from_nanos(seen.meta.duration_ns);
        let Some(survey) = self.survey(seen) else { return };
        let layout = |file: &fragmend_plan::SurveyedFile| (file.layout.file, file.layout.clone());
        let mut known: HashMap<_, Layout> = survey.files.iter().map(layout).collect();
        let plan = fragmend_pipeline::plan(survey, &self.settings);
        let planned = plan.files.iter();
        let layouts = planned
            .filter_map(|file| Some((file.path.path.clone(), known.remove(&file.file)?)))
            .collect();
        let offer = Offer { plan, recorded, layouts };
        drop(self.send.send(Change::Offered(Arc::new(offer))));
    }
}

/// The processor time that is left for analysis.
struct Allowance {
    at: Instant,
    used: Duration,
    left: f64,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { at: now, used: Duration::ZERO, left: SAVED.as_secs_f64() * ANALYSIS }
    }

    /// Enters the processor time that was used up to now; returns how long to rest.
    fn spend(&mut self, now: Instant, used: Duration) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        let most = SAVED.as_secs_f64() * ANALYSIS;
        let spent = used.saturating_sub(self.used).as_secs_f64();
        self.left = (self.left + passed * ANALYSIS).min(most) - spent;
        (self.at, self.used) = (now, used);
        Duration::from_secs_f64((-self.left).max(0.0) / ANALYSIS)
    }
}

/// What is divided among threads is done in this one alone, whose processor time is limited.
pub(super) fn in_this_thread() -> Option<ThreadPool> {
    ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().ok()
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn analysis_keeps_to_its_share_of_a_processor() {
        let begun = Instant::now();
        let (mut now, mut used) = (begun, Duration::ZERO);
        let mut allowance = Allowance::new(begun);
        for each in [1, 40, 3].map(Duration::from_millis).into_iter().cycle().take(3000) {
            used += each;
            now += Duration::from_secs(1);
            now += allowance.spend(now, used);
        }
        let share = used.as_secs_f64() / (now - begun).as_secs_f64();
        assert!(share < ANALYSIS * 1.01 && share > ANALYSIS * 0.9, "{share}");
        // A long rest is worth no more than a while.
        now += Duration::from_secs(1 << 20);
        used += SAVED.mul_f64(ANALYSIS) + Duration::from_millis(5);
        let rest = allowance.spend(now, used);
        assert!(rest.abs_diff(Duration::from_secs(1)) < Duration::from_millis(10), "{rest:?}");
    }
}
