//! XFS with `exchange=1`: ranges are exchanged, and those that cannot be are shared, or left alone with
//! a reason. Each receipt is checked for what moved the bytes: no fallback counts as an exchange.

mod support;

use fragmend_apply::{Outcome, Receipt};
use fragmend_crash::slow::SlowMount;
use fragmend_engines::primitive::{COMMIT_RANGE, DEDUPE};
use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{MAY_BE_SHARED, XFS, XFS_EXCHANGE, XFS_EXCHANGE_ALONE};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::replay::{self, Aligned};
use fragmend_testbed::tools::extents;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{SIZE, apply, fragmented, plan};

const DISK: u64 = 320 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Moves one file, and returns its receipt.
fn moved(path: &Path) -> Receipt {
    let (summary, mut receipts) = apply(&plan(&[path], Policy::WholeFile));
    assert_eq!(receipts.len(), 1, "{summary:?}");
    let receipt = receipts.remove(0);
    if let Some(primitive) = receipt.primitive.clone() {
        let by: u64 = summary.moved_by_primitive.values().sum();
        assert_eq!((by, summary.moved_bytes), (receipt.moved_bytes, receipt.moved_bytes));
        assert!(summary.moved_by_primitive.keys().all(|name| primitive.contains(name)));
        assert_eq!(summary.ranges_by_fallback, u64::from(receipt.fallback.is_some()));
    }
    receipt
}

fn by(receipt: &Receipt) -> (Outcome, Option<&str>, Option<&str>) {
    (receipt.outcome, receipt.primitive.as_deref(), receipt.fallback.as_deref())
}

fn stamps(path: &Path) -> [(i64, i64); 2] {
    let m = path.metadata().unwrap();
    [(m.mtime(), m.mtime_nsec()), (m.ctime(), m.ctime_nsec())]
}

#[test]
fn loop_ranges_are_exchanged_and_leave_no_trace() {
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        let image = Image::of(file_system, DISK);
        let file = fragmented(&image, "file");
        // A partial last block, and set-user-id, which a write by root keeps.
        let odd = image.path().join("odd");
        interleaved(&odd, 300_001, &[4096], true).unwrap();
        fs::set_permissions(&odd, fs::Permissions::from_mode(0o6755)).unwrap();
        image.sync();
        for (path, size) in [(&file, SIZE), (&odd, 300_001)] {
            let before = (stamps(path), path.metadata().unwrap().mode());
            let receipt = moved(path);
            assert_eq!(by(&receipt), (Outcome::Moved, Some(COMMIT_RANGE), None), "{receipt:?}");
            assert_eq!(
                (extents(path), receipt.moved_bytes),
                (1, size.next_multiple_of(4096)),
                "{receipt:?} {}",
                run("filefrag", ["-v".as_ref(), path.as_os_str()])
            );
            let after = || (stamps(path), path.metadata().unwrap().mode());
            assert_eq!(after(), before, "warm");
            assert!(is_intact(path, size).unwrap());
            image.fsck();
            assert_eq!(after(), before, "cold");
            assert!(is_intact(path, size).unwrap());
        }
    }
    let image = Image::of(&XFS, DISK);
    let receipt = moved(&fragmented(&image, "file"));
    assert_eq!(by(&receipt), (Outcome::Moved, Some(DEDUPE), None), "{receipt:?}");
}

#[test]
fn loop_capabilities_stay() {
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        let image = Image::of(file_system, DISK);
        let file = fragmented(&image, "program");
        run("setcap", ["cap_net_raw+ep".as_ref(), file.as_os_str()]);
        let has = || run("getcap", [&file]).trim().to_owned();
        let (before, set, fragments) = (stamps(&file), has(), extents(&file));
        assert!(set.ends_with("cap_net_raw=ep"), "{set}");
        let receipt = moved(&file);
        if file_system.name == XFS_EXCHANGE.name {
            assert_eq!(
                (receipt.outcome, receipt.primitive.as_deref()),
                (Outcome::Moved, Some(DEDUPE))
            );
            let why = receipt.fallback.as_deref().unwrap_or_default();
            assert!(why.contains("security.capability"), "{receipt:?}");
            assert_eq!(extents(&file), 1);
        } else {
            assert_eq!(receipt.reason, Some(SkipReason::Unsupported), "{receipt:?}");
            let why = receipt.detail.as_deref().unwrap_or_default();
            assert!(why.contains("security.capability") && why.contains("share"), "{why}");
            assert_eq!((extents(&file), receipt.moved_bytes), (fragments, 0));
        }
        assert_eq!((stamps(&file), has()), (before, set));
        image.fsck();
        assert!(is_intact(&file, SIZE).unwrap());
    }
}

/// A file that a program writes to all the time, but not in the planned range; and one that is changed all
/// the time by its name, which a lease does not show, but the file's times do.
#[test]
fn loop_a_file_that_changes_is_shared_or_left_alone() {
    let all = [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE].map(|on| [(on, true), (on, false)]);
    for (file_system, opens) in all.concat() {
        let image = Image::of(file_system, DISK);
        let file = fragmented(&image, "file");
        OpenOptions::new().write(true).open(&file).unwrap().write_all_at(b"!", SIZE).unwrap();
        image.sync();
        let made = plan(&[&file], Policy::WholeFile);
        let over = AtomicBool::new(false);
        let (summary, receipts) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let writer = opens.then(|| OpenOptions::new().write(true).open(&file).unwrap());
                let mut mode = 0o600;
                while !over.load(Ordering::Relaxed) {
                    match &writer {
                        Some(writer) => writer.write_all_at(b"!", SIZE).unwrap(),
                        None => {
                            mode ^= 0o100;
                            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
                        }
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            let applied = apply(&made);
            over.store(true, Ordering::Relaxed);
            applied
        });
        let receipt = &receipts[0];
        if file_system.name == XFS_EXCHANGE.name {
            let why = MAY_BE_SHARED[usize::from(!opens)];
            assert_eq!((receipt.outcome, receipt.fallback.as_deref()), (Outcome::Moved, Some(why)));
            // A turn may be over between two changes.
            let by = receipt.primitive.as_deref().unwrap_or_default();
            assert!(by == DEDUPE || !opens && by.ends_with(DEDUPE), "{receipt:?}");
            assert_eq!(summary.ranges_by_fallback, 1);
        } else {
            assert_eq!(receipt.reason, Some(SkipReason::Busy), "{receipt:?}");
            assert_eq!(receipt.moved_bytes, 0);
        }
        let mut bytes = vec![0; SIZE as usize + 1];
        File::open(&file).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes.pop(), Some(b'!'));
        let mut expected = vec![0; SIZE as usize];
        fragmend_testbed::fragment::content(0, &mut expected);
        assert!(bytes == expected);
        image.fsck();
    }
}

/// A direct write that was begun before the file is sampled, and reaches the disk long after: its
/// times are those of the sample. The program that writes has the file open, so it is not exchanged.
#[test]
fn loop_direct_writes_in_flight_across_the_sample_stay() {
    const AT: u64 = SIZE / 2;
    for file_system in [&XFS_EXCHANGE, &XFS_EXCHANGE_ALONE] {
        let mut bed = SlowMount::new(file_system, DISK, "");
        let file = bed.root().join("file");
        interleaved(&file, SIZE, &[4096], true).unwrap();
        bed.sync();
        let made = plan(&[&file], Policy::WholeFile);
        let hold = bed.gate().hold(|r| r.carries(b"in flight"));
        let receipts = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let file = OpenOptions::new()
                    .write(true)
                    .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
                    .open(&file)
                    .unwrap();
                let mut bytes = Aligned::new(4096);
                bytes.bytes()[..9].copy_from_slice(b"in flight");
                file.write_all_at(bytes.bytes(), AT).unwrap();
            });
            assert!(hold.wait_for(1, PATIENCE), "the write has not arrived");
            let mover = scope.spawn(|| apply(&made).1);
            // Long enough to copy the file, if the write were not waited for.
            std::thread::sleep(Duration::from_millis(400));
            assert!(!writer.is_finished());
            hold.release();
            writer.join().unwrap();
            mover.join().unwrap()
        });
        if file_system.name == XFS_EXCHANGE.name {
            let shared = (Outcome::Moved, Some(DEDUPE), Some(MAY_BE_SHARED[0]));
            assert_eq!(by(&receipts[0]), shared, "{receipts:?}");
        } else {
            assert_eq!(receipts[0].reason, Some(SkipReason::Busy), "{receipts:?}");
        }
        for round in ["warm", "cold"] {
            let mut said = Aligned::new(4096);
            let open = replay::open(&file, replay::Mode::Direct).unwrap();
            open.read_exact_at(said.bytes(), AT).unwrap();
            assert_eq!(&said.bytes()[..9], b"in flight", "{round}");
            let mut said = [0; 9];
            File::open(&file).unwrap().read_exact_at(&mut said, AT).unwrap();
            assert_eq!(&said, b"in flight", "{round}");
            drop(open);
            bed.unmount();
            bed.mount();
        }
    }
}
