//! What a block device is, as far as the kernel shows it, and what can be told of such a device by reading it.

use crate::probe::clock;
use fragmend_sys::block::BlockDevice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

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

impl Kind {
    /// The kind of a device's disk.
    pub fn of(device: &BlockDevice) -> Self {
        let disk = device.whole();
        let name = disk.name();
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        if starts(&["loop"]) {
            let served = backing_file(&disk)
                .is_some_and(|file| clock::beside(&file).is_ok_and(|clock| clock.is_some()));
            return if served { Self::Served } else { Self::Loop };
        }
        if starts(&["dm-", "bcache"]) {
            return Self::Mapped;
        }
        if starts(&["md"]) {
            return Self::Raid;
        }
        if starts(&["nbd", "rbd", "drbd"]) {
            return Self::Network;
        }
        if starts(&["zram", "ram", "pmem"]) {
            return Self::Memory;
        }
        if starts(&["vd", "xvd"]) {
            return Self::Virtual;
        }
        Self::of_hardware(&disk)
    }

    /// The kind of what shows itself as a drive.
    fn of_hardware(disk: &BlockDevice) -> Self {
        let says = |names: &[&str]| {
            let known = ["device/model", "device/vendor"].iter().filter_map(|n| disk.attribute(n));
            let known: Vec<String> = known.map(|text| text.to_lowercase()).collect();
            known.iter().any(|text| names.iter().any(|name| text.contains(name)))
        };
        let path = disk.node().to_string_lossy().into_owned();
        let transport = disk.attribute("device/transport");
        let far = transport.is_some_and(|transport| transport != "pcie");
        if far || path.contains("/session") || path.contains("/rport-") {
            Self::Network
        } else if says(&VIRTUAL) {
            Self::Virtual
        } else if says(&CONTROLLERS) {
            Self::Raid
        } else if disk.queue().is_ok_and(|queue| queue.rotational) {
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
