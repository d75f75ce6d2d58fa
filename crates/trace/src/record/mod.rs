//! The recorder: loads the kernel side, copies events from its buffer to the trace file, and reports at the
//! end what was recorded and what was missed. Or it stays attached, and hands over what was accessed period by period.
//!
//! | module | its job |
//! |---|---|
//! | `begun` | attaches: what every recording begins with |
//! | `rolling` | a recording that goes on, period by period |
//! | `request` | checks the options and converts them into the kernel's terms |
//! | `sources` | chooses the programs that the running kernel can run |
//! | `kernel` | loads, attaches and reads the kernel side (`bpf/`) |
//! | `links` | detaches it, also while the trace's reader is waited for |
//! | `watch` | measures what the recording costs, and pauses it |
//! | `arrivals`, `runs` | what accesses cost by their number, and programs by their run time |
//! | `budget` | decides how much is recorded for that |
//! | `loads` | what the disks answered |
//! | `intake` | moves the kernel side's events to the trace file, or to memory |
//! | `shared` | the structures that both sides share |
//! | `paths` | finds the paths of inodes |
//!
//! Invariants: every access that passed the filters is in the file or in one of the counts of [`Meta`]; the
//! recorder's own I/O is not recorded, except in a pid namespace (`request`); an error leaves no file behind,
//! with the exceptions at [`TraceWriter::finish`].

mod arrivals;
mod begun;
mod budget;
mod intake;
mod kernel;
mod links;
mod loads;
mod paths;
mod request;
mod rolling;
mod runs;
mod shared;
mod sources;
mod watch;

use crate::meta::Meta;
use crate::{Existing, Level, Op, TraceError, TraceWriter};
use begun::Begun;
use intake::{Arrived, Intake, Sink};
use kernel::Kernel;
use loads::Answered;
use paths::Mounts;
pub use rolling::{Rolled, Rolling, rolling};
use shared::Stats;
pub(crate) use shared::TURN_SHIFT;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watch::Watch;

/// Default size of the ring buffer: two seconds at 200,000 events a second.
pub const DEFAULT_BUFFER_BYTES: u32 = 32 << 20;

/// Default number of ranges that a folded recording distinguishes.
pub const DEFAULT_MAX_RANGES: u32 = 1_000_000;

/// Per cent of the machine's processor time that a recording may cost.
pub const DEFAULT_OVERHEAD: f64 = 1.0;

/// Bytes of a command's name that the kernel keeps, without the zero byte at its end.
pub const COMM_BYTES: usize = 15;

/// How often the buffer is emptied. Polling costs less than a wake-up for each event.
const INTERVAL: Duration = Duration::from_millis(10);

/// How often a buffer is emptied that is not full before, at a million events a second.
const LONG_INTERVAL: Duration = Duration::from_millis(40);

/// The smallest such buffer.
const LARGE_BUFFER: u32 = 16 << 20;

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How long the buffer is emptied after the end; what is left in it then is lost.
const LAST_DRAIN: Duration = Duration::from_millis(500);

/// How long the paths of a folded recording are looked up after its end: all that is left to do then is to last no
/// more than a second.
const FOLDED_LOOK_UPS: Duration = Duration::from_millis(400);

/// What to record, of which processes, and the output.
#[derive(Clone, Debug)]
pub struct Options {
    /// The trace file; its name in messages if it is [unnamed](Self::unnamed).
    pub output: PathBuf,
    /// An empty file to write to instead.
    pub unnamed: Option<Arc<File>>,
    /// What happens to an output that exists.
    pub existing: Existing,
    /// Directories, files or mount points to watch; one file system each.
    pub paths: Vec<PathBuf>,
    /// How long to record; `None` is until `stop`.
    pub duration: Option<Duration>,
    /// What programs ask for, what misses the page cache, or both. Where the kernel does not show the misses,
    /// [`Level::Both`] is recorded as [`Level::Syscall`], and [`Meta`] says so.
    pub level: Level,
    /// What it may cost, in per cent of the machine's processor time: where everything would cost more, a part is
    /// recorded, and [`Meta::sampling`] says which. `None` records everything.
    pub overhead: Option<f64>,
    /// Record what reaches the device in one of 2 to the power of this places only, from the beginning; at most 6.
    /// Without `overhead` it is the same places all the time.
    pub places_shift: u32,
    /// Tracepoints to do without, as if the kernel lacked them.
    pub without: Vec<&'static str>,
    /// Only these processes and their descendants; empty means all.
    pub pids: Vec<u32>,
    /// Only threads of this name (at most [`COMM_BYTES`]).
    pub comm: Option<String>,
    /// Only this real user.
    pub uid: Option<u32>,
    /// Only below this cgroup v2 directory.
    pub cgroup: Option<PathBuf>,
    /// Fold accesses into at most this many counted ranges in the kernel.
    pub max_ranges: Option<u32>,
    /// Size of the ring buffer; rounded up to a power of two. All of it is resident while it is recorded, twice.
    pub buffer_bytes: u32,
    /// How often the buffer is emptied, for a recording that is to cost little; by its size if `None`.
    pub interval: Option<Duration>,
}

impl Options {
    /// Everything below `paths`, until stopped.
    pub fn new(output: impl Into<PathBuf>, paths: Vec<PathBuf>) -> Self {
        Self {
            output: output.into(),
            unnamed: None,
            existing: Existing::ReplaceTrace,
            paths,
            duration: None,
            level: Level::Both,
            overhead: Some(DEFAULT_OVERHEAD),
            places_shift: 0,
            without: Vec::new(),
            pids: Vec::new(),
            comm: None,
            uid: None,
            cgroup: None,
            max_ranges: None,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            interval: None,
        }
    }
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Accesses so far, lost ones included.
    pub events: u64,
    /// Accesses lost so far.
    pub lost: u64,
}

/// Accesses of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTotal {
    /// The operation.
    pub op: Op,
    /// Number of accesses.
    pub events: u64,
    /// Bytes that they transferred.
    pub bytes: u64,
}

/// The result of a recording.
#[derive(Clone, Debug)]
pub struct Summary {
    /// How it was recorded, and what was lost or not recorded.
    pub meta: Meta,
    /// One entry per operation, also for those without accesses.
    pub totals: [OpTotal; Op::ALL.len()],
    /// Rows in the file: events, or distinct ranges when folded.
    pub rows: u64,
    /// Different files; of more than 4,000,000, some may be counted more than once.
    pub files: u64,
    /// Size of the trace file.
    pub trace_bytes: u64,
}

impl Summary {
    /// All accesses seen, lost ones included.
    pub fn events(&self) -> u64 {
        self.totals.iter().map(|t| t.events).sum()
    }

    /// Bytes of one operation.
    pub fn bytes(&self, op: Op) -> u64 {
        self.totals[op as usize].bytes
    }
}

/// Checks what [`record`] is asked for, as far as that takes no privilege.
///
/// # Errors
/// A path that does not exist or is nothing that can be watched, or another filter that cannot be applied.
pub fn check(options: &Options) -> Result<(), TraceError> {
    request::resolve(options).map(drop)
}

/// Records until the duration is over or `stop` is set, whichever comes first.
///
/// `on_progress` is called about ten times a second, for the first time when recording has begun.
///
/// # Errors
/// When a filter cannot be applied, privilege or kernel support is missing, or the output cannot be written.
/// The target is then as after an error of [`TraceWriter::finish`].
pub fn record(
    options: &Options,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<Summary, TraceError> {
    let request = request::resolve(options)?;
    let mounts = Rc::new(request.mounts.clone());
    let writer = create(options, &mounts)?;
    let Begun { mut kernel, mut watch, started, answered, mut meta } =
        begun::begin(options, &request)?;

    let over =
        || options.duration.is_some_and(|d| started.elapsed() >= d) || stop.load(Ordering::Relaxed);
    let (links, patience, has_reader) = (kernel.links(), writer.patience(), writer.has_reader());
    let end = || {
        links.detach();
        patience.limit();
    };
    let work = || {
        let arrived = Arrived::new();
        let events = kernel.events()?;
        let mut intake = Intake::new(&arrived, &events, writer)?;
        take(options, &mut intake, &mut kernel, &mut watch, (started, &over), on_progress)?;
        let elapsed = links.detach() - started;
        let skipped_runs = kernel.skipped_runs();
        meta.duration_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let region_bytes = 1 << request.config.region_shift;
        (meta.sampling, meta.overhead) = watch.since_last(region_bytes, elapsed);
        mounts.keep_open();
        let stats = take_rest(&mut intake, &kernel, options.max_ranges.is_some())?;
        count_missed(&mut meta, &stats, &kernel, skipped_runs);
        meta.loads = Answered::now(&kernel, &request.disks)?.since(&answered, &request.disks);
        describe(&mut meta, options, &request);
        let Intake { sink: writer, rows, .. } = intake;
        let counts = writer.counts();
        meta.files_without_path = counts.without_path;
        meta.files_not_looked_up = counts.not_looked_up;
        let trace_bytes = writer.finish(&meta)?;
        Ok(Summary { meta, totals: totals(&stats), rows, files: counts.files, trace_bytes })
    };
    // A reader that never reads keeps this thread from ending the recording.
    if has_reader { links::ending(&over, &end, work) } else { work() }
}

/// Writes events as they arrive, until the recording, which began at `started`, is `over`.
fn take(
    options: &Options,
    intake: &mut Intake<'_, TraceWriter>,
    kernel: &mut Kernel,
    watch: &mut Watch,
    (started, over): (Instant, &dyn Fn() -> bool),
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<(), TraceError> {
    let mut last_progress = None;
    let interval = interval(options);
    // When something else is to be done: what has arrived may take longer to be written.
    let mut due = started;
    loop {
        let emptied = intake.drain(|| Instant::now() < due && !over())?;
        let elapsed = started.elapsed();
        if last_progress.is_none_or(|at| elapsed - at >= PROGRESS_INTERVAL) {
            let stats = kernel.stats()?;
            on_progress(&Progress { elapsed, events: stats.events.iter().sum(), lost: stats.lost });
            last_progress = Some(elapsed);
        }
        if over() {
            return Ok(());
        }
        let rest = watch.step(kernel)?;
        due = Instant::now() + rest.min(PROGRESS_INTERVAL);
        if emptied {
            let left = options.duration.map_or(interval, |d| d.saturating_sub(elapsed));
            std::thread::sleep(left.min(interval).min(rest));
        }
    }
}

/// How often the buffer is emptied.
fn interval(options: &Options) -> Duration {
    let large = options.buffer_bytes >= LARGE_BUFFER || options.max_ranges.is_some();
    options.interval.unwrap_or(if large { LONG_INTERVAL } else { INTERVAL })
}

/// Enters what was recorded.
fn describe(meta: &mut Meta, options: &Options, request: &request::Request) {
    if request.unwatched_disks > 0 {
        let what = format!("what {} disks more answered: too many", request.unwatched_disks);
        meta.unseen_sources.push(what);
    }
    meta.folded = options.max_ranges.is_some();
    meta.paths =
        options.paths.iter().map(|p| crate::file::text::escape(p.as_os_str().as_bytes())).collect();
    meta.devices.clone_from(&request.device_meta);
}

/// Writes what is left when the kernel side is detached, in limited time.
fn take_rest(
    intake: &mut Intake<'_, TraceWriter>,
    kernel: &Kernel,
    folded: bool,
) -> Result<Stats, TraceError> {
    drain_last(intake)?;
    if folded {
        // Not one file has been looked up yet.
        intake.sink.allow_look_ups(FOLDED_LOOK_UPS);
    }
    intake.append_kept(kernel, folded)
}

/// Hands on what is left in the buffer, in limited time.
fn drain_last<S: Sink>(intake: &mut Intake<'_, S>) -> Result<(), TraceError> {
    let ended = Instant::now();
    intake.drain(|| ended.elapsed() < LAST_DRAIN).map(drop)
}

/// Begins the trace file.
fn create(options: &Options, mounts: &Rc<Mounts>) -> Result<TraceWriter, TraceError> {
    let mounts = Rc::clone(mounts);
    let find_path = Box::new(move |file| mounts.path_of(file));
    let output = &options.output;
    match &options.unnamed {
        Some(file) => TraceWriter::into_file(file, output, find_path),
        None => TraceWriter::create(output, options.existing, find_path),
    }
}

/// Enters what was lost, dropped or not recorded.
fn count_missed(meta: &mut Meta, stats: &Stats, kernel: &Kernel, skipped_runs: Option<u64>) {
    meta.lost = stats.lost + skipped_runs.unwrap_or(0);
    meta.dropped = stats.dropped;
    meta.unplaced = stats.unplaced;
    meta.unseen_compat = stats.compat;
    meta.unseen_splices = stats.splices;
    meta.unseen_uring = stats.uring;
    meta.coarsened = stats.coarsened;
    meta.loads_lost = stats.unanswered;
    meta.unseen_sources = kernel.unseen_sources.clone();
    if skipped_runs.is_none() {
        let what =
            "runs of the recorder's programs that the kernel left out: it does not count them";
        meta.unseen_sources.push(what.to_owned());
    }
}

fn totals(stats: &Stats) -> [OpTotal; Op::ALL.len()] {
    Op::ALL.map(|op| {
        let i = op as usize;
        OpTotal { op, events: stats.events[i], bytes: stats.bytes[i] }
    })
}

/// `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
