//! Which reads need a sensing, and which operations a read interrupts.

use super::*;
use crate::drive::{BufferSpec, Firmware, Suspend};
use crate::geometry::Geometry;

/// Two dies on a channel; a sensing lasts 100 us, the transfer of a unit over the channel 10 us, a program
/// 500 us.
fn nand(page_stays: bool, suspend: Option<Suspend>) -> Nand {
    let drive = Drive {
        geometry: Geometry {
            dies_per_channel: 2,
            blocks_per_plane: 16,
            pages_per_block: 16,
            flash_page_bytes: 16_384,
            program_unit_bytes: 16_384,
            mapping_unit_bytes: 4096,
            stripe_unit_bytes: 4096,
            over_provisioning_per_mille: 500,
            ..crate::geometry::tests::small()
        },
        timing: Timing {
            read_ns: vec![100_000],
            page_stays,
            program_ns: 500_000,
            erase_ns: 3_000_000,
            channel_bytes_per_second: 409_600_000,
            link_bytes_per_second: u64::MAX,
            small_command_bytes: 0,
            suspend,
            ..Timing::round(16_384)
        },
        buffer: BufferSpec {
            bytes: 1 << 20,
            command_ns: 0,
            unit_ns: 0,
            protected: false,
            open_program_units: 1,
        },
        firmware: Firmware::default(),
    };
    let shape = drive.shape().unwrap();
    Nand::new(&drive, &shape)
}

#[test]
fn a_page_in_the_register_is_sensed_once() {
    let times = |stays: bool, programs: bool| {
        let mut nand = nand(stays, None);
        let page = nand.shape.page_of(0);
        let first = nand.read(0, 0, page, 4096, false);
        let from = if programs { nand.program(first, first, 0, 0, 16_384).end } else { first };
        let other = nand.shape.page_of(nand.shape.units_per_block * nand.shape.blocks_per_die);
        nand.read(from, from, other, 4096, false);
        let again = nand.read(from, from, page, 4096, false) - from;
        (first, again, nand.count(Work::Read))
    };
    assert_eq!(times(false, false), (110_000, 120_000, 3), "after the other die's transfer");
    assert_eq!(times(true, false), (110_000, 10_000, 2), "the other die has its own register");
    assert_eq!(times(true, true), (110_000, 120_000, 3), "a program overwrites the register");
}

#[test]
fn a_read_interrupts_a_program_unless_it_is_pinned() {
    let suspend = Suspend { suspend_ns: 5_000, resume_ns: 3_000 };
    let mut nand = nand(false, Some(suspend));
    let program = nand.program(0, 0, 0, 0, 16_384);
    // 40 us over the channel, then 500 us in the array.
    assert_eq!(nand.end_of(program), 540_000);
    let page = nand.shape.page_of(0);
    let read = nand.read(100_000, 100_000, page, 4096, false);
    assert_eq!(read, 100_000 + 5_000 + 100_000 + 10_000);
    assert_eq!(nand.end_of(program), read + 3_000 + 440_000);
    let end = nand.pin_programs();
    assert_eq!(end, nand.end_of(program));
    assert_eq!(nand.read(300_000, 300_000, page, 4096, false), end + 110_000);
    assert_eq!(nand.end_of(program), end);
}
