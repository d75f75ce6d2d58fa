//! Answers of file systems: FIEMAP, Btrfs's trees, XFS's inodes and owners of blocks. The loops over
//! answers end whatever the kernel returns, and the resulting layouts keep their invariants.

use super::layout;
use crate::bytes::with_file;
use crate::kernel::answering;
use fragmend_layout::{ByteRange, FsKind};
use fragmend_scan::xfs::Map;
use fragmend_scan::{FileSystem, fiemap};
use fragmend_sys::{btrfs, bulkstat, fsmap, xfs};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The most elements of one answer, of any kind.
const PAGE: usize = 1024;

/// FIEMAP, and Btrfs's answers about compressed extents.
pub fn fiemap(input: &[u8]) -> bool {
    with_file(&[], |file| {
        let (all, asked) = answering(input, || fiemap::layout_of(&file.file));
        let Ok(all) = all else { return false };
        assert!(all.extents().len() <= asked * PAGE);
        layout::check(&all, None);
        let middle = ByteRange { start: 1 << 20, end: 1 << 30 };
        let space = &mut Default::default();
        let within = || fiemap::layout_within(space, &file.file, middle, false);
        if let (Ok(part), _) = answering(input, within) {
            layout::check(&part, None);
        }
        true
    })
}

/// Subvolumes, and compressed extents.
pub fn btrfs(input: &[u8]) -> bool {
    with_file(&[], |file| {
        let (volumes, asked) = answering(input, || btrfs::subvolumes(&file.file));
        let many = volumes.as_ref().map_or(0, Vec::len);
        assert!(many <= asked * PAGE);
        let range = 4096..1 << 40;
        let (extents, _) = answering(input, || btrfs::compressed(&file.file, 257, range.clone()));
        for extent in extents.iter().flatten() {
            assert!(extent.logical.saturating_add(extent.length) > range.start, "{extent:?}");
        }
        volumes.is_ok() || extents.is_ok()
    })
}

/// XFS's answers about its geometry, its inodes, and the owners of its blocks.
pub fn xfs(input: &[u8]) -> bool {
    thread_local! {
        // Any directory that is a mount point; nothing is to be written back there.
        static ANY: FileSystem = {
            let proc = File::open("/proc").expect("/proc");
            let dev = proc.metadata().expect("/proc").dev();
            let mut any = FileSystem::of(&proc, dev).expect("/proc");
            any.kind = FsKind::Xfs;
            any
        };
    }
    with_file(&[], |file| {
        let _ = answering(input, || (xfs::features(&file.file), xfs::attributes(&file.file)));
        let mut inodes = Vec::new();
        let (all, asked) = answering(input, || {
            bulkstat::each(&file.file, 0, |inode| {
                inodes.push(inode.number);
                true
            })
        });
        assert!(inodes.len() <= asked * PAGE);
        let _ = answering(input, || bulkstat::inode(&file.file, 128));
        let mut records = 0;
        let (owners, asked) = answering(input, || fsmap::each(&file.file, |_| records += 1));
        assert!(records <= asked * PAGE);
        let (map, _) = ANY.with(|any| answering(input, || Map::read(any)));
        if let Ok(map) = &map {
            for number in inodes {
                if let Some(found) = map.layout(number) {
                    layout::check(&found, None);
                }
            }
        }
        all.is_ok() || owners.is_ok() || map.is_ok()
    })
}
