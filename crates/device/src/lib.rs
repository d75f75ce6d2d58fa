//! What a block device costs.
//!
//! For now the profile holds what the kernel itself knows of the device's queue; a measured
//! profile (cost per extra request, die granularity, stripe) adds its fields here.

use fragmend_sys::block::BlockDevice;
use fragmend_sys::mounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

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
    /// Linux's default readahead, used where there is no queue to ask (network, overlay).
    pub const DEFAULT_READAHEAD_BYTES: u64 = 128 * 1024;

    /// `VM_READAHEAD_PAGES` (linux/mm.h): what a Btrfs, which has no queue, takes for the largest
    /// request of its disk.
    const LONGEST_WITHOUT_QUEUE: u64 = 128 * 1024;

    /// The profile of the device under `path`, whose `st_dev` is `dev`, as its queue is set now.
    ///
    /// # Errors
    /// When there is no block device (tmpfs, network).
    pub fn under(path: &Path, dev: u64) -> io::Result<Self> {
        let device = BlockDevice::under(path, dev)?;
        let queue = device.queue()?;
        let max_request_bytes = queue.max_request_bytes.max(4096);
        // Readahead 0 means none: every read stands alone, and a page is the least it can be.
        Ok(Self {
            name: device.name(),
            readahead_bytes: queue.read_ahead_bytes.max(4096),
            max_request_bytes,
            rotational: queue.rotational,
            longest_window_bytes: match device.has_own_readahead() {
                true => Self::LONGEST_WITHOUT_QUEUE,
                false => max_request_bytes,
            },
            window_ends: window_ends(&mounts::of_path(path)?.fs_type),
        })
    }

    /// The kernel's defaults, for a file system without a block device of its own.
    pub fn unknown() -> Self {
        Self {
            name: "unknown".into(),
            readahead_bytes: Self::DEFAULT_READAHEAD_BYTES,
            max_request_bytes: 1280 * 1024,
            rotational: false,
            longest_window_bytes: Self::LONGEST_WITHOUT_QUEUE,
            window_ends: window_ends(""),
        }
    }
}

/// As tried on Linux 6.18. There is nothing to probe, and only predictions depend on it.
fn window_ends(fs_type: &str) -> WindowEnds {
    let release = fragmend_sys::process::kernel_release();
    match fs_type {
        _ if release.is_none_or(|release| release < (6, 16)) => WindowEnds::AnyPage,
        "ext2" | "ext3" | "ext4" | "xfs" => WindowEnds::LargeFolios,
        _ => WindowEnds::FourPages,
    }
}
