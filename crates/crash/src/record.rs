//! One recording: a fresh disk, everything that was done on it (see [`crate::session`]), and
//! everything that reached it meanwhile.

use crate::disk::{Disk, IMAGE, LOG};
use crate::log::{Entry, Log};
use crate::marks::Mark;
use crate::scenario::{self, Scenario};
use crate::serve::Served;
use crate::session::{self, Nodes, RUN, Run};
use fragmend_testbed::guest::{self, Guest};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A recording that can be cut.
pub struct Recording {
    /// The run that was recorded.
    pub run: Run,
    /// Its scenario.
    pub scenario: &'static Scenario,
    /// Its directory.
    pub dir: PathBuf,
    /// What reached the disk.
    pub log: Arc<Log>,
    /// The marks with their positions in the log, in order.
    pub marks: Vec<(usize, Mark)>,
}

impl Recording {
    /// Opens a recording that was kept.
    ///
    /// # Errors
    /// When the directory holds none.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let run: Run = serde_json::from_reader(File::open(dir.join(RUN))?)?;
        let scenario = scenario::named(&run.scenario).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("no scenario is named {}", run.scenario),
            )
        })?;
        let log = Log::open(&dir.join(LOG))?;
        let read = |mark: io::Result<(usize, String)>| {
            let (place, text) = mark?;
            Ok((place, serde_json::from_str(&text)?))
        };
        let marks = log.marks().map(read).collect::<io::Result<_>>()?;
        Ok(Self { run, scenario, dir: dir.to_owned(), log: Arc::new(log), marks })
    }

    /// The image when recording began.
    ///
    /// # Errors
    /// When it is not there.
    pub fn base(&self) -> io::Result<File> {
        File::open(self.dir.join(IMAGE))
    }

    /// The number of writes, zeroings and flushes among the entries, and that of flushes alone.
    pub fn operations(&self) -> (usize, usize) {
        let flushes =
            self.log.entries().iter().filter(|e| matches!(e, Entry::Flush { .. })).count();
        (self.log.entries().len() - self.marks.len(), flushes)
    }
}

/// Runs this program in a guest, where disks are served and mounted as on the host; returns what it
/// printed.
///
/// # Panics
/// When it fails.
pub fn in_guest(command: &Command) -> String {
    const TIME_LIMIT: Duration = Duration::from_secs(900);
    let done = Guest::new().time_limit(TIME_LIMIT).run(command);
    done.unwrap_or_else(|lost| panic!("{lost}")).expect(&[0])
}

/// Makes a recording in `dir`, an empty directory. `soak` is the program whose `load` is the load.
///
/// # Panics
/// When anything but the files' content goes wrong.
pub fn record(scenario: &'static Scenario, seed: u64, dir: &Path, soak: &Path) -> Recording {
    if scenario.in_guest && !guest::inside() {
        let mut command = Command::new(soak);
        command.args(["record", scenario.name, &seed.to_string()]).arg(dir);
        in_guest(&command);
        return Recording::open(dir).expect("the recording just made");
    }
    let served = dir.join("served");
    fs::create_dir(&served).expect("a directory");
    let second = scenario.second.map(|_| scenario.bytes);
    let disk = Disk::two(dir, scenario.all_bytes(), second).expect("an image");
    let served = Served::start(disk, &served).expect("a disk through FUSE");
    Nodes::attached(&served, scenario, |nodes| session::start(scenario, seed, dir, nodes, soak));
    drop(served);
    Recording::open(dir).expect("the recording just made")
}
