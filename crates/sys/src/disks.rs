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

/// The most layers of devices below devices that are followed.
const DEEPEST: u32 = 16;

/// The disks at the bottom of the file system of `path`, whose `st_dev` is `dev`: as [`under`], but of what device-mapper,
/// MD or bcache make of other devices, these.
///
/// # Errors
/// As [`under`].
pub fn bottom(path: &Path, dev: u64) -> io::Result<Vec<Disk>> {
    let device = BlockDevice::under(path, dev)?;
    let mut disks = Vec::new();
    for node in members(&device)? {
        descend(&node, DEEPEST, &mut disks)?;
    }
    Ok(disks)
}

/// The same of one device.
///
/// # Errors
/// When sysfs does not have it: the device is gone.
pub fn bottom_of(device: &BlockDevice) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    descend(device.node(), DEEPEST, &mut disks)?;
    Ok(disks)
}

/// Adds the disks at the bottom of a device in sysfs, each once.
fn descend(node: &Path, deeper: u32, found: &mut Vec<Disk>) -> io::Result<()> {
    let below = std::fs::read_dir(whole(node).join("slaves")).into_iter().flatten().flatten();
    let below: Vec<PathBuf> = below.filter_map(|entry| entry.path().canonicalize().ok()).collect();
    if let (false, Some(deeper)) = (below.is_empty(), deeper.checked_sub(1)) {
        return below.iter().try_for_each(|node| descend(node, deeper, found));
    }
    let disk = described(node)?;
    if !found.contains(&disk) {
        found.push(disk);
    }
    Ok(())
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

/// The whole disk of a device in sysfs.
fn whole(node: &Path) -> &Path {
    if node.join("partition").exists() { node.parent().unwrap_or(node) } else { node }
}

/// The same with its number and its name.
fn described(node: &Path) -> io::Result<Disk> {
    let disk = whole(node);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_made_of_other_devices_is_followed_to_its_disks() {
        let dir = std::env::temp_dir().join(format!("fragmend-disks-{}", std::process::id()));
        let at = |name: &str| dir.join(name);
        let disks = [("sda", 8), ("sdb", 9), ("dm-0", 253), ("md0", 254)];
        for (name, major) in disks {
            create_dir_all(at(name).join("slaves")).unwrap();
            write(at(name).join("dev"), format!("{major}:0\n")).unwrap();
        }
        create_dir_all(at("sda/sda1")).unwrap();
        write(at("sda/sda1/partition"), "1\n").unwrap();
        // Encrypted, on a mirror of a partition and a disk; and two volumes on one disk.
        symlink(at("md0"), at("dm-0/slaves/md0")).unwrap();
        symlink(at("sda/sda1"), at("md0/slaves/sda1")).unwrap();
        symlink(at("sdb"), at("md0/slaves/sdb")).unwrap();
        let names = |from: &str| {
            let mut found = Vec::new();
            descend(&at(from), DEEPEST, &mut found).unwrap();
            found.iter().map(|disk| disk.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("sdb"), ["sdb"]);
        assert_eq!(names("sda/sda1"), ["sda"]);
        let mut all = names("dm-0");
        all.sort();
        assert_eq!(all, ["sda", "sdb"]);
        // One that is below itself has an end.
        symlink(at("dm-0"), at("sdb/slaves/dm-0")).unwrap();
        let mut all = names("dm-0");
        all.sort();
        assert!(all.contains(&"sda".to_owned()), "{all:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
