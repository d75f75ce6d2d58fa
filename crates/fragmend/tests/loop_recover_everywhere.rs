//! `fragmend recover` without a path looks on every mounted file system. Alone in its program,
//! because it holds each for a moment and others could not unmount theirs.

mod support;

use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::image::Image;
use support::fragmented;
use support::rewrite::{killed_at, recover};

#[test]
fn loop_records_are_found_without_being_told_where() {
    let images = [&EXT4, &XFS].map(|file_system| Image::of(file_system, 320 << 20));
    let files = images.each_ref().map(|image| {
        let file = fragmented(image, "file");
        killed_at(image, &file, "punched");
        file
    });
    // Whatever else is mounted here is not ours to mend.
    let (told, code) = recover(&[&"--dry-run"]);
    for file in &files {
        let is_it = |r: &&serde_json::Value| r["path"].as_str() == file.to_str();
        let found = told["records"].as_array().unwrap().iter().find(is_it).unwrap();
        assert_eq!((found["outcome"].as_str(), code & 1), (Some("would_restore"), 1), "{told}");
    }
}
