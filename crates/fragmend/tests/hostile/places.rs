//! The owner of a directory on a path may put something else there: a link, a mount whose program
//! never answers, another directory. fragmend does not wait for that, and does not mistake it for
//! what was there.

use super::support::deaf::Deaf;
use super::support::rewrite::killed_at;
use super::support::{SIZE, fragmented, plan, readable_by_all, write_plan};
use super::{FRAGMEND, fragmend};
use fragmend_layout::FileId;
use fragmend_plan::Policy;
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::{Running, finish};
use fragmend_testbed::tools::extents;
use fragmend_trace::{Event, Existing, Level, Meta, Op, TraceWriter};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// A user who is not root.
const NOBODY: u32 = 65534;

/// A trace that saw one read of all of `file`, at that path.
fn trace_of(file: &Path, bytes: u64, to: &Path) {
    let meta = file.metadata().unwrap();
    let generation = fragmend_sys::inode::generation(fs::File::open(file).unwrap()).unwrap();
    let path = file.to_owned();
    let find = Box::new(move |_| Some(path.clone()));
    let mut writer = TraceWriter::create(to, Existing::Replace, find).unwrap();
    let event = Event {
        time_ns: 1,
        file: FileId { device: meta.dev(), inode: meta.ino(), generation },
        offset: 0,
        length: bytes as u32,
        bytes,
        count: 1,
        pid: 1,
        thread: 1,
        uid: 0,
        comm: [0; 16],
        op: Op::Read,
        direct: true,
        windowed: false,
    };
    writer.append(&[event]).unwrap();
    writer.finish(&Meta::new(Level::Syscall, 1)).unwrap();
}

#[test]
fn loop_nobody_waits_for_a_file_system_that_is_planted_on_the_way() {
    const BYTES: u64 = 1 << 20;
    let image = Image::ext4(128 << 20);
    let at = |name: &str| image.scratch().join(name).to_str().unwrap().to_owned();
    for how in ["link", "mount"] {
        let dir = image.path().join(how);
        fs::create_dir(&dir).unwrap();
        let file = dir.join("file");
        interleaved(&file, BYTES, &[4096], true).unwrap();
        image.sync();
        write_plan(&plan(&[&file], Policy::WholeFile), Path::new(&at("plan.json")));
        trace_of(&file, BYTES, Path::new(&at("trace.parquet")));
        let moved = image.path().join(format!("{how} moved"));
        let deaf = if how == "link" {
            let elsewhere = image.scratch().join("elsewhere");
            fs::create_dir(&elsewhere).unwrap();
            fs::rename(&dir, &moved).unwrap();
            symlink(&elsewhere, &dir).unwrap();
            Deaf::at(&elsewhere)
        } else {
            Deaf::at(&dir)
        };
        // A walk of everything around it, and a plan from a trace of the file in it.
        let top = image.path().to_str().unwrap();
        fragmend(["scan", "-q", "--source", "fiemap", top]).expect(&[0]);
        fragmend(["plan", "-q", "--policy", "whole-file", top]).expect(&[0]);
        let traced =
            fragmend(["plan", "--json", "--policy", "fragpicker", "-t", &at("trace.parquet")]);
        let traced: serde_json::Value = serde_json::from_str(&traced.expect(&[0])).unwrap();
        assert_eq!(traced["files"], 1, "{how}: {traced}");
        // Found by its number, and moved.
        fragmend(["apply", "-q", "--rate", "max", &at("plan.json")]).expect(&[0]);
        drop(deaf);
        let file = if how == "link" { moved.join("file") } else { file };
        assert_eq!(extents(&file), 1, "{how}");
    }
    image.fsck();
}

/// A record contains the path of its file below the mount: a user who can write there may have put a link in
/// it.
#[test]
fn loop_recovering_waits_for_no_file_system_that_is_planted_on_the_way() {
    let image = Image::ext4(128 << 20);
    let (dir, moved) = (image.path().join("dir"), image.path().join("moved"));
    let elsewhere = image.scratch().join("elsewhere");
    [&dir, &elsewhere].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    killed_at(&image, &fragmented(&image, "dir/file"), "punched");
    fs::rename(&dir, &moved).unwrap();
    symlink(&elsewhere, &dir).unwrap();
    // So that the kernel has no name of the file in memory.
    image.remount();
    let deaf = Deaf::at(&elsewhere);
    let text = fragmend([OsStr::new("recover"), image.path().as_os_str()]).expect(&[0]);
    assert!(!text.contains("elsewhere"), "{text}");
    drop(deaf);
    assert!(is_intact(&moved.join("file"), SIZE).unwrap());
    image.fsck();
}

/// Without `--keep`, no file of `auto` has a name at which another user could put something else.
#[test]
fn loop_auto_leaves_nothing_to_be_swapped_where_temporary_files_go() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let place = image.scratch().join("theirs");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(NOBODY), None).unwrap();
    let mut command = Command::new(FRAGMEND);
    command.args(["auto", "--dry-run", "--duration", "2s"]).arg(image.path());
    command.env("TMPDIR", &place).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let (mut names, started) = (BTreeSet::new(), std::time::Instant::now());
    while running.child().try_wait().unwrap().is_none() {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "it does not end");
        names.extend(fs::read_dir(&place).unwrap().map(|e| e.unwrap().file_name()));
        let mut bytes = Vec::new();
        // The read is recorded, whether or not the data is cached.
        std::io::Read::read_to_end(&mut fs::File::open(&file).unwrap(), &mut bytes).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let text = running.wait().expect(&[0, 2]);
    assert!(names.is_empty(), "{names:?}");
    // The trace was read back all the same.
    assert!(text.contains("file") && text.contains("requests"), "{text}");
}

/// As after `sudo -u` of another user, in a directory of root's own.
#[test]
fn loop_an_absolute_output_needs_no_working_directory() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let (closed, open) = (image.scratch().join("closed"), image.scratch().join("open"));
    for (dir, mode) in [(&closed, 0o700), (&open, 0o777)] {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, PermissionsExt::from_mode(mode)).unwrap();
    }
    chown(&file, Some(NOBODY), None).unwrap();
    readable_by_all(&file);
    let output = open.join("plan.json");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", FRAGMEND]);
    command.args(["plan", "-q", "--policy", "whole-file", "-o"]).arg(&output).arg(&file);
    command.current_dir(&closed);
    run("chmod", [Path::new("755"), image.scratch()]);
    finish(&mut command).expect(&[0]);
    assert_eq!(output.metadata().unwrap().uid(), NOBODY);
}
