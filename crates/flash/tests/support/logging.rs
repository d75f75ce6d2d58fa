//! The drive of the tests of remaps: four dies, and a log that holds 102 entries.

use super::support;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;

/// Bytes of a unit.
pub const UNIT: u32 = 512;

/// A drive with so much flash that the host does not see, in thousandths.
pub fn drive(over_provisioning_per_mille: u32) -> Drive {
    Drive {
        geometry: Geometry { over_provisioning_per_mille, ..support::geometry(UNIT, 2) },
        timing: Timing::round(UNIT),
        buffer: BufferSpec {
            bytes: u64::from(UNIT) * 40,
            command_ns: 0,
            unit_ns: 0,
            protected: false,
            open_program_units: 2,
        },
        firmware: Firmware { defrag_log_bytes: u64::from(4 * UNIT), ..Firmware::default() },
    }
}
