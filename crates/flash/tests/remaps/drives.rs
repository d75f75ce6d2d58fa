//! The drives of the tests.

use fragmend_flash::drive::{
    BufferSpec, Collection, Drive, Firmware, Placement, Suspend, Timing, Wear,
};
use fragmend_flash::geometry::Geometry;

/// Bytes of a unit.
pub const UNIT: u32 = 512;

/// A drive of 128 or 256 units, of the kind that this number stands for: collection, levelling and compaction run all the time.
pub fn small(kind: u64) -> Drive {
    let bit = |n: u32| kind >> n & 1 == 1;
    let suspend = bit(0).then_some(Suspend { suspend_ns: 5_000, resume_ns: 3_000 });
    Drive {
        geometry: Geometry {
            channels: 1 + u32::from(bit(1)),
            dies_per_channel: 2,
            blocks_per_plane: 16,
            pages_per_block: 4,
            program_unit_bytes: if bit(8) { 4 * UNIT } else { 2 * UNIT },
            over_provisioning_per_mille: 1000,
            ..crate::support::geometry(UNIT, 2)
        },
        timing: Timing { suspend, reads_first: bit(7), ..Timing::round(UNIT) },
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * if bit(8) { 20 } else { 12 },
            command_ns: 1_000,
            unit_ns: 100,
            protected: kind.is_multiple_of(11),
            open_program_units: 2,
        },
        firmware: Firmware {
            placement: if bit(2) { Placement::FileAffine } else { Placement::RoundRobin },
            collection: if bit(3) { Collection::CostBenefit } else { Collection::Greedy },
            copyback: bit(4),
            collection_paced: bit(6),
            wear: Wear { block_spread: 2, die_spread: 2 },
            // 51 entries in each kibibyte.
            defrag_log_bytes: u64::from(4 * UNIT) * (2 + u64::from(bit(5)))
                / if bit(8) { 1 } else { 2 },
        },
    }
}

/// A small one on one channel, with half as much flash that the host does not see: cuts leave its dies short of free blocks.
pub fn fuller(kind: u64) -> Drive {
    let drive = small(kind);
    let geometry = Geometry { channels: 1, over_provisioning_per_mille: 500, ..drive.geometry };
    Drive { geometry, ..drive }
}

/// A small one with 3,276 or 6,553 units: its blocks are collected by choice, not one after the other, and nine tenths of them are valid.
pub fn large(kind: u64) -> Drive {
    let Drive { geometry, timing, buffer, firmware } = small(kind);
    Drive {
        geometry: Geometry {
            blocks_per_plane: 64,
            pages_per_block: 16,
            over_provisioning_per_mille: 250,
            ..geometry
        },
        timing,
        buffer: BufferSpec { bytes: 4 * buffer.bytes, ..buffer },
        firmware: Firmware { defrag_log_bytes: 4 * firmware.defrag_log_bytes, ..firmware },
    }
}

/// A small one with another placement, and with planes.
pub fn other(kind: u64) -> Drive {
    let Drive { geometry, timing, buffer, firmware } = small(kind);
    let placement = [Placement::ByAddress, Placement::DieAffine, Placement::FileAffine];
    let planes_per_die = if kind.is_multiple_of(5) { 2 } else { 1 };
    let blocks_per_plane = geometry.blocks_per_plane / planes_per_die;
    Drive {
        geometry: Geometry { planes_per_die, blocks_per_plane, ..geometry },
        timing,
        buffer,
        firmware: Firmware { placement: placement[(kind % 3) as usize], ..firmware },
    }
}
