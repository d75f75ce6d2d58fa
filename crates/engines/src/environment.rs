//! The running kernel as the [`Environment`] of a run.

use fragmend_apply::{Environment, OwnIo};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::process;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Its clock, the counters of the given devices, and its account of this process's I/O.
#[derive(Debug)]
pub struct Kernel {
    began: Instant,
    devices: HashMap<u64, BlockDevice>,
}

impl Kernel {
    /// The running kernel with these devices, by the device number of the files on them. A device that is
    /// missing here counts as used by no other process.
    pub fn new(devices: HashMap<u64, BlockDevice>) -> Self {
        Self { began: Instant::now(), devices }
    }
}

impl Environment for Kernel {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Counts the whole disk.
    fn read_from(&self, device: u64) -> Option<u64> {
        let counters = self.devices.get(&device).and_then(|d| d.counters().ok());
        counters.map(|counters| counters.read_bytes)
    }

    fn own_io(&self) -> OwnIo {
        let account = process::io_account().unwrap_or_default();
        OwnIo { read_bytes: account.read_bytes, written_bytes: account.write_bytes }
    }

    fn give_way(&self) {
        // Best effort: an old scheduler knows no priorities.
        let _ = process::set_idle_io_priority();
    }
}
