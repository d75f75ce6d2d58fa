//! Rewriting files of an overlay's upper directory: `truncate(2)` through the overlay does not wait for a lease.

mod support;

use fragmend_testbed::file_system::{EXT4, XFS};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::overlay::Overlay;
use fragmend_testbed::process::{Finished, Running, finish};
use fragmend_testbed::tools::extents;
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::deaf::Deaf;
use support::records::{journal, names};
use support::rewrite::{
    go_on, go_on_throughout, is_stopped, kill, outcomes, recover, recovering, rewrite,
    stopped_again,
};
use support::{SIZE, fragmented};

/// One test at a time: an overlay of which it is not known where it writes keeps all files from being rewritten.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const ON_THIS: &str = "an overlay writes to this file system";
const NOT_FOUND: &str = "an overlay writes to a directory that is not found";

/// A rewrite of this file was refused for this reason, and nothing has been done.
fn is_left_alone(ended: &Finished, image: &Image, file: &Path, why: &str) {
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stdout.contains(why), "{ended:?}");
    assert!(extents(file) > 100 && names(&journal(image)).is_empty());
}

#[test]
fn loop_files_to_which_an_overlay_writes_are_not_rewritten() {
    let _alone = alone();
    let image = Image::ext4(320 << 20);
    let overlay = Overlay::over(&image);
    let file = fragmented(&image, "upper/file");
    is_left_alone(&finish(&mut rewrite(&image, &file, "")), &image, &file, ON_THIS);
    // Nor by other names than the overlay's.
    let linked = image.path().join("linked");
    std::fs::hard_link(&file, &linked).unwrap();
    is_left_alone(&finish(&mut rewrite(&image, &linked, "")), &image, &file, ON_THIS);
    let bound = MountGuard::bind(&image.path().join("upper"), &image.path().join("work"));
    let below = bound.path().join("file");
    is_left_alone(&finish(&mut rewrite(&image, &below, "")), &image, &file, ON_THIS);
    drop(bound);
    // What it writes to another file system is no reason.
    let other = Image::ext4(320 << 20);
    let elsewhere = fragmented(&other, "file");
    finish(&mut rewrite(&other, &elsewhere, "")).expect(&[0]);
    assert!(extents(&elsewhere) < 10);
    drop(overlay);
    finish(&mut rewrite(&image, &file, "")).expect(&[0]);
    assert!(extents(&file) < 10);
}

/// A rewrite in a mount namespace in which an overlay was mounted with this name for its upper directory, from the
/// top of the image; then `meanwhile`, a shell command, was run there.
fn beside(image: &Image, upper: &str, file: &Path, meanwhile: &str) -> Finished {
    let at = |name: &str| image.path().join(name);
    for name in ["lower", "work", "merged"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let options = format!("lowerdir=lower,upperdir={upper},workdir=work");
    let script = "cd \"$1\" && mount -t overlay overlay -o \"$2\" merged && eval \"$3\" && cd / && shift 3 && exec \"$@\"";
    let command = rewrite(image, file, "");
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script, "sh"]).arg(image.path());
    unshare.arg(options).arg(meanwhile).arg(command.get_program()).args(command.get_args());
    finish(&mut unshare)
}

/// As mount options escape them, and as container runtimes mount them.
#[test]
fn loop_an_overlay_is_known_by_any_name_of_its_directory() {
    let _alone = alone();
    for name in ["a b", "com,ma", "back\\slash", "equal=s", "colon:"] {
        let image = Image::ext4(320 << 20);
        std::fs::create_dir(image.path().join(name)).unwrap();
        let file = fragmented(&image, &format!("{name}/file"));
        let escaped = name.replace('\\', "\\\\").replace(',', "\\,");
        let upper = image.path().join(escaped);
        let ended = beside(&image, upper.to_str().unwrap(), &file, "true");
        is_left_alone(&ended, &image, &file, ON_THIS);
    }
    // A relative name, a directory that was renamed, a link that may lead elsewhere.
    let ways = [("upper", "true"), ("/upper", "mv upper other"), ("/link", "true")];
    for (upper, meanwhile) in ways {
        let image = Image::ext4(320 << 20);
        std::fs::create_dir(image.path().join("upper")).unwrap();
        std::os::unix::fs::symlink("upper", image.path().join("link")).unwrap();
        let file = fragmented(&image, "upper/file");
        let linked = image.path().join("linked");
        std::fs::hard_link(&file, &linked).unwrap();
        let absolute = format!("{}{upper}", image.path().display());
        let named = if upper.starts_with('/') { &absolute } else { upper };
        let ended = beside(&image, named, &linked, meanwhile);
        is_left_alone(&ended, &image, &linked, NOT_FOUND);
    }
}

/// What is by now mounted on the way to an overlay's directory is served by a program that never answers: it is not
/// asked.
#[test]
fn loop_no_program_on_the_way_to_an_overlays_directory_is_waited_for() {
    let _alone = alone();
    let (image, other) = (Image::ext4(320 << 20), Image::ext4(128 << 20));
    let _overlay = Overlay::over(&other);
    let file = fragmented(&image, "file");
    let mut command = rewrite(&image, &file, "");
    let deaf = Deaf::at(other.path());
    let began = Instant::now();
    let ended = finish(&mut command);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    is_left_alone(&ended, &image, &file, NOT_FOUND);
    drop(deaf);
}

fn truncate(path: &Path, bytes: u64) {
    let mut command = Command::new("python3");
    command.args(["-c", "import os,sys;os.truncate(sys.argv[1],int(sys.argv[2]))"]);
    finish(command.arg(path).arg(bytes.to_string())).expect(&[0]);
}

/// An empty file with the times that this one has now.
fn like(image: &Image, file: &Path) -> PathBuf {
    let like = image.path().join("like");
    run("touch", ["-r".as_ref(), file.as_os_str(), like.as_os_str()]);
    like
}

/// Sets the times of a file to those of another one, as `rsync` does.
fn set_time_as(path: &Path, other: &Path) {
    let set = "import os,sys; s=os.stat(sys.argv[2]); os.utime(sys.argv[1],ns=(s.st_atime_ns,s.st_mtime_ns))";
    finish(Command::new("python3").args(["-c", set]).args([path, other])).expect(&[0]);
}

/// A rewrite in a mount namespace in which an overlay is not mounted, stopped at `step`.
fn unseen(image: &Image, overlay: &Overlay, file: &Path, step: &str) -> Running {
    let command = rewrite(image, file, "");
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--mount", "sh", "-c", "umount \"$1\" && shift && exec \"$@\"", "sh"]);
    elsewhere.arg(&overlay.merged).arg(command.get_program()).args(command.get_args());
    elsewhere.env("FRAGMEND_STOP_AT", format!("{step}=stop")).stdin(Stdio::null());
    elsewhere.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(&mut elsewhere).wait_until(is_stopped)
}

/// The owner decides what becomes of the record, if there is one; then the file is still what it was.
fn is_for_the_owner(image: &Image, file: &Path, is_there: bool, what: &str) {
    let before = std::fs::read(file).unwrap();
    let (told, code) = recover(&[&image.path()]);
    let expected = if is_there { vec!["changed".to_owned()] } else { vec![] };
    assert_eq!((outcomes(&told), code), (expected, i32::from(is_there)), "{what}");
    let (told, code) = recover(&[&"--prefer=file", &file]);
    assert_eq!(code, 0, "{what}: {told}");
    assert!(std::fs::read(file).unwrap() == before, "{what}: {told}");
}

/// An overlay of another mount namespace is not seen, and its programs do not wait: what they have truncated stays.
#[test]
fn loop_what_is_truncated_through_an_overlay_stays_truncated() {
    let _alone = alone();
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        for (number, step) in ["sealed", "punched", "half-written", "synced"].iter().enumerate() {
            let name = format!("file{number}");
            let file = fragmented(&image, &format!("upper/{name}"));
            let stopped = unseen(&image, &overlay, &file, step);
            let bytes = if number % 2 == 0 { 0 } else { 100_000 };
            truncate(&overlay.merged.join(&name), bytes);
            let ended = go_on(stopped);
            let what = format!("{} {step}: {ended:?}", file_system.name);
            assert!(!ended.stdout.contains("\"outcome\":\"moved\""), "{what}");
            assert_eq!(file.metadata().unwrap().len(), bytes, "{what}");
            is_for_the_owner(&image, &file, *step != "sealed", &what);
        }
    }
}

/// The same where the file has its size again before anybody looks. Of what was truncated, one write puts back what
/// it covers at most, if it comes right after the look.
#[test]
fn loop_what_is_truncated_and_lengthened_through_an_overlay_stays_empty() {
    let _alone = alone();
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        let steps =
            ["sealed", "punched", "allocated", "writing", "half-written", "written", "synced"];
        // The fourth change is the allocation, which has not been looked at then; the fifth sets the time. A change of
        // the mode sets the time of change alone, as setting a time of modification does.
        let ways = steps.map(|step| (step, 1, ""));
        let further = [
            ("changed", 4, ""),
            ("changing", 5, ""),
            ("leased", 1, "time"),
            ("sealed", 1, "time"),
            ("synced", 1, "mode"),
            ("allocated", 1, "mode"),
            ("allocated", 1, "time"),
            ("half-written", 1, "time"),
            ("written", 1, "time"),
        ];
        for (number, (step, stops, then)) in ways.into_iter().chain(further).enumerate() {
            let name = format!("file{number}");
            let file = fragmented(&image, &format!("upper/{name}"));
            let like = like(&image, &file);
            let stopped = stopped_again(unseen(&image, &overlay, &file, step), stops - 1);
            let merged = overlay.merged.join(&name);
            truncate(&merged, 0);
            truncate(&merged, SIZE);
            match then {
                "mode" => {
                    std::fs::set_permissions(&merged, Permissions::from_mode(0o600)).unwrap();
                }
                // Of the file as it was, by its path: an open would wait.
                "time" => set_time_as(&merged, &like),
                _ => {}
            }
            let ended = go_on_throughout(stopped, || ());
            let what = format!("{} {step} {stops} {then}: {ended:?}", file_system.name);
            assert!(!ended.stdout.contains("\"outcome\":\"moved\""), "{what}");
            // The end is written first.
            let covered = if step == "writing" { 256 << 10 } else { 0 };
            let content = std::fs::read(&file).unwrap();
            assert_eq!(content.len() as u64, SIZE, "{what}");
            assert!(content[..content.len() - covered].iter().all(|b| *b == 0), "{what}");
            is_for_the_owner(&image, &file, !["leased", "sealed"].contains(&step), &what);
        }
    }
}

/// A truncation within the last block frees no space, and is not undone either.
#[test]
fn loop_what_is_truncated_within_the_last_block_stays_empty() {
    let _alone = alone();
    const CUT: u64 = 1500;
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        // The first change tries the allocation, the second sets the time, the third is the punch.
        let first = [("sealed", 1), ("changing", 1), ("changing", 2), ("looking", 3)];
        let then = ["punched", "allocated", "half-written", "written", "synced"].map(|s| (s, 1));
        let rewrites = first.iter().chain(&then).map(|step| (*step, false));
        let recoveries = then[1..].iter().map(|step| (*step, true));
        for (number, ((step, stops), recovers)) in rewrites.chain(recoveries).enumerate() {
            let name = format!("file{number}");
            let file = fragmented(&image, &format!("upper/{name}"));
            let before = std::fs::read(&file).unwrap();
            let like = like(&image, &file);
            let stopped = if recovers {
                kill(unseen(&image, &overlay, &file, "punched"));
                recovering(&image, step)
            } else {
                stopped_again(unseen(&image, &overlay, &file, step), stops - 1)
            };
            let merged = overlay.merged.join(&name);
            truncate(&merged, SIZE - CUT);
            truncate(&merged, SIZE);
            if ["sealed", "looking"].contains(&step) {
                // Right before the punch it is the time of change that shows it.
                set_time_as(&merged, &like);
            }
            let ended = go_on_throughout(stopped, || ());
            let what = format!("{} {step} {stops} {recovers}: {ended:?}", file_system.name);
            assert!(ended.stdout.contains("others have "), "{what}");
            // There the time was set after it, and nothing shows that.
            let is_hidden = (step, stops) == ("changing", 2);
            assert!(!is_hidden || ended.stdout.contains("that of before, although"), "{what}");
            let (rest, end) = (&before[..before.len() - CUT as usize], [0; CUT as usize]);
            let content = std::fs::read(&file).unwrap();
            assert!(content.ends_with(&end), "{what}");
            // The rest of the range was written where it was certain that only the end may be empty.
            let is_written = !["punched", "allocated"].contains(&step);
            assert_eq!(content.starts_with(rest), is_written, "{what}");
            is_for_the_owner(&image, &file, !first.contains(&(step, stops)), &what);
        }
    }
}

/// Once a truncation was seen nothing is written, whatever the file looks like by then.
#[test]
fn loop_what_was_seen_truncated_stays_empty() {
    let _alone = alone();
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        let file = fragmented(&image, "upper/file");
        let (like, merged) = (like(&image, &file), overlay.merged.join("file"));
        // The third change is the punch.
        let stopped = stopped_again(unseen(&image, &overlay, &file, "changed=stop,punched"), 2);
        truncate(&merged, SIZE / 2);
        stopped.signal(Signal::CONT);
        let ended = go_on_throughout(stopped, || {
            truncate(&merged, SIZE);
            set_time_as(&merged, &like);
        });
        let what = format!("{}: {ended:?}", file_system.name);
        assert_eq!(ended.status.code(), Some(6), "{what}");
        assert!(ended.stdout.contains("others have made it"), "{what}");
        assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "{what}");
        is_for_the_owner(&image, &file, true, &what);
    }
}

/// Where times are whole seconds a truncation may have the time of our last change: it is not set back then.
#[test]
fn loop_a_truncation_that_is_seen_does_not_get_the_time_of_before() {
    let _alone = alone();
    let image = Image::ext4_with(320 << 20, &["-I", "128"], "");
    let overlay = Overlay::over(&image);
    for (number, bytes) in [30_000, 0].into_iter().enumerate() {
        let name = format!("file{number}");
        let file = fragmented(&image, &format!("upper/{name}"));
        run("touch", ["-d", "2001-02-03 04:05:06", file.to_str().unwrap()]);
        let time = || file.metadata().unwrap().modified().unwrap();
        let before = time();
        // The second change is to set the time that the first one has changed.
        let stopped = stopped_again(unseen(&image, &overlay, &file, "looking"), 1);
        let merged = overlay.merged.join(&name);
        truncate(&merged, bytes);
        if bytes == 0 {
            truncate(&merged, SIZE);
        }
        let ended = go_on_throughout(stopped, || ());
        assert!(ended.stdout.contains("others have "), "{ended:?}");
        assert!(ended.stdout.contains("its time of modification stays as it is"), "{ended:?}");
        assert!(time() > before, "{ended:?}");
    }
}

/// The same between the look of `recover` and what it puts back.
#[test]
fn loop_what_is_truncated_beside_a_recovery_stays_empty() {
    let _alone = alone();
    for file_system in [&EXT4, &XFS] {
        let image = Image::of(file_system, 320 << 20);
        let overlay = Overlay::over(&image);
        let file = fragmented(&image, "upper/file");
        kill(unseen(&image, &overlay, &file, "punched"));
        let stopped = recovering(&image, "judged");
        truncate(&overlay.merged.join("file"), 0);
        truncate(&overlay.merged.join("file"), SIZE);
        let ended = go_on(stopped);
        let what = format!("{}: {ended:?}", file_system.name);
        assert!(ended.stdout.contains("others have changed it"), "{what}");
        assert!(std::fs::read(&file).unwrap() == vec![0; SIZE as usize], "{what}");
        is_for_the_owner(&image, &file, true, &what);
        // After all is durable, and the time is put back.
        let file = fragmented(&image, "upper/other");
        let like = like(&image, &file);
        kill(unseen(&image, &overlay, &file, "punched"));
        let stopped = recovering(&image, "synced");
        let merged = overlay.merged.join("other");
        truncate(&merged, 0);
        truncate(&merged, SIZE);
        set_time_as(&merged, &like);
        let ended = go_on(stopped);
        let what = format!("{}: {ended:?}", file_system.name);
        assert!(ended.stdout.contains("others have truncated it"), "{what}");
        is_for_the_owner(&image, &file, true, &what);
    }
}
