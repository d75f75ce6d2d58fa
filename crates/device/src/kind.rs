//! What a block device is, as far as the kernel shows it, and what can be told of such a device by reading it.

use crate::probe::clock;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::input;
use fragmend_sys::loop_device::{self, Behind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What a block device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A drive that does not rotate.
    Flash,
    /// A drive that rotates.
    Disk,
    /// A drive of the lab, served as a file behind a loop device.
    Served,
    /// A loop device on a file.
    Loop,
    /// Another device is below it: device-mapper, bcache.
    Mapped,
    /// Several devices, or a controller of such, are below it.
    Raid,
    /// The drive is elsewhere: NBD, iSCSI, NVMe over a network.
    Network,
    /// A virtual machine's disk.
    Virtual,
    /// Memory.
    Memory,
}

/// Names of models, and of vendors, behind which there is no drive but a hypervisor or a cloud's network.
const VIRTUAL: [&str; 9] = [
    "qemu",
    "vmware",
    "vbox",
    "virtual",
    "amazon elastic block store",
    "nvme_card",
    "persistentdisk",
    "msft",
    "xen",
];
/// Vendors of controllers that show several drives as one.
const CONTROLLERS: [&str; 9] = [
    "lsi",
    "avago",
    "broadcom",
    "perc",
    "megaraid",
    "logical volume",
    "adaptec",
    "areca",
    "smart array",
];

/// What sysfs shows of a disk.
#[derive(Clone, Debug, Default)]
struct Shown {
    name: String,
    /// Its directory, in which the names of what it hangs on are.
    path: String,
    transport: Option<String>,
    /// Model and vendor, in small letters.
    model: String,
    rotational: bool,
}

impl Kind {
    /// The kind of a device's disk.
    pub fn of(device: &BlockDevice) -> Self {
        let disk = device.whole();
        let known = ["device/vendor", "device/model"].map(|name| disk.attribute(name));
        let model = known.map(Option::unwrap_or_default).join(" ").to_lowercase();
        let shown = Shown {
            name: disk.name(),
            path: disk.node().to_string_lossy().into_owned(),
            transport: disk.attribute("device/transport"),
            model,
            rotational: disk.queue().is_ok_and(|queue| queue.rotational),
        };
        match Self::from(&shown) {
            Self::Loop if served_clock(&disk).is_ok_and(|clock| clock.is_some()) => Self::Served,
            kind => kind,
        }
    }

    fn from(shown: &Shown) -> Self {
        const BY_NAME: [(&[&str], Kind); 6] = [
            (&["loop"], Kind::Loop),
            (&["dm-", "bcache"], Kind::Mapped),
            (&["md"], Kind::Raid),
            (&["nbd", "rbd", "drbd"], Kind::Network),
            (&["zram", "ram", "pmem"], Kind::Memory),
            (&["vd", "xvd"], Kind::Virtual),
        ];
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| shown.name.starts_with(p));
        if let Some((_, kind)) = BY_NAME.iter().find(|(prefixes, _)| starts(prefixes)) {
            return *kind;
        }
        let says = |names: &[&str]| names.iter().any(|name| shown.model.contains(name));
        let far = shown.transport.as_deref().is_some_and(|transport| transport != "pcie");
        if far || shown.path.contains("/session") || shown.path.contains("/rport-") {
            Self::Network
        } else if says(&VIRTUAL) {
            Self::Virtual
        } else if says(&CONTROLLERS) {
            Self::Raid
        } else if shown.rotational {
            Self::Disk
        } else {
            Self::Flash
        }
    }

    /// Whether reads at intervals can show dies: nothing between decides where blocks are.
    pub fn shows_dies(self) -> bool {
        matches!(self, Self::Flash | Self::Served)
    }

    /// What it is, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Flash => "a drive that does not rotate",
            Self::Disk => "a disk",
            Self::Served => "a drive of the lab, served here",
            Self::Loop => "a loop device: its blocks are those of a file",
            Self::Mapped => "a device that is mapped to others",
            Self::Raid => "several drives that look like one",
            Self::Network => "a device that is elsewhere, over a network",
            Self::Virtual => "the disk of a virtual machine",
            Self::Memory => "memory",
        }
    }
}

/// The file behind a loop device, by the name that it had when it was attached.
pub fn backing_file(device: &BlockDevice) -> Option<PathBuf> {
    device.attribute("loop/backing_file").map(PathBuf::from)
}

/// The clock of the served drive that a loop device is attached to; `None` if that is another file, or none of a served
/// drive. Whoever may not open the device has only the file's name for that.
///
/// # Errors
/// As [`clock::beside`].
pub(crate) fn served_clock(device: &BlockDevice) -> io::Result<Option<File>> {
    let disk = device.whole();
    let Some(file) = backing_file(&disk) else { return Ok(None) };
    let Some((clock, _)) = clock::beside(&file)? else { return Ok(None) };
    let behind = disk.open_direct().and_then(|disk| loop_device::behind(&disk));
    let is_another = behind.is_ok_and(|behind| attached(&behind, &file).is_none());
    Ok((!is_another).then_some(clock))
}

/// The file at a path, if it is the one that a loop device is attached to by the kernel's own account: another may have its
/// name by now. Nobody else's pipe is waited for.
pub(crate) fn attached(behind: &Behind, path: &Path) -> Option<File> {
    let file = input::open(path).ok()?;
    file.metadata().is_ok_and(|found| behind.is(&found)).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_what_the_kernel_shows() {
        let kind = |name: &str, model: &str, change: fn(&mut Shown)| {
            let (name, model) = (name.to_owned(), model.to_lowercase());
            let mut shown = Shown { name, model, ..Shown::default() };
            change(&mut shown);
            Kind::from(&shown)
        };
        let same = |_: &mut Shown| {};
        let over = |shown: &mut Shown| shown.transport = Some("tcp".into());
        let pcie = |shown: &mut Shown| shown.transport = Some("pcie".into());
        let rotates = |shown: &mut Shown| shown.rotational = true;
        let iscsi = |shown: &mut Shown| {
            shown.path =
                "/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdb".into();
        };
        for (found, expected) in [
            (kind("nvme0n1", "Samsung SSD 980 PRO 1TB", pcie), Kind::Flash),
            (kind("nvme1n1", "Linux", over), Kind::Network),
            (kind("nvme0n1", "QEMU NVMe Ctrl", pcie), Kind::Virtual),
            (kind("nvme0n1", "Amazon Elastic Block Store", pcie), Kind::Virtual),
            (kind("sda", "ATA      Samsung SSD 870", same), Kind::Flash),
            (kind("sda", "ATA      ST1000DM003", rotates), Kind::Disk),
            (kind("sda", "DELL     PERC H730 Mini", same), Kind::Raid),
            (kind("sdb", "LIO-ORG  disk", iscsi), Kind::Network),
            (kind("mmcblk0", " SD128", same), Kind::Flash),
            (kind("vda", "", same), Kind::Virtual),
            (kind("dm-3", "", same), Kind::Mapped),
            (kind("md127", "", rotates), Kind::Raid),
            (kind("loop0", "", rotates), Kind::Loop),
            (kind("zram0", "", same), Kind::Memory),
        ] {
            assert_eq!(found, expected);
            assert_eq!(expected.shows_dies(), expected == Kind::Flash);
        }
    }
}
