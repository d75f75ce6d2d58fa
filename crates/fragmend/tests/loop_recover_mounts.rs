//! One file system at several places: a journal is found whichever of its mounts, or of the directories above
//! the path that was given, it is in; and a new one is where every later `recover` looks.

mod support;

use fragmend_layout::ByteRange;
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::finish;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::records::{encoded, journal, make_journal, names, record_of};
use support::rewrite::{FRAGMEND, killed_at, outcomes, punched, recover, rewrite};
use support::{SIZE, fragmented, plan, write_plan};

const NOBODY: u32 = 65534;

/// A file in `sub` whose bytes are a hole; its record is at the top.
fn punched_below_sub(image: &Image) -> PathBuf {
    fs::create_dir_all(image.path().join("sub/deep")).unwrap();
    punched(image, "sub/deep/file")
}

/// The same; its record is at the top of `sub`, as earlier versions kept it where `sub` alone was mounted.
fn punched_and_kept_in_sub(image: &Image) -> PathBuf {
    let file = punched_below_sub(image);
    fs::rename(journal(image), in_sub(image)).unwrap();
    file
}

fn in_sub(image: &Image) -> PathBuf {
    image.path().join("sub/.fragmend-rewrite")
}

/// The directory `sub` of an image, mounted beside it as well.
fn bound(image: &Image) -> MountGuard {
    let at = image.scratch().join("bound");
    fs::create_dir_all(&at).unwrap();
    MountGuard::bind(&image.path().join("sub"), &at)
}

#[track_caller]
fn restored(args: &[&dyn AsRef<OsStr>], file: &Path) {
    let (told, code) = recover(args);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(file, SIZE).unwrap());
}

fn lines<'a>(told: &'a Value, what: &str) -> Vec<&'a str> {
    told[what].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn loop_a_journal_is_found_by_every_mount_of_its_file_system() {
    let image = Image::ext4(320 << 20);
    // At the top of the file system, asked for by the directory that is mounted elsewhere.
    for path in ["", "deep/file"] {
        let (file, bound) = (punched_below_sub(&image), bound(&image));
        restored(&[&bound.path().join(path)], &file);
        assert!(!journal(&image).exists());
    }
    // And the other way round; once, although more than one mount and path lead to it.
    for path in ["", "sub/deep/file"] {
        let (file, bound) = (punched_and_kept_in_sub(&image), bound(&image));
        restored(&[&image.path().join(path), &bound.path()], &file);
        assert!(!in_sub(&image).exists());
    }
}

/// As after a power cut in a container whose directory is not mounted any more.
#[test]
fn loop_a_journal_above_the_path_is_found() {
    let image = Image::ext4(320 << 20);
    for path in ["sub", "sub/deep", "sub/deep/file"] {
        let file = punched_and_kept_in_sub(&image);
        restored(&[&image.path().join(path)], &file);
        assert!(!in_sub(&image).exists());
    }
    // By another mount that has less of it, or may not be written to.
    let file = punched_and_kept_in_sub(&image);
    let at = image.scratch().join("deep");
    fs::create_dir_all(&at).unwrap();
    let deep = MountGuard::bind(&image.path().join("sub/deep"), &at);
    finish(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&at)).expect(&[0]);
    restored(&[&deep.path().join("file")], &file);
}

/// The bytes of a file of both names are one decision.
#[test]
fn loop_prefer_goes_by_the_file_whichever_mount_names_it() {
    let image = Image::ext4(320 << 20);
    let file = punched_below_sub(&image);
    let bound = bound(&image);
    File::options().write(true).open(&file).unwrap().write_all_at(&[7; 100], 0).unwrap();
    let (told, code) = recover(&[&"--prefer=record", &image.path().join("lost+found")]);
    assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
    restored(&[&"--prefer=record", &bound.path().join("deep/file")], &file);
}

/// In a directory of another user's, and below one.
#[test]
fn loop_a_journal_below_what_others_can_rename_is_none() {
    let image = Image::ext4(320 << 20);
    let file = punched_and_kept_in_sub(&image);
    let deep = image.path().join("sub/deep");
    for (owned, kept) in [("sub", "sub"), ("sub", "sub/deep"), ("sub/deep", "sub/deep")] {
        let kept = image.path().join(kept).join(".fragmend-rewrite");
        if kept != in_sub(&image) && in_sub(&image).exists() {
            fs::rename(in_sub(&image), &kept).unwrap();
        }
        chown(image.path().join(owned), Some(NOBODY), None).unwrap();
        for args in [vec!["--dry-run"], vec![]] {
            let mut args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|arg| arg as _).collect();
            args.push(&file);
            let (told, code) = recover(&args);
            assert_eq!((outcomes(&told).len(), code), (0, 4), "{told}");
            assert!(lines(&told, "errors")[0].contains("others may rename"), "{told}");
            assert_eq!(names(&kept).len(), 1);
        }
        chown(image.path().join(owned), Some(0), None).unwrap();
    }
    restored(&[&deep], &file);
}

/// It is not what was asked for: any user may make such a directory in their own.
#[test]
fn loop_a_journal_of_another_user_above_the_path_is_left_to_them() {
    let image = Image::ext4(64 << 20);
    let sub = image.path().join("sub");
    fs::create_dir_all(sub.join(".fragmend-rewrite")).unwrap();
    fs::write(sub.join("file"), "x").unwrap();
    chown(in_sub(&image), Some(NOBODY), None).unwrap();
    let bound = bound(&image);
    for path in [sub.join("file"), image.path().to_owned()] {
        let (told, code) = recover(&[&path]);
        assert_eq!((outcomes(&told).len(), lines(&told, "errors").len(), code), (0, 0, 0));
        assert!(lines(&told, "left")[0].contains("uid 65534"), "{told}");
        assert_eq!(lines(&told, "left").len(), 1, "{told}");
    }
    // By its own top it is.
    assert_eq!(recover(&[&bound.path()]).1, 4);
}

/// A directory that was copied here from another file system, with its journal.
#[test]
fn loop_a_journal_above_the_path_serves_its_own_file_system_only() {
    let (image, other) = (Image::ext4(64 << 20), Image::ext4(64 << 20));
    let file = other.path().join("file");
    File::create(&file).unwrap().set_len(8192).unwrap();
    let data = vec![0xee; 8192];
    let record = record_of(&other, &file, ByteRange { start: 0, end: 8192 }, &data);
    fs::create_dir(image.path().join("sub")).unwrap();
    fs::write(make_journal(&image).join("1-0.record"), encoded(&record, &data)).unwrap();
    fs::rename(journal(&image), in_sub(&image)).unwrap();
    let sub = image.path().join("sub");
    for args in [vec![&*sub], vec![&sub, other.path()]] {
        let args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|arg| arg as _).collect();
        let (told, code) = recover(&args);
        assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned()], 1), "{told}");
    }
    assert_eq!(fs::read(&file).unwrap(), vec![0; 8192]);
    // Nor one that is mounted there.
    fs::remove_dir_all(in_sub(&image)).unwrap();
    fs::create_dir(in_sub(&image)).unwrap();
    let covered = MountGuard::bind(&make_journal(&other), &in_sub(&image));
    let (told, code) = recover(&[&sub]);
    assert_eq!((lines(&told, "errors").len(), lines(&told, "left").len(), code), (0, 1, 0));
    assert!(lines(&told, "left")[0].contains("another file system is mounted there"), "{told}");
    drop(covered);
}

#[test]
fn loop_where_a_directory_alone_is_mounted_records_are_kept_elsewhere() {
    let image = Image::ext4(320 << 20);
    fs::create_dir_all(image.path().join("sub/deep")).unwrap();
    fragmented(&image, "sub/deep/file");
    let bound = bound(&image);
    let by_bound = bound.path().join("deep/file");
    // Where the whole is mounted as well, its top is the place.
    killed_at(&image, &by_bound, "copied");
    assert!(journal(&image).exists() && !in_sub(&image).exists());
    let (told, code) = recover(&[&bound.path()]);
    assert_eq!((outcomes(&told), code), (vec!["never_begun".to_owned()], 0), "{told}");
    finish(Command::new("umount").arg(image.path())).expect(&[0]);
    let refused = finish(&mut rewrite(&image, &by_bound, ""));
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("--journal DIR") && said.contains("/sub"), "{said}");
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(is_intact(&by_bound, SIZE).unwrap() && names(bound.path()) == ["deep"]);
    let (told, code) = recover(&[&bound.path()]);
    assert_eq!((outcomes(&told).len(), lines(&told, "left").len(), code), (0, 1, 0), "{told}");
    assert!(lines(&told, "left")[0].contains("/sub"), "{told}");
    let elsewhere = bound.path().join("journal");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = rewrite(&image, &by_bound, "punched=kill");
    let ended = finish(command.arg("--journal").arg(&elsewhere));
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    restored(&[&"--journal", &elsewhere, &bound.path()], &by_bound);
}

/// What `recover` needs is not moved, nor rewritten in its turn.
#[test]
fn loop_no_plan_has_a_record_in_it() {
    let image = Image::ext4(320 << 20);
    punched_and_kept_in_sub(&image);
    let elsewhere = format!("fragmend-rewrite-{}", "0123456789abcdef".repeat(2));
    for (dir, bytes) in [(journal(&image), 1), (image.path().join(&elsewhere), 2)] {
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let name = format!("{}/{bytes}-0.record", dir.file_name().unwrap().display());
        fragmented(&image, &name);
    }
    fs::create_dir(image.path().join("fragmend-rewrite-notes")).unwrap();
    fragmented(&image, "fragmend-rewrite-notes/a");
    let file = image.scratch().join("all.json");
    write_plan(&plan(&[image.path()], Default::default()), &file);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("fragmend-rewrite-notes/a") && !text.contains(".record"), "{text}");
    for source in ["bulk", "fiemap"] {
        let mut command = Command::new(FRAGMEND);
        command.args(["scan", "--json", "--source", source]).arg(image.path());
        let ended = finish(&mut command);
        let text = &ended.stdout;
        assert!(text.contains("fragmend-rewrite-notes/a") && !text.contains(".record"), "{text}");
    }
}

#[test]
fn loop_what_is_no_directory_is_no_place_of_a_journal() {
    let image = Image::ext4(64 << 20);
    let (file, pipe) = (image.path().join("file"), image.path().join("pipe"));
    fs::write(&file, "x").unwrap();
    finish(Command::new("mkfifo").arg(&pipe)).expect(&[0]);
    for path in [&file, &pipe] {
        let mut command = Command::new("timeout");
        command.args(["10", FRAGMEND, "recover", "--journal"]).arg(path).arg(image.path());
        let ended = finish(&mut command);
        assert_eq!(ended.status.code(), Some(8), "{ended:?}");
        let said = &ended.stderr;
        assert!(said.contains("not a directory") && !said.contains("output"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let nowhere = image.path().join("nowhere");
    let ended = finish(Command::new(FRAGMEND).args(["recover", "--journal"]).arg(nowhere));
    assert!(ended.stderr.contains("No such file") && !ended.stderr.contains("output"), "{ended:?}");
    let ended = finish(Command::new(FRAGMEND).args(["apply", "/proc/self/mem"]));
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    let said = &ended.stderr;
    assert!(said.contains("/proc/self/mem: ") && said.lines().count() == 1, "{said}");
    assert!(!said.contains("uncategorized"), "{said}");
}
