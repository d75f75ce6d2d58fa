//! The engines of the host's kernel, one row each, through the conformance suite.

mod support;

use fragmend_conformance::{Fixture, cases};
use fragmend_engines::Choice;
use fragmend_engines::begin::{Unready, Wanted, open};
use fragmend_plan::Policy;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_FORCE, BTRFS_ZSTD, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP,
};
use fragmend_testbed::image::Image;
use fragmend_testbed::tools::extents;
use support::fixture::ImageFixture;
use support::{SIZE, conformance, plan};

/// The file systems with engines of their own.
static ENGINES: [&FileSystem; 7] =
    [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS, &BTRFS_ZSTD, &BTRFS_FORCE];

/// Those that can move a part of a file.
static BY_RANGES: [&FileSystem; 6] =
    [&EXT4, &XFS, &XFS_EXCHANGE, &BTRFS, &BTRFS_ZSTD, &BTRFS_FORCE];

/// Those that move a range step by step. On Btrfs a range that has been copied is shared in one call: as long as a
/// part of it is not, the space of the whole extent stays occupied.
static BY_PARTS: [&FileSystem; 3] = [&EXT4, &XFS, &XFS_EXCHANGE];

/// Those on which rewriting is tested.
static REWRITTEN: [&FileSystem; 3] = [&EXT4, &XFS, &XFS_PLAIN];

const REWRITE: Choice = Choice::Rewrite { journal: None };

/// Those that are tested when full: the two others are Btrfs as well.
static FULL: [&FileSystem; 5] = [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS];

/// Those that can share extents.
static SHARING: [&FileSystem; 4] = [&XFS, &XFS_EXCHANGE, &BTRFS, &BTRFS_ZSTD];

fn each(engines: &[&'static FileSystem], case: fn(&Image)) {
    for engine in engines {
        println!("on {}", engine.name);
        let case = || case(&Image::of(engine, 320 << 20));
        support::with_primitives(engine.moved_by, case);
    }
}

/// The same for a case of every volume.
fn conform(engines: &[&'static FileSystem], case: fn(&dyn Fixture)) {
    for engine in engines {
        println!("on {}", engine.name);
        let case = || case(&ImageFixture(&Image::of(engine, 320 << 20)));
        support::with_primitives(engine.moved_by, case);
    }
}

/// All cases but three. A range is rewritten as a whole, and not in steps as long as the pace allows. What is
/// shared is refused, whether or not it may be unshared: a punch would free nothing. On a
/// full disk the file system is refused before the plan is read, which is a test of its own.
#[test]
fn loop_rewriting_does_the_same() {
    let cases: [fn(&dyn Fixture); 17] = [
        cases::fragments_are_joined,
        cases::a_part_moves_and_the_rest_stays,
        cases::holes_unwritten_space_and_the_end_stay,
        cases::five_gibibytes_and_mostly_holes,
        cases::what_changed_since_the_plan_is_left_alone,
        cases::what_is_slow_in_one_extent_is_written_anew,
        cases::a_dry_run_moves_nothing,
        cases::size_and_free_space_are_true,
        cases::every_file_is_shown_once,
        cases::an_open_file_knows_its_path_and_size,
        cases::the_floor_of_free_space_is_kept,
        cases::space_is_returned_after_a_move,
        cases::space_is_returned_where_there_is_not_enough,
        cases::a_stopped_move_ends_with_a_result_for_all_that_moved,
        cases::a_stopped_run_accounts_for_every_range,
        cases::every_step_is_asked_for_and_followed_by_a_pause,
        cases::ranges_move_one_after_the_other,
    ];
    support::with_engine(REWRITE, || {
        for engine in REWRITTEN {
            println!("on {}", engine.name);
            let image = || Image::of(engine, 320 << 20);
            for case in cases {
                support::with_primitives(&["rewrite"], || case(&ImageFixture(&image())));
            }
            conformance::marked_files_are_left_alone(&image());
        }
    });
}

#[test]
fn loop_rewriting_is_refused_on_a_full_disk() {
    let wanted = Wanted { engine: REWRITE, force: false };
    for engine in REWRITTEN {
        let image = Image::of(engine, 320 << 20);
        let fixture = ImageFixture(&image);
        let path = fixture.fragmented("file", SIZE);
        let (made, before) = (plan(&[&path], Policy::WholeFile), extents(&path));
        fixture.fill();
        let refused = open(&made, &wanted, true).err();
        assert!(matches!(refused, Some(Unready::Refused(_))), "{}: {refused:?}", engine.name);
        fixture.release();
        assert_eq!(extents(&path), before);
        assert!(open(&made, &wanted, true).is_ok(), "there is space now");
    }
}

#[test]
fn loop_fragments_are_joined() {
    conform(&ENGINES, cases::fragments_are_joined);
}

#[test]
fn loop_a_part_moves_and_the_rest_stays() {
    conform(&BY_RANGES, cases::a_part_moves_and_the_rest_stays);
}

#[test]
fn loop_holes_unwritten_space_and_the_end_stay() {
    conform(&ENGINES, cases::holes_unwritten_space_and_the_end_stay);
}

#[test]
fn loop_five_gibibytes_and_mostly_holes() {
    conform(&ENGINES, cases::five_gibibytes_and_mostly_holes);
}

#[test]
fn loop_marked_files_are_left_alone() {
    each(&ENGINES, conformance::marked_files_are_left_alone);
}

#[test]
fn loop_what_is_shared_stays_shared() {
    each(&SHARING, conformance::what_is_shared_stays_shared);
}

#[test]
fn loop_what_is_shared_moves_where_that_is_asked_for() {
    each(&SHARING, conformance::what_is_shared_moves_where_that_is_asked_for);
}

#[test]
fn loop_what_changed_since_the_plan_is_left_alone() {
    conform(&ENGINES, cases::what_changed_since_the_plan_is_left_alone);
}

#[test]
fn loop_what_is_slow_in_one_extent_is_written_anew() {
    // What is compressed has no place that could be measured: the other two are Btrfs with compression.
    let engines = [&EXT4, &XFS, &XFS_EXCHANGE, &BTRFS];
    conform(&engines, cases::what_is_slow_in_one_extent_is_written_anew);
    conform(&[&XFS_RMAP], cases::what_is_slow_in_one_extent_is_left_alone_with_a_reason);
}

#[test]
fn loop_what_became_of_a_path_is_left_alone() {
    each(&ENGINES, conformance::what_became_of_a_path_is_left_alone);
}

#[test]
fn loop_a_full_disk_is_left_alone() {
    conform(&FULL, cases::a_full_disk_is_left_alone);
}

#[test]
fn loop_a_dry_run_moves_nothing() {
    conform(&ENGINES, cases::a_dry_run_moves_nothing);
}

#[test]
fn loop_size_and_free_space_are_true() {
    conform(&ENGINES, cases::size_and_free_space_are_true);
}

#[test]
fn loop_every_file_is_shown_once() {
    conform(&ENGINES, cases::every_file_is_shown_once);
}

#[test]
fn loop_an_open_file_knows_its_path_and_size() {
    conform(&ENGINES, cases::an_open_file_knows_its_path_and_size);
}

#[test]
fn loop_the_floor_of_free_space_is_kept() {
    conform(&ENGINES, cases::the_floor_of_free_space_is_kept);
}

#[test]
fn loop_space_is_returned_after_a_move() {
    conform(&ENGINES, cases::space_is_returned_after_a_move);
}

#[test]
fn loop_space_is_returned_where_there_is_not_enough() {
    conform(&FULL, cases::space_is_returned_where_there_is_not_enough);
}

#[test]
fn loop_a_stopped_move_ends_with_a_result_for_all_that_moved() {
    conform(&ENGINES, cases::a_stopped_move_ends_with_a_result_for_all_that_moved);
}

#[test]
fn loop_a_stopped_run_accounts_for_every_range() {
    conform(&ENGINES, cases::a_stopped_run_accounts_for_every_range);
}

#[test]
fn loop_every_step_is_asked_for_and_followed_by_a_pause() {
    conform(&ENGINES, cases::every_step_is_asked_for_and_followed_by_a_pause);
}

#[test]
fn loop_no_more_moves_between_two_pauses_than_was_allowed() {
    conform(&BY_PARTS, cases::no_more_moves_between_two_pauses_than_was_allowed);
}

#[test]
fn loop_ranges_move_one_after_the_other() {
    conform(&BY_RANGES, cases::ranges_move_one_after_the_other);
}

#[test]
fn loop_what_is_shared_moves_only_if_that_is_asked_for() {
    conform(&SHARING, cases::what_is_shared_moves_only_if_that_is_asked_for);
}
