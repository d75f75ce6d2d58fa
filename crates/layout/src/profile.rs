//! What a device costs, as far as the kernel reports it; a measured profile (cost per extra request, stripe
//! unit, stripe) will add its fields here. `fragmend-device` reads it from the kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What planning needs to know of a device. All sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    #[serde(default)]
    pub longest_window_bytes: u64,
    /// Where readahead windows end.
    #[serde(default)]
    pub window_ends: WindowEnds,
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
        }
    }
}
