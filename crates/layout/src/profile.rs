//! What planning knows of a device: the settings of its queue, as the kernel reports them, and what reads cost on it.
//! `fragmend-device` makes it.

use crate::{CostModel, DeviceKind, ParallelUnits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What planning needs to know of a device. All sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "InFile")]
pub struct DeviceProfile {
    /// Kernel name, for example `nvme0n1p2`.
    pub name: String,
    /// Readahead window for buffered sequential reads.
    pub readahead_bytes: u64,
    /// Largest request that the kernel builds.
    pub max_request_bytes: u64,
    /// Whether the device seeks.
    pub rotational: bool,
    /// Largest readahead window for a single read that is longer than `readahead_bytes`.
    pub longest_window_bytes: u64,
    /// Where readahead windows end.
    pub window_ends: WindowEnds,
    /// The units that work side by side, if a probe has found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_units: Option<ParallelUnits>,
    /// What reads cost.
    pub cost: CostModel,
    /// Why that is not what was probed, if a probe is kept that cannot be used, or what must be said of it if it is
    /// used. It is not kept with a plan, whose summary says it.
    #[serde(skip)]
    pub cost_note: Option<String>,
}

/// A profile as it is in a file. Older ones lack the last fields.
#[derive(Deserialize, JsonSchema)]
struct InFile {
    /// Kernel name, for example `nvme0n1p2`.
    name: String,
    /// Readahead window for buffered sequential reads.
    readahead_bytes: u64,
    /// Largest request that the kernel builds.
    max_request_bytes: u64,
    /// Whether the device seeks.
    rotational: bool,
    /// Largest readahead window for a single read that is longer than `readahead_bytes`.
    #[serde(default)]
    longest_window_bytes: u64,
    /// Where readahead windows end.
    #[serde(default)]
    window_ends: WindowEnds,
    /// The units that work side by side, if a probe has found them.
    #[serde(default)]
    parallel_units: Option<ParallelUnits>,
    /// What reads cost; without it, what is guessed by the kind of the device.
    #[serde(default)]
    cost: Option<CostModel>,
}

impl From<InFile> for DeviceProfile {
    fn from(file: InFile) -> Self {
        let guess = || CostModel::guessed(DeviceKind::of(&file.name, file.rotational));
        Self {
            cost: file.cost.unwrap_or_else(guess),
            name: file.name,
            readahead_bytes: file.readahead_bytes,
            max_request_bytes: file.max_request_bytes,
            rotational: file.rotational,
            longest_window_bytes: file.longest_window_bytes,
            window_ends: file.window_ends,
            parallel_units: file.parallel_units,
            cost_note: None,
        }
    }
}

/// Where the kernel ends a readahead window that it begins ahead of the reader (mm/readahead.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WindowEnds {
    /// On any page: Linux before 6.16.
    #[default]
    AnyPage,
    /// On a multiple of four pages, where the page cache holds single pages.
    FourPages,
    /// On the boundary of a large folio, where the page cache holds them.
    LargeFolios,
}

impl DeviceProfile {
    /// Linux's default readahead, used where there is no queue to read it from (network, overlay).
    pub const DEFAULT_READAHEAD_BYTES: u64 = 128 * 1024;

    /// `VM_READAHEAD_PAGES` (linux/mm.h): what Btrfs, which has no queue, uses as the largest request of its
    /// disk.
    pub const LONGEST_WITHOUT_QUEUE: u64 = 128 * 1024;

    /// The kernel's defaults, for a file system without a block device of its own.
    pub fn unknown() -> Self {
        Self {
            name: "unknown".into(),
            readahead_bytes: Self::DEFAULT_READAHEAD_BYTES,
            max_request_bytes: 1280 * 1024,
            rotational: false,
            longest_window_bytes: Self::LONGEST_WITHOUT_QUEUE,
            window_ends: WindowEnds::default(),
            parallel_units: None,
            cost: CostModel::guessed(DeviceKind::Flash),
            cost_note: None,
        }
    }

    /// Its kind, by which costs are guessed.
    pub fn kind(&self) -> DeviceKind {
        DeviceKind::of(&self.name, self.rotational)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_profiles_have_a_guess() {
        let older = r#"{"name":"mmcblk0p2","readahead_bytes":131072,"max_request_bytes":524288,"rotational":false}"#;
        let read: DeviceProfile = serde_json::from_str(older).unwrap();
        assert_eq!(read.cost, CostModel::guessed(DeviceKind::Card));
        let disk = older.replace("false", "true");
        let read: DeviceProfile = serde_json::from_str(&disk).unwrap();
        assert_eq!(
            (read.kind(), &read.cost),
            (DeviceKind::Disk, &CostModel::guessed(DeviceKind::Disk))
        );
        let again = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(read, again);
    }
}
