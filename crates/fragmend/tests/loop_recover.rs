//! `fragmend recover` in all states that it may find: it never overwrites another program's data,
//! reports what it did, and may itself be ended at any instant.

mod support;

use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::fragment::{content, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::delete_for_good;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::records::only_record;
use support::rewrite::{
    FRAGMEND, go_on, is_stopped, kill, killed_at, outcomes, punched, recover, recovered_until,
    rewrite, stopped_again, stopped_at, stopped_by, told,
};
use support::{SIZE, fragmented};

fn nothing_left(image: &Image) {
    assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0);
    assert!(!image.path().join(".fragmend-rewrite").exists());
}

#[test]
fn loop_nothing_to_recover_is_said() {
    let image = Image::ext4(64 << 20);
    let mut command = Command::new(FRAGMEND);
    let text = finish(command.arg("recover").arg(image.path())).expect(&[0]);
    assert_eq!(text, "nothing to recover\n");
    let tmpfs = finish(Command::new(FRAGMEND).args(["recover", "/dev/shm"]));
    assert_eq!(tmpfs.status.code(), Some(8), "{tmpfs:?}");
}

#[test]
fn loop_a_dry_run_changes_nothing() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    for _ in 0..2 {
        let (told, code) = recover(&[&"--dry-run", &image.path()]);
        assert_eq!((outcomes(&told), code), (vec!["would_restore".to_owned()], 1), "{told}");
        assert_eq!(told["totals"]["restored_bytes"], SIZE);
    }
    assert_eq!(fs::read(&file).unwrap(), vec![0; SIZE as usize]);
    told(&image, "restored", 0);
    assert!(is_intact(&file, SIZE).unwrap());
    nothing_left(&image);
}

/// The notes show that the rewrite alone has changed the file: it has its time of modification again, too.
#[test]
fn loop_the_time_of_modification_is_put_back_as_well() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for step in ["punched", "allocated", "half-written", "written", "synced"] {
            let file = fragmented(&image, step);
            let modified = || file.metadata().unwrap().modified().unwrap();
            let before = modified();
            killed_at(&image, &file, step);
            let (told, code) = recover(&[&image.path()]);
            assert_eq!((modified(), code), (before, 0), "{} {step}: {told}", file_system.name);
            assert!(is_intact(&file, SIZE).unwrap(), "{} {step}: {told}", file_system.name);
        }
        // Killed right before a change that was noted as begun.
        let file = fragmented(&image, "writing");
        killed_at(&image, &file, "writing");
        let (told, code) = recover(&[&image.path()]);
        assert!(is_intact(&file, SIZE).unwrap(), "{told}");
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
    }
}

/// Once another program may have set the time, no earlier one is set, and that is said, also after a `recover` that
/// was killed in the middle.
#[test]
fn loop_a_time_that_may_be_another_programs_stays() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for step in ["allocated", "half-written", "synced"] {
            let file = fragmented(&image, step);
            // Killed in the punch: its note has no time of that.
            kill(stopped_again(stopped_at(&image, &file, "changed"), 2));
            run("touch", [&file]);
            let modified = || file.metadata().unwrap().modified().unwrap();
            let theirs = modified();
            recovered_until(&image, &[], step);
            let (told, code) = recover(&[&image.path()]);
            let what = format!("{} {step}: {told}", file_system.name);
            // A later time is that of the recovery that was killed.
            assert!(modified() >= theirs && code == 0, "{what}");
            assert!(told.to_string().contains("may be another program's"), "{what}");
            assert!(is_intact(&file, SIZE).unwrap(), "{what}");
        }
    }
}

/// A time that was set while the file was rewritten, or recovered, is not set back after a kill; that it may be
/// another one by then is said.
#[test]
fn loop_a_time_that_was_set_before_a_kill_is_not_set_back() {
    let ways = [
        ("punched", "half-written"),
        ("allocated", "written"),
        ("half-written", "synced"),
        ("written", "compared"),
    ];
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for (number, (step, end)) in ways.into_iter().enumerate() {
            for recovers in [false, true] {
                let file = fragmented(&image, &format!("file{number}{recovers}"));
                let modified = || file.metadata().unwrap().modified().unwrap();
                let before = modified();
                let at = format!("{step}=stop,{end}=kill");
                let mut command = rewrite(&image, &file, &at);
                if recovers {
                    // There is no hole to be made.
                    if step == "punched" {
                        continue;
                    }
                    killed_at(&image, &file, "punched");
                    command = Command::new(FRAGMEND);
                    command.arg("recover").arg(image.path()).env("FRAGMEND_STOP_AT", at);
                }
                let stopped = Running::start(&mut command).wait_until(is_stopped);
                run("touch", ["-d", "2001-02-03 04:05:06.789", file.to_str().unwrap()]);
                let ended = go_on(stopped);
                let (told, code) = recover(&[&image.path()]);
                let what = format!(
                    "{} {step} {end} {recovers}: {ended:?} {told} {:?}",
                    file_system.name,
                    modified()
                );
                assert_eq!(ended.status.signal(), Some(9), "{what}");
                assert!(is_intact(&file, SIZE).unwrap() && code == 0, "{what}");
                assert_ne!(modified(), before, "{what}");
                assert!(told.to_string().contains("may be another program's"), "{what}");
            }
        }
    }
}

/// The present time may be that of a truncation, which breaks no lease through an overlay: what is missing after a kill
/// is put back if the user decides it.
#[test]
fn loop_a_present_time_before_a_kill_leaves_the_decision() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = fragmented(&image, "file");
        let stopped = stopped_by(&image, &file, "half-written=stop,writing=stop");
        // Two writes, and then half is written.
        let stopped = stopped_again(stopped, 2);
        run("touch", [&file]);
        // The look before the next write sees it.
        kill(stopped_again(stopped, 1));
        told(&image, "changed", 1);
        let (told, code) = recover(&[&"--prefer=record", &file]);
        assert_eq!((outcomes(&told), code), (vec!["restored".to_owned()], 0), "{told}");
        assert!(is_intact(&file, SIZE).unwrap());
    }
}

/// A clock that counts whole seconds does not tell who has written since.
#[test]
fn loop_a_time_of_whole_seconds_is_nobodys() {
    let image = Image::ext4_with(320 << 20, &["-I", "128"], "");
    let file = fragmented(&image, "file");
    let before = file.metadata().unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    killed_at(&image, &file, "punched");
    let after = file.metadata().unwrap().modified().unwrap();
    let told = told(&image, "restored", 0);
    let now = file.metadata().unwrap().modified().unwrap();
    assert!(now == after && after > before, "{told}");
    assert!(told.to_string().contains("may be another program's"), "{told}");
}

/// However many parts are missing: each time that something is made durable, others wait for it.
#[test]
fn loop_many_missing_parts_are_put_back_at_once() {
    let image = Image::ext4(320 << 20);
    let file = fragmented(&image, "file");
    killed_at(&image, &file, "punched");
    let open = File::options().write(true).open(&file).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut block = [0; 4096];
    for at in (0..SIZE).step_by(8192) {
        content(at, &mut block);
        open.write_all_at(&block, at).unwrap();
    }
    open.set_modified(modified).unwrap();
    drop(open);
    image.sync();
    let before = image.counters().writes;
    told(&image, "restored", 0);
    let writes = image.counters().writes - before;
    assert!(is_intact(&file, SIZE).unwrap());
    // Each part by itself would be several commits of the journal.
    assert!(writes < SIZE / 8192 * 2, "{writes} writes for {} parts", SIZE / 8192);
}

#[test]
fn loop_a_renamed_file_is_found_and_a_deleted_one_let_go() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let file = punched(&image, "file");
        fs::create_dir(image.path().join("dir")).unwrap();
        let moved = image.path().join("dir/moved");
        fs::rename(&file, &moved).unwrap();
        // Another file has the old name now.
        fs::write(&file, "another").unwrap();
        image.remount();
        told(&image, "restored", 0);
        assert!(is_intact(&moved, SIZE).unwrap());
        assert_eq!(fs::read(&file).unwrap(), b"another");
        fs::remove_file(&file).unwrap();
        fs::remove_file(image.path().join("file.dummy")).unwrap();
        let file = punched(&image, "file");
        delete_for_good(&file);
        // A new file may get the inode number.
        fs::write(&file, vec![0; SIZE as usize]).unwrap();
        // That it is deleted is not certain: the number may be unknown for other reasons.
        let kept = only_record(&image);
        let found = told(&image, "set_aside", 1);
        assert!(found["records"][0]["detail"].as_str().unwrap().contains(".kept"), "{found}");
        assert_eq!(fs::read(&file).unwrap(), vec![0; SIZE as usize]);
        assert_eq!(recover(&[&image.path()]).0["totals"]["records"], 0, "it is told once");
        assert_eq!(only_record(&image), PathBuf::from(format!("{}.kept", kept.display())));
        image.fsck();
    }
}

/// Changes a punched file; its data must stay then until the user decides.
fn changed(change: impl Fn(&Path), why: &str) {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    change(&file);
    image.remount();
    let now = fs::read(&file).unwrap();
    let found = told(&image, "changed", 1);
    let detail = found["records"][0]["detail"].as_str().unwrap();
    assert!(detail.contains(why) && detail.contains("--prefer"), "{detail}");
    assert_eq!(fs::read(&file).unwrap(), now);
    // A decision about another path does not count.
    let elsewhere = image.path().join("lost+found");
    let (again, code) = recover(&[&"--prefer=record", &elsewhere]);
    assert_eq!((outcomes(&again), code), (vec!["changed".to_owned()], 1), "{again}");
    // The file is kept as it is, or the record is put back.
    let copy = fs::read(only_record(&image)).unwrap();
    let (kept, code) = recover(&[&"--prefer=file", &file]);
    assert_eq!((outcomes(&kept), code), (vec!["discarded".to_owned()], 0), "{kept}");
    assert_eq!(fs::read(&file).unwrap(), now);
    nothing_left(&image);
    let journal = image.path().join(".fragmend-rewrite");
    run("mkdir", [OsStr::new("-m700"), journal.as_os_str()]);
    fs::write(journal.join("again.record"), copy).unwrap();
    let (back, code) = recover(&[&"--prefer=record", &file]);
    assert_eq!((outcomes(&back), code), (vec!["restored".to_owned()], 0), "{back}");
    let mut want = vec![0; SIZE as usize];
    content(0, &mut want);
    assert_eq!(fs::read(&file).unwrap()[..want.len()], want);
}

fn write(file: &Path, bytes: &[u8], at: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn loop_newer_data_is_not_overwritten() {
    changed(|file| write(file, &[7; 100], 40_960), "other data at 40960");
}

#[test]
fn loop_written_zeroes_are_data() {
    changed(|file| write(file, &[0; 4096], 8192), "other data at 8192");
}

#[test]
fn loop_a_file_of_another_size_is_not_touched() {
    changed(|file| write(file, b"more", SIZE), "1048580 bytes now");
    changed(
        |file| File::options().write(true).open(file).unwrap().set_len(SIZE / 2).unwrap(),
        "524288 bytes now",
    );
}

#[test]
fn loop_a_file_that_was_modified_much_later_is_not_touched() {
    let later = |file: &Path| {
        run("touch", [OsStr::new("-d"), OsStr::new("+5 minutes"), file.as_os_str()]);
    };
    changed(later, "modified after");
}

#[test]
fn loop_a_file_in_use_waits_for_another_time() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    let held = File::open(&file).unwrap();
    let found = told(&image, "unreachable", 5);
    assert!(found["records"][0]["detail"].as_str().unwrap().contains("has it open"), "{found}");
    drop(held);
    told(&image, "restored", 0);
    assert!(is_intact(&file, SIZE).unwrap());
}

#[test]
fn loop_the_record_of_a_deleted_file_stays_while_a_program_has_it_open() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    let held = File::open(&file).unwrap();
    fs::remove_file(&file).unwrap();
    told(&image, "unreachable", 5);
    drop(held);
    // Its inode is free now.
    told(&image, "set_aside", 1);
}

#[test]
fn loop_damaged_and_foreign_records_are_kept() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    let path = only_record(&image);
    let sound = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (bytes, outcome) in [
        (flipped(9000), "damaged"), // the copy
        (flipped(50), "damaged"),   // the header
        (flipped(115), "damaged"),  // the handle
        (flipped(8), "foreign"),    // the version
        (flipped(0), "foreign"),    // the magic number
        (flipped(20), "damaged"),   // the file system
        (sound[..50].to_vec(), "damaged"),
        (sound[..9000].to_vec(), "damaged"),
        (Vec::new(), "foreign"),
    ] {
        fs::write(&path, &bytes).unwrap();
        told(&image, outcome, 1);
        assert_eq!(fs::read(&path).unwrap(), bytes, "it is kept");
        assert_eq!(fs::read(&file).unwrap(), vec![0; SIZE as usize]);
    }
    // A record of another file system, copied here.
    let other = Image::ext4(64 << 20);
    let journal = other.path().join(".fragmend-rewrite");
    run("mkdir", [OsStr::new("-m700"), journal.as_os_str()]);
    fs::write(journal.join("1-0.record"), &sound).unwrap();
    told(&other, "foreign", 1);
    fs::write(&path, &sound).unwrap();
    told(&image, "restored", 0);
    assert!(is_intact(&file, SIZE).unwrap());
    nothing_left(&image);
}

#[test]
fn loop_recovery_may_end_at_any_instant() {
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        for step in ["allocated", "half-written", "written", "synced", "compared"] {
            let file = punched(&image, "file");
            let mut command = Command::new(FRAGMEND);
            command.arg("recover").arg(image.path());
            command.env("FRAGMEND_STOP_AT", format!("{step}=kill"));
            let ended = finish(&mut command);
            assert_eq!(ended.status.signal(), Some(9), "{step}: {ended:?}");
            let (outcome, then) = match step {
                "allocated" | "half-written" => ("would_restore", "restored"),
                _ => ("whole", "whole"),
            };
            let (looked, _) = recover(&[&"--dry-run", &image.path()]);
            assert_eq!(outcomes(&looked), [outcome], "{step}: {looked}");
            if step == "half-written" {
                image.remount();
            }
            told(&image, then, 0);
            assert!(is_intact(&file, SIZE).unwrap());
            nothing_left(&image);
        }
        image.fsck();
    }
}

#[test]
fn loop_an_open_while_it_is_recovered_waits() {
    let image = Image::ext4(320 << 20);
    let file = punched(&image, "file");
    let mut command = Command::new(FRAGMEND);
    command.args(["recover", "--json"]).arg(image.path()).stdout(Stdio::piped());
    command.env("FRAGMEND_STOP_AT", "half-written=stop");
    let stopped = Running::start(&mut command).wait_until(support::rewrite::is_stopped);
    let mut sum = Command::new("sha256sum");
    let reader = Running::start(sum.arg(&file).stdout(Stdio::piped()));
    std::thread::sleep(std::time::Duration::from_millis(200));
    support::rewrite::go_on(stopped).expect(&[0]);
    let read = reader.wait().expect(&[0]);
    assert!(is_intact(&file, SIZE).unwrap());
    assert!(read.starts_with(&fragmend_testbed::tools::sha256(&file)), "{read}");
}
