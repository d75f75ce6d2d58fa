//! `fragmend recover` and `--engine rewrite` in unusual surroundings: mounts of single files,
//! read-only mounts, missing privileges, outputs that are full, names that forge lines.

mod support;

use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::finish;
use fragmend_testbed::tools::extents;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use support::records::{journal, names};
use support::rewrite::{FRAGMEND, killed_at, outcomes, recover, rewrite};
use support::{SIZE, fragmented};

fn recovering(image: &Image) -> Command {
    let mut command = Command::new(FRAGMEND);
    command.arg("recover").arg(image.path());
    command
}

/// Every container has such mounts: /etc/hosts, /etc/resolv.conf.
#[test]
fn loop_a_mount_of_a_single_file_is_no_place_for_records() {
    let image = Image::ext4(128 << 20);
    let file = fragmented(&image, "file");
    let bound = image.scratch().join("bound");
    File::create(&bound).unwrap();
    let _guard = MountGuard::bind(&file, &bound);
    let (told, code) = recover(&[&bound]);
    assert_eq!((outcomes(&told).len(), code), (0, 0), "{told}");
}

#[test]
fn loop_a_read_only_mount_can_be_looked_at() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    killed_at(&image, &file, "punched");
    image.unmount();
    image.mount_with("ro");
    let (told, code) = recover(&[&"--dry-run", &image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["would_restore".to_owned()], 1), "{told}");
    image.unmount();
    image.mount_with("");
    assert_eq!(recover(&[&image.path()]).1, 0);
    image.unmount();
    image.mount_with("ro");
    assert_eq!(recover(&[&"--dry-run", &image.path()]).1, 0);
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_what_could_not_be_told_is_an_error() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    killed_at(&image, &file, "punched");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = recovering(&image).stdout(full).status().unwrap();
    assert!(is_intact(&file, SIZE).unwrap() && names(&journal(&image)).is_empty());
    assert_eq!(status.code(), Some(4));
}

/// Root in a unit without some capabilities: times of other users' files cannot be set.
#[test]
fn loop_a_time_that_cannot_be_kept_is_seen_before_the_punch() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    chown(&file, Some(1234), None).unwrap();
    run("touch", [OsStr::new("-d"), OsStr::new("2020-01-01"), file.as_os_str()]);
    let modified = || (file.metadata().unwrap().mtime(), file.metadata().unwrap().mtime_nsec());
    let before = modified();
    let without = |command: &Command| {
        let mut less = Command::new("setpriv");
        less.args(["--bounding-set", "-fowner", "--inh-caps", "-fowner", "--"]);
        less.arg(command.get_program()).args(command.get_args());
        less
    };
    let ended = finish(&mut without(&rewrite(&image, &file, "")));
    assert!(ended.stdout.contains("time of modification"), "{ended:?}");
    assert!(extents(&file) > 100 && modified() == before, "{ended:?}");
    assert!(names(&journal(&image)).is_empty());
    // If that is found too late, the bytes are more important.
    killed_at(&image, &file, "punched");
    let mut command = recovering(&image);
    command.arg("--json");
    let told = finish(&mut without(&command)).expect(&[0]);
    assert!(told.contains("\"restored\"") && told.contains("time of modification"), "{told}");
    assert!(is_intact(&file, SIZE).unwrap() && names(&journal(&image)).is_empty());
}

#[test]
fn loop_a_program_that_takes_the_journals_name_is_reported() {
    let image = Image::ext4(128 << 20);
    let file = fragmented(&image, "file");
    fs::set_permissions(image.path(), Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(journal(&image)).unwrap();
    chown(journal(&image), Some(65534), None).unwrap();
    let refused = finish(&mut rewrite(&image, &file, ""));
    let recovered = finish(&mut recovering(&image));
    for (ended, words) in [(refused, "--journal DIR"), (recovered, "remove it")] {
        assert_eq!(ended.status.code(), Some(4), "{ended:?}");
        assert!(ended.stderr.contains(words), "{ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    }
}

#[test]
fn loop_a_records_name_ends_no_line() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    killed_at(&image, &file, "punched");
    fs::remove_file(&file).unwrap();
    let name = "x\n: whole; its record was removed\n\u{202e}.record";
    let own = journal(&image).join(&names(&journal(&image))[0]);
    fs::rename(own, journal(&image).join(name)).unwrap();
    let told = finish(&mut recovering(&image)).expect(&[1]);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(".kept") && !told.contains('\u{202e}'), "{told}");
}
