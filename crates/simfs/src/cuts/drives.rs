//! The drives that are cut, and the host's path to them.

use fragmend_flash::command::Units;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::host::{HostPath, SplitHints};
use fragmend_flash::ssd::Ssd;

/// A host whose work needs little time.
pub fn path() -> HostPath {
    HostPath {
        system_call_ns: 400,
        lookup_ns: 100,
        uncached_lookup_ns: 0,
        bio_ns: 300,
        page_ns: 20,
        new_page_ns: 0,
        request_ns: 500,
        end_ns: 300,
        wake_ns: 1_000,
        plug_requests: 16,
        plug_bytes: 128 << 10,
        request_bytes: 128 << 10,
        queue_depth: 32,
        readahead_bytes: 128 << 10,
        bio_bytes: 1 << 20,
        split_hints: SplitHints::Renewed,
    }
}

/// A drive of four dies, whose flash page of four units is its program unit.
pub fn flash(unit: u32, blocks_per_plane: u32, pages_per_block: u32) -> Drive {
    let page = 4 * unit;
    let geometry = Geometry {
        channels: 2,
        dies_per_channel: 2,
        planes_per_die: 1,
        planes_together: false,
        planes_read_alone: false,
        ways_first: false,
        blocks_per_plane,
        pages_per_block,
        flash_page_bytes: page,
        program_unit_bytes: page,
        mapping_unit_bytes: unit,
        stripe_unit_bytes: page,
        over_provisioning_per_mille: 500,
    };
    let timing = Timing::round(page);
    let buffer = BufferSpec {
        bytes: u64::from(page) * 8,
        command_ns: 2_000,
        unit_ns: 200,
        protected: false,
        open_program_units: 32,
    };
    Drive { geometry, timing, buffer, firmware: Firmware::default() }
}

/// A drive of some 680 blocks of 512 bytes, all of which were written, and every other one twice, so that it collects what is half valid soon, and whose defrag log is compacted after two
/// of its programs.
///
/// # Panics
/// Never: its description is consistent.
pub fn written_with_short_log() -> Ssd {
    let mut drive = flash(512, 16, 4);
    drive.firmware.defrag_log_bytes = 2 * u64::from(drive.geometry.program_unit_bytes);
    let mut ssd = Ssd::with_content(&drive).expect("a consistent description");
    let units = ssd.units();
    let every_other = (0..units).step_by(2).map(|unit| Units::new(unit, 1));
    for written in std::iter::once(Units::new(0, units)).chain(every_other) {
        ssd.precondition(written).expect("there is space for it");
    }
    ssd
}
