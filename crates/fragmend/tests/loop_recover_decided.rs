//! `fragmend recover --prefer`: what the user decides about a file that was changed.

mod support;

use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use support::rewrite::{
    go_on_throughout, kill, killed_at, outcomes, punched, recover, recovered_until, recovering,
    stopped_again, stopped_at, told,
};
use support::{SIZE, fragmented};

/// What the user has decided to overwrite is other content from then on, and has another time.
#[test]
fn loop_what_is_overwritten_by_decision_has_another_time() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    File::options().write(true).open(&file).unwrap().write_all_at(b"theirs", 5000).unwrap();
    let theirs = file.metadata().unwrap().modified().unwrap();
    told(&image, "changed", 1);
    let (told, code) = recover(&[&"--prefer=record", &file]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(
        is_intact(&file, SIZE).unwrap() && file.metadata().unwrap().modified().unwrap() > theirs
    );
}

/// A name that the file had before does not name it.
#[test]
fn loop_prefer_decides_about_the_named_file_only() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    fs::create_dir(image.path().join("dir")).unwrap();
    let old = image.path().join("dir/old");
    fs::rename(&file, &old).unwrap();
    fs::write(&file, "another").unwrap();
    File::options().write(true).open(&old).unwrap().write_all_at(&[7; 100], 0).unwrap();
    let now = fs::read(&old).unwrap();
    image.remount();
    for how in ["--prefer=record", "--prefer=file"] {
        let (told, code) = recover(&[&how, &file]);
        assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
        assert_ne!(told["records"][0]["path"].as_str(), file.to_str(), "{told}");
    }
    assert!(fs::read(&old).unwrap() == now);
    // By the name that it has now, which the kernel has in memory once it was looked up.
    let (told, code) = recover(&[&"--prefer=record", &old]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert_eq!(told["records"][0]["path"].as_str(), old.to_str(), "{told}");
    assert!(is_intact(&old, SIZE).unwrap());
    assert_eq!(fs::read(&file).unwrap(), b"another");
}

/// It is the user's decision until all is back: what was interrupted is not completed without them.
#[test]
fn loop_what_was_decided_is_decided_again_after_a_kill() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    truncated_and_lengthened(&file);
    told(&image, "changed", 1);
    for step in ["changing", "half-written"] {
        recovered_until(&image, &["--prefer=record"], step);
        told(&image, "changed", 1);
    }
    let (told, code) = recover(&[&"--prefer=record", &file]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
}

/// In another mounting times count less exactly: what was found changed before is still the user's decision, also if
/// only a decision was begun.
#[test]
fn loop_what_was_found_changed_stays_so_in_another_mounting() {
    for file_system in [&EXT4, &XFS] {
        for decided in [false, true] {
            let image = Image::of(file_system, 320 << 20);
            let file = punched(&image, "file");
            truncated_and_lengthened(&file);
            if decided {
                recovered_until(&image, &["--prefer=record"], "judged");
            } else {
                told(&image, "changed", 1);
            }
            image.remount();
            told(&image, "changed", 1);
            assert!(fs::read(&file).unwrap() == vec![0; SIZE as usize], "{}", file_system.name);
        }
    }
}

/// Others may change the attributes of a file that is found whole: its time is put back all the same.
#[test]
fn loop_a_change_of_mode_beside_a_recovery_costs_no_time_of_modification() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let time = || file.metadata().unwrap().modified().unwrap();
        let before = time();
        // The first change sets the time.
        kill(stopped_again(stopped_at(&image, &file, "looking"), 1));
        assert!(time() > before);
        let stopped = recovering(&image, "looking");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let ended = go_on_throughout(stopped, || ());
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(ended.stdout.contains("\"outcome\":\"whole\""), "{ended:?}");
        assert!(time() == before && is_intact(&file, SIZE).unwrap(), "{ended:?}");
    }
}

fn truncated_and_lengthened(file: &Path) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_len(0).unwrap();
    file.set_len(SIZE).unwrap();
}

/// As many bytes are said to be missing as are put back, also of a file that ends within a block.
#[test]
fn loop_no_byte_behind_the_end_is_missing() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    File::options().write(true).open(&file).unwrap().set_len(SIZE - 1500).unwrap();
    killed_at(&image, &file, "punched");
    run("touch", [&file]);
    let told = told(&image, "changed", 1).to_string();
    assert!(told.contains(&format!("{} bytes of it are holes", SIZE - 1500)), "{told}");
    let (told, _) = recover(&[&"--prefer=record", &file]);
    assert_eq!(told["records"][0]["restored_bytes"], SIZE - 1500, "{told}");
}
