//! Power cuts while files are moved under load on F2FS, which is in a guest. The host's file systems are in
//! `loop_crash`.

mod support;

use support::{lose_nothing_alone, loses_nothing};

// A guest is slow: two tests run side by side.
engines! {
    in_guest: true;
    uml_150_cuts_of_f2fs_lose_nothing => "f2fs", 150, 1;
    uml_150_cuts_of_f2fs_with_another_load_lose_nothing => "f2fs", 150, 2;
}

#[test]
fn uml_cuts_lose_nothing_where_nothing_is_moved() {
    lose_nothing_alone(true);
}

#[test]
fn uml_cuts_lose_nothing_while_segments_are_emptied() {
    loses_nothing("f2fs-segments", 40, 3);
}

#[test]
#[ignore = "lasts minutes: cargo test -p fragmend-crash --test uml_crash -- --ignored segments"]
fn uml_300_cuts_lose_nothing_while_segments_are_emptied() {
    (4..6).for_each(|seed| loses_nothing("f2fs-segments", 150, seed));
}
