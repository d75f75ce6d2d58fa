//! The disks below a file system (Documentation/ABI/stable/sysfs-block).

use crate::block::BlockDevice;
use std::io;
use std::path::{Path, PathBuf};

/// A whole disk, or a device of device-mapper.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disk {
    /// Its number, as `st_rdev` of its node.
    pub number: u64,
    /// Its name in the kernel, for example `nvme0n1`.
    pub name: String,
    /// Whether its driver handles bios and has no requests (device-mapper, MD, zram).
    pub bio_based: bool,
}

/// The disks below the file or directory `path`, whose `st_dev` is `dev`: of a partition the whole disk, and of a
/// Btrfs all.
///
/// # Errors
/// `NotFound` where there is none: tmpfs, overlay, network.
pub fn under(path: &Path, dev: u64) -> io::Result<Vec<Disk>> {
    let device = BlockDevice::under(path, dev)?;
    let mut disks = Vec::new();
    for node in members(&device)? {
        let disk = described(&node)?;
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    Ok(disks)
}

/// The devices of a file system in sysfs: those of the Btrfs that `device` belongs to, or itself.
fn members(device: &BlockDevice) -> io::Result<Vec<PathBuf>> {
    for system in std::fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten() {
        let all = system.path().join("devices");
        if all.join(device.name()).exists() {
            let mut nodes = std::fs::read_dir(all)?
                .map(|entry| entry?.path().canonicalize())
                .collect::<io::Result<Vec<_>>>()?;
            nodes.sort();
            return Ok(nodes);
        }
    }
    Ok(vec![device.node().to_owned()])
}

/// The disk of a device in sysfs.
fn described(node: &Path) -> io::Result<Disk> {
    let is_partition = node.join("partition").exists();
    let disk = if is_partition { node.parent().unwrap_or(node) } else { node };
    let text = std::fs::read_to_string(disk.join("dev"))?;
    let number = || {
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    };
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{} has no number", disk.display()));
    Ok(Disk {
        number: number().ok_or_else(invalid)?,
        name: disk.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        bio_based: !disk.join("mq").is_dir(),
    })
}
