//! What a mount promises about the order in which writes reach the device: the crash arguments of all
//! engines stand on it.

use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts::Mount;
use rustix::fs::{Mode, OFlags};
use std::path::Path;

/// The names under which file systems turn their cache flushes off (ext4(5), btrfs(5), the kernel's
/// filesystems/f2fs.rst).
const WITHOUT_FLUSHES: [&str; 3] = ["nobarrier", "barrier=0", "fsync_mode=nobarrier"];

/// Whether the file system flushes the device's cache where order matters.
///
/// # Errors
/// The option that says that it does not, and what to do.
pub(crate) fn flushes(mount: &Mount) -> Result<(), String> {
    // mountinfo leaves out what the super block sets; ext4's own list does not.
    let listed = ext4_options(mount.dev).unwrap_or_default();
    let set = |name: &&str| mount.has_option(name) || listed.lines().any(|line| line == *name);
    match WITHOUT_FLUSHES.iter().find(|name| set(name)) {
        None => Ok(()),
        Some(option) => Err(format!(
            "mounted with {option}, so nothing keeps the device from writing in an order of its own, and a power cut could leave moved ranges without their data; mount it without, or --force to accept that"
        )),
    }
}

/// The journal's data mode of a mounted ext4: "ordered", "writeback", "journal", or "" without
/// a journal.
///
/// # Errors
/// That it cannot be told.
pub(super) fn data_mode(mount: &Mount) -> Result<String, String> {
    let text = ext4_options(mount.dev).map_err(|e| format!("cannot tell its journal mode: {e}"))?;
    Ok(text.lines().find_map(|l| l.strip_prefix("data=")).unwrap_or_default().to_owned())
}

/// Whether a mounted ext4 makes fast commits (the feature `fast_commit`). No interface says so to
/// everybody, but its counters do: one `fsync` of an unnamed file is one more of them.
///
/// # Errors
/// That it cannot be told.
pub(super) fn makes_fast_commits(mount: &Mount) -> Result<bool, String> {
    let Ok(before) = ext4_proc(mount.dev, "fc_info") else {
        return Ok(false); // before 5.10 there were none
    };
    let told = |e: std::io::Error| format!("cannot tell whether it makes fast commits: {e}");
    sync_something(&mount.point).map_err(told)?;
    Ok(ext4_proc(mount.dev, "fc_info").map_err(told)? != before)
}

fn sync_something(dir: &Path) -> std::io::Result<()> {
    let how = OFlags::RDWR | OFlags::TMPFILE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(dir, how, Mode::RUSR | Mode::WUSR)?;
    rustix::io::pwrite(&file, b"fast?", 0)?;
    Ok(rustix::fs::fsync(&file)?)
}

/// All options of a mounted ext4, one a line, those of the super block among them.
fn ext4_options(dev: u64) -> std::io::Result<String> {
    ext4_proc(dev, "options")
}

fn ext4_proc(dev: u64, name: &str) -> std::io::Result<String> {
    let device = BlockDevice::from_dev(dev)?.name();
    std::fs::read_to_string(format!("/proc/fs/ext4/{device}/{name}"))
}
