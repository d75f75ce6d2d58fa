//! A served disk that is slow, or that keeps chosen requests waiting until it is told to go on:
//! what is in flight while others work, as long as a test wants it to be.
//!
//! A request that waits is neither carried out nor answered, and stands in nobody's way: the disk
//! takes many at once (`FUSE_ASYNC_DIO`), and a flush covers what was answered, as on a real one.

use crate::disk::Disk;
use crate::log::Log;
use crate::marks::{Mark, Marks};
use crate::mounted::Mounted;
use crate::serve::{Served, Store};
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::FileSystem;
use fragmend_testbed::loop_device::LoopDevice;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Bytes are asked for.
    Read,
    /// Bytes come.
    Write,
    /// A stretch is discarded or zeroed.
    Zero,
    /// What was answered is to last.
    Flush,
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// What for.
    pub kind: Kind,
    /// First byte on the disk; 0 for a flush.
    pub offset: u64,
    /// How many; 0 for a flush.
    pub len: u64,
    /// What a write brings.
    pub bytes: &'a [u8],
}

impl Arrived<'_> {
    /// Whether it is a write that brings these bytes, from the beginning of some sector on.
    pub fn brings(&self, bytes: &[u8]) -> bool {
        self.bytes.chunks(512).any(|sector| sector.starts_with(bytes))
    }
}

type Chosen = Box<dyn Fn(&Arrived) -> bool + Send>;
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Where requests to a served disk wait.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    holds: BTreeMap<u64, Chosen>,
    /// What is answered with an error.
    refused: Option<Chosen>,
    next: u64,
    /// In the order in which they arrived.
    waiting: Vec<Waiting>,
    /// Time that one request of a kind takes.
    takes: BTreeMap<Kind, Duration>,
    busy_until: Instant,
    over: bool,
}

struct Waiting {
    /// Which hold keeps it.
    hold: Option<u64>,
    due: Instant,
    work: Work,
}

impl Default for Gate {
    /// One through which all goes at once.
    fn default() -> Self {
        let state = State {
            holds: BTreeMap::new(),
            refused: None,
            next: 0,
            waiting: Vec::new(),
            takes: BTreeMap::new(),
            busy_until: Instant::now(),
            over: false,
        };
        Self(Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new() }))
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the disk carries out so many requests of a kind a second, one after the other,
    /// or as many as come.
    pub fn pace(&self, kind: Kind, per_second: Option<u32>) {
        let mut state = self.state();
        match per_second {
            Some(n) => state.takes.insert(kind, Duration::from_secs(1) / n),
            None => state.takes.remove(&kind),
        };
    }

    /// Keeps every request from now on of which `chosen` says so, until the hold is dropped.
    pub fn hold(&self, chosen: impl Fn(&Arrived) -> bool + Send + 'static) -> Hold {
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        state.holds.insert(id, Box::new(chosen));
        Hold { gate: self.clone(), id }
    }

    /// Whether a request has to wait; by whom it is kept, and until when.
    fn must_wait(&self, arrived: &Arrived) -> Option<(Option<u64>, Instant)> {
        let mut state = self.state();
        if state.over {
            return None;
        }
        let hold = state.holds.iter().find(|(_, chosen)| chosen(arrived)).map(|(id, _)| *id);
        let takes = state.takes.get(&arrived.kind).copied();
        if hold.is_none() && takes.is_none() {
            return None;
        }
        state.busy_until = state.busy_until.max(Instant::now()) + takes.unwrap_or_default();
        Some((hold, state.busy_until))
    }

    /// Carries work out now, or later. The second form of it can wait, and is made only then.
    pub(crate) fn pass(&self, arrived: &Arrived, now: impl FnOnce(bool) -> Option<Work>) {
        let Some((hold, due)) = self.must_wait(arrived) else {
            now(false);
            return;
        };
        let Some(work) = now(true) else { return };
        let mut state = self.state();
        let hold = hold.filter(|id| state.holds.contains_key(id));
        state.waiting.push(Waiting { hold, due, work });
        drop(state);
        self.0.changed.notify_all();
    }

    /// Carries out what has waited long enough, until [`Gate::open_for_good`].
    pub(crate) fn work(&self) {
        let mut state = self.state();
        loop {
            let (now, over) = (Instant::now(), state.over);
            let free = state.waiting.iter().enumerate().filter(|(_, w)| over || w.hold.is_none());
            let next = free.map(|(n, w)| (n, w.due)).min_by_key(|(_, due)| *due);
            state = match next {
                Some((n, due)) if over || due <= now => {
                    let Waiting { work, .. } = state.waiting.remove(n);
                    drop(state);
                    work();
                    self.state()
                }
                None if over => return,
                later => {
                    let wait = later.map_or(Duration::from_secs(3600), |(_, due)| due - now);
                    let woken = self.0.changed.wait_timeout(state, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// From now on every request of which `chosen` says so is answered with an error (`EIO`), or none any more.
    pub fn refuse(&self, chosen: Option<impl Fn(&Arrived) -> bool + Send + 'static>) {
        self.state().refused = chosen.map(|chosen| Box::new(chosen) as Chosen);
    }

    /// Whether a request is to be answered with an error.
    pub(crate) fn refuses(&self, arrived: &Arrived) -> bool {
        self.state().refused.as_ref().is_some_and(|chosen| chosen(arrived))
    }

    /// Nothing waits any more, whoever holds what.
    pub fn open_for_good(&self) {
        self.state().over = true;
        self.0.changed.notify_all();
    }
}

/// Keeps requests waiting until it is dropped.
pub struct Hold {
    gate: Gate,
    id: u64,
}

impl Hold {
    /// How many it keeps now.
    pub fn held(&self) -> usize {
        self.gate.state().waiting.iter().filter(|w| w.hold == Some(self.id)).count()
    }

    /// Waits until it keeps so many; whether that came to pass in time.
    pub fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.held() < count {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Lets them all go, in the order in which they came.
    pub fn release(self) {}
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        state.holds.remove(&self.id);
        let now = Instant::now();
        for waiting in state.waiting.iter_mut().filter(|w| w.hold == Some(self.id)) {
            (waiting.hold, waiting.due) = (None, now);
        }
        self.gate.0.changed.notify_all();
    }
}

/// A disk of our own as a block device, slow when it is told to be.
pub struct SlowDisk<S = Disk> {
    device: Option<LoopDevice>,
    gate: Gate,
    served: Option<Served<S>>,
}

impl<S: Store> SlowDisk<S> {
    /// Serves a store in `dir`, an empty directory, and puts it behind a loop device. All goes
    /// through at once until the gate is told otherwise.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(store: S, dir: &Path) -> io::Result<Self> {
        let gate = Gate::default();
        let served = Served::start_slow(store, dir, gate.clone())?;
        let device = Some(LoopDevice::attach(&served.disk()));
        Ok(Self { device, gate, served: Some(served) })
    }

    /// The block device's node.
    pub fn node(&self) -> &Path {
        Path::new(self.device.as_ref().expect("there until it is dropped").node())
    }

    /// Where its requests wait.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where marks are written to.
    pub fn marks(&self) -> PathBuf {
        self.served.as_ref().expect("there until it is dropped").marks()
    }
}

impl<S> Drop for SlowDisk<S> {
    fn drop(&mut self) {
        self.gate.open_for_good();
        if let Some(device) = self.device.take() {
            match std::thread::panicking() {
                true => drop(device),
                false => device.detach(),
            }
        }
        drop(self.served.take());
    }
}

/// A file system on such a disk, mounted; all of it goes when it is dropped.
pub struct SlowBed {
    file_system: &'static FileSystem,
    options: String,
    mounted: Option<Mounted>,
    disk: Option<SlowDisk>,
    dir: tempfile::TempDir,
    _tree: Ticket,
}

impl SlowBed {
    /// A fresh one of so many bytes, mounted with these options besides its own.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(file_system: &'static FileSystem, bytes: u64, options: &str) -> Self {
        let dir = fragmend_testbed::scratch::directory("slow");
        let tree = cleanup::register(Undo::Tree(dir.path().to_owned()));
        let served = dir.path().join("served");
        fs::create_dir(&served).expect("a directory");
        fs::create_dir(dir.path().join("mnt")).expect("a directory");
        let disk = Disk::create(dir.path(), bytes).expect("an image");
        let disk = SlowDisk::start(disk, &served).expect("a disk through FUSE");
        file_system.make(disk.node(), &[]);
        let options = options.to_owned();
        let mut bed =
            Self { file_system, options, mounted: None, disk: Some(disk), dir, _tree: tree };
        bed.mount();
        bed
    }

    fn disk(&self) -> &SlowDisk {
        self.disk.as_ref().expect("there until it is dropped")
    }

    /// Where it is mounted.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// A directory beside it, on another file system.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// The disk's node.
    pub fn node(&self) -> &Path {
        self.disk().node()
    }

    /// Where the disk's requests wait.
    pub fn gate(&self) -> &Gate {
        self.disk().gate()
    }

    /// Mounts it, if it is not.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn mount(&mut self) {
        if self.mounted.is_none() {
            let mounted = Mounted::new(self.file_system, self.node(), &self.root(), &self.options);
            self.mounted = Some(mounted.unwrap_or_else(|why| panic!("{why}")));
        }
    }

    /// Unmounts it, if it is mounted: nothing is cached any more.
    ///
    /// # Panics
    /// When it is in use for many seconds.
    pub fn unmount(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount();
        }
    }

    /// Writes everything dirty, and commits.
    ///
    /// # Panics
    /// When that fails.
    pub fn sync(&self) {
        rustix::fs::syncfs(File::open(self.root()).expect("the root")).expect("syncfs");
    }

    /// From now on everything that reaches the disk is recorded; what a cut leaves is a
    /// [`crate::cut::View`] of [`SlowBed::recorded`].
    ///
    /// # Panics
    /// When there is no room for a log.
    pub fn record(&self) {
        self.say(&Mark::Recording);
    }

    /// Says something that becomes part of the recording: a place in its log.
    ///
    /// # Panics
    /// When there is no room for it.
    pub fn say(&self, mark: &Mark) {
        let marks = Marks::open(&self.disk().marks()).expect("a place for marks");
        marks.say(mark).expect("a log");
    }

    /// The image as recording found it, and the log as it is now.
    ///
    /// # Errors
    /// When nothing was recorded.
    pub fn recorded(&self) -> io::Result<(File, Arc<Log>)> {
        let inside = |name: &str| self.dir.path().join(name);
        let base = File::open(inside(crate::disk::IMAGE))?;
        Ok((base, Arc::new(Log::open(&inside(crate::disk::LOG))?)))
    }
}

impl Drop for SlowBed {
    fn drop(&mut self) {
        self.gate().open_for_good();
        drop(self.mounted.take());
        drop(self.disk.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_waits_and_what_is_not_goes_by() {
        let gate = Gate::default();
        let worker = {
            let gate = gate.clone();
            std::thread::spawn(move || gate.work())
        };
        let done = Arc::new(Mutex::new(Vec::new()));
        let ask = |kind, offset| {
            let arrived = Arrived { kind, offset, len: 512, bytes: &[] };
            let done = Arc::clone(&done);
            gate.pass(&arrived, move |later| {
                let work = move || done.lock().unwrap().push(offset);
                if later {
                    return Some(Box::new(work));
                }
                work();
                None
            });
        };
        let hold = gate.hold(|r| r.kind == Kind::Write && r.offset >= 1024);
        (0..4).for_each(|n| ask(Kind::Write, n * 512));
        ask(Kind::Read, 4096);
        assert!(hold.wait_for(2, Duration::from_secs(5)));
        assert_eq!(*done.lock().unwrap(), [0, 512, 4096]);
        hold.release();
        while done.lock().unwrap().len() < 5 {
            std::thread::yield_now();
        }
        assert_eq!(done.lock().unwrap()[3..], [1024, 1536]);
        // As slow as it is told to be.
        gate.pace(Kind::Read, Some(100));
        let started = Instant::now();
        (0..5).for_each(|n| ask(Kind::Read, n));
        while done.lock().unwrap().len() < 10 {
            std::thread::yield_now();
        }
        assert!(started.elapsed() >= Duration::from_millis(50));
        gate.open_for_good();
        worker.join().unwrap();
    }
}
