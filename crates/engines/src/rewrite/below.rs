//! Whether a disk is in memory, so that its contents are lost with the power: RAM disks, compressed memory, a
//! file in memory behind a loop device, and every disk that is mapped onto one of them.

use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts::{self, Mount};
use std::fs::read_to_string;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel's names of disks in memory, without their number.
const IN_MEMORY: [&str; 3] = ["ram", "zram", "nullb"];

/// File systems in memory.
const OF_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

/// The most layers of disks below disks that are followed.
const DEEPEST: u32 = 16;

/// The disk or file system below a mount that is in memory; `None` where none is known to be.
pub(super) fn in_memory(mount: &Mount) -> Option<String> {
    under(mount, DEEPEST)
}

fn under(mount: &Mount, depth: u32) -> Option<String> {
    if OF_MEMORY.contains(&mount.fs_type.as_str()) {
        return Some(mount.fs_type.clone());
    }
    let device = BlockDevice::under(&mount.point, mount.dev).ok()?;
    of_disk(device.disk(), depth)
}

/// The same for a disk in sysfs.
fn of_disk(disk: &Path, depth: u32) -> Option<String> {
    let name = disk.file_name()?.to_string_lossy().into_owned();
    let Some(depth) = depth.checked_sub(1) else {
        return Some(format!("{name}: too many layers to tell"));
    };
    let numbered = |kind: &str| {
        let number = name.strip_prefix(kind).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    };
    let model = read_to_string(disk.join("device/model")).unwrap_or_default();
    if IN_MEMORY.iter().any(|kind| numbered(kind)) || model.trim() == "scsi_debug" {
        return Some(name);
    }
    if let Ok(file) = std::fs::read(disk.join("loop/backing_file")) {
        let file = Path::new(std::ffi::OsStr::from_bytes(file.trim_ascii_end()));
        return match mounts::of_path(file) {
            Ok(mount) => under(&mount, depth).map(|what| format!("{name} on {what}")),
            // Deleted, or in another root: a file without a name does not survive a power cut.
            Err(_) => Some(format!("{name} on a file that has no name here")),
        };
    }
    let slaves = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    slaves
        .filter_map(|slave| slave.path().canonicalize().ok())
        .find_map(|slave| of_disk(&whole(slave), depth))
        .map(|what| format!("{name} on {what}"))
}

/// The disk that a partition is on.
fn whole(node: PathBuf) -> PathBuf {
    if node.join("partition").exists() {
        node.parent().map(Path::to_owned).unwrap_or(node)
    } else {
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn memory_is_found_below_what_is_mapped_onto_it() {
        let sys = tempfile::tempdir().unwrap();
        let at = |name: &str| sys.path().join(name);
        for name in ["dm-0/slaves", "dm-1/slaves", "md5/slaves", "zram0", "ram1", "sda/sda1"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("sda/sda1/partition"), "1").unwrap();
        symlink(at("zram0"), at("dm-0/slaves/zram0")).unwrap();
        symlink(at("sda/sda1"), at("dm-1/slaves/sda1")).unwrap();
        symlink(at("dm-1"), at("md5/slaves/dm-1")).unwrap();
        symlink(at("dm-0"), at("md5/slaves/dm-0")).unwrap();
        let told = |name: &str| of_disk(&at(name), DEEPEST);
        assert_eq!(told("zram0").as_deref(), Some("zram0"));
        assert_eq!(told("ram1").as_deref(), Some("ram1"));
        assert_eq!(told("dm-0").as_deref(), Some("dm-0 on zram0"));
        assert_eq!(told("md5").as_deref(), Some("md5 on dm-0 on zram0"));
        assert_eq!((told("dm-1"), told("sda")), (None, None));
        fs::create_dir_all(at("sda/device")).unwrap();
        fs::write(at("sda/device/model"), "scsi_debug      \n").unwrap();
        assert_eq!(told("dm-1").as_deref(), Some("dm-1 on sda"));
        fs::create_dir_all(at("loop0/loop")).unwrap();
        fs::write(at("loop0/loop/backing_file"), "/nowhere/disk (deleted)\n").unwrap();
        assert!(told("loop0").unwrap().contains("no name"));
    }
}
