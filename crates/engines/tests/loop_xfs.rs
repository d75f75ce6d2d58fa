//! What only XFS has: each kind of its files is moved or left alone as it must be.

mod support;

use fragmend_engines::{Choice, engine};
use fragmend_layout::{ByteRange, Fate, Moved, SkipReason, Target};
use fragmend_plan::Policy;
use fragmend_sys::dedupe::{self, Shared};
use fragmend_sys::mounts;
use fragmend_testbed::file_system::{XFS, XFS_PLAIN};
use fragmend_testbed::fragment::{content, holds, interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use support::pace::relocate_targets;
use support::{apply, fragmented, identity, plan, reasons};

/// Bytes of a range that is copied as a whole before it is taken over, and the distance of two of them.
const RANGE: u64 = 128 << 10;
const APART: u64 = 2 * RANGE;

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

/// The kernel reports that all was done even if it has stopped half way, so what is shared is checked.
#[test]
fn loop_what_was_not_taken_over_is_not_called_shared() {
    const HALF: u64 = 512 << 10;
    let image = Image::of(&XFS, 320 << 20);
    let file = fragmented(&image, "file");
    let donor = image.path().join("donor");
    // Copied by reads and writes: nothing of it is shared.
    std::fs::write(&donor, std::fs::read(&file).unwrap()).unwrap();
    image.sync();
    let target = std::fs::File::options().read(true).write(true).open(&file).unwrap();
    let donor = std::fs::File::open(donor).unwrap();
    assert_eq!(dedupe::shared_bytes(&donor, 0, &target, 0, 2 * HALF).unwrap(), 0);
    let done = dedupe::share(&donor, 0, &target, 0, HALF).unwrap();
    assert_eq!(done, Shared::Bytes(HALF));
    assert_eq!(dedupe::shared_bytes(&donor, 0, &target, 0, 2 * HALF).unwrap(), HALF);
    // A write to what was taken over.
    std::os::unix::fs::FileExt::write_all_at(&target, &[1; 4096], 8192).unwrap();
    target.sync_all().unwrap();
    assert_eq!(dedupe::shared_bytes(&donor, 0, &target, 0, HALF).unwrap(), 8192);
}

/// Moves ranges of a cold file to places in one extent each, as if each were in as many fragments as is said here;
/// calls `meanwhile` after the first step. Returns their fates, and the bytes that were written to the device
/// before.
fn relocated(
    image: &Image,
    fragments: &[u64],
    others_read: bool,
    meanwhile: impl FnOnce(&Path),
) -> (Vec<Fate>, u64) {
    let path = image.path().join("file");
    interleaved(&path, fragments.len() as u64 * APART, &[4096], true).unwrap();
    image.remount();
    let mount = mounts::of_path(&path).unwrap();
    let volume = engine::volume_for(&mount, &Choice::Native, false).unwrap();
    let mut file = volume.open(identity(&path), &path).unwrap_or_else(|skip| panic!("{skip:?}"));
    let target = |(n, fragments): (usize, &u64)| {
        let range = ByteRange::at(n as u64 * APART, RANGE);
        Target { range, fragments: *fragments, anew: false }
    };
    let targets: Vec<Target> = fragments.iter().enumerate().map(target).collect();
    let before = image.counters().written_bytes;
    let fates = relocate_targets(&mut *file, &targets, others_read, || meanwhile(&path)).unwrap();
    (fates, before)
}

fn has_moved(fate: &Fate) -> bool {
    matches!(fate, Fate::Begun(Moved { bytes: RANGE, skip: None, .. }))
}

/// While the kernel takes one range over, the device writes the next one, unless that one is to stay, or others read.
#[test]
fn loop_the_next_range_is_copied_ahead_if_it_is_to_move() {
    /// More than the log needs.
    const LOG: u64 = RANGE / 2;
    for (second, others_read) in [(32, false), (1, false), (32, true)] {
        let image = Image::of(&XFS, 320 << 20);
        let mut after_one = 0;
        let (fates, before) = relocated(&image, &[32, second], others_read, |_| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(300) {
                after_one = image.counters().written_bytes;
            }
        });
        let moves = second > 1;
        assert!(has_moved(&fates[0]) && has_moved(&fates[1]) == moves, "{fates:?}");
        let copied = if moves && !others_read { 2 * RANGE } else { RANGE };
        let ahead = after_one - before;
        assert!((copied..copied + LOG).contains(&ahead), "{ahead} bytes after one range");
        let path = image.path().join("file");
        assert!(is_intact(&path, 2 * APART).unwrap());
        image.fsck();
    }
}

/// What was copied ahead is old: the kernel sees that, and the range is copied once more.
#[test]
fn loop_what_is_written_after_a_copy_ahead_stays() {
    const AT: u64 = APART + 8192;
    let image = Image::of(&XFS, 320 << 20);
    let (fates, _) = relocated(&image, &[32; 3], false, |path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[7; 4096], AT).unwrap();
    });
    assert!(fates.iter().all(has_moved), "{fates:?}");
    let path = image.path().join("file");
    let written = |offset: u64, buffer: &mut [u8]| {
        content(offset, buffer);
        for (byte, at) in buffer.iter_mut().zip(offset..) {
            if (AT..AT + 4096).contains(&at) {
                *byte = 7;
            }
        }
    };
    assert!(holds(&path, 3 * APART, written).unwrap());
    image.fsck();
}
