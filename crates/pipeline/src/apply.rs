//! The last stage: the plan, carried out on the file systems of this machine.

use crate::Error;
use fragmend_apply::{Listener, Options, Summary};
use fragmend_engines::begin::Wanted;
use fragmend_engines::{Opened, engine};
use fragmend_plan::{Device, PlanSource};
use fragmend_sys::mounts;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Moves the ranges of `plan` on the mounted file systems, until the end or until `stop` is set; `listener`
/// receives every receipt. Ranges on other volumes are moved by [`fragmend_apply::apply`].
///
/// # Errors
/// Before anything was touched: a file system that cannot be mended, or that another fragmend is working on.
pub fn apply(
    plan: &dyn PlanSource,
    wanted: &Wanted,
    options: &Options,
    stop: &AtomicBool,
    listener: impl Listener,
) -> Result<Summary, Error> {
    let Opened { volumes, environment } = fragmend_engines::open(plan, wanted, !options.dry_run)?;
    Ok(fragmend_apply::apply(plan, volumes, &environment, options, stop, listener)?)
}

/// Checks that this engine can move files below `paths`, as far as that depends on their file systems: meant to
/// be called before a long recording.
///
/// # Errors
/// The first path that does not exist, or whose file system the engine refuses.
pub fn can_move(paths: &[PathBuf], wanted: &Wanted) -> Result<(), Error> {
    for path in paths {
        let mount = mounts::of_path(path).map_err(Error::at(path))?;
        engine::volume_for(&mount, &wanted.engine, wanted.force)?;
    }
    Ok(())
}

/// Whether every file system of a plan has an engine of its own.
pub fn moves_natively(devices: &[Device]) -> bool {
    devices.iter().all(|device| engine::is_native(device.file_system))
}
