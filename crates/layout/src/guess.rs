//! What reads probably cost, by the kind of the device as the kernel reports it: where nothing was probed and nothing
//! observed. A guess is one typical drive of each kind, not this one; every output that is made with it says so.
//!
//! Each drive does one of two things with requests that are issued together. A card or a disk serves one after the
//! other: `n` of them last `n` times as long as one. A flash drive answers after a latency, during which others are
//! under way: `n` of them last the latency and `n` times what its interface or its processor needs for each.

use crate::{CostModel, CostSource, RequestCost, SeekCost};
use std::fmt;

/// What the kernel reports of a device, as far as costs depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// It seeks (`queue/rotational`).
    Disk,
    /// An SD card or an eMMC (`mmcblk`).
    Card,
    /// Flash behind NVMe.
    Nvme,
    /// Any other that does not seek, and what has no queue to ask.
    Flash,
}

impl DeviceKind {
    /// By the name of the device and the settings of its queue.
    pub fn of(name: &str, rotational: bool) -> Self {
        match name {
            _ if rotational => Self::Disk,
            name if name.starts_with("mmcblk") => Self::Card,
            name if name.starts_with("nvme") => Self::Nvme,
            _ => Self::Flash,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "a disk of 7200 rpm",
            Self::Card => "a memory card",
            Self::Nvme => "an NVMe flash drive",
            Self::Flash => "a SATA flash drive",
        })
    }
}

/// Lengths and numbers in flight of which a guess has figures; the length at which a flash drive's interface becomes
/// slower than its processor is one more.
const LENGTHS: [u64; 2] = [4096, 1 << 20];
const IN_FLIGHT: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// A drive that answers after a latency.
struct Overlapping {
    /// Nanoseconds of a request of 4 KiB by itself.
    alone_ns: f64,
    /// Nanoseconds for each request, if many are in flight.
    each_ns: f64,
    /// Nanoseconds for each byte.
    byte_ns: f64,
}

/// Samsung's 850 PRO by its data sheet, as in FragPicker's table 2: 10,000 reads of 4 KiB a second one by one, 100,000
/// with 32 in flight, 550 MB/s.
const SATA: Overlapping =
    Overlapping { alone_ns: 100_000.0, each_ns: 10_000.0, byte_ns: 1e9 / 550e6 };
/// Samsung's 980 PRO (FAST'24's NVMe-A) by its data sheet: 22,000 reads of 4 KiB a second one by one. The link is PCIe
/// 3.0 x4, at 3.5 GB/s. For each request a core of the host needs 1.7 us (FAST'24's figure 6: mapping, bio, request,
/// completion), which is longer than the drive needs.
const NVME: Overlapping =
    Overlapping { alone_ns: 45_000.0, each_ns: 1_700.0, byte_ns: 1e9 / 3_523e6 };

/// Samsung's EVO microSD card of class A1, as in FragPicker's table 2: 1,500 reads of 4 KiB a second, one by one as it
/// does all commands; 100 MB/s.
const CARD_COMMAND_NS: f64 = 624_000.0;
const CARD_BYTE_NS: f64 = 10.0;

/// A disk of 1 TB and 7200 rpm, as in FragPicker's table 2. Data sheet: 8.9 ms for a seek on average, some 150 MB/s.
const DISK_COMMAND_NS: f64 = 50_000.0;
const DISK_BYTE_NS: f64 = 1e9 / 150e6;
/// Half a rotation of 8.33 ms passes until the first byte comes by.
const DISK_HALF_ROTATION_NS: u64 = 4_166_667;
/// Distance in bytes and time of the arm: to the next track, and with the root of the distance to all of the disk.
const DISK_ARM: [(u64, u64); 5] = [
    (1 << 20, 800_000),
    (1_000_000_000, 1_280_000),
    (10_000_000_000, 2_320_000),
    (100_000_000_000, 5_600_000),
    (1_000_000_000_000, 16_000_000),
];

impl CostModel {
    /// What a device of this kind probably costs.
    pub fn guessed(kind: DeviceKind) -> Self {
        match kind {
            DeviceKind::Disk => serial(DISK_COMMAND_NS, DISK_BYTE_NS, seeks()),
            DeviceKind::Card => serial(CARD_COMMAND_NS, CARD_BYTE_NS, Vec::new()),
            DeviceKind::Nvme => NVME.model(),
            DeviceKind::Flash => SATA.model(),
        }
    }
}

impl Overlapping {
    fn model(&self) -> CostModel {
        // A link that is busy with one request keeps the next one waiting, longer than the processor if it is long.
        let even = (self.each_ns / self.byte_ns) as u64;
        let lengths = [LENGTHS[0], even, LENGTHS[1]];
        let pace = |bytes: f64| self.each_ns.max(bytes * self.byte_ns);
        let latency = self.alone_ns - pace(LENGTHS[0] as f64);
        let cost = |request_bytes: u64, in_flight: u32| {
            let (many, pace) = (f64::from(in_flight), pace(request_bytes as f64));
            RequestCost {
                request_bytes,
                in_flight,
                burst_ns: (latency + many * pace) as u64,
                interval_ns: pace.max((latency + pace) / many) as u64,
                split_ns: None,
                stream_ns: None,
            }
        };
        model(lengths.into_iter().flat_map(|bytes| IN_FLIGHT.map(|n| cost(bytes, n))), Vec::new())
    }
}

/// A device that serves requests one after the other.
fn serial(command_ns: f64, byte_ns: f64, seeks: Vec<SeekCost>) -> CostModel {
    let cost = |request_bytes: u64, in_flight: u32| {
        let one = command_ns + request_bytes as f64 * byte_ns;
        let burst_ns = (one * f64::from(in_flight)) as u64;
        RequestCost {
            request_bytes,
            in_flight,
            burst_ns,
            interval_ns: one as u64,
            split_ns: None,
            stream_ns: None,
        }
    };
    model(LENGTHS.into_iter().flat_map(|bytes| [1, 32].map(|n| cost(bytes, n))), seeks)
}

fn seeks() -> Vec<SeekCost> {
    // Up to where the arm is quicker, the disk waits until the bytes between have passed. Backward, it turns until they
    // come by again.
    let passing = |distance_bytes: u64| {
        let ns = (distance_bytes as f64 * DISK_BYTE_NS) as u64;
        SeekCost { distance_bytes, ns, back_ns: Some(2 * DISK_HALF_ROTATION_NS - ns) }
    };
    let arm = DISK_ARM.map(|(distance_bytes, ns)| {
        let ns = ns + DISK_HALF_ROTATION_NS;
        SeekCost { distance_bytes, ns, back_ns: None }
    });
    [passing(0), passing(1 << 19)].into_iter().chain(arm).collect()
}

fn model(reads: impl Iterator<Item = RequestCost>, seeks: Vec<SeekCost>) -> CostModel {
    CostModel::new(CostSource::Guessed, reads.collect(), seeks)
        .unwrap_or_else(|senseless| unreachable!("constants: {senseless}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Split;

    fn read_us(kind: DeviceKind, bytes: u64, requests: u64, depth: f64) -> f64 {
        let split = Split { requests, ..Split::whole(bytes) };
        CostModel::guessed(kind).read_ns(split, depth) / 1e3
    }

    #[test]
    fn the_kind_is_what_the_kernel_reports() {
        let kind = |name, rotational| DeviceKind::of(name, rotational);
        assert_eq!(kind("sda", true), DeviceKind::Disk);
        assert_eq!(kind("mmcblk0p2", false), DeviceKind::Card);
        assert_eq!(kind("nvme1n1p2", false), DeviceKind::Nvme);
        assert_eq!(kind("loop7", false), DeviceKind::Flash);
    }

    #[test]
    fn guesses_are_the_data_sheets() {
        // Reads of 4 KiB a second, one by one and with 32 in flight.
        let rate = |kind, depth| 1e6 / read_us(kind, 4096, 1, depth);
        for (kind, depth, of_sheet) in [
            (DeviceKind::Flash, 1.0, 10_000.0),
            (DeviceKind::Flash, 32.0, 100_000.0),
            (DeviceKind::Nvme, 1.0, 22_000.0),
            (DeviceKind::Card, 1.0, 1_500.0),
            (DeviceKind::Card, 32.0, 1_500.0),
        ] {
            let rate = rate(kind, depth);
            assert!((rate / of_sheet - 1.0).abs() < 0.02, "{kind:?} at {depth}: {rate}");
        }
        // Bytes a second of long reads.
        for (kind, of_sheet) in [
            (DeviceKind::Flash, 550e6),
            (DeviceKind::Nvme, 3523e6),
            (DeviceKind::Card, 100e6),
            (DeviceKind::Disk, 150e6),
        ] {
            let rate = (1u64 << 30) as f64 / CostModel::guessed(kind).stream_ns(1 << 30) * 1e9;
            assert!((rate / of_sheet - 1.0).abs() < 0.06, "{kind:?}: {rate}");
        }
        // A seek over a third of the disk, as is usual for the average, and the rest of the rotation.
        let seek = CostModel::guessed(DeviceKind::Disk).seek_either_ns(333_000_000_000);
        assert!((12_000_000..14_500_000).contains(&seek), "{seek}");
    }

    #[test]
    fn what_a_split_costs_depends_on_the_kind() {
        // 128 KiB in 32 requests instead of one.
        let times =
            |kind, depth| read_us(kind, 1 << 17, 32, depth) / read_us(kind, 1 << 17, 1, depth);
        assert!(times(DeviceKind::Card, 1.0) > 10.0);
        assert!((1.1..1.5).contains(&times(DeviceKind::Flash, 1.0)));
        assert!((1.1..1.5).contains(&times(DeviceKind::Nvme, 1.0)));
    }
}
