//! Small drives for the tests, which change them as they need.

use fragmend_flash::drive::Timing;
use fragmend_flash::geometry::Geometry;

/// Times of a drive whose channels transfer chunks of this many bytes; its firmware needs no time.
pub fn timing(chunk: u32) -> Timing {
    Timing {
        read_ns: vec![40_000],
        small_read_ns: Vec::new(),
        small_read_bytes: 0,
        page_stays: false,
        program_ns: 200_000,
        erase_ns: 2_000_000,
        channel_bytes_per_second: 800 << 20,
        channel_chunk_bytes: chunk,
        channel_command_ns: 0,
        link_bytes_per_second: 3200 << 20,
        firmware_read_ns: 0,
        firmware_small_read_ns: 0,
        small_command_bytes: chunk,
        firmware_busy_ns: 0,
        suspend: None,
        reads_first: false,
        array_command_ns: 0,
        trim_command_ns: 0,
        trim_unit_ns: 0,
    }
}

/// Four dies on two channels, each of one plane of 16 blocks of 8 pages; a page of `page_units` units is a
/// program unit and a stripe unit.
pub fn geometry(unit: u32, page_units: u32) -> Geometry {
    let page = page_units * unit;
    Geometry {
        channels: 2,
        dies_per_channel: 2,
        planes_per_die: 1,
        planes_together: false,
        planes_read_alone: false,
        ways_first: false,
        blocks_per_plane: 16,
        pages_per_block: 8,
        flash_page_bytes: page,
        program_unit_bytes: page,
        mapping_unit_bytes: unit,
        stripe_unit_bytes: page,
        over_provisioning_per_mille: 500,
    }
}
