//! Identities of the boot, of a mounted file system and of a disk, which distinguish one from another that looks
//! the same.

use crate::block::BlockDevice;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `STATX_MNT_ID_UNIQUE` (linux/stat.h, Linux 6.8).
const UNIQUE: u32 = 0x4000;

/// The random number that identifies this boot (`/proc/sys/kernel/random/boot_id`).
///
/// # Errors
/// When it cannot be read.
pub fn boot() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "boot_id is no UUID");
    let text = std::str::from_utf8(&digits).map_err(|_| strange())?;
    u128::from_str_radix(text, 16).map(u128::to_be_bytes).map_err(|_| strange())
}

/// When this boot began, in seconds of the clock of file times, as that clock is set now.
pub fn boot_began() -> i64 {
    let (now, up) = (clock_gettime(ClockId::Realtime), clock_gettime(ClockId::Boottime));
    now.tv_sec - up.tv_sec - i64::from(up.tv_nsec > now.tv_nsec)
}

/// Set in the number of a mounted file system that has a directory in `/sys/fs`.
const IN_SYSFS: u64 = 1 << 63;

/// Whether [`mounted_of`] found a file system's directory in `/sys/fs`; else the number is that of a mount.
pub fn is_in_sysfs(number: u64) -> bool {
    number & IN_SYSFS != 0
}

/// The number of the mounted file system that a file is on, unique within this boot: the same through each of its
/// mounts, in every namespace, and another one once it was unmounted as a whole. Of file systems that have no
/// directory in `/sys/fs`, that of the mount through which the file was opened; 0 where the kernel does not report
/// that (before Linux 6.8).
///
/// # Errors
/// Those of `statx(2)`.
pub fn mounted_of(file: impl AsFd) -> io::Result<u64> {
    // Such a directory comes and goes with the super block, and its inode number is used once.
    let dev = rustix::fs::fstat(&file)?.st_dev;
    let device = BlockDevice::from_dev(dev).ok();
    let number = |kind: &&str| {
        let there = Path::new("/sys/fs").join(kind).join(device.as_ref()?.name());
        Some(there.metadata().ok()?.ino() | IN_SYSFS)
    };
    match ["ext4", "xfs", "f2fs"].iter().find_map(number) {
        Some(number) => Ok(number),
        None => mount_of(file),
    }
}

fn mount_of(file: impl AsFd) -> io::Result<u64> {
    let wanted = StatxFlags::from_bits_retain(UNIQUE);
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    Ok(if told.stx_mask & UNIQUE == 0 { 0 } else { told.stx_mnt_id })
}

/// The disk or partition of a file system. Both fields are hashes; 0 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Of this attachment: it changes with a boot, and when the disk is removed.
    pub attached: u64,
    /// Of the name that the hardware or LVM assigns: the same after a reboot and under another number.
    /// Identities that are copied with the content, such as UUIDs in super blocks, are no part of it.
    pub lasting: u64,
}

impl Disk {
    /// The disk or partition with this device number.
    pub fn of(dev: u64) -> Self {
        let (Ok(device), Ok(boot)) = (BlockDevice::from_dev(dev), boot()) else {
            return Self::default();
        };
        let read = |directory: &std::path::Path, name: &str| {
            let text = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        let (node, disk) = (device.node(), device.disk());
        let part = if node == disk { String::new() } else { read(node, "start") };
        let known = |what: &str, name: &str, valid: bool| {
            if valid && !name.is_empty() { hash([what, name, &part]) } else { 0 }
        };
        let seq = read(disk, "diskseq");
        let mut boot_text = String::new();
        boot.iter().for_each(|b| boot_text.push_str(&format!("{b:02x}")));
        let attached = known(&boot_text, &seq, true);
        let mapped = read(disk, "dm/uuid");
        let names = ["wwid", "device/wwid", "serial", "device/cid"].map(|n| (n, read(disk, n)));
        let lasting = names
            .iter()
            .map(|(what, name)| known(what, name, true))
            .chain([known("dm", &mapped, mapped.starts_with("LVM-"))])
            .find(|hash| *hash != 0);
        Self { attached, lasting: lasting.unwrap_or(0) }
    }

    /// Whether both are certainly the same.
    pub fn is(&self, other: &Self) -> bool {
        let same = |a: u64, b: u64| a != 0 && a == b;
        same(self.attached, other.attached) || same(self.lasting, other.lasting)
    }
}

/// FNV-1a, with a zero byte after each part.
fn hash(parts: [&str; 3]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_has_a_number_and_a_beginning() {
        assert_ne!(boot().unwrap(), [0; 16]);
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        assert!(boot_began() <= now && boot_began() > 0);
    }

    #[test]
    fn what_a_file_is_on_is_the_same_each_time() {
        let file = || std::fs::File::open("/").unwrap();
        assert_eq!(mounted_of(file()).unwrap(), mounted_of(file()).unwrap());
    }

    #[test]
    fn unknown_disks_are_not_the_same() {
        assert!(!Disk::default().is(&Disk::default()));
        let (one, two) = (Disk { attached: 1, lasting: 0 }, Disk { attached: 1, lasting: 2 });
        assert!(one.is(&two) && !one.is(&Disk { attached: 2, lasting: 1 }));
    }
}
