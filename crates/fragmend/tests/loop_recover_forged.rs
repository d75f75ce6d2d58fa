//! Records that no rewrite made: another user wrote them, on a disk that was handed over, with the
//! right checksums. `fragmend recover` trusts no field of them: whatever they contain, no byte changes
//! that a file on this file system or another one has.

mod support;

use fragmend_engines::rewrite::record::{Record, data_checksum};
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::Handle;
use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::content;
use fragmend_testbed::image::{Image, run};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::conformance::kinds;
use support::records::{encoded, make_journal, names, record_of};
use support::rewrite::{outcomes, recover};

const BLOCK: u64 = 4096;
const SIZE: u64 = 16 * BLOCK + 100;

/// Every file at the top of an image: its bytes, and which ranges of it are allocated.
type Files = BTreeMap<PathBuf, (Vec<u8>, Vec<(u64, u64, bool)>)>;

fn files(image: &Image) -> Files {
    let mut found = Files::new();
    for entry in fs::read_dir(image.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_file() {
            found.insert(path.clone(), (fs::read(&path).unwrap(), kinds(&path)));
        }
    }
    found
}

/// Data, a hole from block 4 to 8, unwritten space from 8 to 10, written zeroes in block 12.
fn victim(image: &Image, name: &str) -> PathBuf {
    let path = image.path().join(name);
    let mut bytes = vec![0; SIZE as usize];
    content(0, &mut bytes);
    bytes[12 * BLOCK as usize..13 * BLOCK as usize].fill(0);
    fs::write(&path, bytes).unwrap();
    for (how, at, blocks) in [("-p", 4, 4), ("-z", 8, 2)] {
        let (at, length) = ((at * BLOCK).to_string(), (blocks * BLOCK).to_string());
        let args = [how, "-o", &at, "-l", &length].map(OsStr::new);
        run("fallocate", args.into_iter().chain([path.as_os_str()]));
    }
    File::open(&path).unwrap().sync_all().unwrap();
    path
}

type Action<'a> = &'a dyn Fn();
type Change = Box<dyn Fn(&mut Record)>;

/// Changes of one field each, with its name. No record with one of them may be written back.
fn forgeries(image: &Image, other: &Image) -> Vec<(&'static str, Change)> {
    fn change(f: impl Fn(&mut Record) + 'static) -> Change {
        Box::new(f)
    }
    let at = |start, end| change(move |r| r.range = ByteRange { start, end });
    let fs_of = |image: &Image| FsId::of(File::open(image.path()).unwrap()).unwrap();
    let handle_of = |path: &Path| Handle::of(File::open(path).unwrap()).unwrap();
    let (foreign, decoy) = (fs_of(other), handle_of(&image.path().join("decoy")));
    let (top, elsewhere) = (handle_of(image.path()), handle_of(&other.path().join("victim")));
    let long = |n: usize| Handle { kind: 1, bytes: vec![0xff; n] };
    vec![
        ("fs", change(move |r| r.fs = foreign)),
        ("fs unknown", change(|r| r.fs = FsId { uuid: [7; 16], fsid: 0 })),
        ("inode", change(|r| r.inode += 1)),
        ("inode 0", change(|r| r.inode = 0)),
        ("generation", change(|r| r.generation ^= 1)),
        ("handle of another", change(move |r| r.handle = decoy.clone())),
        ("handle of a directory", change(move |r| r.handle = top.clone())),
        ("handle from elsewhere", change(move |r| r.handle = elsewhere.clone())),
        ("handle of no kind", change(|r| r.handle.kind = 0x7fff)),
        ("handle too long", change(move |r| r.handle = long(200))),
        ("handle of ones", change(move |r| r.handle = long(8))),
        ("path up", change(|r| r.path = "../victim".into())),
        (
            "no handle, path from the root",
            change(|r| {
                r.handle.bytes.clear();
                r.path = "/etc/passwd".into();
                r.generation ^= 1;
            }),
        ),
        ("path with a zero", change(|r| r.path = OsString::from_vec(b"a\0b".to_vec()).into())),
        (
            "no handle, path of another",
            change(|r| {
                r.handle.bytes.clear();
                r.path = "decoy".into();
                r.generation ^= 1;
            }),
        ),
        (
            "no handle, path through a link",
            change(|r| {
                r.handle.bytes.clear();
                r.path = "link/victim".into();
                r.inode += 100;
            }),
        ),
        ("size less", change(|r| r.size -= 1)),
        ("size more", change(|r| r.size += 1)),
        ("size 0", change(|r| r.size = 0)),
        ("size of the largest file", change(|r| r.size = i64::MAX as u64)),
        ("size beyond all", change(|r| r.size = u64::MAX)),
        ("modified", change(|r| r.mtime.0 += 1)),
        ("modified in no time", change(|r| r.mtime.1 = 1_000_000_000)),
        ("modified long ago", change(|r| r.mtime.0 = i64::MIN)),
        ("block 0", change(|r| r.block = 0)),
        ("block 1", change(|r| r.block = 1)),
        ("block half", change(|r| r.block = 2048)),
        ("block twice", change(|r| r.block = 8192)),
        ("block huge", change(|r| r.block = 1 << 31)),
        ("start unaligned", at(1, 4 * BLOCK)),
        ("end unaligned", at(0, 4 * BLOCK + 1)),
        ("end before start", at(8 * BLOCK, 4 * BLOCK)),
        ("empty", at(4 * BLOCK, 4 * BLOCK)),
        ("behind the end", at(32 * BLOCK, 64 * BLOCK)),
        ("beyond the end", at(0, 64 * BLOCK)),
        ("a GiB", at(0, 1 << 30)),
        ("to the last byte", at(0, u64::MAX)),
        ("to the last block", at(0, u64::MAX - BLOCK + 1)),
        ("negative", at(1 << 63, (1 << 63) + BLOCK)),
    ]
}

/// The record of a range with arbitrary bytes, which is right about the file otherwise.
fn of_range(image: &Image, file: &Path, start: u64, blocks: u64) -> (Record, Vec<u8>) {
    let range = ByteRange::at(start, blocks * BLOCK);
    let data = vec![0xee; (range.end.min(SIZE) - range.start) as usize];
    (record_of(image, file, range, &data), data)
}

#[test]
fn loop_no_field_of_a_record_is_believed() {
    for file_system in [&EXT4, &XFS] {
        let (image, other) = (Image::of(file_system, 320 << 20), Image::of(file_system, 320 << 20));
        let [file, _, _] = ["victim", "decoy", "victim-2"].map(|name| victim(&image, name));
        victim(&other, "victim");
        std::os::unix::fs::symlink(other.path(), image.path().join("link")).unwrap();
        let dir = make_journal(&image);
        let name = dir.join("1-0.record");
        let before = [files(&image), files(&other)];
        let unchanged = |what: &str| {
            assert_eq!([files(&image), files(&other)], before, "{}: {what}", file_system.name);
        };
        let tried = |what: &str, bytes: &[u8]| {
            fs::write(&name, bytes).unwrap();
            let (told, code) = recover(&[&image.path(), &other.path()]);
            assert_ne!(code, 0, "{what}: {told}");
            assert_eq!(told["totals"]["restored_bytes"], 0, "{what}: {told}");
            unchanged(what);
            for left in names(&dir) {
                fs::remove_file(dir.join(left)).unwrap();
            }
            outcomes(&told)
        };
        // The whole file, and the hole alone, so that nothing else prevents the recovery.
        for (start, blocks) in [(0, 17), (4, 4)] {
            for (what, forge) in forgeries(&image, &other) {
                let (mut record, data) = of_range(&image, &file, start * BLOCK, blocks);
                forge(&mut record);
                let bytes = (record.data_len() as usize).min(1 << 20);
                let data = [data, vec![0xee; bytes]].concat()[..bytes].to_vec();
                record.data_checksum = data_checksum(&data);
                tried(what, &encoded(&record, &data));
            }
            // Too few bytes; too many; and others than those of the checksum.
            let (record, mut data) = of_range(&image, &file, start * BLOCK, blocks);
            let sound = encoded(&record, &data);
            assert_eq!(tried("short", &sound[..sound.len() - 1]), ["damaged"]);
            assert_eq!(tried("long", &[&sound[..], &[0]].concat()), ["damaged"]);
            data[0] ^= 1;
            assert_eq!(tried("other bytes", &encoded(&record, &data)), ["damaged"]);
            // Each byte of the header, with the checksum as it was.
            for at in (0..128).step_by(5) {
                let mut bytes = sound.clone();
                bytes[at] ^= 0x10;
                tried("a flipped bit", &bytes);
            }
        }
        // A valid record of a range that has data: nothing of it is missing, so nothing is written.
        for (start, blocks) in [(0, 17), (0, 4), (12, 1), (16, 1), (3, 2), (9, 2)] {
            let (record, data) = of_range(&image, &file, start * BLOCK, blocks);
            assert_eq!(tried("data is there", &encoded(&record, &data)), ["changed"]);
        }
        // A block that begins as recorded, and ends in written zeroes, before a hole.
        let cut = image.path().join("victim-2");
        let half = vec![0xee; BLOCK as usize / 2];
        let at = File::options().write(true).open(&cut).unwrap();
        at.write_all_at(&[half, vec![0; BLOCK as usize / 2]].concat(), 3 * BLOCK).unwrap();
        at.sync_all().unwrap();
        drop(at);
        let (record, data) = of_range(&image, &cut, 3 * BLOCK, 5);
        let was = fs::read(&cut).unwrap();
        fs::write(&name, encoded(&record, &data)).unwrap();
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["changed".to_owned()], 1), "{told}");
        assert_eq!(fs::read(&cut).unwrap(), was);
        image.fsck();
    }
}

/// A record is valid only where no other user could have put it.
#[test]
fn loop_a_record_that_others_could_have_put_there_is_none() {
    let image = Image::ext4(64 << 20);
    let file = victim(&image, "victim");
    let dir = make_journal(&image);
    let (record, data) = of_range(&image, &file, 4 * BLOCK, 4);
    let bytes = encoded(&record, &data);
    let name = dir.join("1-0.record");
    let before = files(&image);
    let chown = |path: &Path, uid| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let spoil: [(&str, Action); 7] = [
        ("another owner", &|| chown(&name, 1000)),
        ("the group may write", &|| mode(&name, 0o660)),
        ("all may write", &|| mode(&name, 0o602)),
        ("a second name", &|| {
            fs::hard_link(&name, image.path().join("lost+found/second")).unwrap()
        }),
        ("a link", &|| {
            let real = image.path().join("lost+found/real");
            fs::rename(&name, &real).unwrap();
            std::os::unix::fs::symlink(&real, &name).unwrap();
        }),
        ("a pipe", &|| {
            fs::remove_file(&name).unwrap();
            run("mkfifo", [&name]);
        }),
        ("a directory", &|| {
            fs::remove_file(&name).unwrap();
            fs::create_dir(&name).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        fs::write(&name, &bytes).unwrap();
        mode(&name, 0o600);
        spoil();
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned()], 1), "{what}: {told}");
        assert_eq!(files(&image), before, "{what}");
        let remove = if name.is_dir() { fs::remove_dir } else { fs::remove_file };
        remove(&name).unwrap();
        let _ = fs::remove_file(image.path().join("lost+found/second"));
        let _ = fs::remove_file(image.path().join("lost+found/real"));
    }
    // The directory itself.
    fs::write(&name, &bytes).unwrap();
    let elsewhere = image.path().join("lost+found/journal");
    let spoil: [(&str, Action, Action); 4] = [
        ("another's", &|| chown(&dir, 1000), &|| chown(&dir, 0)),
        ("the group's", &|| mode(&dir, 0o770), &|| mode(&dir, 0o700)),
        ("open", &|| mode(&dir, 0o755), &|| mode(&dir, 0o700)),
        (
            "a link",
            &|| {
                fs::rename(&dir, &elsewhere).unwrap();
                std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
            },
            &|| {
                fs::remove_file(&dir).unwrap();
                fs::rename(&elsewhere, &dir).unwrap();
            },
        ),
    ];
    for (what, spoil, mend) in spoil {
        spoil();
        let (told, code) = recover(&[&image.path()]);
        assert_eq!((outcomes(&told).len(), code), (0, 4), "{what}: {told}");
        assert_eq!(files(&image), before, "{what}");
        mend();
    }
    // Without any of that, the hole is filled, and nothing else is touched.
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    let (now, was) = (fs::read(&file).unwrap(), &before[&file].0);
    let hole = 4 * BLOCK as usize..8 * BLOCK as usize;
    assert!(now[hole.clone()].iter().all(|b| *b == 0xee));
    assert!(now[..hole.start] == was[..hole.start] && now[hole.end..] == was[hole.end..]);
    assert_eq!(Path::new(OsStr::from_bytes(b"victim")), file.strip_prefix(image.path()).unwrap());
}

/// A stick of 1 GiB has space for 60,000 of these.
#[test]
fn loop_records_of_nothing_take_no_time() {
    const LONG: u64 = 64 << 20;
    let image = Image::ext4(128 << 20);
    let path = image.path().join("file");
    File::create(&path).unwrap().set_len(LONG).unwrap();
    let journal = make_journal(&image);
    let record = record_of(&image, &path, ByteRange { start: 0, end: LONG }, &[]);
    for n in 0..300 {
        let file = File::create(journal.join(format!("{n:03}.record"))).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.write_all_at(&record.encode(), 0).unwrap();
        file.set_len(record.data_start() + LONG).unwrap();
    }
    let began = Instant::now();
    let (told, code) = recover(&[&image.path()]);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!((outcomes(&told), code), (vec!["foreign".to_owned(); 300], 1));
}

/// The same if they have the size that they claim: reading them has a limit.
#[test]
fn loop_records_of_no_use_are_read_up_to_a_limit() {
    let image = Image::ext4(128 << 20);
    let path = image.path().join("file");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let journal = make_journal(&image);
    let mut record = record_of(&image, &path, ByteRange { start: 0, end: 64 << 20 }, &[]);
    record.generation ^= 1;
    for n in 0..20 {
        let name = journal.join(format!("{n:03}.record"));
        fs::write(&name, record.encode()).unwrap();
        fs::set_permissions(name, Permissions::from_mode(0o600)).unwrap();
    }
    let (told, code) = recover(&[&image.path()]);
    let found = outcomes(&told);
    let left = found.iter().filter(|outcome| *outcome == "unreachable").count();
    assert_eq!((found.len(), left, code), (20, 3, 5), "{told}");
}

/// The same for valid ones: on a file system that shares blocks they need no space, and each is read and
/// compared with its file.
#[test]
fn loop_records_that_find_their_file_whole_are_read_up_to_a_limit() {
    const LONGEST: u64 = 64 << 20;
    let image = Image::of(&XFS, 320 << 20);
    let path = image.path().join("file");
    let mut bytes = vec![0; LONGEST as usize];
    content(0, &mut bytes);
    fs::write(&path, &bytes).unwrap();
    let journal = make_journal(&image);
    let record = record_of(&image, &path, ByteRange { start: 0, end: LONGEST }, &bytes);
    let head = record.encode();
    for n in 0..20 {
        let name = journal.join(format!("{n:03}.record"));
        fs::write(&name, &head).unwrap();
        fs::set_permissions(&name, Permissions::from_mode(0o600)).unwrap();
        let share = format!("reflink {} 0 {} {LONGEST}", path.display(), head.len());
        run("xfs_io", ["-c".as_ref(), share.as_ref(), name.as_os_str()]);
    }
    let (told, code) = recover(&[&image.path()]);
    let found = outcomes(&told);
    let left = found.iter().filter(|outcome| *outcome == "unreachable").count();
    assert_eq!((found.len(), left, code), (20, 3, 5), "{told}");
}

/// Any number of names, each of which would need some time by itself.
#[test]
fn loop_any_number_of_forged_names_takes_seconds() {
    const MANY: u32 = 12_000;
    const LISTED: u32 = 4096;
    let image = Image::ext4_with(320 << 20, &["-N", "40000"], "");
    let path = victim(&image, "file");
    let journal = make_journal(&image);
    (0..MANY).for_each(|n| fs::write(journal.join(format!("{n}-0.part")), "").unwrap());
    let mut record = record_of(&image, &path, ByteRange { start: 0, end: 4096 }, &[]);
    record.generation ^= 1;
    for n in 0..MANY {
        let name = journal.join(format!("{n}.record"));
        fs::write(&name, record.encode()).unwrap();
        fs::set_permissions(name, Permissions::from_mode(0o600)).unwrap();
    }
    image.sync();
    let started = Instant::now();
    let (told, code) = recover(&[&image.path()]);
    let took = started.elapsed();
    let found = outcomes(&told);
    let count = |wanted: &str| found.iter().filter(|outcome| *outcome == wanted).count() as u32;
    let looked_at = (count("never_begun"), count("set_aside") + count("unreachable"), code);
    assert_eq!(looked_at, (LISTED, LISTED, 5));
    let more = format!("{} more names", 2 * (MANY - LISTED));
    assert!(told["errors"][0].as_str().unwrap().contains(&more), "{}", told["errors"]);
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(count("set_aside") < 2000, "{}", count("set_aside"));
}
