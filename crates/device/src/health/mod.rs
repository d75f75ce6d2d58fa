//! What drives report of their own wear, by standard means alone. Nothing is written to a drive, and no disk that
//! rotates, no virtual disk and no device that is elsewhere is asked.
//!
//! | drive | what is read | how |
//! |---|---|---|
//! | NVMe | log page SMART / Health Information | `NVME_IOCTL_ADMIN_CMD`, as root |
//! | ATA (SATA) | log Device Statistics, pages 1 and 7, if its directory has them | `SG_IO`, as root |
//! | eMMC | `device/life_time`, `device/pre_eol_info` | sysfs |
//! | UFS | `health_descriptor/` of the host | sysfs |
//!
//! Others (SAS, USB bridges that hide the drive, cards that keep no such account) are not asked. Neighbours: [`logs`]
//! parses what is read, `fragmend-layout` has what follows from it.

pub mod logs;
mod steps;

use crate::kind::Kind;
use fragmend_layout::DriveHealth;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::disks::{self, Disk};
use fragmend_sys::{ata, nvme};
use logs::{Unfit, statistics};
use std::io;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// How long answers are waited for. The kernel's own limits are a minute, and longer than this on purpose: where a command
/// exceeds them it resets the drive's controller or link, under everybody's requests. A drive that is so late is left to
/// the process that asks it ([`apart`](fragmend_sys::apart)), and this one ends whenever it likes.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Why what a drive has used of its life is not known, although drives of its kind report it.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// It may not be asked.
    #[error("asking it needs root (CAP_SYS_ADMIN, CAP_SYS_RAWIO)")]
    NotPermitted,
    /// It has not answered.
    #[error("it did not answer within {0} s")]
    Late(u64),
    /// It keeps no such account, or what it keeps is empty.
    #[error("it does not report that")]
    NotReported,
    /// What it answers cannot be.
    #[error("what it reports makes no sense")]
    Senseless,
    /// It cannot be asked.
    #[error("it cannot be asked: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for NoAnswer {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted,
            io::ErrorKind::Unsupported => Self::NotReported,
            _ => Self::Failed(error),
        }
    }
}

impl From<Unfit> for NoAnswer {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Empty => Self::NotReported,
            Unfit::Senseless => Self::Senseless,
        }
    }
}

/// A drive that can be asked.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Its device number.
    pub number: u64,
    /// Its name in the kernel, for example `nvme0n1`.
    pub name: String,
    device: BlockDevice,
}

/// The drives below the file or directory `path`, whose `st_dev` is `dev`, that can be asked: at the bottom of
/// device-mapper, MD and a Btrfs of several devices all of them. None where there is no block device.
pub fn below(path: &Path, dev: u64) -> Vec<Drive> {
    drives(disks::bottom(path, dev))
}

/// The same below a device.
pub fn below_device(device: &BlockDevice) -> Vec<Drive> {
    drives(disks::bottom_of(device))
}

fn drives(disks: io::Result<Vec<Disk>>) -> Vec<Drive> {
    let drive = |disk: Disk| {
        let device = BlockDevice::from_dev(disk.number).ok()?;
        let can_wear = Means::of(&device).is_some() && Kind::of(&device) == Kind::Flash;
        can_wear.then_some(Drive { number: disk.number, name: disk.name, device })
    };
    disks.unwrap_or_default().into_iter().filter_map(drive).collect()
}

/// How a drive is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Nvme,
    Ata,
    Steps,
}

impl Means {
    /// The means for a drive, by what sysfs shows; `None` if there is none.
    fn of(drive: &BlockDevice) -> Option<Self> {
        // The vendor of every ATA drive in SCSI's terms (SAT-4), as libata and host adapters have it.
        let is_ata = || drive.attribute("device/vendor").is_some_and(|vendor| vendor == "ATA");
        if drive.name().starts_with("nvme") {
            Some(Self::Nvme)
        } else if steps::has(drive.node()) {
            Some(Self::Steps)
        } else {
            is_ata().then_some(Self::Ata)
        }
    }
}

/// What each of these drives reports, in their order, asked all at a time; the whole lasts no longer than `within`.
pub fn ask(drives: &[Drive], within: Duration) -> Vec<Result<DriveHealth, NoAnswer>> {
    ask_each(drives, within, |drive| of(&drive.device))
}

/// The same with what asks a drive.
fn ask_each(
    drives: &[Drive],
    within: Duration,
    ask: fn(&Drive) -> Result<DriveHealth, NoAnswer>,
) -> Vec<Result<DriveHealth, NoAnswer>> {
    let late = |_: &Drive| Err(NoAnswer::Late(within.as_secs()));
    let mut all: Vec<_> = drives.iter().map(late).collect();
    let (answer, answers) = channel();
    for (n, drive) in drives.iter().enumerate() {
        let (answer, drive) = (answer.clone(), drive.clone());
        // Nobody may be left to read it.
        let asks = move || drop(answer.send((n, ask(&drive))));
        if let Err(e) = thread::Builder::new().name("health".into()).spawn(asks) {
            all[n] = Err(NoAnswer::Failed(e));
        }
    }
    drop(answer);
    let end = Instant::now() + within;
    while let Ok((n, found)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        all[n] = found;
    }
    all
}

/// What a drive reports, however long it needs for that.
fn of(drive: &BlockDevice) -> Result<DriveHealth, NoAnswer> {
    match Means::of(drive) {
        Some(Means::Nvme) => Ok(logs::nvme(&nvme::health_log(drive.open_direct()?)?)?),
        Some(Means::Steps) => steps::of(drive.node()),
        Some(Means::Ata) => of_ata(drive),
        None => Err(NoAnswer::NotReported),
    }
}

/// Asks an ATA drive only for what it lists, so that it refuses nothing.
fn of_ata(drive: &BlockDevice) -> Result<DriveHealth, NoAnswer> {
    let node = drive.open_direct()?;
    let page = |log: u8, page: u8| ata::read_log(&node, log, page.into());
    if !statistics::are_in(&page(statistics::DIRECTORY, 0)?) {
        return Err(NoAnswer::NotReported);
    }
    let listed = page(statistics::LOG, 0)?;
    if !statistics::lists(&listed, statistics::SOLID_STATE) {
        return Err(NoAnswer::NotReported);
    }
    let general = if statistics::lists(&listed, statistics::GENERAL) {
        Some(page(statistics::LOG, statistics::GENERAL)?)
    } else {
        None
    };
    let solid_state = page(statistics::LOG, statistics::SOLID_STATE)?;
    let sector_bytes = drive.queue()?.logical_block_bytes;
    Ok(logs::ata(general.as_ref(), &solid_state, sector_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_block_device_has_no_drive() {
        use std::os::unix::fs::MetadataExt;
        let proc = Path::new("/proc");
        assert!(below(proc, proc.metadata().unwrap().dev()).is_empty());
    }

    #[test]
    fn reasons_are_told_apart() {
        for (kind, why) in [
            (io::ErrorKind::PermissionDenied, "needs root"),
            (io::ErrorKind::Unsupported, "does not report"),
            (io::ErrorKind::NotFound, "cannot be asked"),
        ] {
            assert!(NoAnswer::from(io::Error::from(kind)).to_string().contains(why));
        }
    }

    #[test]
    fn a_drive_that_does_not_answer_keeps_nobody_waiting() {
        let any = Path::new("/sys/class/block").read_dir().unwrap().next().unwrap().unwrap();
        let number = std::fs::read_to_string(any.path().join("dev")).unwrap();
        let (major, minor) = number.trim().split_once(':').unwrap();
        let number = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
        let device = BlockDevice::from_dev(number).unwrap();
        let drive = |name: &str| Drive { number: 1, name: name.into(), device: device.clone() };
        let answer = |drive: &Drive| match &*drive.name {
            "hangs" => {
                thread::sleep(Duration::from_secs(60));
                Err(NoAnswer::Senseless)
            }
            "panics" => panic!("a test's own"),
            _ => Ok(DriveHealth::of_percent(12, None)),
        };
        let began = Instant::now();
        let drives = ["answers", "hangs", "panics", "answers"].map(drive);
        let all = ask_each(&drives, Duration::from_secs(1), answer);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(all[0].is_ok() && all[3].is_ok(), "{all:?}");
        assert!(all[1..3].iter().all(|late| matches!(late, Err(NoAnswer::Late(1)))), "{all:?}");
        assert!(ask(&[], PATIENCE).is_empty());
    }
}
