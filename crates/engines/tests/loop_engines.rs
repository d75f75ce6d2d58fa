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
