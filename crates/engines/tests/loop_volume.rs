//! A mounted file system as a `Volume`: its properties, its files by identity, their layouts.

use fragmend_engines::Choice;
use fragmend_engines::engine::volume_for;
use fragmend_layout::{FileId, FsKind, SkipReason, Volume};
use fragmend_sys::mounts;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS};
use fragmend_testbed::fragment::interleaved;
use fragmend_testbed::image::Image;
use fragmend_testbed::tools::extents;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const SIZE: u64 = 1 << 20;

/// Every file that the volume shows, with its path.
fn shown(volume: &dyn Volume) -> HashMap<PathBuf, FileId> {
    let mut shown = HashMap::new();
    let visit = &mut |path: &std::path::Path, file: Result<FileId, _>| {
        let file = file.unwrap_or_else(|skip| panic!("{}: {skip:?}", path.display()));
        assert!(shown.insert(path.to_owned(), file).is_none(), "{} twice", path.display());
    };
    volume.files(visit).unwrap();
    shown
}

#[test]
fn loop_a_volume_shows_its_files_and_where_they_are() {
    let all = [(&EXT4, FsKind::Ext4), (&XFS, FsKind::Xfs), (&BTRFS, FsKind::Btrfs)];
    for (file_system, kind) in all {
        let image = Image::of(file_system, 400 << 20);
        let root = image.path();
        fs::create_dir(root.join("below")).unwrap();
        let (path, other) = (root.join("below/file"), root.join("other"));
        interleaved(&path, SIZE, &[4096], false).unwrap();
        fs::write(&other, b"other").unwrap();
        // A file with two names is shown once, and a link is not shown.
        fs::hard_link(&other, root.join("once more")).unwrap();
        std::os::unix::fs::symlink(&other, root.join("link")).unwrap();
        image.sync();
        let mount = mounts::of_path(root).unwrap();
        let volume = volume_for(&mount, &Choice::Native, false).unwrap();
        assert_eq!((volume.label(), volume.kind()), (root.display().to_string(), kind));
        assert_eq!(volume.block_bytes(), 4096);
        let free = volume.free_bytes().unwrap();
        assert!(free > SIZE && free < volume.total_bytes(), "{free}");
        assert!(volume.profile().is_some_and(|p| p.max_request_bytes >= 4096));

        let files = shown(&*volume);
        let numbered = |path: &PathBuf| {
            let inode = path.metadata().unwrap().ino();
            let found: Vec<_> = files.iter().filter(|(_, file)| file.inode == inode).collect();
            assert_eq!(found.len(), 1, "{}: {files:?}", path.display());
            *found[0].1
        };
        let (file, small) = (numbered(&path), numbered(&other));
        assert_eq!(files[&path], file);
        let layout = volume.layout(file, &path).unwrap();
        assert_eq!((layout.file, layout.size), (file, SIZE));
        let fragments = layout.fragments(fragmend_layout::ByteRange { start: 0, end: SIZE });
        assert_eq!(fragments, extents(&path), "{}", file_system.name);
        // Found by identity, wherever it is now.
        let moved = root.join("moved");
        fs::rename(&other, &moved).unwrap();
        fs::remove_file(root.join("once more")).unwrap();
        assert_eq!(volume.layout(small, &other).unwrap().size, 5);
        fs::remove_file(&moved).unwrap();
        fs::write(&other, b"another").unwrap();
        let gone = volume.layout(small, &other).unwrap_err().reason;
        assert!([SkipReason::IdentityChanged, SkipReason::Vanished].contains(&gone), "{gone:?}");
    }
}
