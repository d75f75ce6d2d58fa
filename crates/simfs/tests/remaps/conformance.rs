//! The conformance suite, with the production planner and mover.

use crate::support::drives;
use crate::support::fixture::SimFixture;
use crate::{EXCLUSIVE, Moves, SHARED};
use fragmend_conformance::cases;

macro_rules! conforms {
    ($($case:ident)*) => {
        mod exclusive { use super::*; $(#[test] fn $case() {
            let kind = Moves { by: EXCLUSIVE, small: None, omit: None, beyond: false };
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
        mod shared { use super::*; $(#[test] fn $case() {
            let kind = Moves { by: SHARED, small: None, omit: None, beyond: false };
            cases::$case(&SimFixture::new(kind, drives::large(), 128 << 10));
        })* }
    };
}

conforms! {
    fragments_are_joined
    a_part_moves_and_the_rest_stays
    holes_unwritten_space_and_the_end_stay
    five_gibibytes_and_mostly_holes
    what_changed_since_the_plan_is_left_alone
    what_is_slow_in_one_extent_is_written_anew
    a_dry_run_moves_nothing
    a_full_disk_is_left_alone
    a_stopped_move_ends_with_a_result_for_all_that_moved
    a_stopped_run_accounts_for_every_range
    an_open_file_knows_its_path_and_size
    every_file_is_shown_once
    every_step_is_asked_for_and_followed_by_a_pause
    no_more_moves_between_two_pauses_than_was_allowed
    ranges_move_one_after_the_other
    size_and_free_space_are_true
    space_is_returned_after_a_move
    space_is_returned_where_there_is_not_enough
    the_floor_of_free_space_is_kept
}
