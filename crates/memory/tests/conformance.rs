//! The volume in memory through the conformance suite.

mod support;

use fragmend_conformance::cases;
use fragmend_layout::{ByteRange, Volume};
use fragmend_memory::{Memory, World};
use std::path::Path;
use std::rc::Rc;
use support::MemoryFixture;

macro_rules! conforms {
    ($($case:ident)*) => {
        $(#[test] fn $case() { cases::$case(&MemoryFixture::new()) })*
    };
}

fragmend_conformance::cases_in_steps! { conforms what_is_shared_moves_only_if_that_is_asked_for }

/// A mover asks for the layout of every range that it moves, and a file may have hundreds of thousands of extents.
#[test]
fn the_layout_of_a_range_has_its_extents_alone() {
    let memory = Memory::new(&Rc::new(World::new()), 7, 4096, 400);
    let places: Vec<Option<u64>> = (0..200).map(|block| Some(2 * block)).collect();
    let file = memory.add(Path::new("/memory/file"), 200 * 4096, &places);
    assert_eq!(memory.layout(file, Path::new("")).unwrap().extents().len(), 200);
    let mut open = memory.open(file, Path::new("")).unwrap();
    let part = open.layout(ByteRange::at(50 * 4096, 4 * 4096)).unwrap();
    let physical: Vec<u64> = part.extents().iter().map(|extent| extent.physical / 4096).collect();
    assert_eq!(physical, [100, 102, 104, 106]);
}
