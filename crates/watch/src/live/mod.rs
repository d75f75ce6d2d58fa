//! This machine as a world: recordings, surveys and moves of `fragmend-pipeline`.

mod programs;

use crate::activity::Activity;
use crate::daemon::{Control, chain};
use crate::notify::Notify;
use crate::world::{Applied, Recorded, World};
use crate::{Policy, Time};
use fragmend_apply::{Event, Listener, Options, Outcome};
use fragmend_engines::begin::Wanted;
use fragmend_layout::{ByteRange, FsKind};
use fragmend_pipeline::{Error, Recording, Survey};
use fragmend_plan::Plan;
use fragmend_sys::btrfs::space;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::{directory, input};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
    /// The file systems of the latest survey, by device number.
    volumes: BTreeMap<u64, Volume>,
}

/// A file system.
struct Volume {
    /// A name that lasts.
    name: String,
    /// A directory of it, if each byte may be written there several times.
    btrfs: Option<PathBuf>,
}

impl Volume {
    /// The one that is mounted there, if it can be identified.
    fn of(device: &fragmend_plan::Device) -> Option<Self> {
        let mount = device.mount.to_path()?;
        let root = std::fs::File::open(&mount).ok()?;
        let name = FsId::of(&root).ok()?.name();
        let btrfs = (device.file_system == FsKind::Btrfs).then_some(mount);
        Some(Self { name, btrfs })
    }

    /// How many bytes the device is written for each byte of a file.
    fn copies(&self) -> u64 {
        let Some(mount) = &self.btrfs else { return 1 };
        // What cannot be read counts as the most: the budget holds all the same.
        let root = std::fs::File::open(mount);
        root.and_then(space::copies_of_data).unwrap_or(space::MOST_COPIES)
    }
}

/// What the world returns.
type Result<T> = std::result::Result<T, Error>;

impl Live {
    /// This machine; signs of life go to `notify`.
    pub fn new(notify: Arc<Notify>) -> Self {
        Self { notify, recording: None, volumes: BTreeMap::new() }
    }

    /// A recording of these paths within a policy's limits, which has not begun.
    fn recording(paths: Vec<PathBuf>, policy: &Policy) -> Result<Recording> {
        let mut recording = Recording::new(paths, policy.recording.window, None)?;
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
        let (paths, left_out) = still_there(policy)?;
        let mut recording = Self::recording(paths, policy)?;
        let summary = recording.run(&control.stop, &|_| self.notify.alive())?;
        let mut activity = Activity::default();
        recording.each_event(&mut |event| activity.add(event))?;
        activity.look_up(&programs::cgroup_of);
        self.recording = Some(recording);
        let left_out = left_out.iter().map(|error| chain(error)).collect();
        Ok(Recorded { accesses: summary.events(), lost: summary.meta.lost, activity, left_out })
    }

    fn survey(&mut self, policy: &Policy) -> Result<Survey> {
        let Some(recording) = &self.recording else { return Ok(Survey::default()) };
        let trace = recording.counted_trace()?;
        let (paths, _) = still_there(policy)?;
        let mut survey = fragmend_pipeline::survey(Some(trace), &paths, &|_| self.notify.alive())?;
        keep_below(&mut survey, &paths);
        survey.drives = fragmend_pipeline::drives(&survey.devices);
        let volume = |device: &fragmend_plan::Device| Some((device.device, Volume::of(device)?));
        self.volumes = survey.devices.iter().filter_map(volume).collect();
        Ok(survey)
    }

    fn volume(&self, device: u64) -> Option<String> {
        self.volumes.get(&device).map(|volume| volume.name.clone())
    }

    fn copies(&self, device: u64) -> u64 {
        self.volumes.get(&device).map_or(space::MOST_COPIES, Volume::copies)
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
        applied.has_moved_data = summary.moved_bytes > 0;
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
        let detail = receipt.detail.filter(|detail| !detail.is_empty());
        let left_alone = match (receipt.outcome, receipt.reason) {
            // The rest of it is as fragmented as before: a later plan that finds that has not found it fragmented again.
            (Outcome::Moved, _) if receipt.in_part => detail,
            (Outcome::Moved, _) => {
                self.applied.moved.push(range);
                None
            }
            (_, Some(reason)) => {
                let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
                Some(format!("{reason}{detail}"))
            }
            _ => None,
        };
        self.applied.left_alone = self.applied.left_alone.take().or(left_alone);
    }

    fn catch_up(&mut self, _: Option<Duration>) -> bool {
        self.notify.alive();
        true
    }
}

/// Where each path of a policy leads now. What a policy means must not be another user's to decide: so a link is followed only where
/// nobody but root and this user can change it.
fn leads(policy: &Policy) -> impl Iterator<Item = Result<PathBuf>> {
    policy.paths.iter().map(|path| {
        directory::resolve(path).map_err(|source| Error::Path { path: path.clone(), source })
    })
}

/// Where the paths of a policy lead, without those that lead nowhere now, and why: what a user does to one of them keeps the others
/// from nothing.
///
/// # Errors
/// That of one of them if none is left.
fn still_there(policy: &Policy) -> Result<(Vec<PathBuf>, Vec<Error>)> {
    let (mut paths, mut left_out) = (Vec::new(), Vec::new());
    for lead in leads(policy) {
        match lead {
            Ok(path) => paths.push(path),
            Err(error) => left_out.push(error),
        }
    }
    match left_out.pop_if(|_| paths.is_empty()) {
        Some(error) => Err(error),
        None => Ok((paths, left_out)),
    }
}

/// Leaves out files that are not below `paths`, which have no links: another user may have put a link in the place of a directory of
/// theirs after it was looked at. Paths of a survey are those of the files that were opened.
fn keep_below(survey: &mut Survey, paths: &[PathBuf]) {
    survey.files.retain(|file| paths.iter().any(|path| file.path.starts_with(path)));
}

/// Checks that no rule's path leads over a link, as far as it has no wildcard: files are known by their paths without links, so a rule
/// that protects what is behind one would protect nothing. Another user's link is theirs to make: it keeps the daemon from nothing.
fn rules_name_no_link(policy: &Policy) -> Result<()> {
    let has_wildcard = |part: &OsStr| part.to_string_lossy().contains(['*', '?', '[', '{', '\\']);
    let trusted = [0, rustix::process::geteuid().as_raw()];
    let is_link = |at: &&Path| {
        let found = at.symlink_metadata();
        found.is_ok_and(|found| found.is_symlink() && trusted.contains(&found.uid()))
    };
    for glob in policy.rules.iter().filter_map(|rule| rule.path.as_ref()) {
        let parts = Path::new(glob.glob().glob()).components();
        let literal: PathBuf = parts.take_while(|part| !has_wildcard(part.as_os_str())).collect();
        if let Some(link) = literal.ancestors().filter(is_link).last() {
            let why = "it is a symbolic link, and a rule's path leads over it; rules match paths without links: name what it leads to";
            let source = io::Error::new(io::ErrorKind::InvalidInput, why);
            return Err(Error::Path { path: link.to_owned(), source });
        }
    }
    Ok(())
}

/// Checks that the paths of a policy can be watched, that its rules mean files that can be there, and that data can be moved on their
/// file systems where a rule says so.
///
/// # Errors
/// The first path that does not exist, that leads over another user's link, or whose file system is refused; a link in the path of a
/// rule.
pub fn check(policy: &Policy) -> Result<()> {
    let paths = can_watch(policy)?;
    if policy.moves() {
        fragmend_pipeline::can_move(&paths, &Wanted::default())?;
    }
    Ok(())
}

/// The same as far as every user can see it: not whether data can be moved.
///
/// # Errors
/// As [`check`]; `PermissionDenied` of the system's for a path that this user cannot see.
pub fn check_unprivileged(policy: &Policy) -> Result<()> {
    can_watch(policy).map(drop)
}

/// Where the paths of a policy lead, if all of it can be watched.
fn can_watch(policy: &Policy) -> Result<Vec<PathBuf>> {
    let paths = leads(policy).collect::<Result<Vec<_>>>()?;
    fragmend_pipeline::can_record(&paths)?;
    rules_name_no_link(policy)?;
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_apply::Receipt;
    use fragmend_layout::FileAccesses;
    use fragmend_memory::{Memory, World as Clock};
    use std::rc::Rc;

    #[test]
    fn what_is_elsewhere_is_not_surveyed() {
        let memory = Memory::new(&Rc::new(Clock::new()), 7, 4096, 64);
        let paths = ["/srv/db/a", "/srv/db", "/srv/dbx", "/etc/a"].map(PathBuf::from);
        let files = paths.each_ref().map(|path| FileAccesses {
            path: Some(path.clone()),
            ..FileAccesses::of(memory.add(path, 4096, &[Some(path.as_os_str().len() as u64)]))
        });
        let mut survey = Survey::of(&memory, Some(files.to_vec())).unwrap();
        assert_eq!(survey.files.len(), paths.len());
        keep_below(&mut survey, &["/srv/db".into()]);
        let kept: Vec<_> = survey.files.into_iter().map(|file| file.path).collect();
        assert_eq!(kept, paths[..2]);
    }

    #[test]
    fn a_range_that_moved_in_part_is_not_mended() {
        let notify = Notify::default();
        let mut receipts = Receipts { notify: &notify, applied: Applied::default() };
        let file = crate::choose::tests::file(&[4096, 4096]);
        for (range, in_part) in file.ranges.iter().zip([false, true]) {
            let whole = Receipt::blank(file.path.clone(), range, Outcome::Moved, Some(8));
            let detail = in_part.then(|| "in part: a program has it open".into());
            (&mut receipts).tell(Event::Range(Receipt { in_part, detail, ..whole }));
        }
        assert_eq!(receipts.applied.moved, [ByteRange { start: 0, end: 4096 }]);
        let left_alone = receipts.applied.left_alone.as_deref();
        assert_eq!(left_alone, Some("in part: a program has it open"));
    }

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
