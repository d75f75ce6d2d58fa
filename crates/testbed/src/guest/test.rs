//! Tests that run in a guest. Each runs twice: on the host it boots a guest that runs this very
//! program for that one test, and there it does its work.

use super::Guest;
use crate::file_system::F2FS;
use crate::image::Image;
use std::process::Command;
use std::time::Duration;

/// A test that lasts longer, boot included, counts as hung.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs `body` in a guest, as the test of this name.
pub fn in_guest(name: &str, body: impl FnOnce()) {
    if super::inside() {
        return body();
    }
    let finished =
        Guest::new().time_limit(LIMIT).run(&command(name)).unwrap_or_else(|lost| panic!("{lost}"));
    print!("{}", finished.stdout);
    assert!(finished.expect(&[0]).contains("1 passed"));
}

/// This program, running one test.
pub fn command(name: &str) -> Command {
    let mut test = Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    test
}

/// A fresh F2FS.
pub fn f2fs() -> Image {
    Image::of(&F2FS, 320 << 20)
}

/// One test per line: its name, and what it does in the guest.
#[macro_export]
macro_rules! guest_tests {
    ($($name:ident => $body:expr;)*) => {
        $(#[test] fn $name() { $crate::guest::test::in_guest(stringify!($name), || $body) })*
    };
}
