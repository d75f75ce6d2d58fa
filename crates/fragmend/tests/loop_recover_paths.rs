//! Records of files whose path below the mount is not known when they are made: the file was reached by
//! another mount, or a directory above the mount was renamed meanwhile. The handle finds the file.

mod support;

use fragmend_engines::rewrite::record::Record;
use fragmend_plan::Policy;
use fragmend_testbed::file_system::XFS;
use fragmend_testbed::fragment::is_intact;
use fragmend_testbed::image::Image;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Running, finish};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use support::records::{journal, names, only_record};
use support::rewrite::{FRAGMEND, is_stopped, killed_at, outcomes, recover, rewrite};
use support::{SIZE, fragmented, plan, write_plan};

/// What `recover` does with the record of `file`, of which a range is missing.
fn is_recovered(image: &Image, file: &Path) {
    assert!(!is_intact(file, SIZE).unwrap(), "a range is to be missing");
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert_eq!(told["records"][0]["path"], file.to_str().unwrap(), "{told}");
    assert!(is_intact(file, SIZE).unwrap());
    assert!(names(&journal(image)).is_empty());
}

#[test]
fn loop_a_file_that_was_reached_by_another_mount_is_recovered() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let bound = image.scratch().join("bound");
    fs::create_dir(&bound).unwrap();
    let guard = MountGuard::bind(image.path(), &bound);
    killed_at(&image, &bound.join("file"), "punched");
    drop(guard);
    is_recovered(&image, &file);
}

/// Any user may own a directory above a mount, and rename it.
#[test]
fn loop_a_directory_above_the_mount_that_is_renamed_costs_no_record() {
    let image = Image::ext4(320 << 20);
    let files = ["one", "other"].map(|name| fragmented(&image, name));
    let [above, renamed] = ["above", "renamed"].map(|name| image.scratch().join(name));
    let top = above.join("top");
    fs::create_dir_all(&top).unwrap();
    image.unmount();
    let guard = MountGuard::mount(&[image.device()], &top);
    let to = image.scratch().join("plan.json");
    let paths = ["one", "other"].map(|name| top.join(name));
    write_plan(&plan(&[&paths[0], &paths[1]], Policy::WholeFile), &to);
    let mut command = Command::new(FRAGMEND);
    command.args(["apply", "--engine", "rewrite", "--rate", "max"]).arg(&to);
    command.env("FRAGMEND_STOP_AT", "copied=stop,punched=stop");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The first file's copy is made; it is punched; the second file's copy; it is punched.
    let mut stopped = Running::start(&mut command).wait_until(is_stopped);
    fs::rename(&above, &renamed).unwrap();
    for _ in 0..3 {
        stopped.signal(Signal::CONT);
        let goes_on = |pid| !is_stopped(pid);
        stopped = stopped.wait_until(goes_on).wait_until(is_stopped);
    }
    stopped.signal(Signal::KILL);
    stopped.wait();
    fs::rename(&renamed, &above).unwrap();
    drop(guard);
    image.mount_with("");
    let missing: Vec<_> = files.iter().filter(|f| !is_intact(f, SIZE).unwrap()).collect();
    assert_eq!(missing.len(), 1, "the first file was rewritten");
    is_recovered(&image, missing[0]);
}

/// Such a path leads nowhere below the mount. Earlier versions recorded one.
#[test]
fn loop_a_record_with_an_absolute_path_is_recovered_by_its_handle() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    let decoy = fragmented(&image, "decoy");
    killed_at(&image, &file, "punched");
    let path = only_record(&image);
    let mut bytes = fs::read(&path).unwrap();
    let mut record = Record::decode(&bytes).unwrap();
    let (note, data) = (record.note_start(), record.data_start());
    record.path = decoy.clone();
    // The note and the bytes stay where they are as long as the head has as many blocks.
    assert_eq!((record.note_start(), record.data_start()), (note, data));
    let note = note.unwrap() as usize;
    bytes[..note].copy_from_slice(&record.encode()[..note]);
    fs::write(&path, bytes).unwrap();
    is_recovered(&image, &file);
    assert!(is_intact(&decoy, SIZE).unwrap());
}

/// A file of the largest size that XFS has: `recover` takes no such size from a record.
#[test]
fn loop_nothing_is_punched_whose_record_would_be_refused() {
    let image = Image::of(&XFS, 320 << 20);
    let file = fragmented(&image, "file");
    File::options().write(true).open(&file).unwrap().set_len(i64::MAX as u64).unwrap();
    let ended = finish(&mut rewrite(&image, &file, "sealed=kill"));
    assert!(ended.stdout.contains("recover would refuse its record"), "{ended:?}");
    assert!(names(&journal(&image)).is_empty());
}
