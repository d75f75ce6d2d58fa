//! What only XFS or only Btrfs has: each kind of its files is mended or left alone as it must be.

mod support;

use fragmend_layout::{ExtentKind, SkipReason};
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{BTRFS_ZSTD, XFS, XFS_PLAIN};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::extents;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::conformance::looks;
use support::{apply, fragmented, plan, reasons};

#[test]
fn loop_btrfs_has_files_without_checksums_subvolumes_and_compression() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let at = |name: &str| image.path().join(name);
    let btrfs = |args: &[&str], path: &Path| {
        run("btrfs", args.iter().map(AsRef::as_ref).chain([path.as_os_str()]));
    };
    // A file without checksums keeps being one, and is mended.
    fs::create_dir(at("nocow")).unwrap();
    run("chattr", ["+C".as_ref(), at("nocow").as_os_str()]);
    let nocow = fragmented(image, "nocow/file");
    // A subvolume has a device number of its own, which no mount shows.
    btrfs(&["subvolume", "create"], &at("volume"));
    let inside = fragmented(image, "volume/file");
    // What a snapshot shares stays shared.
    btrfs(&["subvolume", "create"], &at("source"));
    let source = fragmented(image, "source/file");
    image.sync();
    run(
        "btrfs",
        [
            "subvolume".as_ref(),
            "snapshot".as_ref(),
            at("source").as_os_str(),
            at("snap").as_os_str(),
        ],
    );
    // What is compressed is left alone, and stays as small as it is.
    let squeezed = at("squeezed");
    let other = at("other");
    for n in 0..64u64 {
        for path in [&squeezed, &other] {
            let file = File::options().create(true).append(true).open(path).unwrap();
            file.write_all_at(&vec![n as u8; 32 << 10], n * (32 << 10)).unwrap();
            file.sync_all().unwrap();
        }
    }
    image.sync();
    let encoded = |path: &Path| {
        let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
        layout.extents().iter().filter(|e| e.kind == ExtentKind::Encoded).count()
    };
    assert_eq!(encoded(&squeezed), 64);

    for (path, moves) in [(&nocow, true), (&inside, true), (&source, false), (&squeezed, false)] {
        let before = (looks(path), fs::read(path).unwrap(), extents(path));
        let (summary, _) = apply(&plan(&[path], Policy::WholeFile));
        assert_eq!(summary.ranges_moved > 0, moves, "{path:?}: {summary:?}");
        if moves {
            assert_eq!(extents(path), 1, "{path:?}");
        } else {
            assert_eq!((summary.moved_bytes, extents(path)), (0, before.2), "{path:?}");
        }
        assert_eq!((looks(path), fs::read(path).unwrap()), (before.0, before.1), "{path:?}");
    }
    let flags = fragmend_sys::inode::attributes(File::open(&nocow).unwrap()).unwrap();
    assert_ne!(flags & fragmend_sys::inode::flags::NOCOW, 0);
    assert_eq!(encoded(&squeezed), 64);
    image.fsck();
}

#[test]
fn loop_xfs_files_that_are_not_to_be_touched() {
    for file_system in [&XFS, &XFS_PLAIN] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let made = plan(&[&file], Policy::WholeFile);
        run("xfs_io", ["-c".as_ref(), "chattr +f".as_ref(), file.as_os_str()]);
        let (summary, _) = apply(&made);
        assert_eq!(reasons(&summary, &file), [SkipReason::NoDefrag], "{summary:?}");
    }
}
