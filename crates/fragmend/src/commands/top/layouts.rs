//! Where all files are: read once at the beginning and again when data has moved, beside everything else and at the lowest
//! priority, because it may last.

use super::watch::in_this_thread;
use fragmend_pipeline::places::{self, Places};
use fragmend_top::{BlockMap, Change};
use rustix::process::setpriority_process;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// The lowest priority (nice(2)).
const LOWEST: i32 = 19;

/// Reads layouts.
pub struct Layouts {
    path: PathBuf,
    bytes: u64,
    send: Sender<Change>,
    /// Ends the reading that is under way.
    stop: Arc<AtomicBool>,
    /// Held while layouts are read: one reading after the other.
    turn: Arc<Mutex<()>>,
}

impl Layouts {
    /// Of the files below a path, on a file system of so many bytes.
    pub fn new(path: PathBuf, bytes: u64, send: Sender<Change>) -> Self {
        let (stop, turn) = Default::default();
        Self { path, bytes, send, stop, turn }
    }

    /// Begins to read all of them.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn read(&mut self) -> std::io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.stop = Arc::default();
        let (path, bytes, send) = (self.path.clone(), self.bytes, self.send.clone());
        let (stop, turn) = (Arc::clone(&self.stop), Arc::clone(&self.turn));
        let work = move || {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = setpriority_process(None, LOWEST);
            let _pool = in_this_thread();
            let files = AtomicU64::new(0);
            let found = |more| {
                let all = files.fetch_add(more, Ordering::Relaxed) + more;
                drop(send.send(Change::Scanning(all)));
            };
            let change = match places::below(&path, &found, &stop) {
                Ok(places) => scanned(places, bytes),
                Err(_) if stop.load(Ordering::Relaxed) => return,
                Err(error) => Change::Notice(format!("no map of the files: {error}")),
            };
            drop(send.send(change));
        };
        std::thread::Builder::new().name("layouts".into()).spawn(work).map(drop)
    }
}

fn scanned(places: Places, bytes: u64) -> Change {
    let Places { extents, files, fragmented, .. } = places;
    Change::Scanned { map: BlockMap::of(bytes, &extents), files, fragmented }
}
