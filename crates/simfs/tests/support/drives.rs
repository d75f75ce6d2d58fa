//! The machines of the tests, each with one drive that keeps content.

use super::lossy::Lossy;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::host::{HostPath, SplitHints};
use fragmend_flash::ssd::Ssd;
use fragmend_simfs::machine::Machine;

/// Bytes of a block of the small drives.
pub const SMALL_BLOCK: u64 = 512;
/// Blocks of the small drives, at least.
const SMALL_BLOCKS: u32 = 1365;

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
        blocks_per_plane,
        pages_per_block,
        flash_page_bytes: page,
        program_unit_bytes: page,
        mapping_unit_bytes: unit,
        stripe_unit_bytes: page,
        over_provisioning_per_mille: 500,
    };
    let timing = Timing {
        read_ns: vec![40_000],
        small_read_ns: Vec::new(),
        small_read_bytes: 0,
        page_stays: false,
        program_ns: 200_000,
        erase_ns: 2_000_000,
        channel_bytes_per_second: 800 << 20,
        channel_chunk_bytes: page,
        channel_command_ns: 0,
        link_bytes_per_second: 3200 << 20,
        firmware_read_ns: 0,
        firmware_small_read_ns: 0,
        small_command_bytes: page,
        firmware_busy_ns: 0,
        suspend: None,
        reads_first: false,
        array_command_ns: 0,
        trim_command_ns: 0,
        trim_unit_ns: 0,
    };
    let buffer = BufferSpec {
        bytes: u64::from(page) * 8,
        command_ns: 2_000,
        unit_ns: 200,
        protected: false,
        open_program_units: 32,
    };
    Drive { geometry, timing, buffer, firmware: Firmware::default() }
}

fn machine_of(drive: &Drive) -> Machine {
    Machine::new(Box::new(Ssd::with_content(drive).expect("a drive")), true, path())
}

/// A machine with an SSD of 85 MiB.
pub fn large() -> Machine {
    machine_of(&flash(4096, 64, 32))
}

/// A machine with a flash SSD of some 680 KiB in blocks of 512 bytes. Its power cuts are decided by time alone.
pub fn small_ssd(_seed: u64) -> Machine {
    machine_of(&flash(SMALL_BLOCK as u32, 16, 8))
}

/// A machine with a drive of the same size that loses any part of what was not flushed.
pub fn small_lossy(seed: u64) -> Machine {
    let drive = Lossy::new(SMALL_BLOCK as u32, SMALL_BLOCKS, seed);
    Machine::new(Box::new(drive), true, path())
}

/// A machine with an SSD of 25 GB that keeps no content.
pub fn without_content() -> Machine {
    let mut drive = flash(4096, 0, 256);
    drive.geometry.over_provisioning_per_mille = 70;
    let block_bytes = u64::from(drive.geometry.pages_per_block) * 16384;
    drive.geometry.blocks_per_plane = (25_000_000_000_u64 * 107 / 100 / 4 / block_bytes) as u32;
    let ssd = Ssd::new(&drive).expect("a drive");
    Machine::new(Box::new(ssd), false, path())
}
