//! What a block device costs.
//!
//! For now the profile holds what the kernel itself knows of the device's queue; a measured
//! profile (cost per extra request, die granularity, stripe) adds its fields here.

use fragmend_sys::block::BlockDevice;
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
    /// Whether the kernel ends readahead windows on the boundary of a large folio.
    pub aligned_windows: bool,
}

impl DeviceProfile {
    /// Linux's default readahead, used where there is no queue to ask (network, overlay).
    pub const DEFAULT_READAHEAD_BYTES: u64 = 128 * 1024;

    /// The profile of the device under `path`, whose `st_dev` is `dev`, as its queue is set now.
    ///
    /// # Errors
    /// When there is no block device (tmpfs, network).
    pub fn under(path: &Path, dev: u64) -> io::Result<Self> {
        let device = BlockDevice::under(path, dev)?;
        let queue = device.queue()?;
        // Readahead 0 means none: every read stands alone, and a page is the least it can be.
        Ok(Self {
            name: device.name(),
            readahead_bytes: queue.read_ahead_bytes.max(4096),
            max_request_bytes: queue.max_request_bytes.max(4096),
            rotational: queue.rotational,
            aligned_windows: kernel_aligns_windows(),
        })
    }

    /// The kernel's defaults, for a file system without a block device of its own.
    pub fn unknown() -> Self {
        Self {
            name: "unknown".into(),
            readahead_bytes: Self::DEFAULT_READAHEAD_BYTES,
            max_request_bytes: 1280 * 1024,
            rotational: false,
            aligned_windows: kernel_aligns_windows(),
        }
    }
}

/// Linux 6.16 and later do. There is nothing to probe, and only predictions depend on it.
fn kernel_aligns_windows() -> bool {
    fragmend_sys::process::kernel_release().is_some_and(|release| release >= (6, 16))
}
