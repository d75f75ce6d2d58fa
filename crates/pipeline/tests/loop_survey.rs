//! A survey that is made again shows the same accesses on the layouts as they are now.

use fragmend_layout::{Access, FileAccesses, FileId, Op};
use fragmend_pipeline::{survey, unobserved};
use fragmend_sys::inode;
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SIZE: u64 = 1 << 20;

/// One read of the whole file.
fn read_of(path: &Path) -> FileAccesses {
    let file = File::open(path).unwrap();
    let (found, generation) = (file.metadata().unwrap(), inode::generation_or_zero(&file).unwrap());
    let access = Access {
        offset: 0,
        length: SIZE as u32,
        count: 1,
        thread: 0,
        op: Op::Read,
        direct: true,
        windowed: false,
    };
    FileAccesses {
        path: Some(path.to_owned()),
        accesses: vec![access],
        ranks: vec![1],
        ..FileAccesses::of(FileId { device: found.dev(), inode: found.ino(), generation })
    }
}

#[test]
fn loop_a_survey_is_made_again_with_the_same_accesses() {
    let image = Image::ext4(64 << 20);
    let paths = ["stays", "is-written-anew", "vanishes"].map(|name| image.path().join(name));
    for path in &paths {
        interleaved(path, SIZE, &[4096], true).unwrap();
    }
    image.sync();
    let roots = [image.path().to_owned()];
    let files = paths.iter().map(|path| read_of(path)).collect();
    let mut first = survey::traced(files, &[], &roots, &unobserved).unwrap();
    (first.ordered, first.unread) = (true, 7);
    assert_eq!(first.files.len(), 3);
    assert!(first.memory_bytes() > 3 * 256 * 24, "{}", first.memory_bytes());

    fs::write(&paths[1], vec![1; SIZE as usize]).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    image.sync();
    let second = survey::again(first.clone(), &roots, &unobserved).unwrap();
    assert_eq!((second.ordered, second.unread, second.files.len()), (true, 7, 2));
    let of = |survey: &fragmend_pipeline::Survey, path: &Path| {
        let file = survey.files.iter().find(|file| file.path == path).unwrap();
        ((file.accesses.clone(), file.ranks.clone()), file.layout.extents().len())
    };
    assert_eq!(of(&first, &paths[0]), of(&second, &paths[0]));
    assert_eq!(of(&second, &paths[0]).0.1, [1]);
    let (then, now) = (of(&first, &paths[1]), of(&second, &paths[1]));
    assert!(then.0 == now.0 && then.1 > 100 && now.1 < 50, "{} {}", then.1, now.1);
    assert_eq!(second.left_alone.len(), 1);
}
