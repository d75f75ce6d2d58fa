//! `fragmend recover` beside other users: their journals are theirs, what they put in a journal's place is not
//! ours, and `recover` does not wait for their file systems.

mod support;

use fragmend_layout::ByteRange;
use fragmend_testbed::image::Image;
use fragmend_testbed::mount::MountGuard;
use fragmend_testbed::process::{Finished, finish};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::deaf::Deaf;
use support::records::{encoded, journal, make_journal, names, record_of};
use support::rewrite::{FRAGMEND, killed_at, outcomes, recover};
use support::{fragmented, readable_by_all};

/// A user who is not root.
const NOBODY: u32 = 65534;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A command that that user runs; it may be one that only root may reach, as a copy.
fn as_nobody(image: &Image, program: &str) -> Command {
    let copy = image.scratch().join("program");
    fs::copy(program, &copy).unwrap();
    readable_by_all(&copy);
    chmod(&copy, 0o755);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    command
}

/// The document of a `recover --json`, and its exit code.
fn document(ended: &Finished) -> (Value, i32) {
    let code = ended.status.code().unwrap_or_else(|| panic!("{ended:?}"));
    (serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}")), code)
}

/// The owner of the top of a mount may give any directory in it any name.
#[test]
fn loop_a_directory_that_others_can_rename_is_no_journal() {
    let image = Image::ext4(64 << 20);
    chown(image.path(), Some(NOBODY), None).unwrap();
    chmod(image.path(), 0o755);
    let (private, files) = (image.path().join("private"), ["backup.tar.part", "1-0.part"]);
    fs::create_dir(&private).unwrap();
    chmod(&private, 0o700);
    files.iter().for_each(|name| fs::write(private.join(name), "").unwrap());
    let ended = finish(as_nobody(&image, "/bin/mv").arg(&private).arg(journal(&image)));
    ended.expect(&[0]);
    for args in [vec![image.path()], vec![Path::new("--dry-run"), image.path()]] {
        let args: Vec<&dyn AsRef<OsStr>> = args.iter().map(|arg| arg as _).collect();
        let (told, code) = recover(&args);
        assert_eq!((outcomes(&told).len(), code), (0, 4), "{told}");
        let said = told["errors"][0].as_str().unwrap();
        assert!(said.contains("others may rename") && said.contains("chown"), "{said}");
        assert_eq!(names(&journal(&image)), ["1-0.part", "backup.tar.part"]);
    }
    // Nor is it removed when it is empty.
    files.iter().for_each(|name| fs::remove_file(journal(&image).join(name)).unwrap());
    assert_eq!(recover(&[&image.path()]).1, 4);
    assert!(journal(&image).exists());
    // As it says.
    chown(image.path(), Some(0), None).unwrap();
    assert_eq!(recover(&[&image.path()]).1, 0);
    // Elsewhere no less.
    let elsewhere = image.path().join("theirs/of-root");
    let named = elsewhere.join("fragmend-rewrite-0");
    fs::create_dir_all(&named).unwrap();
    chmod(&named, 0o700);
    fs::write(named.join("1-0.part"), "").unwrap();
    chown(elsewhere.parent().unwrap(), Some(NOBODY), None).unwrap();
    let (told, code) = recover(&[&"--journal", &elsewhere, &image.path()]);
    assert_eq!((outcomes(&told).len(), code), (0, 4), "{told}");
    assert!(named.join("1-0.part").exists());
}

/// A file with a hole, and its record in a journal at the top; all of it that user's.
fn punched_of_nobody(image: &Image) -> PathBuf {
    let (file, dir) = (image.path().join("file"), make_journal(image));
    File::create(&file).unwrap().set_len(8192).unwrap();
    let data = vec![0xee; 8192];
    let record = record_of(image, &file, ByteRange { start: 0, end: 8192 }, &data);
    let (record, bytes) = (dir.join("1-0.record"), encoded(&record, &data));
    fs::write(&record, bytes).unwrap();
    fs::write(dir.join("2-0.part"), "").unwrap();
    for path in [image.path(), &file, &dir, &record, &dir.join("2-0.part")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    chmod(&record, 0o600);
    file
}

#[test]
fn loop_the_owner_of_the_top_recovers_what_is_theirs() {
    let image = Image::ext4(64 << 20);
    let file = punched_of_nobody(&image);
    let mut command = as_nobody(&image, FRAGMEND);
    let (told, code) = document(&finish(command.args(["recover", "--json"]).arg(image.path())));
    assert_eq!((outcomes(&told), code), (vec!["never_begun".into(), "restored".into()], 0));
    assert_eq!(fs::read(file).unwrap(), vec![0xee; 8192]);
    assert!(!journal(&image).exists(), "{told}");
}

/// In a private directory its user may keep anything.
#[test]
fn loop_what_is_no_unfinished_copy_stays() {
    let image = Image::ext4(64 << 20);
    let dir = make_journal(&image);
    let at = |name: &str| dir.join(name);
    let head = [&b"FRAGMRW\n"[..], &[7; 9000]].concat();
    let unheaded = [&[0; 8192][..], &[7; 100]].concat();
    let ours: [(&str, &[u8]); 4] =
        [("1-0.part", b""), ("2-4096.part", &head), ("3-8192.part", &unheaded), ("4-0.part", &[0])];
    ours.iter().for_each(|(name, bytes)| fs::write(at(name), bytes).unwrap());
    let unlike = [&[0; 4000][..], &[7; 9000]].concat();
    for name in ["a.part", "01-0.part", "1-0-0.part", "-1-0.part", "1-.part", ".part", "+1-0.part"]
    {
        fs::write(at(name), "").unwrap();
    }
    fs::write(at("99999999999999999999-0.part"), "").unwrap();
    fs::write(at("10-0.part"), "precious").unwrap();
    fs::write(at("11-0.part"), unlike).unwrap();
    fs::write(at("12-0.part"), "").unwrap();
    fs::hard_link(at("12-0.part"), image.path().join("lost+found/second")).unwrap();
    symlink("10-0.part", at("13-0.part")).unwrap();
    fs::create_dir(at("14-0.part")).unwrap();
    rustix::fs::mknodat(CWD, at("15-0.part"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    fs::write(at("16-0.part"), "").unwrap();
    chown(at("16-0.part"), Some(NOBODY), None).unwrap();
    let before = names(&dir);
    let (told, code) = recover(&[&"--dry-run", &image.path()]);
    let count =
        |told: &Value, outcome: &str| outcomes(told).iter().filter(|o| *o == outcome).count();
    let left = before.len() - ours.len();
    assert_eq!((count(&told, "never_begun"), count(&told, "foreign"), code), (4, left, 1));
    assert_eq!(names(&dir), before);
    let (told, code) = recover(&[&image.path()]);
    assert_eq!((count(&told, "never_begun"), count(&told, "foreign"), code), (4, left, 1));
    let stay: Vec<_> =
        before.into_iter().filter(|name| ours.iter().all(|(own, _)| name != own)).collect();
    assert_eq!(names(&dir), stay);
}

/// A record that says that it is of nearly 2^64 bytes, beside sound ones.
#[test]
fn loop_no_length_that_a_record_claims_keeps_others_from_being_looked_at() {
    let image = Image::ext4(64 << 20);
    let (file, dir) = (image.path().join("file"), make_journal(&image));
    File::create(&file).unwrap().set_len(8192).unwrap();
    let data = vec![0xee; 8192];
    let sound = record_of(&image, &file, ByteRange { start: 0, end: 8192 }, &data);
    for length in [u64::MAX - (15 << 26) + 1, u64::MAX - (1 << 20) + 1, u64::MAX, 2 << 30] {
        for (name, end) in [("1-0.record", length), ("3-0.record", length)] {
            let mut forged = sound.clone();
            forged.range = ByteRange { start: 0, end };
            fs::write(dir.join(name), forged.encode()).unwrap();
        }
        fs::write(dir.join("2-0.record"), encoded(&sound, &data)).unwrap();
        names(&dir).iter().for_each(|name| chmod(&dir.join(name), 0o600));
        let (told, code) = recover(&[&"--dry-run", &image.path()]);
        let want = ["damaged", "would_restore", "damaged"];
        assert_eq!((outcomes(&told), code), (want.map(str::to_owned).to_vec(), 1), "{told}");
    }
}

/// How many names of a kind are looked at in one run.
const NAMES: usize = 4096;

#[test]
fn loop_names_beyond_a_limit_are_counted_and_not_listed() {
    let image = Image::ext4_with(128 << 20, &["-N", "20000"], "");
    let dir = make_journal(&image);
    for n in 0..NAMES + 10 {
        for ending in ["part", "record"] {
            let file = File::create(dir.join(format!("{n}-0.{ending}"))).unwrap();
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        }
    }
    let said = |told: &Value, code: i32, found: usize, what: &str| {
        assert_eq!((told["records"].as_array().unwrap().len(), code), (found, 5), "{what}");
        let errors = told["errors"].as_array().unwrap();
        let error = errors[0].as_str().unwrap();
        assert!(errors.len() == 1 && error.contains(what) && !error.contains('\n'), "{error}");
    };
    let (told, code) = recover(&[&"--dry-run", &image.path()]);
    said(&told, code, 2 * NAMES, "20 more names");
    let (told, code) = recover(&[&image.path()]);
    said(&told, code, 2 * NAMES, "20 more names");
    // The copies that were looked at are gone, and the next run has the others.
    let (told, code) = recover(&[&image.path()]);
    said(&told, code, NAMES + 10, "10 more names");
}

/// `recover --json` without a path, where nothing of other tests is mounted, after `more` was done; ended if it
/// waits.
fn recover_all(images: &[&Image], more: &str, program: &mut Command) -> (Value, i32) {
    const SCRIPT: &str = "
set -e
awk -v tmp=\"$TMP/\" 'index($5, tmp) == 1 { print $5 }' /proc/self/mountinfo |
    grep -v -F \"$KEEP\" | tac | while read -r point; do umount -l \"$point\" || true; done
eval \"$MORE\"
exec timeout -s KILL 10 \"$@\"";
    let keep: Vec<_> = images.iter().map(|image| image.scratch().to_str().unwrap()).collect();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "bash", "-c", SCRIPT, "bash"]);
    command.arg(program.get_program()).args(program.get_args()).args(["recover", "--json"]);
    if let Some(dir) = program.get_current_dir() {
        command.current_dir(dir);
    }
    command.env("TMP", std::env::temp_dir()).env("KEEP", keep.join("\n")).env("MORE", more);
    let ended = finish(&mut command);
    assert!(ended.status.code() != Some(137), "it waits: {ended:?}");
    document(&ended)
}

/// The outcomes of records in this image's journal.
fn outcomes_of(told: &Value, journal: &Path) -> Vec<String> {
    let records = told["records"].as_array().unwrap().iter();
    let here = |r: &&Value| Path::new(r["record"].as_str().unwrap()).starts_with(journal);
    records.filter(here).map(|r| r["outcome"].as_str().unwrap().to_owned()).collect()
}

/// Nor is a mount passed over because another one, itself out of sight, is named above it.
#[test]
fn loop_recovering_all_waits_for_no_mount_that_hides_another() {
    let (image, hidden) = (Image::ext4(128 << 20), Image::ext4(128 << 20));
    for image in [&image, &hidden] {
        killed_at(image, &fragmented(image, "file"), "punched");
    }
    let at = |name: &str| hidden.scratch().join(name);
    fs::create_dir_all(at("a/disk")).unwrap();
    let bound = MountGuard::bind(hidden.path(), &at("a/disk"));
    let deaf = Deaf::at(&at("a"));
    fs::create_dir_all(at("x/y")).unwrap();
    let (own, x) = (image.path().display(), at("x"));
    let x = x.display();
    let more = format!(
        "umount {}
         mount -t tmpfs none {x}/y
         mount -t tmpfs none {x}
         mkdir -p {x}/y/z
         mount --bind {own} {x}/y/z
         umount {own}",
        hidden.path().display()
    );
    let (told, _) = recover_all(&[&image, &hidden], &more, &mut Command::new(FRAGMEND));
    let found = outcomes_of(&told, &at("x/y/z/.fragmend-rewrite"));
    assert_eq!((found.len(), told["errors"].as_array().unwrap().len()), (1, 0), "{told}");
    assert_eq!(found, ["restored"]);
    let left = told["left"].as_array().unwrap();
    let hidden = |line: &&Value| line.as_str().unwrap().contains("/a/disk: not looked at");
    assert_eq!(left.iter().filter(hidden).count(), 1, "{told}");
    drop((deaf, bound));
}

/// What a kernel file system was mounted from is a word, and no name of a file.
#[test]
fn loop_recovering_all_waits_for_no_name_in_the_working_directory() {
    let image = Image::ext4(64 << 20);
    let (cwd, deaf) = (image.scratch().join("cwd"), image.scratch().join("deaf"));
    [&cwd, &deaf].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    for name in ["none", "proc", "sysfs", "tmpfs", "cgroup", "devpts", "devtmpfs", "udev"] {
        symlink(deaf.join("x"), cwd.join(name)).unwrap();
    }
    let deaf = Deaf::at(&deaf);
    let (told, _) = recover_all(&[&image], "", Command::new(FRAGMEND).current_dir(cwd));
    assert!(told["errors"].as_array().unwrap().is_empty(), "{told}");
    drop(deaf);
}

/// A file system of the owner's in the place of the journal.
#[test]
fn loop_recovering_waits_for_no_file_system_that_is_mounted_on_the_journal() {
    let image = Image::ext4(64 << 20);
    make_journal(&image);
    let deaf = Deaf::at(&journal(&image));
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "10", FRAGMEND, "recover", "--json"]).arg(image.path());
    let (told, code) = document(&finish(&mut command));
    assert_eq!((outcomes(&told).len(), code), (0, 4), "{told}");
    drop(deaf);
}

/// Any user may make a directory of this name where all users may write.
#[test]
fn loop_a_journal_of_another_user_is_left_to_them() {
    let image = Image::ext4(128 << 20);
    let theirs = Image::ext4(64 << 20);
    killed_at(&image, &fragmented(&image, "file"), "punched");
    let file = punched_of_nobody(&theirs);
    let (told, _) = recover_all(&[&image, &theirs], "", &mut Command::new(FRAGMEND));
    assert_eq!(outcomes_of(&told, image.path()), ["restored"], "{told}");
    let left = told["left"].as_array().unwrap();
    let of_theirs = |line: &&Value| line.as_str().unwrap().contains("uid 65534");
    assert_eq!(left.iter().filter(of_theirs).count(), 1, "{told}");
    assert!(told["errors"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(fs::read(&file).unwrap(), vec![0; 8192]);
    // If the user names it, the answer has the reason why nothing is done.
    let (told, code) = recover(&[&theirs.path()]);
    assert_eq!((outcomes(&told).len(), code), (0, 4), "{told}");
    // And the other way round: root's, of which they can see nothing but the name.
    killed_at(&image, &fragmented(&image, "file"), "punched");
    chmod(image.scratch(), 0o755);
    let command = as_nobody(&theirs, FRAGMEND);
    let (told, code) = recover_all(&[&image, &theirs], "", &mut { command });
    let mut found = outcomes_of(&told, theirs.path());
    found.sort();
    assert_eq!((found, code), (vec!["never_begun".to_owned(), "restored".into()], 0), "{told}");
    let left = told["left"].as_array().unwrap();
    assert!(left.iter().any(|line| line.as_str().unwrap().contains("uid 0")), "{told}");
    File::open(&file).unwrap().read_exact_at(&mut [0; 8192], 0).unwrap();
}

/// A file in the place of a journal, whichever user may have put it there.
#[test]
fn loop_what_is_no_directory_and_not_ours_is_left_to_its_owner() {
    let image = Image::ext4(64 << 20);
    chmod(image.path(), 0o1777);
    fs::write(journal(&image), "").unwrap();
    chown(journal(&image), Some(NOBODY), None).unwrap();
    let (told, _) = recover_all(&[&image], "", &mut Command::new(FRAGMEND));
    assert!(told["errors"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(told["left"].as_array().unwrap().len(), 1, "{told}");
    // Ours: something is wrong, and only we can put it right.
    chown(journal(&image), Some(0), None).unwrap();
    let (told, _) = recover_all(&[&image], "", &mut Command::new(FRAGMEND));
    assert_eq!(told["errors"].as_array().unwrap().len(), 1, "{told}");
}
