//! `fragmend scan --free` and `spaces` beside layouts, as a user sees them.

use fragmend_layout::ByteRange;
use fragmend_report::scan::{ScanReport, ScanSpace};
use fragmend_testbed::file_system::{BTRFS, XFS};
use fragmend_testbed::image::{Image, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const BINARY: &str = env!("CARGO_BIN_EXE_fragmend");

fn scan(path: &Path, args: &[&str]) -> Output {
    Command::new(BINARY).arg("scan").arg(path).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(output: &Output) -> ScanReport {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one file system of a scan.
fn space(report: ScanReport) -> ScanSpace {
    let [space] = <[ScanSpace; 1]>::try_from(report.spaces).unwrap();
    space
}

#[test]
fn loop_free_space_is_in_text_and_json() {
    for file_system in [&fragmend_testbed::file_system::EXT4, &XFS, &BTRFS] {
        let image = Image::of(file_system, 320 << 20);
        fs::write(image.path().join("file"), vec![1; 32 << 20]).unwrap();
        let space = space(report(&scan(image.path(), &["--json", "--free"])));
        let figures = space.figures.unwrap();
        assert_eq!(Path::new(&space.path.path), image.path());
        assert_eq!((space.file_system.as_str(), space.not_known), (file_system.name, None));
        let steps = &space.free_run_distribution;
        assert_eq!(steps.iter().map(|step| step.bytes).sum::<u64>(), figures.free_bytes);
        assert_eq!(steps.iter().map(|step| step.runs).sum::<u64>(), figures.free_runs);
        let long = steps.iter().filter(|step| step.from_bytes >= 1 << 20);
        assert_eq!(long.map(|step| step.bytes).sum::<u64>(), figures.free_bytes_in_long_runs);
        assert!(figures.longest_free_run_bytes >= steps.last().unwrap().from_bytes);
        let all = figures.free_bytes + figures.unallocated_bytes;
        assert!(all > 150 << 20 && all < 288 << 20, "{figures:?}");
        assert_eq!(figures.unallocated_bytes > 0, file_system.name == "btrfs");
        // Runs are written with layouts alone.
        assert_eq!(space.runs, None);

        let shown = scan(image.path(), &["--free"]);
        let out = text(&shown.stdout);
        assert_eq!(shown.status.code(), Some(0), "{out}");
        let title = format!("Free space of {} ({}):", image.path().display(), file_system.name);
        assert!(out.contains(&title) && out.contains("in runs of 1 MiB or more"), "{out}");
        assert!(!text(&scan(image.path(), &[]).stdout).contains("Free space"));
    }
}

#[test]
fn loop_runs_beside_layouts_are_of_the_same_addresses() {
    let image = Image::ext4(128 << 20);
    fs::write(image.path().join("file"), vec![1; 8 << 20]).unwrap();
    let report = report(&scan(image.path(), &["--json", "--layouts"]));
    let layout = report.files[0].layout.clone().unwrap();
    let space = space(report);
    assert_eq!(layout.device, space.device);
    let runs = space.runs.unwrap();
    assert!(runs.len() > 2, "{runs:?}");
    for extent in &layout.extents {
        let at = ByteRange::at(extent.physical, extent.length);
        assert!(runs.iter().all(|run| !run.range.overlaps(at)), "{extent:?}");
    }
}

/// A Btrfs is one file system, whatever number each of its subvolumes has.
#[test]
fn loop_subvolumes_have_one_space() {
    let image = Image::of(&BTRFS, 320 << 20);
    let below = image.path().join("below");
    run("btrfs", ["subvolume".as_ref(), "create".as_ref(), below.as_os_str()]);
    for dir in [image.path(), &below] {
        fs::write(dir.join("file"), vec![1; 1 << 20]).unwrap();
    }
    let report = report(&scan(image.path(), &["--json", "--layouts", "--cross-file-systems"]));
    let mut devices: Vec<u64> =
        report.files.iter().map(|file| file.layout.as_ref().unwrap().device).collect();
    let space = space(report);
    let mut told = [vec![space.device], space.further_devices].concat();
    devices.sort_unstable();
    told.sort_unstable();
    assert_eq!((devices.len(), devices), (2, told));
}

#[test]
fn loop_what_is_not_known_is_an_error_where_it_was_asked_for() {
    let image = Image::of(&BTRFS, 320 << 20);
    fs::write(image.path().join("file"), [1; 5000]).unwrap();
    fs::set_permissions(image.scratch(), Permissions::from_mode(0o755)).unwrap();
    let binary = image.scratch().join("fragmend");
    fs::copy(BINARY, &binary).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.arg("scan").arg(image.path()).args(args).current_dir("/").output().unwrap()
    };
    let shown = as_nobody(&["--free"]);
    let said = text(&shown.stderr);
    assert_eq!(shown.status.code(), Some(4), "{said}");
    assert!(said.contains("is not known: only root may read it"), "{said}");
    assert!(text(&shown.stdout).contains("All files:"));
    // Beside layouts, the document says why.
    let space = space(report(&as_nobody(&["--json", "--layouts"])));
    assert_eq!(space.not_known.as_deref(), Some("only root may read it"));
    assert_eq!((space.figures, space.runs), (None, None));
}
