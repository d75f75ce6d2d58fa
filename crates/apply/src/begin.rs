//! What must hold before anything is touched: every file system of the plan is there, is the one
//! that was planned for, has an engine, and nobody else mends it.

use crate::engine::volume_for;
use crate::lock::{self, Lock, Unlocked};
use crate::run::{ApplyError, Options};
use fragmend_layout::Volume;
use fragmend_plan::{PlanSource, Totals};
use fragmend_sys::mounts;
use std::collections::{HashMap, HashSet};

/// The engines for all devices of the plan: all of them, or an error before anything is touched.
pub(crate) fn volumes(
    plan: &dyn PlanSource,
    totals: &Totals,
    options: &Options,
) -> Result<HashMap<u64, Box<dyn Volume>>, ApplyError> {
    let mounts = mounts::all().map_err(ApplyError::Mounts)?;
    let mut volumes = HashMap::new();
    for device in plan.devices().iter().filter(|d| totals.devices.contains(&d.device)) {
        let recorded = device.mount.to_path().unwrap_or_default();
        let mount = mounts::of_root(&mounts, device.device, &recorded).ok_or_else(|| {
            let there = mounts.iter().any(|m| m.point == recorded);
            let name = device.mount.path.clone();
            if there { ApplyError::Renumbered(name) } else { ApplyError::NotMounted(name) }
        })?;
        let volume = volume_for(&mount, &options.engine, options.force)?;
        let (planned, found) = (device.block_bytes, volume.block_bytes());
        if planned != found {
            let mount = mount.point.display().to_string();
            return Err(ApplyError::BlockSize { mount, planned, found });
        }
        volumes.insert(device.device, volume);
    }
    Ok(volumes)
}

/// One mending at a time per file system ([`crate::lock`]).
pub(crate) fn lock<'a>(
    volumes: impl Iterator<Item = &'a Box<dyn Volume>>,
) -> Result<Vec<Lock>, ApplyError> {
    let name = |volume: &dyn Volume| volume.root().display().to_string();
    let mut ours = HashSet::new();
    volumes
        .map(|volume| {
            match lock::take(volume.directory(), volume.root(), volume.number(), &mut ours) {
                Ok(lock) => Ok(lock),
                Err(Unlocked::AtWork) => Err(ApplyError::AtWork(name(&**volume))),
                Err(Unlocked::Impossible(e)) => Err(ApplyError::NoLock(name(&**volume), e)),
            }
        })
        .collect()
}
