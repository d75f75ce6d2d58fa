//! What a mount promises about the order in which writes reach the device: the crash arguments of all engines
//! rely on it.

use fragmend_scan::FileSystem;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// The names under which file systems turn their cache flushes off (ext4(5), btrfs(5), the kernel's
/// filesystems/f2fs.rst).
const WITHOUT_FLUSHES: [&str; 3] = ["nobarrier", "barrier=0", "fsync_mode=nobarrier"];

/// Whether the file system flushes the device's cache where order matters.
///
/// # Errors
/// The option that turns the flushes off, and what to do.
pub(crate) fn flushes(mount: &Mount) -> Result<(), String> {
    // mountinfo omits options that the super block sets; ext4's own list does not.
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
/// It cannot be determined.
pub(super) fn data_mode(mount: &Mount) -> Result<String, String> {
    let text = ext4_options(mount.dev).map_err(|e| format!("cannot tell its journal mode: {e}"))?;
    Ok(text.lines().find_map(|l| l.strip_prefix("data=")).unwrap_or_default().to_owned())
}

/// Whether a mounted ext4 makes fast commits, as its super block says (fs/ext4/ext4.h,
/// `s_feature_compat`).
///
/// # Errors
/// The device cannot be read, as by users other than root.
pub(super) fn has_fast_commits(mount: &Mount, root: &Root) -> std::io::Result<bool> {
    const FEATURES_AT: u64 = 1024 + 0x5C;
    const FAST_COMMIT: u32 = 0x400;
    let device = FileSystem::of(root, mount.dev)?.open_device()?;
    let mut features = [0; 4];
    device.read_exact_at(&mut features, FEATURES_AT)?;
    Ok(u32::from_le_bytes(features) & FAST_COMMIT != 0)
}

/// The same where the device cannot be read: one `fsync` of `unnamed`, a new file on this ext4 with number
/// `dev`, is counted if commits are fast.
///
/// # Errors
/// It cannot be determined.
pub(super) fn counts_fast_commits(dev: u64, unnamed: &OwnedFd) -> std::io::Result<bool> {
    let Ok(before) = ext4_proc(dev, "fc_info") else {
        return Ok(false); // before 5.10 there were none
    };
    rustix::fs::fsync(unnamed)?;
    Ok(ext4_proc(dev, "fc_info")? != before)
}

/// All options of a mounted ext4, one a line: mountinfo omits those that the super block sets.
///
/// # Errors
/// They cannot be read.
pub(crate) fn ext4_options(dev: u64) -> std::io::Result<String> {
    ext4_proc(dev, "options")
}

fn ext4_proc(dev: u64, name: &str) -> std::io::Result<String> {
    let device = BlockDevice::from_dev(dev)?.name();
    std::fs::read_to_string(format!("/proc/fs/ext4/{device}/{name}"))
}
