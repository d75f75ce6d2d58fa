//! A served disk that is slow, or that holds back chosen requests until they are released: a test
//! decides what is in flight, and for how long.
//!
//! A request that waits is neither carried out nor answered, and blocks no other: the disk accepts
//! many at once (`FUSE_ASYNC_DIO`), and a flush covers what was answered, as on a real one.

use crate::disk::Disk;
use crate::log::Log;
use crate::marks::{Mark, Marks};
use crate::mount::Mount;
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

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A discard or zeroing.
    Zero,
    /// A flush of the volatile cache.
    Flush,
}

/// A request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its kind.
    pub kind: Kind,
    /// First byte on the disk; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// The data of a write.
    pub bytes: &'a [u8],
}

impl Arrived<'_> {
    /// Whether it is a write of which some sector begins with these bytes.
    pub fn carries(&self, bytes: &[u8]) -> bool {
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
    /// Which requests are answered with an error.
    refused: Option<Chosen>,
    next: u64,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// Service time of one request of a kind.
    service_time: BTreeMap<Kind, Duration>,
    busy_until: Instant,
    over: bool,
}

struct Waiting {
    /// The hold that holds it back.
    hold: Option<u64>,
    due: Instant,
    work: Work,
}

impl Default for Gate {
    /// A gate that lets all requests pass at once.
    fn default() -> Self {
        let state = State {
            holds: BTreeMap::new(),
            refused: None,
            next: 0,
            waiting: Vec::new(),
            service_time: BTreeMap::new(),
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

    /// From now on the disk carries out `per_second` requests of a kind, one after the other; with
    /// `None`, as many as arrive.
    pub fn pace(&self, kind: Kind, per_second: Option<u32>) {
        let mut state = self.state();
        match per_second {
            Some(n) => state.service_time.insert(kind, Duration::from_secs(1) / n),
            None => state.service_time.remove(&kind),
        };
    }

    /// Holds back every later request that `chosen` selects, until the hold is dropped.
    pub fn hold(&self, chosen: impl Fn(&Arrived) -> bool + Send + 'static) -> Hold {
        let mut state = self.state();
        state.next += 1;
        let id = state.next;
        state.holds.insert(id, Box::new(chosen));
        Hold { gate: self.clone(), id }
    }

    /// Whether a request has to wait: for which hold, and until when.
    fn must_wait(&self, arrived: &Arrived) -> Option<(Option<u64>, Instant)> {
        let mut state = self.state();
        if state.over {
            return None;
        }
        let hold = state.holds.iter().find(|(_, chosen)| chosen(arrived)).map(|(id, _)| *id);
        let service_time = state.service_time.get(&arrived.kind).copied();
        if hold.is_none() && service_time.is_none() {
            return None;
        }
        state.busy_until = state.busy_until.max(Instant::now()) + service_time.unwrap_or_default();
        Some((hold, state.busy_until))
    }

    /// Calls `now(false)`, which carries a request out at once, or queues the work that `now(true)`
    /// returns.
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

    /// Carries out queued work when it is due, until [`Gate::open_for_good`].
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

    /// From now on every request that `chosen` selects is answered with an error (`EIO`); with
    /// `None`, none is.
    pub fn refuse(&self, chosen: Option<impl Fn(&Arrived) -> bool + Send + 'static>) {
        self.state().refused = chosen.map(|chosen| Box::new(chosen) as Chosen);
    }

    /// Whether a request is to be answered with an error.
    pub(crate) fn refuses(&self, arrived: &Arrived) -> bool {
        self.state().refused.as_ref().is_some_and(|chosen| chosen(arrived))
    }

    /// Lets all requests pass from now on, also those held back.
    pub fn open_for_good(&self) {
        self.state().over = true;
        self.0.changed.notify_all();
    }
}

/// Holds requests back until it is dropped.
pub struct Hold {
    gate: Gate,
    id: u64,
}

impl Hold {
    /// How many requests it holds back now.
    pub fn held(&self) -> usize {
        self.gate.state().waiting.iter().filter(|w| w.hold == Some(self.id)).count()
    }

    /// Waits until it holds back `count` requests, at most for `patience`; returns whether it does.
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

    /// Lets its requests pass, in order of arrival.
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

/// A served disk as a block device behind a [`Gate`].
pub struct SlowDisk<S = Disk> {
    device: Option<LoopDevice>,
    gate: Gate,
    served: Option<Served<S>>,
}

impl<S: Store> SlowDisk<S> {
    /// Serves a store in `dir`, an empty directory, and attaches a loop device to it. Its gate lets
    /// all requests pass at first.
    ///
    /// # Errors
    /// When FUSE cannot be mounted there.
    pub fn start(store: S, dir: &Path) -> io::Result<Self> {
        let gate = Gate::default();
        let served = Served::start_slow(store, dir, gate.clone())?;
        let device = Some(LoopDevice::attach(&served.disk()));
        Ok(Self { device, gate, served: Some(served) })
    }

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        Path::new(self.device.as_ref().expect("there until it is dropped").node())
    }

    /// The gate that its requests pass.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The file that marks are written to.
    pub fn marks(&self) -> PathBuf {
        self.served.as_ref().expect("there until it is dropped").marks()
    }
}

impl<S> Drop for SlowDisk<S> {
    fn drop(&mut self) {
        self.gate.open_for_good();
        if let Some(device) = self.device.take() {
            if std::thread::panicking() {
                drop(device);
            } else {
                device.detach();
            }
        }
        drop(self.served.take());
    }
}

/// A mounted file system on a [`SlowDisk`]; unmounted and removed when dropped.
pub struct SlowMount {
    file_system: &'static FileSystem,
    options: String,
    mounted: Option<Mount>,
    disk: Option<SlowDisk>,
    dir: tempfile::TempDir,
    _tree: Ticket,
}

impl SlowMount {
    /// Makes a file system of `bytes` bytes, and mounts it with these options besides its own.
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
        let mut mounted =
            Self { file_system, options, mounted: None, disk: Some(disk), dir, _tree: tree };
        mounted.mount();
        mounted
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

    /// The path of the block device.
    pub fn node(&self) -> &Path {
        self.disk().node()
    }

    /// The gate that the disk's requests pass.
    pub fn gate(&self) -> &Gate {
        self.disk().gate()
    }

    /// Mounts it, if it is not.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn mount(&mut self) {
        if self.mounted.is_none() {
            let mounted = Mount::new(self.file_system, self.node(), &self.root(), &self.options);
            self.mounted = Some(mounted.unwrap_or_else(|why| panic!("{why}")));
        }
    }

    /// Unmounts it, if it is mounted, which drops all caches.
    ///
    /// # Panics
    /// When it stays in use for many seconds.
    pub fn unmount(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount();
        }
    }

    /// Writes back all dirty pages, and commits (`syncfs`).
    ///
    /// # Panics
    /// When that fails.
    pub fn sync(&self) {
        rustix::fs::syncfs(File::open(self.root()).expect("the root")).expect("syncfs");
    }

    /// Records all requests to the disk from now on; a [`crate::cut::View`] of
    /// [`SlowMount::recorded`] shows what a cut leaves.
    ///
    /// # Panics
    /// When there is no space for a log.
    pub fn record(&self) {
        self.mark(&Mark::Recording);
    }

    /// Adds a mark to the recording.
    ///
    /// # Panics
    /// When there is no space for it.
    pub fn mark(&self, mark: &Mark) {
        let marks = Marks::open(&self.disk().marks()).expect("a place for marks");
        marks.write(mark).expect("a log");
    }

    /// The image when recording began, and the log so far.
    ///
    /// # Errors
    /// When nothing was recorded.
    pub fn recorded(&self) -> io::Result<(File, Arc<Log>)> {
        let inside = |name: &str| self.dir.path().join(name);
        let base = File::open(inside(crate::disk::IMAGE))?;
        Ok((base, Arc::new(Log::open(&inside(crate::disk::LOG))?)))
    }
}

impl Drop for SlowMount {
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
    fn held_requests_wait_and_others_overtake_them() {
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
        // Reads are as slow as their pace.
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
