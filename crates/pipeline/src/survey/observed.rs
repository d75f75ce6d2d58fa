//! What each device answered while a trace was recorded, found again under the file systems that are mounted now.

use fragmend_layout::ObservedLoad;
use fragmend_plan::Device;
use fragmend_sys::block::BlockDevice;
use fragmend_trace::Meta;
use std::collections::{BTreeMap, BTreeSet};

/// The loads by the device numbers of the file systems. A load is of a block device: of the file system's own, or of the
/// whole disk that a partition is on; Btrfs has other numbers than its devices.
pub fn by_file_system(
    file_systems: &[Device],
    loads: &[ObservedLoad],
) -> BTreeMap<u64, ObservedLoad> {
    let of = |file_system: &Device| {
        let numbers = numbers(file_system);
        let load = loads.iter().find(|load| numbers.contains(&load.device))?;
        Some((file_system.device, load.clone()))
    };
    if loads.is_empty() { BTreeMap::new() } else { file_systems.iter().filter_map(of).collect() }
}

/// The reads that all disks of a trace have completed meanwhile; `None` if those of one are not known.
pub fn device_reads(meta: &Meta) -> Option<u64> {
    let counted: BTreeMap<u64, Option<u64>> =
        meta.loads.iter().map(|load| (load.device, load.counted_reads)).collect();
    // A file system without a disk, as one on a network, has no number.
    let has_numbers = meta.devices.iter().all(|device| !device.disks.is_empty());
    let disks: BTreeSet<u64> = meta.devices.iter().flat_map(|d| d.disks.iter().copied()).collect();
    let reads = disks.iter().map(|disk| counted.get(disk).copied().flatten());
    let sum = reads.collect::<Option<Vec<u64>>>()?.into_iter().fold(0, u64::saturating_add);
    has_numbers.then_some(sum)
}

/// The numbers of the block devices under a file system, the nearest first.
fn numbers(file_system: &Device) -> Vec<u64> {
    let path = file_system.mount.to_path().unwrap_or_default();
    let under = BlockDevice::under(&path, file_system.device);
    let numbers = under.map(|device| device.numbers()).unwrap_or_default();
    [file_system.device].into_iter().chain(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_layout::{DeviceProfile, FsKind};
    use fragmend_testbed::file_system::BTRFS;
    use fragmend_testbed::image::Image;
    use fragmend_trace::{DeviceMeta, Level};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    fn device(number: u64, mount: &Path) -> Device {
        Device {
            device: number,
            mount: mount.into(),
            file_system: FsKind::Ext4,
            total_bytes: 1 << 30,
            block_bytes: 4096,
            profile: DeviceProfile::unknown(),
        }
    }

    fn load(device: u64) -> ObservedLoad {
        ObservedLoad { device, read_bursts: device, ..ObservedLoad::default() }
    }

    #[test]
    fn reads_are_those_of_all_disks_or_not_known() {
        let reads = |disks: &[&[u64]], counted: &[(u64, Option<u64>)]| {
            let mut meta = Meta::new(Level::Both, 0);
            let system = |disks: &&[u64]| DeviceMeta {
                device: 1,
                mount: String::new(),
                readahead_bytes: None,
                disks: disks.to_vec(),
            };
            meta.devices = disks.iter().map(system).collect();
            let load = |(device, counted_reads): &(u64, Option<u64>)| ObservedLoad {
                counted_reads: *counted_reads,
                ..load(*device)
            };
            meta.loads = counted.iter().map(load).collect();
            device_reads(&meta)
        };
        // Two file systems on one of two disks.
        assert_eq!(reads(&[&[7, 8], &[7]], &[(7, Some(10)), (8, Some(5))]), Some(15));
        assert_eq!(reads(&[&[7, 8]], &[(7, Some(10))]), None);
        assert_eq!(reads(&[&[7]], &[(7, None)]), None);
        assert_eq!(reads(&[&[7], &[]], &[(7, Some(10))]), None);
        assert_eq!(reads(&[&[7]], &[]), None);
    }

    #[test]
    fn loop_a_load_is_found_by_the_number_of_the_file_system_or_of_its_device() {
        for image in [Image::ext4(64 << 20), Image::of(&BTRFS, 320 << 20)] {
            let here = image.path().metadata().unwrap().dev();
            let disk = Path::new(image.device()).metadata().unwrap().rdev();
            let found = by_file_system(&[device(here, image.path())], &[load(1), load(disk)]);
            assert_eq!(found, BTreeMap::from([(here, load(disk))]));
            assert!(by_file_system(&[device(here, image.path())], &[load(1)]).is_empty());
        }
    }
}
