//! The identity of a disk: what it reports itself, which stays when the machine starts again or the disk gets another
//! name.

use crate::kind::{self, Kind};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::session;
use rustix::fs::{AtFlags, StatxFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
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

impl Identity {
    /// The identity of the disk of a device.
    ///
    /// # Errors
    /// It has none.
    pub fn of(device: &BlockDevice) -> Result<Self, NoIdentity> {
        let disk = device.whole();
        let bytes = disk.bytes().map_err(|_| NoIdentity)?;
        let named = |name: &&str| Some(format!("{name} {}", disk.attribute(name)?));
        let id = match Kind::of(&disk) {
            Kind::Loop => behind_loop(&disk, false),
            Kind::Served => behind_loop(&disk, true),
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

    /// A name for its file, of letters, digits, dots, hyphens and underscores. Two disks may have the same: their
    /// identity is in the file, too.
    pub fn file_name(&self) -> String {
        const LONGEST: usize = 120;
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
        let name: String = self.id.chars().map(plain).take(LONGEST).collect();
        format!("{name}.json")
    }
}

/// The file behind a loop device: its file system, its number, and when it was made. A served drive is another one
/// whenever it is served anew.
fn behind_loop(disk: &BlockDevice, served: bool) -> Option<String> {
    let path = kind::backing_file(disk)?;
    let file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
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
    Some(format!("file {} {} {made}", FsId::of(&file).ok()?.name(), found.ino()))
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
