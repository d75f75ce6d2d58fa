//! What a block device is and costs: the settings of its queue, as a [`DeviceProfile`], and what reading it shows.
//!
//! | module | its job |
//! |---|---|
//! | [`health`] | what a drive reports of its own wear |
//! | [`kind`] | what a device is, by what the kernel shows |
//! | [`probe`] | measures a device by reading it |
//! | [`profile`] | what was measured, kept for each disk |
//! | [`replay`] | reads of files, timed: what was recorded is repeated |
//! | [`target`] | what a path leads to, and how that is opened for a probe |

pub mod health;
pub mod kind;
pub mod probe;
pub mod profile;
pub mod replay;
pub mod target;

use fragmend_layout::{CostModel, DeviceKind, DeviceProfile, FsKind, ParallelUnits, WindowEnds};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts;
use std::io;
use std::path::Path;

/// The profile of the device under `path`, whose `st_dev` is `dev`, with the present settings of its queue.
///
/// # Errors
/// When there is no block device (tmpfs, network).
pub fn under(path: &Path, dev: u64) -> io::Result<DeviceProfile> {
    let device = BlockDevice::under(path, dev)?;
    let queue = device.queue()?;
    let max_request_bytes = queue.max_request_bytes.max(4096);
    let (cost, cost_note, parallel_units) = cost(&device, queue.rotational);
    // Readahead 0 means none: each read is a request of its own, of one page at least.
    Ok(DeviceProfile {
        name: device.name(),
        readahead_bytes: queue.read_ahead_bytes.max(4096),
        max_request_bytes,
        rotational: queue.rotational,
        longest_window_bytes: if device.has_own_readahead() {
            DeviceProfile::LONGEST_WITHOUT_QUEUE
        } else {
            max_request_bytes
        },
        window_ends: window_ends(&mounts::of_path(path)?.fs_type),
        parallel_units,
        cost,
        cost_note,
    })
}

/// What reads cost on a device, and its units that work side by side: by its kept profile, or else by a guess, with the reason if the profile that is kept
/// cannot be used, or with what must be said of it. What was observed while a trace was recorded replaces a guess later, when it is planned from
/// (`fragmend_plan::costs`).
fn cost(
    device: &BlockDevice,
    rotational: bool,
) -> (CostModel, Option<String>, Option<ParallelUnits>) {
    let guessed = |why| (CostModel::guessed(DeviceKind::of(&device.name(), rotational)), why, None);
    match profile::stored(device, &profile::directory(None)) {
        Ok(Some(profile)) => match profile.caveat() {
            Ok(caveat) => {
                let units = profile.parallel_units();
                (profile.costs, caveat, units)
            }
            Err(why) => guessed(Some(why)),
        },
        Ok(None) => guessed(None),
        Err(unusable) => guessed(Some(unusable.to_string())),
    }
}

/// The running kernel's defaults, for a file system without a block device of its own.
pub fn unknown() -> DeviceProfile {
    DeviceProfile { window_ends: window_ends(""), ..DeviceProfile::unknown() }
}

/// Where readahead windows end, as measured on Linux 6.18. It cannot be probed, and only predictions depend
/// on it.
fn window_ends(fs_type: &str) -> WindowEnds {
    let release = fragmend_sys::process::kernel_release();
    let kind = match fs_type {
        // ext4's driver mounts them.
        "ext2" | "ext3" => FsKind::Ext4,
        name => FsKind::from_name(name),
    };
    match release {
        Some(release) if release >= (6, 16) && kind.has_large_folios() => WindowEnds::LargeFolios,
        Some(release) if release >= (6, 16) => WindowEnds::FourPages,
        _ => WindowEnds::AnyPage,
    }
}
