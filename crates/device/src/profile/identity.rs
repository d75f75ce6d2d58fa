//! The identity of a disk: what it reports itself, which stays when the machine starts again or the disk gets another
//! name.

use crate::kind::{self, Kind};
use crate::target;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::{input, loop_device, session};
use rustix::fs::{AtFlags, StatxFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;

/// The identity of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// What distinguishes it from all others, and where that comes from, for example `wwid eui.0025385b01b2c3d4`.
    pub id: String,
    /// Its model.
    pub model: Option<String>,
    /// The version of its firmware.
    pub firmware: Option<String>,
    /// Its size.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
}

/// The disk reports nothing that distinguishes it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device reports no serial number or other lasting name")]
pub struct NoIdentity;

/// Attributes in sysfs that are different for each disk, by how sure that is.
const NAMES: [&str; 7] =
    ["wwid", "device/wwid", "device/serial", "serial", "device/cid", "dm/uuid", "md/uuid"];

/// What is appended to the identity of a loop device that reads through the page cache of this machine.
const CACHED: &str = " through the page cache";
/// Loop devices on loop devices, at most.
const DEEPEST: u32 = 8;

impl Identity {
    /// The identity of the disk of a device.
    ///
    /// # Errors
    /// It has none.
    pub fn of(device: &BlockDevice) -> Result<Self, NoIdentity> {
        Self::at(device, 0)
    }

    /// The same below so many loop devices.
    fn at(device: &BlockDevice, depth: u32) -> Result<Self, NoIdentity> {
        let disk = device.whole();
        let bytes = disk.bytes().map_err(|_| NoIdentity)?;
        let named = |name: &&str| Some(format!("{name} {}", disk.attribute(name)?));
        let id = match Kind::of(&disk) {
            Kind::Loop => behind_loop(&disk, false, depth),
            Kind::Served => behind_loop(&disk, true, depth),
            _ => NAMES.iter().find_map(named),
        };
        let first = |names: &[&str]| names.iter().find_map(|name| disk.attribute(name));
        Ok(Self {
            id: id.ok_or(NoIdentity)?,
            model: first(&["device/model", "device/name"]),
            firmware: first(&["device/firmware_rev", "device/rev", "device/fwrev"]),
            bytes,
        })
    }

    /// Whether it is a loop device that reads its file through the page cache: what was measured of it then are times
    /// of memory, wherever the file is cached. With direct I/O it is another device.
    pub fn is_cached(&self) -> bool {
        self.id.ends_with(CACHED)
    }

    /// A name for its file, of letters, digits, dots, hyphens and underscores. Two disks may have the same: their
    /// identity is in the file, too.
    pub fn file_name(&self) -> String {
        const LONGEST: usize = 120;
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
        let name: String = self.id.chars().map(plain).take(LONGEST).collect();
        format!("{name}.json")
    }
}

/// What is behind a loop device, and whether it is read directly: a file by its file system, its number, and when it was
/// made; a block device by its own identity, because its node may stand for another one later. A served drive is another
/// one whenever it is served anew.
///
/// The kernel reports the file's path as it is now, so that another file may be there: it must be the one that is
/// attached, by the kernel's own account. Nobody else's pipe is waited for.
fn behind_loop(disk: &BlockDevice, served: bool, depth: u32) -> Option<String> {
    let behind = loop_device::behind(&disk.open_direct().ok()?).ok()?;
    let how = if behind.direct { "" } else { CACHED };
    if behind.block_device != 0 {
        let below = BlockDevice::from_dev(behind.block_device).ok().filter(|_| depth < DEEPEST)?;
        let Identity { id, .. } = Identity::at(&below, depth + 1).ok()?;
        let start = target::partition_start(&below).unwrap_or(0).saturating_add(behind.offset);
        let how = if id.ends_with(CACHED) { "" } else { how };
        return Some(format!("from {start} of {id}{how}"));
    }
    let file = input::open(&kind::backing_file(disk)?).ok()?;
    let found = file.metadata().ok()?;
    if !behind.is(&found) {
        return None;
    }
    if served {
        let boot = u128::from_be_bytes(session::boot().ok()?);
        let mounted = Some(session::mounted_of(&file).ok()?).filter(|number| *number != 0)?;
        return Some(format!("served {boot:032x} {mounted:x}"));
    }
    let wanted = StatxFlags::BTIME;
    let told = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
    let made = if StatxFlags::from_bits_retain(told.stx_mask).contains(wanted) {
        format!("{}.{:09}", told.stx_btime.tv_sec, told.stx_btime.tv_nsec)
    } else {
        return None;
    };
    // Two partitions of an image, or two parts of it, are two devices.
    let start = if behind.offset == 0 { String::new() } else { format!(" from {}", behind.offset) };
    Some(format!("file {} {} {made}{start}{how}", FsId::of(&file).ok()?.name(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_is_plain() {
        let id = format!("serial ../../etc/x\n\u{e9}{}", "y".repeat(300));
        let identity = Identity { id, model: None, firmware: None, bytes: 1 };
        let name = identity.file_name();
        assert!(name.starts_with("serial_.._.._etc_x__yyy") && name.len() == 125, "{name}");
    }
}
