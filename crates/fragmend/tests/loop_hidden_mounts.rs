//! Mounts that others hide: a path leads to the one on top, and neither `apply` nor `recover` takes one for
//! another because both are of the same file system.

mod support;

use fragmend_plan::{Plan, Policy};
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Finished, finish};
use fragmend_testbed::tools::extents;
use serde_json::Value;
use std::fs;
use std::process::Command;
use support::records::{journal, names};
use support::rewrite::{FRAGMEND, outcomes, punched, recover, rewrite};
use support::{SIZE, fragmented, plan, redirected, write_plan};

/// The directory `sub` of an image, mounted over the image itself.
fn sub_over(image: &Image) -> MountGuard {
    MountGuard::bind(&image.path().join("sub"), image.path())
}

fn with_sub(bytes: u64) -> Image {
    let image = Image::ext4(bytes);
    fs::create_dir(image.path().join("sub")).unwrap();
    image
}

fn left(told: &Value) -> Vec<&str> {
    told["left"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

fn said(ended: &Finished) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

#[test]
fn loop_a_directory_mounted_over_its_own_file_system_is_not_its_top() {
    let image = with_sub(320 << 20);
    fragmented(&image, "sub/file");
    let over = sub_over(&image);
    let file = image.path().join("file");
    let refused = finish(&mut rewrite(&image, &file, "punched=kill"));
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let why = said(&refused);
    assert!(why.contains("--journal DIR") && why.contains("/sub"), "{why}");
    assert!(is_intact(&file, SIZE).unwrap());
    assert_eq!(names(image.path()), ["file", "file.dummy"]);
    drop(over);
    assert!(!journal(&image).exists() && !image.path().join("sub/.fragmend-rewrite").exists());
}

#[test]
fn loop_records_that_a_mount_hides_are_said_to_be_out_of_sight() {
    let image = with_sub(320 << 20);
    let file = punched(&image, "sub/file");
    let over = sub_over(&image);
    for args in [vec!["--dry-run"], vec![]] {
        let path = image.path().to_owned();
        let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = args.iter().map(|arg| arg as _).collect();
        all.push(&path);
        let (told, code) = recover(&all);
        assert_eq!((outcomes(&told).len(), code), (0, 0), "{told}");
        assert!(left(&told)[0].contains("/sub alone is mounted"), "{told}");
    }
    drop(over);
    assert_eq!(names(&journal(&image)).len(), 1);
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_a_file_system_that_is_mounted_twice_at_one_place_is_looked_at_once() {
    let image = with_sub(320 << 20);
    let file = punched(&image, "sub/file");
    let over = MountGuard::bind(image.path(), image.path());
    let (told, _) = recover(&[&"--dry-run", &image.path()]);
    assert_eq!(outcomes(&told), ["would_restore"], "{told}");
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    drop(over);
    assert!(is_intact(&file, SIZE).unwrap());
}

/// Which paths do not lead to: a process keeps the root that it has.
#[test]
fn loop_what_is_mounted_over_the_root_of_a_process_hides_nothing() {
    let image = with_sub(320 << 20);
    let file = punched(&image, "sub/file");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(r#"mount --bind "$1" / && exec "$0" recover "$2""#);
    command.arg(FRAGMEND).args([image.scratch(), &file]);
    let ended = finish(&mut command);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stdout.contains("put back"), "{ended:?}");
    assert!(is_intact(&file, SIZE).unwrap());
}

/// Where one of its mounts is hidden, its files move by another.
#[test]
fn loop_a_file_moves_by_the_mount_that_is_not_hidden() {
    let image = Image::ext4(320 << 20);
    let engines = ["native", "rewrite"];
    for engine in engines {
        fragmented(&image, engine);
    }
    let at = image.scratch().join("second");
    fs::create_dir(&at).unwrap();
    let second = MountGuard::mount(&[image.device()], &at);
    let over = MountGuard::mount(&["-t", "tmpfs", "none"], image.path());
    for engine in engines {
        let file = second.path().join(engine);
        let plan = plan(&[&file], Policy::WholeFile);
        let ended = apply_to(&image, &plan, &["--engine", engine]);
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert!(is_intact(&file, SIZE).unwrap());
        assert!(extents(&file) < 4, "{engine}: {ended:?}");
    }
    drop(over);
    assert!(!journal(&image).exists());
}

fn apply_to(image: &Image, plan: &Plan, how: &[&str]) -> Finished {
    let file = image.scratch().join("plan.json");
    write_plan(plan, &file);
    finish(Command::new(FRAGMEND).args(["apply", "--rate", "max"]).args(how).arg(&file))
}

/// While a file lacks bytes, its record has the only copy of them.
#[test]
fn loop_a_record_that_is_named_is_neither_planned_for_nor_moved() {
    let image = with_sub(320 << 20);
    let file = punched(&image, "file");
    let record = journal(&image).join(&names(&journal(&image))[0]);
    let link = image.scratch().join("link");
    std::os::unix::fs::symlink(journal(&image), &link).unwrap();
    for path in [&record, &journal(&image), &link] {
        for verb in [vec!["plan", "--policy", "bypass"], vec!["scan"]] {
            let ended = finish(Command::new(FRAGMEND).args(verb).arg(path));
            assert_eq!(ended.status.code(), Some(4), "{ended:?}");
            assert!(ended.stderr.contains("run: fragmend recover"), "{ended:?}");
        }
    }
    // By a mount of the journal, nothing shows what it is but its content.
    let at = image.scratch().join("bound");
    fs::create_dir(&at).unwrap();
    let bound = MountGuard::bind(&journal(&image), &at);
    let by_bound = bound.path().join(record.file_name().unwrap());
    let before = fs::read(&record).unwrap();
    let other = fragmented(&image, "other");
    let redirected = redirected(&plan(&[&other], Policy::WholeFile), &by_bound);
    let ended = apply_to(&image, &redirected, &["--json"]);
    assert!(said(&ended).contains("a record of a rewrite"), "{ended:?}");
    assert_eq!(fs::read(&record).unwrap(), before);
    drop(bound);

    // Nor is anything rewritten with a journal elsewhere, as if there were no records.
    let elsewhere = image.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = rewrite(&image, &other, "");
    let ended = finish(command.arg("--journal").arg(&elsewhere));
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(said(&ended).contains("not recovered yet"), "{ended:?}");

    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
}
