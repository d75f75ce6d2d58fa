//! One recording: a fresh disk, everything that was done on it (see [`crate::session`]), and
//! everything that reached it meanwhile.

use crate::bed::{self, Bed};
use crate::disk::{Disk, IMAGE, LOG};
use crate::log::{Entry, Log};
use crate::marks::Mark;
use crate::serve::Served;
use crate::session::{self, Nodes, RUN, Run};
use fragmend_testbed::guest::{self, Guest};
use fragmend_testbed::loop_device::LoopDevice;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A recording that can be cut.
pub struct Recording {
    /// What it was.
    pub run: Run,
    /// Its row.
    pub bed: &'static Bed,
    /// Where it lies.
    pub dir: PathBuf,
    /// What reached the disk.
    pub log: Arc<Log>,
    /// What was said meanwhile, and behind how many entries, in order.
    pub marks: Vec<(usize, Mark)>,
}

impl Recording {
    /// Opens one that was kept.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let run: Run = serde_json::from_reader(File::open(dir.join(RUN))?)?;
        let bed = bed::named(&run.bed).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("no row is named {}", run.bed))
        })?;
        let log = Log::open(&dir.join(LOG))?;
        let read = |mark: io::Result<(usize, String)>| {
            let (place, text) = mark?;
            Ok((place, serde_json::from_str(&text)?))
        };
        let marks = log.marks().map(read).collect::<io::Result<_>>()?;
        Ok(Self { run, bed, dir: dir.to_owned(), log: Arc::new(log), marks })
    }

    /// The image as recording found it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn base(&self) -> io::Result<File> {
        File::open(self.dir.join(IMAGE))
    }

    /// Writes and zeroings, and flushes among the entries.
    pub fn operations(&self) -> (usize, usize) {
        let flushes =
            self.log.entries().iter().filter(|e| matches!(e, Entry::Flush { .. })).count();
        (self.log.entries().len() - self.marks.len(), flushes)
    }
}

/// Runs this program in a guest, where it is served and mounted just as on the host; gives what it
/// printed.
///
/// # Panics
/// When it fails.
pub fn in_guest(command: &Command) -> String {
    const PATIENCE: Duration = Duration::from_secs(900);
    let done = Guest::new().time_limit(PATIENCE).run(command);
    done.unwrap_or_else(|lost| panic!("{lost}")).expect(&[0])
}

/// Makes a recording in `dir`, an empty directory. `soak` is the program whose `load` is the load.
///
/// # Panics
/// When anything but the files' content goes wrong.
pub fn record(bed: &'static Bed, seed: u64, dir: &Path, soak: &Path) -> Recording {
    if bed.in_guest && !guest::inside() {
        let mut command = Command::new(soak);
        command.args(["record", bed.name, &seed.to_string()]).arg(dir);
        in_guest(&command);
        return Recording::open(dir).expect("the recording just made");
    }
    let served = dir.join("served");
    fs::create_dir(&served).expect("a directory");
    let second = bed.second.map(|_| bed.bytes);
    let disk = Disk::two(dir, bed.all_bytes(), second).expect("an image");
    let served = Served::start(disk, &served).expect("a disk through FUSE");
    let device = LoopDevice::attach(&served.disk());
    let other = bed.second.map(|_| LoopDevice::attach(&served.second()));
    let nodes = Nodes {
        disk: Path::new(device.node()),
        second: other.as_ref().map(|other| Path::new(other.node())),
        marks: &served.marks(),
    };
    session::start(bed, seed, dir, nodes, soak);
    device.detach();
    other.into_iter().for_each(LoopDevice::detach);
    drop(served);
    Recording::open(dir).expect("the recording just made")
}
