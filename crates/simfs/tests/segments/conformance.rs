//! The log-structured file system through the conformance suite, on a drive with zones and on one without.
//!
//! All cases but three: its files share no blocks; like F2FS, it moves a range in one go, and not in steps as long as the pace allows; it
//! writes anew what is slow in one extent, and so does not leave it alone.

use crate::Segments;
use crate::drives::{large_zoned, large_zones};
use crate::support::drives::large;
use crate::support::fixture::SimFixture;
use fragmend_conformance::cases;
use fragmend_simfs::segments::Settings;

/// Bytes of nodes that a case's files may have besides their data.
const SLACK: u64 = 1 << 20;

fn plain() -> SimFixture<Segments> {
    let settings = Settings { segment_bytes: 1 << 20, ..Settings::default() };
    SimFixture::new(Segments::new(settings), large(), SLACK)
}

fn in_place() -> SimFixture<Segments> {
    let settings = Settings { segment_bytes: 1 << 20, in_place: true, ..Settings::default() };
    SimFixture::new(Segments::new(settings), large(), SLACK)
}

fn zoned() -> SimFixture<Segments> {
    SimFixture::new(Segments::new(large_zones()), large_zoned(), SLACK)
}

fn in_device() -> SimFixture<Segments> {
    SimFixture::new(Segments::in_device(large_zones()), large_zoned(), SLACK)
}

macro_rules! conforms {
    ($($case:ident)*) => {
        mod plain { $(#[test] fn $case() { super::cases::$case(&super::plain()) })* }
        mod in_place { $(#[test] fn $case() { super::cases::$case(&super::in_place()) })* }
        mod in_device { $(#[test] fn $case() { super::cases::$case(&super::in_device()) })* }
        mod zoned { $(#[test] fn $case() { super::cases::$case(&super::zoned()) })* }
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
    ranges_move_one_after_the_other
    size_and_free_space_are_true
    space_is_returned_after_a_move
    space_is_returned_where_there_is_not_enough
    the_floor_of_free_space_is_kept
}
