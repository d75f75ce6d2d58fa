//! The engines of the host's kernel, one row each, through the conformance suite.

mod support;

use fragmend_conformance::{Fixture, cases};
use fragmend_engines::Choice;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_FORCE, BTRFS_ZSTD, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP,
};
use fragmend_testbed::image::Image;
use support::conformance;
use support::fixture::ImageFixture;

/// The file systems with engines of their own.
static ENGINES: [&FileSystem; 7] =
    [&EXT4, &XFS, &XFS_EXCHANGE, &XFS_RMAP, &BTRFS, &BTRFS_ZSTD, &BTRFS_FORCE];

/// Those that can move a part of a file.
static BY_RANGES: [&FileSystem; 6] =
    [&EXT4, &XFS, &XFS_EXCHANGE, &BTRFS, &BTRFS_ZSTD, &BTRFS_FORCE];

/// Those on which rewriting is tested.
static REWRITTEN: [&FileSystem; 3] = [&EXT4, &XFS, &XFS_PLAIN];

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

#[test]
fn loop_rewriting_does_the_same() {
    let cases: [fn(&dyn Fixture); 4] = [
        cases::fragments_are_joined,
        cases::a_part_moves_and_the_rest_stays,
        cases::holes_unwritten_space_and_the_end_stay,
        cases::five_gibibytes_and_mostly_holes,
    ];
    support::with_engine(Choice::Rewrite { journal: None }, || {
        for engine in REWRITTEN {
            let image = || Image::of(engine, 320 << 20);
            for case in cases {
                support::with_primitives(&["rewrite"], || case(&ImageFixture(&image())));
            }
            conformance::marked_files_are_left_alone(&image());
        }
    });
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
    conform(&BY_RANGES, cases::no_more_moves_between_two_pauses_than_was_allowed);
}

#[test]
fn loop_ranges_move_one_after_the_other() {
    conform(&BY_RANGES, cases::ranges_move_one_after_the_other);
}

#[test]
fn loop_what_is_shared_moves_only_if_that_is_asked_for() {
    conform(&SHARING, cases::what_is_shared_moves_only_if_that_is_asked_for);
}
