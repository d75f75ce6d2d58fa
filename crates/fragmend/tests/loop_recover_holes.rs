//! A hole that a user made is not a hole that a rewrite left: `fragmend recover` puts nothing back
//! where the owner has punched after the process ended, as far as the file's times show it.

mod support;

use fragmend_engines::rewrite::record::{Record, data_checksum};
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::finish;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use support::records::{journal, names};
use support::rewrite::{FRAGMEND, kill, killed_at, outcomes, recover, recovering};
use support::{SIZE, fragmented};

/// Bytes of a note before its checksum: boot, two mounts, times.
const NOTE: usize = 56;

fn punch(file: &Path) {
    run(
        "fallocate",
        ["-p", "-o", "8192", "-l", "65536"].map(OsStr::new).into_iter().chain([file.as_os_str()]),
    );
}

/// Changes a byte of the only record's note.
fn change_note(image: &Image, at: usize) {
    let record = journal(image).join(&names(&journal(image))[0]);
    let mut bytes = fs::read(&record).unwrap();
    let note = Record::decode(&bytes).unwrap().note_start().unwrap() as usize;
    bytes[note + at] ^= 1;
    let sum = data_checksum(&bytes[note..note + NOTE]);
    bytes[note + NOTE..note + NOTE + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(&record, bytes).unwrap();
}

/// Recovers, and checks that neither the file nor the record has changed.
fn left_alone(image: &Image, file: &Path, step: &str) {
    let (before, records) = (fs::read(file).unwrap(), names(&journal(image)));
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{step}: {told}");
    let detail = told["records"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("bytes of it are holes"), "{step}: {detail}");
    assert_eq!(fs::read(file).unwrap(), before, "{step}");
    assert_eq!(names(&journal(image)), records, "{step}");
    // The owner's decision counts.
    let (told, code) = recover(&[&"--prefer=file", &file]);
    assert_eq!((outcomes(&told), code), (vec!["discarded".to_owned()], 0), "{step}: {told}");
    assert_eq!(fs::read(file).unwrap(), before, "{step}");
}

#[test]
fn loop_a_hole_that_was_made_after_a_kill_stays() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        // The file was whole, or half written, or lacked everything.
        for step in ["sealed", "compared", "half-written", "punched"] {
            let file = fragmented(&image, step);
            killed_at(&image, &file, step);
            punch(&file);
            left_alone(&image, &file, step);
        }
        image.fsck();
    }
}

/// It is the same file system through another of its mounts, and in another mount namespace; and where it is not
/// visible which one it is, because there is no `/sys`, no time but the noted one counts.
#[test]
fn loop_a_hole_that_was_made_after_a_kill_stays_through_other_mounts() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let mut unshared = Command::new("unshare");
        unshared.args(["--mount", FRAGMEND, "recover", "--json"]).arg(image.path());
        let bound = image.scratch().join("bound");
        fs::create_dir(&bound).unwrap();
        let guard = MountGuard::bind(image.path(), &bound);
        let mut other = Command::new(FRAGMEND);
        other.args(["recover", "--json"]).arg(&bound);
        let mut blind = Command::new("unshare");
        blind.args(["--mount", "sh", "-c", "mount -t tmpfs none /sys && exec \"$@\"", "sh"]);
        blind.args([FRAGMEND, "recover", "--json"]).arg(image.path());
        // A record for each: what one has found changed, the next would find noted.
        for (number, command) in [&mut unshared, &mut other, &mut blind].into_iter().enumerate() {
            let file = fragmented(&image, &format!("file{number}"));
            killed_at(&image, &file, "punched");
            punch(&file);
            let before = fs::read(&file).unwrap();
            let told = finish(command).expect(&[1]);
            assert!(told.contains("\"changed\""), "{}: {told}", file_system.name);
            assert!(fs::read(&file).unwrap() == before, "{}", file_system.name);
            left_alone(&image, &file, "other mounts");
        }
        drop(guard);
    }
}

#[test]
fn loop_a_hole_that_was_made_after_a_reboot_stays() {
    let image = Image::ext4(320 << 20);
    for (at, expected) in [(0, "changed"), (16, "restored"), (24, "restored")] {
        let file = fragmented(&image, "file");
        killed_at(&image, &file, "half-written");
        // As if the note had been made in another boot, or under other mounts of this one.
        change_note(&image, at);
        punch(&file);
        match expected {
            // Modified since this boot began, so not by a rewrite that ended before.
            "changed" => left_alone(&image, &file, "another boot"),
            // In the same boot a file system may have lost its device: a time that is near enough counts.
            _ => {
                let (told, code) = recover(&[&image.path()]);
                assert_eq!((outcomes(&told), code), (vec![expected.to_owned()], 0), "{told}");
                assert!(is_intact(&file, SIZE).unwrap());
            }
        }
    }
}

/// In another mounting a time counts that is near the last note. A `recover` that was killed has made a new one, which
/// covers what it writes itself, and no more.
#[test]
fn loop_a_killed_recover_does_not_claim_a_later_hole() {
    let image = Image::ext4(320 << 20);
    for (recovers, expected) in [(false, "restored"), (true, "changed")] {
        let file = fragmented(&image, "file");
        killed_at(&image, &file, "half-written");
        if recovers {
            kill(recovering(&image, "changing"));
        }
        change_note(&image, 16);
        punch(&file);
        // Within the minute that a rewrite may last, and after all that a recover writes.
        let later = SystemTime::now() + Duration::from_secs(20);
        File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        if recovers {
            left_alone(&image, &file, "killed recover");
            continue;
        }
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec![expected.to_owned()], 0), "{told}");
    }
}
