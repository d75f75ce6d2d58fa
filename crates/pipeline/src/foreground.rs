//! What the pace goes by on the mounted file systems: the waits of other programs, measured once others are seen to use a
//! device. Before that nothing is loaded into the kernel, because that lasts longer than some runs.

use fragmend_engines::environment::Measure;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::disks::{self, Disk};
use fragmend_trace::foreground::Foreground;
use std::cell::OnceCell;
use std::collections::HashMap;

/// Measures the disks below these devices, by the number of the files on them, from the first call on.
pub fn measure(devices: &HashMap<u64, BlockDevice>) -> Measure {
    let below =
        |(number, device): (&u64, &BlockDevice)| (*number, disks::of(device).unwrap_or_default());
    let below: HashMap<u64, Vec<Disk>> = devices.iter().map(below).collect();
    let running: OnceCell<Result<Foreground, String>> = OnceCell::new();
    Box::new(move |device| {
        let running = running.get_or_init(|| {
            let mut all: Vec<Disk> = below.values().flatten().cloned().collect();
            all.sort();
            all.dedup();
            Foreground::start(&all).map_err(|e| e.to_string())
        });
        let running = running.as_ref().map_err(Clone::clone)?;
        let disks = below.get(&device).filter(|disks| !disks.is_empty());
        let disks = disks.ok_or("its disks cannot be found")?;
        let mut sum = fragmend_apply::Foreground::default();
        for disk in disks {
            let (alone, beside) = running.met(disk).map_err(|e| e.to_string())?;
            sum.alone.add(&alone);
            sum.beside.add(&beside);
        }
        Ok(sum)
    })
}
