//! What a volume reports of itself and of its files.

use crate::{BLOCK, Fixture, SIZE};
use fragmend_layout::FileId;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Size and free space are what they are, also after space was allocated.
pub fn size_and_free_space_are_true(fixture: &dyn Fixture) {
    for name in ["first", "second"] {
        let (volume, space) = (fixture.volume(), fixture.space());
        assert_eq!(volume.total_bytes(), space.total, "its size");
        let free = volume.free_bytes().expect("its free space");
        assert!(free.abs_diff(space.free) <= fixture.slack(), "{free} bytes free, {space:?}");
        drop(volume);
        fixture.fragmented(name, 8 * SIZE);
        let used = space.free - fixture.space().free;
        assert!(used + fixture.slack() >= 8 * SIZE, "{used} bytes used for a file");
    }
}

/// Each file is shown once, with its identity and a path that leads to it.
pub fn every_file_is_shown_once(fixture: &dyn Fixture) {
    let paths = ["a", "b", "c"].map(|name| fixture.fragmented(name, SIZE));
    let mut shown: Vec<(PathBuf, FileId)> = Vec::new();
    let all = fixture.volume().files(&mut |path, file| {
        shown.push((path.to_owned(), file.expect("nothing is in the way")));
    });
    all.expect("all files are shown");
    let files: BTreeSet<_> = shown.iter().map(|(_, file)| (file.device, file.inode)).collect();
    assert_eq!(files.len(), shown.len(), "a file is shown twice: {shown:?}");
    for path in paths {
        let found = shown.iter().find(|(shown, _)| *shown == path);
        assert_eq!(
            found.map(|(_, file)| *file),
            Some(fixture.identity(&path)),
            "shown at {path:?}"
        );
    }
}

/// An open file knows its path and its size.
pub fn an_open_file_knows_its_path_and_size(fixture: &dyn Fixture) {
    for (name, size) in [("file", SIZE), ("odd-size", 2 * BLOCK + 100)] {
        let path = fixture.fragmented(name, size);
        let volume = fixture.volume();
        let file = volume.open(fixture.identity(&path), &path).expect("an open file");
        assert_eq!(file.path(), Some(path), "its path");
        assert_eq!(file.size(), Ok(size), "its size");
    }
}
