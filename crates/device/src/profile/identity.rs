//! The identity of a disk: what it reports itself, which stays when the machine starts again or the disk gets another
//! name.

use crate::kind::{self, Kind};
use crate::target;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::{loop_device, session};
use rustix::fs::{AtFlags, StatxFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Nothing is known of the disk that distinguishes it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device has no serial number or other lasting name that no other one here has")]
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
    /// It has none, or another device that is here now has the same.
    pub fn of(device: &BlockDevice) -> Result<Self, NoIdentity> {
        let disk = device.whole();
        let found = Self::at(&disk, 0)?;
        let is_shared = Kind::of(&disk) == Kind::Loop && has_double(&disk, &found);
        if is_shared { Err(NoIdentity) } else { Ok(found) }
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
        let name: String = self.id.chars().map(plain).collect();
        if name.len() <= LONGEST {
            return format!("{name}.json");
        }
        // Two that differ far behind are still two.
        let sum = format!("-{:016x}", hash(&self.id));
        format!("{}{sum}.json", &name[..LONGEST - sum.len()])
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Whether another loop device has the same identity, and another file behind it: the same file in a copy of the file system,
/// on disks that have no identity. Only devices are opened that look like it: those of others may not answer.
fn has_double(disk: &BlockDevice, found: &Identity) -> bool {
    let behind = |disk: &BlockDevice| loop_device::behind(&disk.open_direct().ok()?).ok();
    let looks = |disk: &BlockDevice| {
        let name = kind::backing_file(disk).and_then(|path| Some(path.file_name()?.to_owned()));
        (name, disk.attribute("size"), disk.attribute("loop/offset"))
    };
    let (Some(own), own_looks) = (behind(disk), looks(disk)) else { return false };
    let others = loop_device::attached().into_iter().filter_map(|n| BlockDevice::from_dev(n).ok());
    others.filter(|other| looks(other) == own_looks).any(|other| {
        behind(&other).is_some_and(|other| !other.is_same(&own))
            && Identity::at(&other, 0).is_ok_and(|other| other == *found)
    })
}

/// What is behind a loop device, and whether it is read directly: a file by its file system, its number, when it was made,
/// and the disk that it is on, if that has an identity; a block device by its own identity, because its node may stand for
/// another one later. A served drive is another one whenever it is served anew.
fn behind_loop(disk: &BlockDevice, served: bool, depth: u32) -> Option<String> {
    let behind = loop_device::behind(&disk.open_direct().ok()?).ok()?;
    let how = if behind.direct { "" } else { CACHED };
    // A place on a device.
    let place = |device: &BlockDevice, offset: u64| {
        let Identity { id, .. } = Identity::at(device, depth + 1).ok()?;
        let start = target::partition_start(device).unwrap_or(0).saturating_add(offset);
        let how = if id.ends_with(CACHED) { "" } else { how };
        Some(format!("from {start} of {id}{how}"))
    };
    if behind.block_device != 0 {
        let below = BlockDevice::from_dev(behind.block_device).ok().filter(|_| depth < DEEPEST)?;
        return place(&below, behind.offset);
    }
    let path = kind::backing_file(disk)?;
    let file = kind::attached(&behind, &path)?;
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
    let id = format!("file {} {} {made}{start}", FsId::of(&file).ok()?.name(), behind.inode);
    // The copy of a file system has the same number, and a file in it, too.
    let below = BlockDevice::under(&path, behind.device).ok().filter(|_| depth < DEEPEST);
    Some(match below.and_then(|below| place(&below, 0)) {
        Some(place) => format!("{id}, {place}"),
        None => format!("{id}{how}"),
    })
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
        let id = format!("{}z", identity.id);
        assert_ne!(Identity { id, ..identity }.file_name(), name);
    }
}
