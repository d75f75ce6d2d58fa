//! What only XFS has: each kind of its files is mended or left alone as it must be.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::XFS;
use fragmend_testbed::image::{Image, run};
use support::{apply, fragmented, plan, reasons};

#[test]
fn loop_xfs_that_cannot_move_a_part_is_refused() {
    let image = Image::of(&fragmend_testbed::file_system::XFS_PLAIN, 320 << 20);
    let file = fragmented(&image, "file");
    let made = plan(&[&file], Policy::WholeFile);
    let refused = fragmend_apply::apply(
        &made,
        &fragmend_apply::Options::default(),
        &std::sync::atomic::AtomicBool::new(false),
        |_| {},
    );
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("reflink") && said.lines().count() == 1, "{said}");
    // Marked as not to be touched, on an XFS that could.
    let image = Image::of(&XFS, 320 << 20);
    let file = fragmented(&image, "file");
    let made = plan(&[&file], Policy::WholeFile);
    run("xfs_io", ["-c".as_ref(), "chattr +f".as_ref(), file.as_os_str()]);
    let (summary, _) = apply(&made);
    assert_eq!(reasons(&summary, &file), [SkipReason::NoDefrag], "{summary:?}");
}
