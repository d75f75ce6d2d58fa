//! The drives of these tests: small ones that the cleaner has to work for, and ones with zones.

use crate::support::drives::{SMALL_BLOCK, path};
use crate::support::lossy::Lossy;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::inplace::{InPlace, InPlaceDrive, Media};
use fragmend_flash::zones::Zoned;
use fragmend_simfs::machine::Machine;
use fragmend_simfs::segments::Settings;

/// Parameters for drives with blocks of 512 bytes: segments of 16 blocks, nodes of 8 addresses, and a page cache that is written back early.
pub fn small() -> Settings {
    Settings {
        segment_bytes: 16 * SMALL_BLOCK,
        node_addresses: 8,
        cache_blocks: 64,
        dirty_blocks: 24,
        ..Settings::default()
    }
}

/// A machine whose drive has 32 segments, and loses any part of what was not flushed.
pub fn tight_lossy(seed: u64) -> Machine {
    Machine::new(Box::new(Lossy::new(SMALL_BLOCK as u32, 32 * 16, seed)), true, path())
}

/// A zoned drive of 4 dies whose zones have `pages_per_block` pages of four units on each.
fn zoned(unit: u32, blocks_per_plane: u32, pages_per_block: u32) -> Zoned {
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
        over_provisioning_per_mille: 300,
    };
    let timing = Timing {
        read_ns: vec![80_000],
        small_read_ns: Vec::new(),
        small_read_bytes: 0,
        page_stays: false,
        program_ns: 700_000,
        erase_ns: 3_000_000,
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
        bytes: u64::from(page) * 64,
        command_ns: 2_000,
        unit_ns: 200,
        protected: true,
        open_program_units: 0,
    };
    let drive = Drive { geometry, timing, buffer, firmware: Firmware::default() };
    Zoned::new(&drive, 14, true).expect("a drive")
}

fn machine(drive: Zoned) -> Machine {
    Machine::new(Box::new(drive), true, path())
}

/// Blocks of a zone of the small zoned drive.
const SMALL_ZONE: u32 = 4 * 4 * 4;

/// A machine with 26 zones of 64 blocks of 512 bytes.
pub fn small_zoned(_seed: u64) -> Machine {
    machine(zoned(SMALL_BLOCK as u32, 34, 4))
}

/// Parameters for it.
pub fn small_zones() -> Settings {
    Settings { zone_blocks: Some(SMALL_ZONE), ..small() }
}

/// A machine with 110 zones of 1 MiB in blocks of 4 KiB.
pub fn large_zoned() -> Machine {
    machine(zoned(4096, 144, 16))
}

/// Parameters for it: each zone is two segments.
pub fn large_zones() -> Settings {
    Settings { segment_bytes: 512 << 10, zone_blocks: Some(4 * 16 * 4), ..Settings::default() }
}

/// A machine whose drive of so many blocks of 4 KiB is memory, and keeps no content.
pub fn fast(blocks: u32) -> Machine {
    let drive = InPlaceDrive {
        bytes: u64::from(blocks) * 4096,
        unit_bytes: 4096,
        command_ns: 5_000,
        link_bytes_per_second: 2_500_000_000,
        media: Media::Memory {},
    };
    Machine::new(Box::new(InPlace::new(&drive)), false, path())
}
