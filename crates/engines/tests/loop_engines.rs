//! The engines of the host's kernel, one row each, through the conformance suite.

mod support;

use fragmend_engines::Choice;
use fragmend_testbed::file_system::{
    BTRFS, BTRFS_FORCE, BTRFS_ZSTD, EXT4, FileSystem, XFS, XFS_EXCHANGE, XFS_PLAIN, XFS_RMAP,
};
use fragmend_testbed::image::Image;
use support::conformance;

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

#[test]
fn loop_rewriting_does_the_same() {
    let each = |engines: &[&'static FileSystem], case: fn(&Image)| {
        for engine in engines {
            let case = || case(&Image::of(engine, 320 << 20));
            support::with_primitives(&["rewrite"], case);
        }
    };
    support::with_engine(Choice::Rewrite { journal: None }, || {
        each(&REWRITTEN, conformance::fragments_are_joined);
        each(&REWRITTEN, conformance::a_part_moves_and_the_rest_stays);
        each(&REWRITTEN, conformance::holes_unwritten_space_and_the_end_stay);
        each(&REWRITTEN, conformance::five_gibibytes_and_mostly_holes);
        each(&REWRITTEN, conformance::marked_files_are_left_alone);
    });
}

#[test]
fn loop_fragments_are_joined() {
    each(&ENGINES, conformance::fragments_are_joined);
}

#[test]
fn loop_a_part_moves_and_the_rest_stays() {
    each(&BY_RANGES, conformance::a_part_moves_and_the_rest_stays);
}

#[test]
fn loop_holes_unwritten_space_and_the_end_stay() {
    each(&ENGINES, conformance::holes_unwritten_space_and_the_end_stay);
}

#[test]
fn loop_five_gibibytes_and_mostly_holes() {
    each(&ENGINES, conformance::five_gibibytes_and_mostly_holes);
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
    each(&ENGINES, conformance::what_changed_since_the_plan_is_left_alone);
}

#[test]
fn loop_what_became_of_a_path_is_left_alone() {
    each(&ENGINES, conformance::what_became_of_a_path_is_left_alone);
}

#[test]
fn loop_a_full_disk_is_left_alone() {
    each(&FULL, conformance::a_full_disk_is_left_alone);
}

#[test]
fn loop_a_dry_run_moves_nothing() {
    each(&ENGINES, conformance::a_dry_run_moves_nothing);
}
