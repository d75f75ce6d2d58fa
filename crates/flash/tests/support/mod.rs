//! Small drives for the tests, which change them as they need.

use fragmend_flash::geometry::Geometry;

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
