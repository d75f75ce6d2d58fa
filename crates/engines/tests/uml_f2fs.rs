//! F2FS, in a guest whose kernel has it: the conformance suite, and the kinds of file that only F2FS has.

mod support;

use fragmend_conformance::cases;
use fragmend_layout::SkipReason;
use fragmend_plan::Policy;
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::guest::test::f2fs;
use fragmend_testbed::guest_tests;
use fragmend_testbed::image::{Image, run};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::fixture::ImageFixture;
use support::{SIZE, apply, conformance, fragmented, holder, left_alone, plan, reasons};

// All cases but three: F2FS shares no extents; it moves a range in one go, and not in steps as long as the pace
// allows; and it needs free segments, of which it keeps some for itself, so that a move may succeed where no more
// blocks can be allocated.
guest_tests! {
    uml_fragments_are_joined => cases::fragments_are_joined(&ImageFixture(&f2fs()));
    uml_a_part_moves_and_the_rest_stays => cases::a_part_moves_and_the_rest_stays(&ImageFixture(&f2fs()));
    uml_holes_unwritten_space_and_the_end_stay =>
        cases::holes_unwritten_space_and_the_end_stay(&ImageFixture(&f2fs()));
    uml_five_gibibytes_and_mostly_holes => cases::five_gibibytes_and_mostly_holes(&ImageFixture(&f2fs()));
    uml_marked_files_are_left_alone => conformance::marked_files_are_left_alone(&f2fs());
    uml_what_changed_since_the_plan_is_left_alone =>
        cases::what_changed_since_the_plan_is_left_alone(&ImageFixture(&f2fs()));
    uml_what_became_of_a_path_is_left_alone =>
        conformance::what_became_of_a_path_is_left_alone(&f2fs());
    uml_what_must_stay_in_place_is_left_alone => what_must_stay_in_place_is_left_alone(&f2fs());
    uml_what_is_slow_in_one_extent_is_left_alone =>
        cases::what_is_slow_in_one_extent_is_left_alone_with_a_reason(&ImageFixture(&f2fs()));
    uml_a_dry_run_moves_nothing => cases::a_dry_run_moves_nothing(&ImageFixture(&f2fs()));
    uml_a_full_disk_is_left_alone => cases::a_full_disk_is_left_alone(&ImageFixture(&f2fs()));
    uml_size_and_free_space_are_true => cases::size_and_free_space_are_true(&ImageFixture(&f2fs()));
    uml_every_file_is_shown_once => cases::every_file_is_shown_once(&ImageFixture(&f2fs()));
    uml_an_open_file_knows_its_path_and_size => cases::an_open_file_knows_its_path_and_size(&ImageFixture(&f2fs()));
    uml_the_floor_of_free_space_is_kept => cases::the_floor_of_free_space_is_kept(&ImageFixture(&f2fs()));
    uml_space_is_returned_after_a_move => cases::space_is_returned_after_a_move(&ImageFixture(&f2fs()));
    uml_a_stopped_move_ends_with_a_result_for_all_that_moved => cases::a_stopped_move_ends_with_a_result_for_all_that_moved(&ImageFixture(&f2fs()));
    uml_a_stopped_run_accounts_for_every_range => cases::a_stopped_run_accounts_for_every_range(&ImageFixture(&f2fs()));
    uml_every_step_is_asked_for_and_followed_by_a_pause => cases::every_step_is_asked_for_and_followed_by_a_pause(&ImageFixture(&f2fs()));
    uml_ranges_move_one_after_the_other => cases::ranges_move_one_after_the_other(&ImageFixture(&f2fs()));
}

fn what_must_stay_in_place_is_left_alone(image: &Image) {
    let pinned = left_alone(image, "pinned", SkipReason::Pinned, |path| {
        run("f2fs_io", ["pinfile".as_ref(), "set".as_ref(), path.as_os_str()]);
    });
    let mut writer = None;
    left_alone(image, "atomic", SkipReason::Unsupported, |path| {
        writer = Some(holder(
            path,
            "import fcntl,os,sys\nf=os.open(sys.argv[1],os.O_RDWR)\n\
             fcntl.ioctl(f,0xf501)\nos.write(1,b'r')\nsys.stdin.read()",
        ));
    });
    drop(writer);
    let mut writer = None;
    let written = left_alone(image, "written", SkipReason::Busy, |path| {
        let script = "import os,sys\nf=os.open(sys.argv[1],os.O_RDWR)\n\
             os.write(1,b'r')\nsys.stdin.read()";
        writer = Some(holder(path, script));
    });
    let reader = File::open(&written).unwrap();
    drop(writer);
    assert_eq!(apply(&plan(&[&written], Policy::WholeFile)).0.ranges_moved, 1, "readers may stay");
    drop(reader);
    // A mapping writes as well, also once its descriptor is closed.
    let mut writer = None;
    left_alone(image, "mapped", SkipReason::Busy, |path| {
        let script = "import mmap,os,sys\nf=os.open(sys.argv[1],os.O_RDWR)\nm=mmap.mmap(f,0)\n\
             os.close(f)\nm[0]=m[0]\nos.write(1,b'r')\nsys.stdin.read()";
        writer = Some(holder(path, script));
    });
    drop(writer);
    let policy = Path::new("/sys/fs/f2fs").join(image.block_device().name()).join("ipu_policy");
    let as_it_was = fs::read_to_string(&policy).unwrap();
    // Writes are always in place (`F2FS_IPU_FORCE`).
    left_alone(image, "in-place", SkipReason::Unsupported, |_| fs::write(&policy, "1").unwrap());
    fs::write(&policy, as_it_was.trim()).unwrap();
    let swap = fragmented(image, "swap");
    let made = plan(&[&swap], Policy::WholeFile);
    fs::set_permissions(&swap, fs::Permissions::from_mode(0o600)).unwrap();
    run("mkswap", [&swap]);
    run("swapon", [&swap]);
    let (summary, _) = apply(&made);
    run("swapoff", [&swap]);
    assert_eq!(summary.ranges_moved, 0, "{summary:?}");
    println!("a swap file: {:?}", reasons(&summary, &swap));
    image.fsck();
    assert!(is_intact(&pinned, SIZE).unwrap());
    assert!(is_intact(&image.path().join("atomic"), SIZE).unwrap());
}
