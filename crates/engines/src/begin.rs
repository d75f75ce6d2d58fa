//! The volumes of a plan, and what must hold before any data is touched: every file system of the plan is
//! mounted here, is the one that was planned for, has an engine, and no other process is moving data on it.

use crate::engine::{Choice, Refused, mounted};
use crate::environment::Kernel;
use crate::lock::Unlocked;
use fragmend_apply::Volumes;
use fragmend_layout::Volume;
use fragmend_plan::PlanSource;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::{mounts, signals};
use std::collections::{HashMap, HashSet};

/// What [`fragmend_apply::apply`] needs from its caller.
pub struct Opened {
    /// The volumes of the plan; their locks are released with them.
    pub volumes: Volumes,
    /// The running kernel, with the devices of the volumes.
    pub environment: Kernel,
}

/// Why data on the file systems of a plan cannot be moved. Nothing has been touched then.
#[derive(Debug, thiserror::Error)]
pub enum Unready {
    /// A file system of the plan was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A file system of the plan is not mounted here.
    #[error("{0}: the file system of this plan is not mounted; mount it, or make a new plan")]
    NotMounted(String),
    /// Something else is mounted where the plan's file system was.
    #[error("{0}: its device number has changed since the plan was made; make a new plan")]
    Renumbered(String),
    /// Another process is moving data on this file system.
    #[error("{0}: another fragmend is at work there; wait for it to end")]
    AtWork(String),
    /// The lock that keeps other processes from moving data on this file system cannot be taken.
    #[error("{0}: cannot lock /run/fragmend against others at work there: {1}")]
    NoLock(String, std::io::Error),
    /// The mount table cannot be read.
    #[error("cannot read the mount table: {0}")]
    Mounts(std::io::Error),
    /// `SIGXFSZ` cannot be ignored.
    #[error("cannot ignore the signal of a file size limit: {0}")]
    Signals(std::io::Error),
}

/// How volumes are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Which engine moves the data.
    pub engine: Choice,
    /// Whether file systems are accepted that promise no order of writes after a crash.
    pub force: bool,
}

/// Opens the volumes for all devices of the plan: all of them, or an error before anything is touched. With
/// `lock`, no other process can move data on them until they are dropped ([`crate::lock`]); a caller that only
/// reads does not need it.
///
/// # Errors
/// [`Unready`].
pub fn open(plan: &dyn PlanSource, wanted: &Wanted, lock: bool) -> Result<Opened, Unready> {
    // With this, a limit of file sizes is an error of a write, and does not end the process.
    signals::no_end_by_file_size().map_err(Unready::Signals)?;
    let totals = plan.totals();
    let mounts = mounts::all().map_err(Unready::Mounts)?;
    let (mut found, mut devices) = (Vec::new(), HashMap::new());
    for device in plan.devices().iter().filter(|d| totals.devices.contains(&d.device)) {
        let recorded = device.mount.to_path().unwrap_or_default();
        let mount = mounts::of_root(&mounts, device.device, &recorded).ok_or_else(|| {
            let there = mounts.iter().any(|m| m.point == recorded);
            let name = device.mount.path.clone();
            if there { Unready::Renumbered(name) } else { Unready::NotMounted(name) }
        })?;
        found.push((device.device, mounted(&mount, &wanted.engine, wanted.force)?));
        if let Ok(disk) = BlockDevice::under(&mount.point, device.device) {
            devices.insert(device.device, disk);
        }
    }
    let (mut volumes, mut ours) = (Volumes::new(), HashSet::new());
    for (device, mut volume) in found {
        if lock {
            volume.lock(&mut ours).map_err(|why| match why {
                Unlocked::AtWork => Unready::AtWork(volume.label()),
                Unlocked::Impossible(e) => Unready::NoLock(volume.label(), e),
            })?;
        }
        volumes.insert(device, Box::new(volume));
    }
    Ok(Opened { volumes, environment: Kernel::new(devices) })
}
