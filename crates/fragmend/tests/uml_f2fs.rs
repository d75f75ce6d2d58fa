//! F2FS, in a guest whose kernel has it: the conformance suite, and what is F2FS's own.
//!
//! Each test here runs twice: on the host it boots a guest that runs this very program for that
//! one test, and there it does its work.

mod support;

use fragmend_testbed::file_system::F2FS;
use fragmend_testbed::guest::{self, Guest};
use fragmend_testbed::image::Image;
use std::process::Command;
use support::conformance;

/// Runs `body` in a guest, as the test of this name.
fn in_guest(name: &str, body: impl FnOnce()) {
    if guest::inside() {
        return body();
    }
    let mut test = Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let finished = Guest::new().run(&test).unwrap_or_else(|lost| panic!("{lost}"));
    print!("{}", finished.stderr);
    let text = finished.expect(&[0]);
    assert!(text.contains("1 passed"), "{text}");
    print!("{text}");
}

/// One test per line: its name, and what it does in the guest.
macro_rules! tests {
    ($($name:ident => $body:expr;)*) => {
        $(#[test] fn $name() { in_guest(stringify!($name), || $body) })*
    };
}

fn image() -> Image {
    Image::of(&F2FS, 320 << 20)
}

tests! {
    uml_pieces_become_one => conformance::pieces_become_one(&image());
    uml_a_part_moves_and_the_rest_stays => conformance::a_part_moves_and_the_rest_stays(&image());
    uml_holes_unwritten_space_and_the_end_stay =>
        conformance::holes_unwritten_space_and_the_end_stay(&image());
    uml_five_gibibytes_and_mostly_holes => conformance::five_gibibytes_and_mostly_holes(&image());
    uml_marked_files_are_left_alone => conformance::marked_files_are_left_alone(&image());
}
