//! What must hold before anything is touched: every file system of the plan is there, is the one
//! that was planned for, has an engine, and nobody else mends it.

use crate::engine::volume_for;
use crate::run::{ApplyError, Options};
use fragmend_layout::Volume;
use fragmend_plan::{PlanSource, Totals};
use fragmend_sys::mounts;
use std::collections::HashMap;
use std::time::Duration;

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

/// One mending at a time per file system: two would undo each other's choices and move the same
/// data twice. The lock is on the root directory, and goes with the process.
pub(crate) fn lock<'a>(
    volumes: impl Iterator<Item = &'a Box<dyn Volume>>,
) -> Result<Vec<std::fs::File>, ApplyError> {
    let mut locks = Vec::new();
    for volume in volumes {
        let Ok(root) = std::fs::File::open(volume.root()) else { continue };
        let take =
            || rustix::fs::flock(&root, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        // One that has just ended may be held for a moment by a child that it started.
        let mut tries = 0..10;
        let mut taken = take();
        while taken == Err(rustix::io::Errno::WOULDBLOCK) && tries.next().is_some() {
            std::thread::sleep(Duration::from_millis(20));
            taken = take();
        }
        match taken {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(ApplyError::AtWork(volume.root().display().to_string()));
            }
            // A file system without locks is no reason not to mend it.
            _ => locks.push(root),
        }
    }
    Ok(locks)
}
