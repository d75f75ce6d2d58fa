//! What collection must not forget while units that it moves are in the write buffer.

use super::*;
use crate::command::{Hint, Units};
use crate::drive::{BufferSpec, Drive, Firmware, Timing};
use crate::space::Location;

/// A die whose program units are two flash pages of two units each.
fn ftl() -> Ftl {
    let drive = Drive {
        geometry: crate::geometry::Geometry {
            program_unit_bytes: 2048,
            ..crate::geometry::tests::small()
        },
        timing: Timing::round(512),
        buffer: BufferSpec {
            bytes: 64 << 10,
            command_ns: 0,
            unit_ns: 0,
            protected: false,
            open_program_units: 1,
        },
        firmware: Firmware { defrag_log_bytes: 4096, ..Firmware::default() },
    };
    let shape = drive.shape().expect("a consistent geometry");
    Ftl::new(&drive, shape, true)
}

fn write(ftl: &mut Ftl, units: Units, byte: u8) {
    let contents = &mut |_: u32| Some(vec![byte; 512].into());
    ftl.write(units, Hint::None, ProgramCause::Host, contents, 0).expect("space");
}

/// Two addresses lead to a unit that is being moved when the host writes one of them. The copy that is moved names the other one
/// alone, so the old unit must stay until the new data is programmed, too.
#[test]
fn a_unit_of_two_addresses_awaits_the_successors_of_both() {
    let mut ftl = ftl();
    write(&mut ftl, Units::new(0, 16), 1);
    ftl.remap(Units::new(0, 1), 20, true, 0).expect("space in the log");
    let end = ftl.flush_log(0).expect("space");
    ftl.advance_to(end);
    let physical = ftl.space.map().in_flash(0).expect("a unit in the flash");
    let block = ftl.shape.block_of(physical);
    ftl.move_units(block, 0, ProgramCause::Collected, 2, end).expect("space");
    assert!(matches!(ftl.space.map().locate(20), Location::Buffered(_)), "it is being moved");
    write(&mut ftl, Units::new(0, 1), 2);
    let slot = ftl.collector.slots().next().expect("a slot of moved units");
    ftl.program_slot(slot, end).expect("space");
    assert!(ftl.space.blocks().awaits_successor(block), "the new data is not programmed");
    ftl.audit().expect("tables that agree");
    let mut cut = ftl.clone();
    cut.power_cut(cut.nand.idle_at());
    let held = |ftl: &Ftl, unit| ftl.bytes(unit).map(|bytes| bytes[0]);
    assert_eq!((held(&cut, 0), held(&cut, 20)), (Some(1), Some(1)));
    let end = ftl.flush(end).expect("space");
    assert!(!ftl.space.blocks().awaits_successor(block));
    ftl.power_cut(end);
    assert_eq!((held(&ftl, 0), held(&ftl, 20)), (Some(2), Some(1)));
}
