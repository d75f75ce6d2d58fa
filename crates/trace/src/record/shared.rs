//! The structures that are shared with the kernel side: a mirror of `bpf/shared.h`, field by field and byte
//! by byte.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Disks that are watched at most.
pub const MAX_DISKS: usize = 16;

/// The logarithm of the nanoseconds for which one part of the places is recorded.
pub const TURN_SHIFT: u32 = 21;

pub const KIND_OP_MASK: u32 = 0xff;
pub const KIND_DIRECT: u32 = 0x100;
pub const KIND_WINDOWED: u32 = 0x200;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawEvent {
    pub time_ns: u64,
    pub inode: u64,
    pub offset: u64,
    pub device: u32,
    pub generation: u32,
    pub length: u32,
    pub kind: u32,
    pub pid: u32,
    pub thread: u32,
    pub uid: u32,
    pub weight: u32,
    pub comm: [u8; 16],
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    pub self_pid: u32,
    pub page_shift: u32,
    pub o_direct: u32,
    pub o_append: u32,
    pub uid: u32,
    pub requests: u8,
    pub fold: u8,
    pub by_pid: u8,
    pub by_uid: u8,
    pub by_comm: u8,
    pub by_cgroup: u8,
    pub readahead_seen: u8,
    pub btrfs: u8,
    pub comm: [u8; 16],
    pub misses: u8,
    pub region_shift: u8,
    pub direct_seen: u8,
    pub pad_misses: u8,
    pub start_ns: u64,
    pub disk_count: u32,
    pub bio_disks: u32,
    pub disks: [u32; MAX_DISKS],
}

#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Control {
    pub device_mask: u32,
    pub weight: u32,
    pub turns: u32,
    pub pad: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Device {
    pub readahead_bytes: u32,
    pub below_roots: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileKey {
    pub inode: u64,
    pub device: u32,
    pub generation: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FoldKey {
    pub file: FileKey,
    pub offset: u64,
    pub length: u32,
    pub kind: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FoldValue {
    pub count: u64,
    pub first_ns: u64,
    pub bytes: u64,
    pub last_ns: u64,
    pub heaviest_ns: u64,
    pub heaviest: u32,
    pub present: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    pub event: RawEvent,
    pub size: u64,
    pub page: u64,
    pub start: u64,
    pub second: u64,
    pub end: u64,
    pub state: u32,
    pub pad: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Fetch {
    pub event: RawEvent,
    pub inode: u64,
    pub size: u64,
    pub from: u64,
    pub to: u64,
    pub start: u64,
    pub end: u64,
    pub call: u64,
}

/// Bursts of one disk that can be in flight at a time without being taken for one.
pub const BURSTS: usize = 256;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Disk {
    pub in_flight: u64,
    pub read_bursts: u64,
    pub in_flight_before: u64,
    pub bursts_in_flight: u64,
    pub bursts_before: u64,
    pub last_reader: u32,
    pub completed: u32,
    pub last_burst: u32,
    pub pad: u32,
    pub bursts: [u32; BURSTS],
}

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answers {
    pub count: u64,
    pub bytes: u64,
    pub in_flight: u64,
    pub total_ns: u64,
}

/// Classes of length: up to 512 bytes, 1 KiB, and so on.
pub const LENGTHS: usize = 24;
/// The logarithm of the shortest.
pub const SHORTEST_LOG: u32 = 9;
/// Classes of the number in flight: 1, 2, 4 and so on.
pub const DEPTHS: usize = 17;
/// Classes of one disk.
pub const CLASSES: usize = 2 * LENGTHS * DEPTHS;

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stats {
    pub events: [u64; 4],
    pub bytes: [u64; 4],
    pub lost: u64,
    pub dropped: u64,
    pub unplaced: u64,
    pub compat: u64,
    pub splices: u64,
    pub coarsened: u64,
    pub uring: u64,
    pub sent: u64,
    pub ranges: u64,
    pub unanswered: u64,
    pub device_events: u64,
}

impl Answers {
    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            in_flight: self.in_flight + other.in_flight,
            total_ns: self.total_ns + other.total_ns,
        }
    }

    /// What was answered since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            bytes: self.bytes.saturating_sub(before.bytes),
            in_flight: self.in_flight.saturating_sub(before.in_flight),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
        }
    }
}

impl Stats {
    /// What was counted since `before`.
    pub fn since(self, before: Self) -> Self {
        let [now, before]: [[u64; size_of::<Self>() / 8]; 2] =
            [zerocopy::transmute!(self), zerocopy::transmute!(before)];
        let mut since = now;
        for (since, before) in since.iter_mut().zip(before) {
            *since = since.saturating_sub(before);
        }
        zerocopy::transmute!(since)
    }
}

const _: () = {
    assert!(size_of::<RawEvent>() == 72);
    assert!(size_of::<Config>() == 128);
    assert!(size_of::<Device>() == 8);
    assert!(size_of::<FileKey>() == 16);
    assert!(size_of::<FoldKey>() == 32);
    assert!(size_of::<FoldValue>() == 48);
    assert!(size_of::<Held>() == 120);
    assert!(size_of::<Fetch>() == 128);
    assert!(size_of::<Disk>() == 56 + 4 * BURSTS);
    assert!(size_of::<Answers>() == 32);
    assert!(size_of::<Stats>() == 152);
};
