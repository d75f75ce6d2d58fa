//! The layout of a range has the extents of that range alone: a mover asks for it for every range that it moves, and a file may have
//! hundreds of thousands of them.

use crate::support::drives;
use fragmend_layout::ByteRange;
use fragmend_simfs::cow::{self, Cow};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::segments::{LogStructured, Settings};
use std::path::Path;
use std::rc::Rc;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 200;

/// Of each kind, with extents of one block.
fn file_systems() -> [Rc<dyn FileSystem>; 3] {
    let machine = drives::large();
    let options = inplace::Options { reservation: false, ..inplace::Options::of(&machine) };
    let ext4 = InPlace::format(&machine, &options).expect("it is made");
    let machine = drives::large();
    let btrfs = Cow::format(&machine, &cow::Options::of(&machine)).expect("it is made");
    let f2fs = LogStructured::format(&drives::large(), &Settings::default()).expect("it is made");
    [Rc::new(ext4), Rc::new(btrfs), Rc::new(f2fs)]
}

#[test]
fn the_layout_of_a_range_has_its_extents_alone() {
    for files in file_systems() {
        let path = Path::new("/file");
        let [file, other] =
            [path, Path::new("/other")].map(|path| files.create(path).expect("a new file"));
        for block in 0..BLOCKS {
            for file in [file, other] {
                let range = ByteRange::at(block * BLOCK, BLOCK);
                files.write(file, range, Access::Direct).expect("space");
            }
        }
        let all = files.layout(file, path).expect("its layout");
        assert_eq!(all.extents().len() as u64, BLOCKS, "{}", files.label());
        let mut open = files.open(file, path).expect("it is there");
        let range = ByteRange::at(50 * BLOCK, 4 * BLOCK);
        let part = open.layout(range).expect("its layout");
        assert_eq!(part.extents().len(), 4, "{}", files.label());
        assert_eq!(part.within(range).collect::<Vec<_>>(), all.within(range).collect::<Vec<_>>());
    }
}
