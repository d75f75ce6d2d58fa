//! What each device answered while a trace was recorded, found again under the file systems that are mounted now.

use fragmend_layout::{FileAccesses, ObservedLoad};
use fragmend_plan::{Device, RecordedReads};
use fragmend_sys::block::BlockDevice;
use fragmend_trace::{DeviceMeta, Meta};
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

/// The reads of a trace, of all of its files, that are among what was seen of each disk, by the disk's device number: of what
/// the disks were watched for, and on each of several disks in the share that it had of their requests.
pub fn of_disks(meta: &Meta, files: &[FileAccesses]) -> BTreeMap<u64, RecordedReads> {
    let of_device = RecordedReads::by_device(files);
    let of_disk = |load: &ObservedLoad| {
        let is_on_it = |device: &&DeviceMeta| device.disks.contains(&load.device);
        let below: Vec<&DeviceMeta> = meta.devices.iter().filter(is_on_it).collect();
        let mut reads = RecordedReads::default();
        for (number, of_device) in &of_device {
            // A subvolume that was not named is no device of the trace.
            let is_known = meta.devices.iter().any(|device| device.device == *number);
            let all_are_on_it = below.len() == meta.devices.len();
            if below.iter().any(|device| device.device == *number) || !is_known && all_are_on_it {
                reads += *of_device;
            }
        }
        let disks: BTreeSet<u64> = below.iter().flat_map(|d| d.disks.iter().copied()).collect();
        let loads = meta.loads.iter().filter(|load| disks.contains(&load.device));
        let all: f64 = loads.map(|load| requests(meta, load)).sum();
        // Where nothing was seen of it, neither were the reads.
        let share = if all > 0.0 { load.reads() as f64 / all } else { 0.0 };
        (load.device, reads * share.min(1.0))
    };
    meta.loads.iter().map(of_disk).collect()
}

/// The requests of reads that a disk has answered during the whole recording, of which it may have been watched for a part.
fn requests(meta: &Meta, load: &ObservedLoad) -> f64 {
    let seen = load.reads() as f64;
    match (meta.sampling, load.counted_reads) {
        (None, _) => seen,
        (Some(_), Some(counted)) => counted as f64,
        (Some(sampling), None) => {
            let watched = sampling.watched_ns as f64 / meta.duration_ns.max(1) as f64;
            if watched > 0.0 { seen / watched.min(1.0) } else { seen }
        }
    }
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
    use fragmend_layout::{Access, DeviceProfile, FileId, FsKind, ObservedRequests, Op};
    use fragmend_testbed::file_system::BTRFS;
    use fragmend_testbed::image::Image;
    use fragmend_trace::{Level, Sampling};
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
    fn reads_of_all_files_are_those_of_the_disk_while_it_was_watched() {
        let class = |count| ObservedRequests {
            write: false,
            up_to_bytes: 4096,
            up_to_in_flight: 1,
            count,
            bytes: count << 12,
            in_flight: count,
            total_ns: count,
        };
        let answered = |device, count, counted_reads| ObservedLoad {
            requests: vec![class(count)],
            counted_reads,
            ..load(device)
        };
        let access = |count| Access {
            offset: 0,
            length: 4096,
            count,
            thread: 1,
            op: Op::Read,
            direct: true,
            windowed: false,
        };
        let file = |device, count| FileAccesses {
            accesses: vec![access(count)],
            ..FileAccesses::of(FileId { device, inode: 12, generation: 1 })
        };
        let system = |device, disks: &[u64]| DeviceMeta {
            device,
            mount: String::new(),
            readahead_bytes: None,
            disks: disks.to_vec(),
        };
        let mut meta = Meta::new(Level::Both, 0);
        let reads = |meta: &Meta, files: &[FileAccesses]| -> Vec<(u64, f64)> {
            of_disks(meta, files).into_iter().map(|(disk, r)| (disk, r.reads)).collect()
        };
        // Two file systems on one disk, and one on another.
        meta.devices = vec![system(1, &[7]), system(2, &[7]), system(3, &[8])];
        meta.loads = vec![answered(7, 4000, Some(5000)), answered(8, 10, None)];
        let files = [file(1, 600), file(2, 300), file(3, 10), file(1, 100), file(9, 50)];
        assert_eq!(reads(&meta, &files), [(7, 1000.0), (8, 10.0)]);
        // It was watched for a part of the recording: by its own counter, or by time.
        meta.duration_ns = 10;
        let sampling = Sampling {
            region_bytes: 1 << 20,
            watched_ns: 5,
            places_ppm: 1_000_000,
            turn_ns: 0,
            most: 1,
        };
        meta.sampling = Some(sampling);
        assert_eq!(reads(&meta, &files), [(7, 800.0), (8, 5.0)]);
        // One file system on two disks, and a subvolume of it that was not named.
        meta.sampling = None;
        meta.devices = vec![system(1, &[7, 8])];
        meta.loads = vec![answered(7, 3000, None), answered(8, 1000, None)];
        assert_eq!(reads(&meta, &[file(1, 300), file(9, 100)]), [(7, 300.0), (8, 100.0)]);
        meta.loads = vec![load(7)];
        assert_eq!(reads(&meta, &[file(1, 300)]), [(7, 0.0)]);
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
