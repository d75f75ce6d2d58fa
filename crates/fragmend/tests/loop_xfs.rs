//! What only XFS has: each kind of its files is mended or left alone as it must be.

mod support;

use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
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
