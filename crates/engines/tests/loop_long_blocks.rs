//! Blocks larger than a page, and than the shortest turn: the kernel takes over whole blocks, and does not
//! report what it leaves out.

mod support;

use fragmend_plan::Policy;
use fragmend_sys::process::kernel_release;
use fragmend_testbed::file_system::XFS_64K;
use fragmend_testbed::fragment::{content, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::tools::extents;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{apply, plan};

const SIZE: u64 = 8 << 20;
const BLOCK: u64 = 64 << 10;

/// A file without adjacent blocks: another file has the block behind each.
fn in_fragments(path: &Path) {
    let file = File::create_new(path).unwrap();
    let dummy = File::create_new(path.with_extension("dummy")).unwrap();
    for at in (0..SIZE).step_by(BLOCK as usize) {
        for file in [&file, &dummy] {
            fallocate(file, FallocateFlags::empty(), at, BLOCK).unwrap();
        }
    }
    let mut bytes = vec![0; SIZE as usize];
    content(0, &mut bytes);
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn loop_long_blocks_move_as_a_whole() {
    // Before that, no blocks are larger than a page.
    if kernel_release().is_some_and(|release| release < (6, 12)) {
        return;
    }
    let image = Image::of(&XFS_64K, 640 << 20);
    let path = image.path().join("file");
    in_fragments(&path);
    image.sync();
    let before = extents(&path);
    assert!(before > 20, "{before}");
    // Others write to it, so that turns become shorter and shorter.
    let over = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (path, over) = (path.clone(), Arc::clone(&over));
        move || {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let mut bytes = [0; 4096];
            while !over.load(Ordering::Relaxed) {
                file.read_exact_at(&mut bytes, 0).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        }
    });
    let made = plan(&[&path], Policy::WholeFile);
    let (mut summary, mut receipts) = apply(&made);
    over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    let mut moved = 0;
    for _ in 0..2 {
        let now = extents(&path);
        for receipt in &receipts {
            moved += receipt.moved_bytes;
            let was = receipt.extents_after.unwrap();
            assert!(was <= now && (receipt.moved_bytes == 0 || now < before), "{now}: {receipt:?}");
        }
        assert_eq!(summary.moved_bytes, receipts.iter().map(|r| r.moved_bytes).sum::<u64>());
        (summary, receipts) = apply(&made);
    }
    assert!(moved >= SIZE, "{moved}: {receipts:?}");
    assert_eq!(extents(&path), 1, "{receipts:?}");
    assert!(is_intact(&path, SIZE).unwrap());
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}
