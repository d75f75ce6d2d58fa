//! `fragmend scan` as a user runs it: real file systems, real users, bad input.

use fragmend_layout::SkipReason;
use fragmend_report::scan::ScanReport;
use fragmend_testbed::{
    fragment,
    image::{Image, run},
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_fragmend");

fn scan<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(BINARY).arg("scan").args(args).output().unwrap()
}

fn report(output: &Output) -> ScanReport {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn json(args: &[&OsStr]) -> (ScanReport, i32) {
    let output = scan(args.iter().copied().chain([OsStr::new("--json")]));
    (report(&output), output.status.code().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An image with a file in many fragments, and one in a single extent with a second name.
fn fragmented_image() -> (Image, PathBuf) {
    let image = Image::ext4(256 << 20);
    let fragments = image.path().join("fragments");
    fragment::interleaved(&fragments, 4 << 20, &fragment::FRAGPICKER_EXTENTS, true).unwrap();
    fs::write(image.path().join("whole"), vec![1; 1 << 20]).unwrap();
    fs::hard_link(image.path().join("whole"), image.path().join("whole too")).unwrap();
    (image, fragments)
}

#[test]
fn loop_every_source_counts_what_filefrag_counts() {
    let (image, fragments) = fragmented_image();
    let said = run("filefrag", [&fragments]);
    let extents: u64 = said.split_whitespace().rev().nth(2).unwrap().parse().unwrap();
    assert!(extents > 400, "{said}");
    for source in ["auto", "fiemap", "bulk"] {
        let args = [image.path().as_os_str(), OsStr::new("--source"), OsStr::new(source)];
        let (report, code) = json(&args);
        assert_eq!(code, 0, "{source}");
        assert_eq!((report.schema_version, report.command.as_str()), (1, "scan"));
        assert_eq!(report.files.len(), 3, "hard links count once");
        assert_eq!(report.totals.further_names, 1);
        let file = report.files.iter().find(|f| f.path.path.ends_with("fragments")).unwrap();
        assert_eq!(file.figures.extents, extents, "{source}");
        assert_eq!(file.figures.ideal_extents, 1);
        assert_eq!(file.figures.bytes, 4 << 20);
        assert_eq!(file.figures.median_frag_size_bytes, 4096);
        assert!(file.figures.requests_now > 10 * file.figures.requests_best, "{file:?}");
        assert_eq!(
            report.totals.figures.extents,
            report.files.iter().map(|f| f.figures.extents).sum::<u64>()
        );
        let fragments: u64 = report.frag_size_distribution.iter().map(|s| s.count).sum();
        assert!(fragments >= extents);
    }
}

/// What is on the device at the addresses of an exported layout is the file, from every source; and the lab reads the export.
#[test]
fn loop_layouts_are_where_the_files_are() {
    let (image, fragments) = fragmented_image();
    image.sync();
    let content = fs::read(&fragments).unwrap();
    let device = File::open(image.device()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for source in ["fiemap", "bulk"] {
        let args = ["--json", "--layouts", "--source", source].map(OsStr::new);
        let output = scan(args.into_iter().chain([image.path().as_os_str()]));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let report = report(&output);
        assert!(report.files.iter().all(|file| file.layout.is_some()));
        let file = report.files.iter().find(|f| f.path.path.ends_with("fragments")).unwrap();
        let layout = file.layout.as_ref().unwrap();
        assert_eq!(layout.extents.len() as u64, file.figures.extents, "{source}");
        for extent in &layout.extents {
            let mut bytes = vec![0; extent.length as usize];
            device.read_exact_at(&mut bytes, extent.physical).unwrap();
            assert!(bytes == content[extent.logical as usize..][..bytes.len()], "{extent:?}");
        }
        fs::write(dir.path().join("scan.json"), &output.stdout).unwrap();
        let path = &file.path.path;
        let load = format!(
            "about = 'real'\ndrive = 'nvme-b'\nlayout = 'scan.json'\n[[phase]]\nname = 'read'\n\
             steps = [{{ read = {{ file = '{path}', bytes = 1048576 }} }}]\n"
        );
        fs::write(dir.path().join("load.toml"), load).unwrap();
        let lab = Command::new(BINARY)
            .args(["lab", "run", "load.toml", "--json"])
            .current_dir(dir.path())
            .output();
        let lab = lab.unwrap();
        assert_eq!(lab.status.code(), Some(0), "{}", text(&lab.stderr));
        let read: serde_json::Value = serde_json::from_slice(&lab.stdout).unwrap();
        let rows = read["rows"].as_array().unwrap();
        let requests =
            rows.iter().find(|row| row["name"] == "round-robin, read: requests").unwrap();
        assert!(requests["ours"].as_f64().unwrap() > 400.0, "{requests}");
    }
}

#[test]
fn loop_layouts_are_for_json_and_not_written_unless_asked_for() {
    let (image, _) = fragmented_image();
    let refused = scan([OsStr::new("--layouts"), image.path().as_os_str()]);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(8), ""));
    assert!(text(&refused.stderr).contains("--layouts is for --json"));
    let (plain, _) = json(&[image.path().as_os_str()]);
    assert!(plain.files.iter().all(|file| file.layout.is_none()));
}

#[test]
fn loop_text_names_the_worst_and_the_next_step() {
    let (image, _) = fragmented_image();
    let output = scan([image.path()]);
    assert_eq!(output.status.code(), Some(0));
    let out = text(&output.stdout);
    // Title, blank line, heads, and then the worst file.
    let worst = out.lines().nth(3).unwrap();
    assert!(worst.trim_end().ends_with("/fragments"), "{out}");
    assert!(out.contains("would save"), "{out}");
    assert!(text(&output.stderr).contains("fragmend record -o trace.parquet"));
    let quiet = scan([OsStr::new("-q"), image.path().as_os_str()]);
    assert_eq!(text(&quiet.stderr), "");
    let checked = scan([OsStr::new("--check"), image.path().as_os_str()]);
    assert_eq!((checked.status.code(), text(&checked.stdout)), (Some(2), out));
}

#[test]
fn loop_nothing_fragmented_is_exit_zero_and_says_so() {
    let image = Image::ext4(128 << 20);
    fs::write(image.path().join("whole"), vec![1; 1 << 20]).unwrap();
    let output = scan([OsStr::new("--check"), image.path().as_os_str()]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("Nothing is fragmented."));
    assert!(text(&output.stderr).contains("Nothing needs doing."));
}

#[test]
fn loop_without_root_what_can_be_read_is_scanned() {
    let (image, fragments) = fragmented_image();
    fs::set_permissions(image.scratch(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(image.path().join("whole"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(image.path().join("closed")).unwrap();
    fs::set_permissions(image.path().join("closed"), Permissions::from_mode(0o700)).unwrap();
    let binary = image.scratch().join("fragmend");
    fs::copy(BINARY, &binary).unwrap();
    let as_nobody = |args: &[&OsStr]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&binary)
            .arg("scan")
            .args(args)
            .current_dir("/")
            .output()
            .unwrap()
    };
    let output = as_nobody(&[image.path().as_os_str(), OsStr::new("--json")]);
    let found = report(&output);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        found.files.iter().any(|f| Path::new(&f.path.path) == fragments && f.figures.extents > 400)
    );
    // The file, lost+found and the closed directory.
    assert_eq!(found.totals.skipped, 3, "{:?}", found.skipped);
    assert!(
        found
            .skipped
            .iter()
            .all(|s| s.reason == "permission denied" && s.code == SkipReason::PermissionDenied)
    );

    let demand = ["--json", "--source", "bulk"].map(OsStr::new);
    let bulk = as_nobody(&[&[image.path().as_os_str()], &demand[..]].concat());
    assert_eq!((bulk.status.code(), text(&bulk.stdout)), (Some(4), String::new()));
    assert!(text(&bulk.stderr).contains("cannot be read"), "{}", text(&bulk.stderr));

    let closed = as_nobody(&[image.path().join("whole").as_os_str()]);
    assert_eq!(closed.status.code(), Some(4));
    assert_eq!(text(&closed.stderr).lines().count(), 1, "{}", text(&closed.stderr));
}

#[test]
fn loop_a_read_only_mount_is_scanned() {
    let (image, _) = fragmented_image();
    let (before, _) = json(&[image.path().as_os_str()]);
    image.unmount();
    image.mount_with("ro");
    let (after, code) = json(&[image.path().as_os_str()]);
    assert_eq!(code, 0);
    assert_eq!(after.files, before.files);
}

#[test]
fn loop_names_of_any_bytes_come_back() {
    let image = Image::ext4(128 << 20);
    let name = OsStr::from_bytes(b"caf\xE9\nnew line");
    fs::write(image.path().join(name), [1; 100]).unwrap();
    let (found, _) = json(&[image.path().as_os_str()]);
    assert_eq!(found.files[0].path.to_path().unwrap(), image.path().join(name));
    assert!(found.files[0].path.path_bytes.is_some());
    let (single, _) = json(&[image.path().join(name).as_os_str()]);
    assert_eq!(single.files, found.files);
}

#[test]
fn loop_overlapping_paths_and_single_files_count_once() {
    let (image, fragments) = fragmented_image();
    let root = image.path().as_os_str();
    let (once, _) = json(&[root]);
    let (thrice, _) = json(&[root, fragments.as_os_str(), root]);
    assert_eq!(thrice.totals.files, once.totals.files);
    assert_eq!(thrice.totals.figures.extents, once.totals.figures.extents);
    let (single, code) = json(&[fragments.as_os_str()]);
    assert_eq!((single.files.len(), code), (1, 0));
    assert_eq!(single.files[0].path.path, fragments.to_str().unwrap());
}

#[test]
fn loop_other_file_systems_only_when_told() {
    let (outer, inner) = (Image::ext4(128 << 20), Image::ext4(128 << 20));
    fs::write(outer.path().join("a"), [1; 5000]).unwrap();
    fs::write(inner.path().join("b"), [1; 5000]).unwrap();
    let point = outer.path().join("inner");
    fs::create_dir(&point).unwrap();
    run("mount", [OsStr::new("--bind"), inner.path().as_os_str(), point.as_os_str()]);
    let (stay, _) = json(&[outer.path().as_os_str()]);
    let (cross, _) = json(&[outer.path().as_os_str(), OsStr::new("--cross-file-systems")]);
    run("umount", [&point]);
    assert_eq!(stay.files.len(), 1);
    assert_eq!(stay.skipped.len(), 1);
    assert_eq!(stay.skipped[0].reason, "on another file system");
    assert_eq!(cross.files.len(), 2);
    assert!(cross.skipped.is_empty());
}

#[test]
fn loop_a_file_mounted_over_another_is_not_mistaken_for_it() {
    let (outer, inner) = (Image::ext4(128 << 20), Image::ext4(128 << 20));
    fs::write(outer.path().join("covered"), [1; 5000]).unwrap();
    fs::write(inner.path().join("cover"), vec![1; 100_000]).unwrap();
    let point = outer.path().join("covered");
    let cover = inner.path().join("cover");
    run("mount", [OsStr::new("--bind"), cover.as_os_str(), point.as_os_str()]);
    let found: Vec<_> = ["auto", "fiemap"]
        .map(|s| json(&[outer.path().as_os_str(), "--source".as_ref(), s.as_ref()]).0)
        .into();
    run("umount", [&point]);
    for report in found {
        assert_eq!(report.files.len(), 0, "{:?}", report.files);
        assert_eq!(report.skipped[0].reason, "on another file system");
    }
}

#[test]
fn loop_a_path_that_is_not_there_fails_and_the_others_are_scanned() {
    let (image, _) = fragmented_image();
    let gone = image.path().join("gone");
    let output = scan([gone.as_os_str()]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("No such file"), "{said}");

    let (both, code) = json(&[gone.as_os_str(), image.path().as_os_str()]);
    assert_eq!(code, 4);
    let checked = [OsStr::new("--check"), gone.as_os_str(), image.path().as_os_str()];
    assert_eq!(json(&checked).1, 4 | 2);
    assert_eq!((both.files.len(), both.errors.len()), (3, 1));
}

#[test]
fn no_fiemap_is_said_plainly() {
    for (path, name) in [("/proc/self", "proc"), ("/sys/kernel", "sysfs")] {
        let output = scan([path]);
        assert_eq!(output.status.code(), Some(4), "{path}");
        let said = text(&output.stderr);
        assert!(said.contains(name) && said.contains("no FIEMAP"), "{said}");
    }
}

#[test]
fn wrong_usage_is_exit_eight() {
    for args in [&[][..], &["/", "--source", "guess"], &["/", "--top", "-1"]] {
        assert_eq!(scan(args).status.code(), Some(8), "{args:?}");
    }
}

#[test]
fn help_that_cannot_be_printed_fails() {
    let help = |to: std::fs::File| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fragmend"));
        command.arg("--help").stdout(to).stderr(std::process::Stdio::null()).status().unwrap()
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(help(full).code(), Some(4));
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(help(null).code(), Some(0));
}

#[test]
fn neither_file_nor_directory_is_refused() {
    let output = scan(["/dev/null"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("neither a file nor a directory"));
}

#[test]
fn loop_a_closed_pipe_ends_it_quietly() {
    let image = Image::ext4(256 << 20);
    for i in 0..3000 {
        let file = File::create(image.path().join(format!("file-{i}"))).unwrap();
        file.write_all_at(&[1], 0).unwrap();
    }
    let mut child = Command::new(BINARY)
        .args(["scan", "--json"])
        .arg(image.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn loop_deeper_than_the_longest_path() {
    let image = Image::ext4(128 << 20);
    let name = "d".repeat(200);
    let mut script = OsString::from("set -e; cd \"$0\";");
    (0..30).for_each(|_| script.push(format!("mkdir {name}; cd -P ./{name};")));
    script.push("echo here > deep");
    run("bash", [OsStr::new("-c"), &script, image.path().as_os_str()]);
    for source in ["fiemap", "bulk"] {
        let (found, _) = json(&[image.path().as_os_str(), "--source".as_ref(), source.as_ref()]);
        assert_eq!((found.files.len(), found.totals.skipped), (1, 0), "{source}");
        assert!(found.files[0].path.path.len() > 6000);
    }
}
