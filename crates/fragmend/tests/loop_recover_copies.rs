//! `fragmend recover` beside copies of the file system that was rewritten: `dd`, snapshots below it,
//! XFS mounted with `nouuid`. The records on each serve that one; where it is not certain whose a
//! record is, nothing is guessed.

mod support;

use fragmend_engines::rewrite::journal::ELSEWHERE;
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_testbed::cleanup::{self, Ticket, Undo};
use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::{content, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::loop_device::{LoopDevice, unmount};
use fragmend_testbed::process::finish;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use support::records::{encoded, journal, make_journal, names, record_of};
use support::rewrite::{killed_at, outcomes, recover, rewrite};
use support::{SIZE, fragmented};

/// A copy of an image's disk, on a device of its own, mounted beside it.
struct Copy {
    mount: PathBuf,
    _mounted: Ticket,
    _device: LoopDevice,
    _dir: tempfile::TempDir,
}

impl Copy {
    /// The image is unmounted while it is copied; its device stays.
    fn of(image: &Image, file_system: &FileSystem) -> Self {
        let dir = fragmend_testbed::scratch::directory("test");
        let (disk, mount) = (dir.path().join("disk.img"), dir.path().join("mnt"));
        image.unmount();
        let args = [OsStr::new("--sparse=always"), OsStr::new("--reflink=auto")];
        let from = image.scratch().join("disk.img");
        run("cp", args.into_iter().chain([from.as_os_str(), disk.as_os_str()]));
        image.mount_with("");
        fs::create_dir(&mount).unwrap();
        let device = LoopDevice::attach(&disk);
        let mounted = cleanup::register(Undo::Mount(mount.clone()));
        let beside = file_system.beside_copy.unwrap();
        file_system.mount(Path::new(device.node()), &mount, beside).unwrap();
        Self { mount, _mounted: mounted, _device: device, _dir: dir }
    }

    fn file(&self) -> PathBuf {
        self.mount.join("file")
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        Undo::Mount(self.mount.clone()).run();
    }
}

fn is_zero(path: &Path) -> bool {
    fs::read(path).unwrap() == vec![0; SIZE as usize]
}

#[test]
fn loop_each_of_two_that_look_the_same_gets_its_own_back() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        killed_at(&image, &file, "punched");
        let copy = Copy::of(&image, file_system);
        let ids = [image.path(), copy.mount.as_path()]
            .map(|dir| FsId::of(File::open(dir).unwrap()).unwrap().uuid);
        assert!(ids[0] == ids[1] && ids[0] != [0; 16], "{}", file_system.name);
        assert!(is_zero(&file) && is_zero(&copy.file()));
        // Only the one: the other is as it was.
        let (told, code) = recover(&[&copy.mount]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&copy.file(), SIZE).unwrap() && is_zero(&file), "{told}");
        // Another file system is mounted over it: the records of the hidden one are not searched for there.
        let over = Image::ext4(32 << 20);
        make_journal(&over);
        run("mount", [OsStr::new("--bind"), over.path().as_os_str(), copy.mount.as_os_str()]);
        let bound = cleanup::register(Undo::Mount(copy.mount.clone()));
        let (told, code) = recover(&[&copy.mount]);
        Undo::Mount(copy.mount.clone()).run();
        drop(bound);
        assert_eq!((outcomes(&told).len(), code), (0, 0), "{told}");
        // Both, in any order.
        let (told, code) = recover(&[&copy.mount, &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&copy.file(), SIZE).unwrap() && is_intact(&file, SIZE).unwrap());
        assert!(!journal(&image).exists() && !copy.mount.join(".fragmend-rewrite").exists());
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
        let copy = Copy::of(&image, file_system);
        assert!(is_zero(&file) && is_zero(&copy.file()));
        let own = fs::read_dir(&elsewhere).unwrap().next().unwrap().unwrap().path();
        let records = names(&own);
        assert!(records.len() == 1 && records[0].ends_with(".record"), "{records:?}");

        // Both are named, and nothing is touched.
        let both: [&dyn AsRef<OsStr>; 4] = [&"--journal", &elsewhere, &image.path(), &copy.mount];
        for dry in [&["--dry-run"][..], &[]] {
            let dry = dry.iter().map(|flag| flag as &dyn AsRef<OsStr>);
            let (told, code) = recover(&both.into_iter().chain(dry).collect::<Vec<_>>());
            let said = told["errors"][0].as_str().unwrap();
            for mount in [image.path(), &copy.mount] {
                assert!(said.contains(mount.to_str().unwrap()), "{said}");
            }
            assert_eq!((code, outcomes(&told).len()), (4, 0), "{told}");
            assert!(is_zero(&file) && is_zero(&copy.file()));
            assert_eq!(names(&own), records);
        }

        // The wrong one: it looks the same, but it is another disk. The record is kept.
        let (told, code) = recover(&[&"--journal", &elsewhere, &copy.mount]);
        assert_eq!((outcomes(&told), code), (vec!["set_aside".to_owned()], 1), "{told}");
        assert!(told["records"][0]["detail"].as_str().unwrap().contains("another disk"), "{told}");
        assert!(is_intact(&copy.file(), SIZE).unwrap() && is_zero(&file));
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

/// The copy is whole, because it was made before: the original may not be.
#[test]
fn loop_an_older_copy_that_is_whole_does_not_use_a_record_up() {
    let image = Image::of(&XFS, 320 << 20);
    let file = fragmented(&image, "file");
    let older = Copy::of(&image, &XFS);
    let disk = Image::ext4(64 << 20);
    let elsewhere = disk.path().join("journal");
    fs::create_dir(&elsewhere).unwrap();
    finish(rewrite(&image, &file, "punched=kill").arg("--journal").arg(&elsewhere));
    image.unmount();
    // As after a reboot in which only the copy was found.
    let (told, code) = recover(&[&"--journal", &elsewhere, &older.mount]);
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

#[test]
fn loop_a_journal_serves_where_it_lies_and_nothing_else() {
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
    run("mount", [OsStr::new("--bind"), over.as_os_str(), dir.as_os_str()]);
    let bound = cleanup::register(Undo::Mount(dir.clone()));
    let (told, code) = recover(&[&image.path()]);
    Undo::Mount(dir.clone()).run();
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
