//! What each device answered while a trace was recorded, found again under the file systems that are mounted now.

use fragmend_layout::ObservedLoad;
use fragmend_plan::Device;
use fragmend_sys::block::BlockDevice;
use std::collections::BTreeMap;

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
