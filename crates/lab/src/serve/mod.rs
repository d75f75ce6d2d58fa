//! A drive of the lab as a block device of this machine: real file systems are made and used on it, and virtual
//! time says what the drive would have needed.
//!
//! | module | its job |
//! |---|---|
//! | [`data`] | the content: a sparse file without a name |
//! | [`model`] | requests in bytes as commands in units |
//! | [`timetable`] | virtual time: who is in flight, and who is done next |
//! | [`tally`], [`stats`] | what is counted, and the document that has it |
//! | [`mode`] | what virtual time has to do with real time |
//! | [`quiet`], [`worker`] | when a request is answered |
//! | [`drive`] | the requests of the kernel |
//! | [`control`] | the files `clock`, `stats` and `control` |
//! | [`device`] | the loop device |
//!
//! **The size.** The model always has the size of its drive; `size` exposes the first bytes of it. So dies, stripes,
//! times, write buffer and the seeks of a disk stay those of the drive. What is not exposed is never written: on a
//! flash drive it is further space for garbage collection, which then has less to do than on a drive that is full,
//! and the seeks on a disk are those within its first bytes, as on a partition. A drive that is larger than its
//! preset has a file of its own (`blocks_per_plane`).
//!
//! **How it ends.** The loop device is detached first, which nothing may prevent; then nobody can write any more,
//! everything in flight is answered, and the files are unmounted. A process that is killed leaves a loop device and
//! a mount whose requests fail at once: see [`fragmend_served::server`].

pub mod control;
pub mod data;
pub mod device;
pub mod drive;
pub mod mode;
pub mod model;
pub mod quiet;
pub mod stats;
pub mod tally;
pub mod timetable;
pub mod worker;

use crate::setup::{DriveKind, Setup};
use control::{Clock, Commands, StatsFile};
use data::Data;
use device::{Device, InTheWay};
use drive::Drive;
use fragmend_flash::inplace::{InPlaceDrive, Media};
use fragmend_layout::schema;
use fragmend_served::server::{Offer, Server, Unended};
use fragmend_sys::{held, loop_device};
use mode::{Mode, ModeName};
use model::Model;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use worker::Worker;

/// The source of the mount in mountinfo, by which others find what is beside the drive.
pub const SOURCE: &str = "fragmend-lab";
/// The most requests that the kernel sends at once.
const IN_FLIGHT: u16 = 1024;
/// The largest request of FUSE: 256 pages (`fs.fuse.max_pages_limit`).
const LARGEST_REQUEST: u64 = 1 << 20;
/// The readahead window that the kernel gives a drive (`VM_READAHEAD_PAGES`); a loop device may have a larger one.
const READAHEAD_KB: u64 = 128;
/// Loop devices have sectors of at most a page.
const LARGEST_SECTOR: u32 = 4096;
/// How long the files may be in use after the device is detached, until they are ended by force.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a drive is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many of its bytes are exposed; all of them otherwise.
    pub size: Option<u64>,
    /// Whether requests really last as long as the drive needs.
    pub mode: Mode,
    /// Where the data and the files are; the system's temporary directory otherwise.
    pub dir: Option<PathBuf>,
    /// Bytes of a sector; those of the drive's unit otherwise.
    pub sector_bytes: Option<u32>,
}

/// Why a drive is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No file system for block devices could write to it.
    #[error(
        "a zoned drive takes writes at its write pointers only, and cannot be a plain block device; serve another drive"
    )]
    Zoned,
    /// The size is none that the drive can have.
    #[error(
        "--size {size}: say whole units of {unit} bytes, at least one and at most the {most} bytes of the drive; a larger one needs a file of its own (`fragmend lab drive NAME`)"
    )]
    Size {
        /// The size.
        size: u64,
        /// Bytes of a unit.
        unit: u32,
        /// The size of the drive.
        most: u64,
    },
    /// There are no such sectors.
    #[error(
        "--sector-size {sector}: say a power of two from 512 to {most}, the largest that fits the drive's units"
    )]
    Sector {
        /// The size.
        sector: u32,
        /// The largest.
        most: u32,
    },
    /// This process may not attach loop devices.
    #[error(
        "/dev/loop-control: {0}; a block device needs root and loop devices (run it with sudo, `modprobe loop`)"
    )]
    Control(#[source] io::Error),
    /// No loop device could be attached.
    #[error("no loop device can be attached: {0}")]
    Loop(#[source] io::Error),
    /// The loop device would cache what is beneath it.
    #[error(
        "this kernel gives the loop device no direct I/O to a FUSE file, so requests would not reach the drive as they are"
    )]
    NotDirect,
    /// FUSE could not be mounted.
    #[error("FUSE cannot be mounted: {0}; it needs root and /dev/fuse (`modprobe fuse`)")]
    Fuse(#[source] io::Error),
    /// Another user could lead the mount, and its end, elsewhere.
    #[error(
        "{}: another user may rename or replace what is in it, and could so have this drive's files mounted anywhere; name another directory with --dir (one of your own, below directories of root or your own)", .0.display()
    )]
    OpenToOthers(PathBuf),
    /// There is no place for data or files.
    #[error("{}: {source}; name another directory with --dir, whose file system supports holes", dir.display())]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// What went wrong there.
        source: io::Error,
    },
}

/// A drive that is served, as `fragmend lab serve --json` prints it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Version of this document's format.
    pub schema_version: u32,
    /// The block device.
    pub node: PathBuf,
    /// The directory of `disk`, `clock`, `stats` and `control`.
    pub directory: PathBuf,
    /// The drive, as it was named.
    pub drive: String,
    /// What the drive is, in a line.
    pub about: String,
    /// Whether virtual time is added up, or requests really last that long.
    pub mode: ModeName,
    /// With `paced`: how much longer than the drive needs requests really last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Bytes of the block device.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Bytes of the simulated drive.
    #[schemars(extend("x-unit" = "bytes"))]
    pub drive_bytes: u64,
    /// Bytes of a sector of the block device.
    #[schemars(extend("x-unit" = "bytes"))]
    pub sector_bytes: u32,
    /// Bytes of a mapping unit of the drive.
    #[schemars(extend("x-unit" = "bytes"))]
    pub unit_bytes: u32,
    /// The directory in which the data is, in a file without a name.
    pub data_directory: PathBuf,
    /// What is not as it should be, and what that means.
    pub warnings: Vec<String>,
}

/// Why serving has not ended, or not well.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// The device is in use: serving goes on.
    #[error("{0}")]
    InTheWay(InTheWay),
    /// It has ended, and something had failed.
    #[error("{0}")]
    Failed(String),
}

/// A drive that is being served.
pub struct Serving {
    drive: Drive,
    report: Report,
    device: Option<Device>,
    worker: Option<Worker>,
    server: Option<Server>,
    _dir: tempfile::TempDir,
}

/// The sizes of a drive and of what is exposed.
struct Sizes {
    bytes: u64,
    drive_bytes: u64,
    sector_bytes: u32,
    unit_bytes: u32,
}

impl Sizes {
    fn of(setup: &Setup, options: &Options) -> Result<Self, ServeError> {
        if matches!(setup.drive, DriveKind::Zoned { .. }) {
            return Err(ServeError::Zoned);
        }
        let (unit, most) = (setup.unit_bytes(), setup.capacity_bytes());
        // A drive that writes in place may end within a unit.
        let whole = most - most % u64::from(unit);
        let bytes = options.size.unwrap_or(whole);
        if bytes == 0 || bytes > whole || !bytes.is_multiple_of(u64::from(unit)) {
            return Err(ServeError::Size { size: bytes, unit, most: whole });
        }
        // The largest power of two that divides a unit.
        let largest = (1 << unit.trailing_zeros()).min(LARGEST_SECTOR);
        let sector = options.sector_bytes.unwrap_or(largest);
        if !sector.is_power_of_two() || !(512..=largest).contains(&sector) {
            return Err(ServeError::Sector { sector, most: largest });
        }
        Ok(Self { bytes, drive_bytes: most, sector_bytes: sector, unit_bytes: unit })
    }
}

impl Serving {
    /// Serves a drive, which was named `name`; `quit` is called when a program writes that to the file `control`.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub fn start(
        setup: &Setup,
        name: &str,
        options: &Options,
        quit: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let sizes = Sizes::of(setup, options)?;
        loop_device::check().map_err(ServeError::Control)?;
        // What this process allocates must not wait for the writeback of a file system that it serves itself.
        let flusher = rustix::process::configure_io_flusher_behavior(true);
        let place = place(options)?;
        let wrong = |source| ServeError::Dir { dir: place.clone(), source };
        // Making the model of a large drive lasts, and needs no directory.
        let model = Model::new(setup.device());
        let data = Data::create(&place, sizes.bytes).map_err(wrong)?;
        let prefix = format!("fragmend-lab-{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir_in(&place).map_err(wrong)?;
        let directory = dir.path().join("drive");
        std::fs::create_dir(&directory).map_err(wrong)?;

        let drive = Drive::new(model, setup.host.queue_depth, data, sizes.bytes, options.mode);
        let (broken, end) = (drive.clone(), quit.clone());
        let offer = Offer::new(SOURCE)
            .in_flight(IN_FLIGHT)
            .block_bytes(sizes.unit_bytes)
            .on_panic(move || {
                broken.state().fail();
                end();
            })
            .disk("disk", drive.clone())
            .control("clock", 0, Clock(drive.clone()))
            .control("stats", 0, StatsFile(drive.clone()))
            .control("control", 0, Commands(drive.clone(), Box::new(quit)));
        let worker = Some(Worker::start(&drive).map_err(ServeError::Fuse)?);
        let server = Some(Server::start(offer, &directory).map_err(ServeError::Fuse)?);
        // From here on, what is dropped is ended in order.
        let report = report(setup, name, options, &sizes, &directory, &place);
        let mut serving = Self { drive, report, device: None, worker, server, _dir: dir };
        if let Err(e) = flusher {
            serving.warn(format!(
                "where memory is short, this may be slow: the kernel lets this process wait for its own disk (prctl: {e}; needs CAP_SYS_RESOURCE)"
            ));
        }
        let device = Device::attach(&directory.join("disk"), sizes.sector_bytes)?;
        device.node().clone_into(&mut serving.report.node);
        serving.device = Some(device);
        serving.set_queue(setup);
        Ok(serving)
    }

    /// Gives the device the limits and hints of the drive.
    fn set_queue(&mut self, setup: &Setup) {
        let Some(device) = self.device.take() else { return };
        let largest = u64::from(setup.host.request_bytes).min(LARGEST_REQUEST);
        let is_disk = |drive: &InPlaceDrive| matches!(drive.media, Media::Disk { .. });
        let seeks = matches!(&setup.drive, DriveKind::InPlace(drive) if is_disk(drive));
        for (name, value) in [
            ("max_sectors_kb", largest / 1024),
            ("rotational", seeks.into()),
            ("read_ahead_kb", READAHEAD_KB),
        ] {
            if let Err(e) = device.set_queue(name, value) {
                let node = device.node().display();
                self.warn(format!("queue/{name} of {node} is not {value}, as the drive's is: {e}"));
            }
        }
        self.device = Some(device);
    }

    fn warn(&mut self, warning: String) {
        self.report.warnings.push(warning);
    }

    /// What is served, and where.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Ends serving; if the device is in use, nothing has changed, and serving goes on.
    ///
    /// # Errors
    /// What uses it, or what had failed.
    pub fn end(&mut self) -> Result<(), EndError> {
        if let Some(device) = &self.device {
            device.detach().map_err(EndError::InTheWay)?;
        }
        self.device = None;
        // Nothing can be in flight any more but requests of those who read the file `disk` themselves.
        self.worker = None;
        let started = Instant::now();
        while let Some(server) = self.server.take() {
            match server.end() {
                Ok(()) => break,
                Err(Unended::InUse(busy)) if started.elapsed() < PATIENCE => {
                    self.server = Some(busy);
                }
                Err(Unended::InUse(busy)) => {
                    busy.abort().map_err(|e| EndError::Failed(e.to_string()))?;
                }
                Err(other) => return Err(EndError::Failed(other.to_string())),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.drive.state().broken {
            let why = "the drive's model has failed (a fault of this program: the panic is above), and its requests were answered with errors since";
            return Err(EndError::Failed(why.into()));
        }
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.server.is_some() && self.end().is_err() {
            // There is no other way out: what uses the device gets errors, and is not left to wait.
            self.worker = None;
            if let Some(server) = self.server.take() {
                let _ = server.abort();
            }
        }
    }
}

/// The directory for data and files: nobody else can rename what is in it, or replace it.
fn place(options: &Options) -> Result<PathBuf, ServeError> {
    let given = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let wrong = |source| ServeError::Dir { dir: given.clone(), source };
    let place = given.canonicalize().map_err(wrong)?;
    match held::open_to_others(&place).map_err(wrong)? {
        Some(open) => Err(ServeError::OpenToOthers(open)),
        None => Ok(place),
    }
}

fn report(
    setup: &Setup,
    name: &str,
    options: &Options,
    sizes: &Sizes,
    directory: &Path,
    place: &Path,
) -> Report {
    Report {
        schema_version: schema::DOCUMENT,
        node: PathBuf::new(),
        directory: directory.to_owned(),
        drive: name.to_owned(),
        about: setup.about.clone(),
        mode: options.mode.name(),
        factor: options.mode.factor(),
        bytes: sizes.bytes,
        drive_bytes: sizes.drive_bytes,
        sector_bytes: sizes.sector_bytes,
        unit_bytes: sizes.unit_bytes,
        data_directory: place.to_owned(),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_an_end_after_a_panic_is_no_good_end() {
        let setup = crate::presets::named("nvme-b").expect("a preset");
        for broken in [false, true] {
            let dir = None;
            let options =
                Options { size: Some(1 << 20), mode: Mode::Accounting, dir, sector_bytes: None };
            let mut serving = Serving::start(&setup, "nvme-b", &options, || {}).unwrap();
            let directory = serving.report().directory.clone();
            if broken {
                serving.drive.state().fail();
            }
            let started = Instant::now();
            let ended = loop {
                match serving.end() {
                    // udev may look at the device.
                    Err(EndError::InTheWay(_)) if started.elapsed() < PATIENCE * 5 => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    ended => break ended,
                }
            };
            assert_eq!(matches!(ended, Err(EndError::Failed(_))), broken, "{ended:?}");
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains(directory.to_str().unwrap()));
        }
    }
}
