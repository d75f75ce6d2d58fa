//! Rewriting files of an overlay's upper directory: `truncate(2)` through the overlay does not wait for a lease.

mod support;

use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::image::Image;
use fragmend_testbed::overlay::Overlay;
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use std::path::Path;
use std::process::{Command, Stdio};
use support::fragmented;
use support::records::{journal, names};
use support::rewrite::{go_on, is_stopped, outcomes, recover, rewrite};

#[test]
fn loop_files_to_which_an_overlay_writes_are_not_rewritten() {
    let image = Image::ext4(320 << 20);
    let overlay = Overlay::over(&image);
    let file = fragmented(&image, "upper/file");
    let ended = finish(&mut rewrite(&image, &file, ""));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stdout.contains("an overlay writes to"), "{ended:?}");
    assert!(extents(&file) > 100 && names(&journal(&image)).is_empty());
    drop(overlay);
    finish(&mut rewrite(&image, &file, "")).expect(&[0]);
    assert!(extents(&file) < 10);
}

fn truncate(path: &Path, bytes: u64) {
    let mut command = Command::new("python3");
    command.args(["-c", "import os,sys;os.truncate(sys.argv[1],int(sys.argv[2]))"]);
    finish(command.arg(path).arg(bytes.to_string())).expect(&[0]);
}

/// An overlay of another mount namespace is not seen, and its programs do not wait: what they have truncated stays.
#[test]
fn loop_what_is_truncated_through_an_overlay_stays_truncated() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        for (number, step) in ["sealed", "punched", "half-written", "synced"].iter().enumerate() {
            let name = format!("file{number}");
            let file = fragmented(&image, &format!("upper/{name}"));
            let command = rewrite(&image, &file, "");
            let mut elsewhere = Command::new("unshare");
            elsewhere.args(["--mount", "sh", "-c", "umount \"$1\" && shift && exec \"$@\"", "sh"]);
            elsewhere.arg(&overlay.merged).arg(command.get_program()).args(command.get_args());
            elsewhere.env("FRAGMEND_STOP_AT", format!("{step}=stop")).stdin(Stdio::null());
            elsewhere.stdout(Stdio::piped()).stderr(Stdio::piped());
            let stopped = Running::start(&mut elsewhere).wait_until(is_stopped);
            let bytes = if number % 2 == 0 { 0 } else { 100_000 };
            truncate(&overlay.merged.join(&name), bytes);
            let ended = go_on(stopped);
            let what = format!("{} {step}: {ended:?}", file_system.name);
            assert!(!ended.stdout.contains("\"outcome\":\"moved\""), "{what}");
            assert_eq!(file.metadata().unwrap().len(), bytes, "{what}");
            // The owner decides what becomes of the record, if there is one.
            let (told, code) = recover(&[&image.path()]);
            let expected = if *step == "sealed" { vec![] } else { vec!["changed".to_owned()] };
            assert_eq!(
                (outcomes(&told), code),
                (expected.clone(), expected.len() as i32),
                "{what}"
            );
            assert_eq!(file.metadata().unwrap().len(), bytes, "{what}: {told}");
            let (told, code) = recover(&[&"--prefer=file", &file]);
            assert_eq!(code, 0, "{told}");
        }
    }
}
