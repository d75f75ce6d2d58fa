//! What only Btrfs has: files without checksums, subvolumes, snapshots. Compressed files are in
//! `loop_btrfs_compressed`.

mod support;

use fragmend_apply::{Options, Rate};
use fragmend_layout::{Extent, SkipReason};
use fragmend_plan::{Policy, Settings};
use fragmend_testbed::file_system::{BTRFS, BTRFS_ZSTD};
use fragmend_testbed::fragment::{interleave, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::tools::{extents, sha256};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::btrfs::{btrfs, data_used, half_shared, snapshot};
use support::conformance::{looks, shared_bytes};
use support::{SIZE, apply, apply_with, fragmented, plan, plan_with, reasons, redirected};

#[test]
fn loop_files_without_checksums_and_subvolumes() {
    let image = &Image::of(&BTRFS_ZSTD, 512 << 20);
    let at = |name: &str| image.path().join(name);
    // A file without checksums is moved, and has none afterwards.
    fs::create_dir(at("nocow")).unwrap();
    run("chattr", ["+C".as_ref(), at("nocow").as_os_str()]);
    let nocow = fragmented(image, "nocow/file");
    // A subvolume has a device number of its own, which no mount shows; and so has a nested one.
    btrfs(&["subvolume", "create"], &[&at("volume")]);
    let inside = fragmented(image, "volume/file");
    btrfs(&["subvolume", "create"], &[&at("volume/nested")]);
    let nested = fragmented(image, "volume/nested/file");
    image.sync();
    for path in [&nocow, &inside, &nested] {
        let before = (looks(path), fs::read(path).unwrap());
        let (summary, _) = apply(&plan(&[path], Policy::WholeFile));
        assert_eq!((summary.skipped.len(), summary.moved_bytes), (0, SIZE), "{summary:?}");
        assert_eq!(extents(path), 1, "{path:?}");
        assert_eq!((looks(path), fs::read(path).unwrap()), before, "{path:?}");
    }
    let flags = fragmend_sys::inode::attributes(File::open(&nocow).unwrap()).unwrap();
    assert_ne!(flags & fragmend_sys::inode::flags::NOCOW, 0);
    image.fsck();
    for path in [&nocow, &inside, &nested] {
        assert!(is_intact(path, SIZE).unwrap(), "{path:?}");
    }
}

/// The kernel shares nothing between data with checksums and data without, and a copy has them as the mount says.
#[test]
fn loop_files_that_were_written_with_another_option_for_checksums_are_left_alone() {
    let image = &Image::of(&BTRFS, 256 << 20);
    for (then, now) in [("nodatasum", ""), ("", "nodatasum")] {
        image.unmount();
        image.mount_with(then);
        let file = fragmented(image, &format!("file{then}"));
        image.unmount();
        image.mount_with(now);
        let (summary, receipts) = apply(&plan(&[&file], Policy::WholeFile));
        assert_eq!(reasons(&summary, &file), [SkipReason::Unsupported], "{receipts:?}");
        assert!(receipts[0].detail.as_ref().is_some_and(|why| why.contains("nodatasum")));
        assert!(is_intact(&file, SIZE).unwrap());
    }
}

#[test]
fn loop_data_in_the_tree_and_space_never_written() {
    let image = &Image::of(&BTRFS, 256 << 20);
    let at = |name: &str| image.path().join(name);
    fs::write(at("inline"), vec![7; 1500]).unwrap();
    let template = plan(&[&fragmented(image, "template")], Policy::WholeFile);
    // Allocated, in many fragments, and unwritten.
    let (unwritten, dummy) = (File::create(at("unwritten")).unwrap(), at("unwritten.dummy"));
    let dummy = File::create(dummy).unwrap();
    for n in 0..64 {
        for file in [&unwritten, &dummy] {
            let how = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(file, how, n * 4096, 4096).unwrap();
        }
    }
    drop((unwritten, dummy));
    image.sync();
    let made = plan(&[&at("inline"), &at("unwritten")], Policy::WholeFile);
    assert_eq!(made.files, [], "nothing that is read from more than one place");
    for (name, reason) in
        [("inline", SkipReason::SizeChanged), ("unwritten", SkipReason::SizeChanged)]
    {
        let before = fs::read(at(name)).unwrap();
        let (summary, _) = apply(&redirected(&template, &at(name)));
        assert_eq!(reasons(&summary, &at(name)), [reason], "{summary:?}");
        assert_eq!((summary.moved_bytes, fs::read(at(name)).unwrap()), (0, before));
    }
    // A plan may be edited: ranges that fit are checked for what they contain.
    for (name, length) in [("inline", 4096), ("unwritten", 64 * 4096)] {
        let mut made = redirected(&template, &at(name));
        made.files[0].ranges[0].length = length;
        let (summary, _) = apply(&made);
        assert_eq!(reasons(&summary, &at(name)), [SkipReason::LayoutChanged], "{summary:?}");
    }
    image.fsck();
}

/// Bytes of a file that it shares with others, by `btrfs filesystem du`.
fn set_shared(path: &Path) -> u64 {
    let said = btrfs(&["filesystem", "du", "--raw", "-s"], &[path.parent().unwrap()]);
    let line = said.lines().last().expect("a line of figures");
    let of_line: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    of_line[0] - of_line[1] // total less exclusive
}

#[test]
fn loop_what_a_snapshot_shares_stays_shared() {
    for file_system in [&BTRFS, &BTRFS_ZSTD] {
        let image = &Image::of(file_system, 512 << 20);
        let (file, snap) = half_shared(image);
        let used = data_used(image);
        let before = (sha256(&snap), looks(&snap), looks(&file), set_shared(&file));
        let places = |path: &Path| shared_extents(path);
        let where_it_lay = (places(&file), places(&snap));
        assert_eq!(where_it_lay.0, where_it_lay.1);
        // What was written to the file since is its own, and what it has released is the snapshot's.
        let made = plan(&[&file, &snap], Policy::WholeFile);
        assert_eq!((made.summary.bytes_to_move, made.summary.space_cost_bytes), (SIZE, 0));
        assert_eq!(made.summary.left_shared_bytes, SIZE, "half of each");
        let (summary, receipts) = apply(&made);
        assert_eq!((summary.moved_bytes, summary.space_cost_bytes), (SIZE, 0), "{summary:?}");
        assert!(receipts.iter().all(|r| r.extents_after == Some(1)), "{receipts:?}");
        assert_eq!(receipts.len(), 2);

        assert!(data_used(image) <= used, "{used} bytes used, then {}", data_used(image));
        assert_eq!((places(&file), places(&snap)), where_it_lay);
        assert_eq!((sha256(&snap), looks(&snap), looks(&file), set_shared(&file)), before);
        image.fsck();
        assert!(is_intact(&file, SIZE).unwrap() && is_intact(&snap, SIZE).unwrap());
    }
}

/// The extents that a file shares with others.
fn shared_extents(path: &Path) -> Vec<Extent> {
    let layout = fragmend_scan::layout_of(File::open(path).unwrap()).unwrap();
    layout.extents().iter().filter(|e| e.kind.is_shared()).copied().collect()
}

#[test]
fn loop_what_a_snapshot_shares_moves_where_that_is_asked_for() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let (file, snap) = half_shared(image);
    let used = data_used(image);
    let before = (sha256(&snap), looks(&snap), extents(&snap));
    let unshare = Settings { policy: Policy::WholeFile, unshare: true, ..Settings::default() };
    let made = plan_with(&[&file], &unshare);
    assert_eq!((made.summary.bytes_to_move, made.summary.space_cost_bytes), (SIZE, SIZE / 2));
    assert!(made.summary.verdict.contains("would unshare 512.0 KiB"), "{:?}", made.summary);
    // The floor includes the copy: there is space for everything else.
    let free = rustix::fs::statvfs(image.path()).map(|s| s.f_bavail * s.f_frsize).unwrap();
    let options = Options { unshare: true, rate: Rate::Unlimited, ..Options::default() };
    let floor = Options { free_floor_bytes: Some(free - SIZE / 2), ..options.clone() };
    let (summary, _) = apply_with(&made, &floor);
    assert_eq!(reasons(&summary, &file), [SkipReason::FreeSpaceFloor], "{summary:?}");

    let (summary, _) = apply_with(&made, &options);
    assert_eq!((summary.moved_bytes, summary.space_cost_bytes), (SIZE, SIZE / 2), "{summary:?}");
    assert_eq!(data_used(image), used + SIZE / 2, "what was said before");
    assert_eq!((shared_bytes(&file), shared_bytes(&snap), extents(&file)), (0, 0, 1));
    assert_eq!((sha256(&snap), looks(&snap), extents(&snap)), before);
    image.fsck();
    assert!(is_intact(&file, SIZE).unwrap() && is_intact(&snap, SIZE).unwrap());
}

#[test]
fn loop_read_only_snapshots_are_left_alone() {
    let image = &Image::of(&BTRFS, 512 << 20);
    let at = |name: &str| image.path().join(name);
    btrfs(&["subvolume", "create"], &[&at("source")]);
    let file = fragmented(image, "source/file");
    image.sync();
    snapshot(&at("source"), &at("snap"), &[]);
    // The snapshot alone has the blocks now, so they are not shared.
    fs::remove_file(&file).unwrap();
    image.sync();
    let kept = at("snap/file");
    let lay = extents(&kept);
    assert_eq!(shared_bytes(&kept), 0);
    let made = plan(&[&kept], Policy::WholeFile);
    assert_eq!(made.summary.bytes_to_move, SIZE);
    let read_only = |yes: &str| {
        run("btrfs", ["property", "set", at("snap").to_str().unwrap(), "ro", yes]);
    };
    read_only("true");
    let refused = plan(&[&kept], Policy::WholeFile);
    assert_eq!((refused.files.len(), refused.left_alone.len()), (0, 1));
    assert_eq!(refused.left_alone[0].reason, "read only");
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &kept), [SkipReason::ReadOnly], "{summary:?}");
    assert_eq!((extents(&kept), summary.moved_bytes), (lay, 0));
    read_only("false");
    let (summary, _) = apply(&made);
    assert_eq!((summary.moved_bytes, extents(&kept)), (SIZE, 1), "{summary:?}");
    // A snapshot of a snapshot, inside it.
    snapshot(&at("snap"), &at("snap/nested"), &[]);
    let nested = at("snap/nested/file");
    let own = File::options().write(true).open(&nested).unwrap();
    let dummy = File::create(at("dummy")).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&own, hole, 0, SIZE).unwrap();
    interleave(&own, &dummy, 0, SIZE, &[4096]).unwrap();
    own.write_all_at(b"its own", 100).unwrap();
    drop((own, dummy));
    image.sync();
    let (summary, _) = apply(&plan(&[&nested], Policy::WholeFile));
    assert_eq!((summary.moved_bytes, extents(&nested)), (SIZE, 1), "{summary:?}");
    image.fsck();
    assert!(is_intact(&kept, SIZE).unwrap());
    let mut said = [0; 7];
    File::open(&nested).unwrap().read_exact_at(&mut said, 100).unwrap();
    assert_eq!(&said, b"its own");
}
