//! What only XFS has: each kind of its files is moved or left alone as it must be.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_sys::dedupe::{self, Shared};
use fragmend_testbed::file_system::{XFS, XFS_PLAIN};
use fragmend_testbed::image::{Image, run};
use support::{apply, fragmented, plan, reasons};

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
