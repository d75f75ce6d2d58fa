//! `fragmend recover` beside copies of the file system that was rewritten: `dd`, snapshots below it,
//! XFS mounted with `nouuid`. The records on each serve that one; where it is not certain whose a
//! record is, nothing is guessed.

mod support;

use fragmend_engines::rewrite::journal::ELSEWHERE;
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_testbed::file_system::{BTRFS, EXT4, XFS};
use fragmend_testbed::fragment::{content, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::loop_device::unmount;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::finish;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::records::{encoded, journal, make_journal, names, record_of};
use support::rewrite::{FRAGMEND, killed_at, outcomes, recover, rewrite};
use support::{SIZE, fragmented};

fn is_zero(path: &Path) -> bool {
    fs::read(path).unwrap() == vec![0; SIZE as usize]
}

#[test]
fn loop_each_of_two_that_look_the_same_gets_its_own_back() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        killed_at(&image, &file, "punched");
        let copy = image.copy();
        let ids =
            [image.path(), copy.path()].map(|dir| FsId::of(File::open(dir).unwrap()).unwrap().uuid);
        assert!(ids[0] == ids[1] && ids[0] != [0; 16], "{}", file_system.name);
        assert!(is_zero(&file) && is_zero(&copy.path().join("file")));
        // Only the one: the other is as it was.
        let (told, code) = recover(&[&copy.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&copy.path().join("file"), SIZE).unwrap() && is_zero(&file), "{told}");
        // Another file system is mounted over it: the records of the hidden one are not searched for there.
        let over = Image::ext4(32 << 20);
        make_journal(&over);
        let bound = MountGuard::bind(over.path(), copy.path());
        let (told, code) = recover(&[&copy.path()]);
        drop(bound);
        assert_eq!((outcomes(&told).len(), code), (0, 0), "{told}");
        // Both, in any order.
        let (told, code) = recover(&[&copy.path(), &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(
            is_intact(&copy.path().join("file"), SIZE).unwrap() && is_intact(&file, SIZE).unwrap()
        );
        assert!(!journal(&image).exists() && !copy.path().join(".fragmend-rewrite").exists());
        drop(copy);
        image.fsck();
    }
}

#[test]
fn loop_a_record_elsewhere_that_may_be_of_either_is_nobodys() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        // The directory for temporary files may be unsuitable for records.
        let disk = Image::ext4(64 << 20);
        let elsewhere = disk.path().join("journal");
        fs::create_dir(&elsewhere).unwrap();
        let ended = finish(rewrite(&image, &file, "punched=kill").arg("--journal").arg(&elsewhere));
        assert_eq!(ended.status.code(), None, "{ended:?}");
        let copy = image.copy();
        // What is noted for the copy is of later than anything that was done to the file.
        std::thread::sleep(Duration::from_secs(3));
        assert!(is_zero(&file) && is_zero(&copy.path().join("file")));
        let own = fs::read_dir(&elsewhere).unwrap().next().unwrap().unwrap().path();
        let records = names(&own);
        assert!(records.len() == 1 && records[0].ends_with(".record"), "{records:?}");

        // Both are named, and nothing is touched.
        let both: [&dyn AsRef<OsStr>; 4] = [&"--journal", &elsewhere, &image.path(), &copy.path()];
        for dry in [&["--dry-run"][..], &[]] {
            let dry = dry.iter().map(|flag| flag as &dyn AsRef<OsStr>);
            let (told, code) = recover(&both.into_iter().chain(dry).collect::<Vec<_>>());
            let said = told["errors"][0].as_str().unwrap();
            for mount in [image.path(), copy.path()] {
                assert!(said.contains(mount.to_str().unwrap()), "{said}");
            }
            assert_eq!((code, outcomes(&told).len()), (4, 0), "{told}");
            assert!(is_zero(&file) && is_zero(&copy.path().join("file")));
            assert_eq!(names(&own), records);
        }

        // The wrong one: it looks the same, but it is another disk. The record is kept.
        let (told, code) = recover(&[&"--journal", &elsewhere, &copy.path()]);
        assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
        assert!(told["records"][0]["detail"].as_str().unwrap().contains("another disk"), "{told}");
        assert!(is_intact(&copy.path().join("file"), SIZE).unwrap() && is_zero(&file));
        let kept = format!("{}.kept", records[0]);
        assert_eq!(names(&own), [kept.as_str()]);
        // Renamed back, it serves the right one.
        fs::rename(own.join(kept), own.join(&records[0])).unwrap();
        let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&file, SIZE).unwrap());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        drop(copy);
    }
}

/// What the owner does to a file beside a copy that is recovered with its record is the owner's: what was noted for the
/// file is noted again, and what comes after the copy was served is not the rewrite's.
#[test]
fn loop_a_record_that_has_served_a_copy_claims_no_later_hole() {
    let image = Image::of(&EXT4, 320 << 20);
    let disk = Image::ext4(64 << 20);
    let elsewhere = disk.path().join("journal");
    for remounted in [false, true] {
        let file = fragmented(&image, "file");
        fs::create_dir(&elsewhere).unwrap();
        finish(rewrite(&image, &file, "half-written=kill").arg("--journal").arg(&elsewhere));
        let copy = image.copy_while_mounted();
        let punch =
            || run("fallocate", ["-p", "-o", "8192", "-l", "65536", file.to_str().unwrap()]);
        if !remounted {
            punch();
        }
        let (told, code) = recover(&[&"--journal", &elsewhere, &copy.path()]);
        assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
        drop(copy);
        if remounted {
            // Where times count less exactly.
            std::thread::sleep(Duration::from_millis(1100));
            punch();
            image.unmount();
            image.mount_with("");
        }
        let own = fs::read_dir(&elsewhere).unwrap().next().unwrap().unwrap().path();
        let kept = names(&own);
        fs::rename(own.join(&kept[0]), own.join(kept[0].trim_end_matches(".kept"))).unwrap();
        let before = fs::read(&file).unwrap();
        let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{remounted}: {told}");
        assert!(fs::read(&file).unwrap() == before, "{remounted}");
        fs::remove_dir_all(&elsewhere).unwrap();
    }
}

/// Nor does it while it serves one: `recover` is killed before it has noted again what it has found. On the copy the next
/// one goes on.
#[test]
fn loop_a_recover_of_a_copy_that_is_killed_claims_no_later_hole() {
    for goes_on in [true, false] {
        let image = Image::of(&EXT4, 320 << 20);
        let disk = Image::ext4(64 << 20);
        let elsewhere = disk.path().join("journal");
        fs::create_dir(&elsewhere).unwrap();
        let file = fragmented(&image, "file");
        finish(rewrite(&image, &file, "half-written=kill").arg("--journal").arg(&elsewhere));
        let copy = image.copy_while_mounted();
        let mut killed = Command::new(FRAGMEND);
        killed.args(["recover", "--journal"]).args([&elsewhere, copy.path()]);
        // Right behind a change, which is not noted yet; and before the first one.
        let instant = if goes_on { "changed=kill" } else { "changing=kill" };
        let killed = finish(killed.env("FRAGMEND_STOP_AT", instant));
        assert_eq!(killed.status.code(), None, "{killed:?}");
        if goes_on {
            let (told, code) = recover(&[&"--journal", &elsewhere, &copy.path()]);
            assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
            assert!(is_intact(&copy.path().join("file"), SIZE).unwrap());
            continue;
        }
        drop(copy);
        run("fallocate", ["-p", "-o", "8192", "-l", "65536", file.to_str().unwrap()]);
        let before = fs::read(&file).unwrap();
        let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
        assert!(fs::read(&file).unwrap() == before);
    }
}

/// A file system whose only record is elsewhere, and a copy of it that was made before. It is not mounted, the copy is.
struct Copied {
    image: Image,
    file: PathBuf,
    older: Image,
    elsewhere: PathBuf,
    _disk: Image,
}

impl Copied {
    fn before_a_rewrite() -> Self {
        let image = Image::of(&XFS, 320 << 20);
        let file = fragmented(&image, "file");
        let older = image.copy();
        let disk = Image::ext4(64 << 20);
        let elsewhere = disk.path().join("journal");
        fs::create_dir(&elsewhere).unwrap();
        finish(rewrite(&image, &file, "punched=kill").arg("--journal").arg(&elsewhere));
        image.unmount();
        Self { image, file, older, elsewhere, _disk: disk }
    }
}

/// The copy is whole, because it was made before: the original may not be.
#[test]
fn loop_an_older_copy_that_is_whole_does_not_use_a_record_up() {
    let Copied { image, file, older, elsewhere, _disk } = Copied::before_a_rewrite();
    // As after a reboot in which only the copy was found.
    let (told, code) = recover(&[&"--journal", &elsewhere, &older.path()]);
    assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
    image.mount_with("");
    assert!(is_zero(&file));
    let own = fs::read_dir(&elsewhere).unwrap().next().unwrap().unwrap().path();
    let kept = names(&own);
    fs::rename(own.join(&kept[0]), own.join(kept[0].trim_end_matches(".kept"))).unwrap();
    let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
}

/// What a copy has become says nothing of the original.
#[test]
fn loop_an_older_copy_that_was_changed_decides_nothing() {
    let Copied { image, file, older, elsewhere, _disk } = Copied::before_a_rewrite();
    let copied = older.path().join("file");
    File::options().write(true).open(&copied).unwrap().write_all_at(b"theirs", 0).unwrap();
    let (told, code) = recover(&[&"--journal", &elsewhere, &older.path()]);
    assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
    image.mount_with("");
    let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_a_journal_serves_where_it_is_and_nothing_else() {
    let (image, other) = (Image::ext4(64 << 20), Image::ext4(64 << 20));
    let dir = make_journal(&image);
    let range = ByteRange { start: 0, end: 8192 };
    // A file of the other one that lacks bytes, and a record of it, here.
    let file = other.path().join("file");
    File::create(&file).unwrap().set_len(8192).unwrap();
    let mut data = vec![0; 8192];
    content(0, &mut data);
    let record = record_of(&other, &file, range, &data);
    fs::write(dir.join("1-0.record"), encoded(&record, &data)).unwrap();
    for args in [vec![image.path()], vec![image.path(), other.path()]] {
        let args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|a| a as _).collect();
        let (told, code) = recover(&args);
        assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned()], 1), "{told}");
    }
    // Named as a journal it is still that of its mount; below it is none.
    let (told, code) = recover(&[&"--journal", &dir, &image.path(), &other.path()]);
    assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned()], 1), "{told}");
    let below = image.path().join("below");
    fs::create_dir(&below).unwrap();
    fs::rename(&dir, below.join(".fragmend-rewrite")).unwrap();
    let (told, code) = recover(&[&"--journal", &below, &image.path(), &other.path()]);
    assert_eq!((code, outcomes(&told).len()), (4, 0), "{told}");
    assert!(told["errors"][0].as_str().unwrap().contains("not a journal of"), "{told}");
    // Another directory that is mounted in the place of the journal.
    fs::rename(below.join(".fragmend-rewrite"), &dir).unwrap();
    let over = other.path().join("over");
    fs::DirBuilder::new().create(&over).unwrap();
    run("chmod", [OsStr::new("0700"), over.as_os_str()]);
    fs::write(over.join("1-0.record"), encoded(&record, &data)).unwrap();
    let bound = MountGuard::bind(&over, &dir);
    let (told, code) = recover(&[&image.path()]);
    drop(bound);
    assert_eq!((code, outcomes(&told).len()), (4, 0), "{told}");
    // The name of a directory alone does not make its records those of this file system.
    let uuid = FsId::of(File::open(image.path()).unwrap()).unwrap().name();
    let named = image.scratch().join(format!("{ELSEWHERE}{uuid}"));
    fs::rename(&over, &named).unwrap_or_else(|_| {
        run("cp", [OsStr::new("-a"), over.as_os_str(), named.as_os_str()]);
    });
    let (told, code) = recover(&[&"--journal", &named, &image.path(), &other.path()]);
    assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned()], 1), "{told}");
    assert_eq!(fs::read(&file).unwrap(), vec![0; 8192]);
}

/// An older state of a subvolume may need a record that the present one does not need.
#[test]
fn loop_a_record_on_a_file_system_with_snapshots_is_kept() {
    let image = Image::of(&BTRFS, 320 << 20);
    let dir = make_journal(&image);
    let file = image.path().join("file");
    File::create(&file).unwrap().set_len(8192).unwrap();
    let mut data = vec![0; 8192];
    content(0, &mut data);
    let record = record_of(&image, &file, ByteRange { start: 0, end: 8192 }, &data);
    fs::write(dir.join("1-0.record"), encoded(&record, &data)).unwrap();
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
    assert_eq!(told["records"][0]["restored_bytes"], 8192, "{told}");
    assert_eq!(fs::read(&file).unwrap(), data);
    assert_eq!(names(&dir), ["1-0.record.kept"]);
    unmount(Path::new(image.device()), image.path());
    image.mount_with("");
}
