//! Trees that a user makes deep, and trees that no file system makes but the supplier of a disk does:
//! work and memory go with what is on the device.

use super::support::fragmented;
use super::{fragmend, within};
use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::Finished;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, linkat, mkdirat, openat};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Memory that is enough for what is in these images: address space in KiB.
const LITTLE: &str = "ulimit -v 786432";

/// Opens the directory at the end of a new chain of `levels`, each with a name of 255 bytes `byte`.
fn deep(top: &Path, levels: usize, byte: u8) -> OwnedFd {
    let name = vec![byte; 255];
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = File::open(top).unwrap().into();
    for _ in 0..levels {
        mkdirat(&at, name.as_slice(), Mode::RWXU).unwrap();
        at = openat(&at, name.as_slice(), flags, Mode::empty()).unwrap();
    }
    at
}

fn create(at: &OwnedFd, name: &str) -> File {
    let new = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    openat(at, name, new, Mode::RUSR).unwrap().into()
}

/// Two blocks of a file that are apart on the device.
fn two_fragments(file: &File) {
    file.write_all_at(&[7; 12288], 0).unwrap();
    file.sync_all().unwrap();
    fallocate(file, FallocateFlags::COLLAPSE_RANGE, 4096, 4096).unwrap();
}

fn json(ended: Finished) -> Value {
    serde_json::from_str(&ended.expect(&[0])).unwrap()
}

#[test]
fn loop_many_names_of_a_deep_file_cost_little() {
    let image = Image::ext4_with(128 << 20, &["-N", "8000"], "");
    let (one, two) = (image.path().join("one"), image.path().join("two"));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&two).unwrap();
    let (one, two) = (deep(&one, 2000, b'x'), deep(&two, 2000, b'x'));
    create(&one, "0").write_all(b"x").unwrap();
    for n in 1..20_000 {
        let to = if n % 2 == 0 { &one } else { &two };
        linkat(&one, "0", to, format!("{n}"), rustix::fs::AtFlags::empty()).unwrap();
    }
    image.sync();
    let started = Instant::now();
    let report = json(within(LITTLE, ["scan", "--json", image.path().to_str().unwrap()]));
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    let totals = &report["totals"];
    assert_eq!((&totals["files"], &totals["further_names"]), (&1.into(), &19_999.into()));
}

#[test]
fn loop_files_with_paths_of_megabytes_are_shown_planned_and_moved() {
    let image = Image::ext4_with(192 << 20, &["-N", "20000"], "");
    // A control character is six bytes of JSON.
    let end = deep(image.path(), 13_000, 1);
    for n in 0..20 {
        two_fragments(&create(&end, &format!("file{n}")));
    }
    image.sync();
    let path = image.path().to_str().unwrap();
    let shown = within(LITTLE, ["scan", path]).expect(&[0]);
    assert!(shown.len() < 100_000, "{}", shown.len());
    assert!(shown.contains("/file7") && shown.contains("bytes of the path left out"), "{shown}");
    let report = json(within(LITTLE, ["scan", "--json", path]));
    let files = report["files"].as_array().unwrap();
    assert!(files.iter().all(|f| f["path_shortened"] == true && f["extents"] == 2), "{files:?}");
    assert!(files.iter().all(|f| f["path"].as_str().unwrap().starts_with(path)), "{files:?}");

    let kept = image.scratch().join("plan.json");
    let plan = ["plan", "--policy", "whole-file", "-o", kept.to_str().unwrap(), path];
    within(LITTLE, plan).expect(&[0]);
    assert!(kept.metadata().unwrap().len() < 100_000, "{:?}", kept.metadata());
    let ended = within(LITTLE, ["apply", "--rate", "max", "--json", kept.to_str().unwrap()]);
    let told = ended.expect(&[0]);
    let summary: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(summary["ranges_moved"], 20, "{told}");
}

/// An ext4 that is changed while it is not mounted.
struct Forged {
    image: Image,
}

impl Forged {
    /// With indirect blocks, and nothing that would notice that they are forged.
    fn new() -> Self {
        let features = "^extent,^metadata_csum,^64bit,^dir_index,^has_journal,^ea_inode";
        Self { image: Image::ext4_with(64 << 20, &["-O", features, "-N", "1024"], "") }
    }

    fn path(&self) -> &str {
        self.image.path().to_str().unwrap()
    }

    /// Unmounts it and runs these commands of debugfs; `before` may change the device.
    fn change(&self, commands: &str, before: impl FnOnce(&File)) {
        self.image.unmount();
        let device = File::options().write(true).open(self.image.device()).unwrap();
        before(&device);
        device.sync_all().unwrap();
        let script = self.image.scratch().join("commands");
        fs::write(&script, commands).unwrap();
        run("debugfs", ["-w", "-f", script.to_str().unwrap(), self.image.device()]);
        self.image.mount_with("");
    }

    /// Makes all blocks of the file `name` the block that is its first one now, and its size `bytes`.
    fn one_block_for_all(&self, name: &str, bytes: u64, sectors: u64) {
        let request = format!("blocks /{name}");
        let told = run("debugfs", ["-R", &request, self.image.device()]);
        let block: u32 = told.split_whitespace().next().unwrap().parse().unwrap();
        let (single, double, triple) = (9001u32, 9002u32, 9003u32);
        let direct: String = (0..12).map(|n| format!("sif /{name} block[{n}] {block}\n")).collect();
        let commands = format!(
            "setb {single}\nsetb {double}\nsetb {triple}\n{direct}\
             sif /{name} block[IND] {single}\nsif /{name} block[DIND] {double}\n\
             sif /{name} block[TIND] {triple}\nsif /{name} size {bytes}\n\
             sif /{name} blocks {sectors}\n"
        );
        self.change(&commands, |device| {
            for (at, to) in [(single, block), (double, single), (triple, double)] {
                let all = to.to_le_bytes().repeat(1024);
                device.write_all_at(&all, u64::from(at) * 4096).unwrap();
            }
        });
    }
}

#[test]
fn loop_a_forged_file_with_extents_without_end_is_left_alone() {
    let forged = Forged::new();
    let file = forged.image.path().join("forged");
    fs::write(&file, [7; 4096]).unwrap();
    // Without extents, too, but good.
    fs::write(forged.image.path().join("good"), [7; 40_960]).unwrap();
    forged.image.sync();
    forged.one_block_for_all("forged", 4_000_000_000_000, 100_000_000);
    let report = json(within(LITTLE, ["scan", "--json", forged.path()]));
    assert_eq!(report["totals"]["files"], 1, "{report}");
    let skipped = &report["skipped"][0];
    assert!(skipped["path"].as_str().unwrap().ends_with("/forged"), "{report}");
    assert!(skipped["reason"].as_str().unwrap().contains("needs cleaning"), "{report}");
    let plan = ["plan", "--policy", "whole-file", "--json", forged.path()];
    let planned: Value = json(within(LITTLE, plan));
    assert_eq!(planned["files_left_alone"], 1, "{planned}");
}

#[test]
fn loop_forged_directories_with_several_names_are_walked_once() {
    let forged = Forged::new();
    let (mut commands, mut path) = (String::new(), String::new());
    for _ in 0..40 {
        commands += &format!("mkdir {path}/a\nln {path}/a {path}/b\n");
        path += "/a";
    }
    forged.change(&commands, |_| {});
    let mut at: OwnedFd = File::open(forged.image.path()).unwrap().into();
    for _ in 0..40 {
        at = openat(&at, "a", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    create(&at, "file").write_all(b"x").unwrap();
    drop(at);
    let report = json(within(LITTLE, ["scan", "--json", forged.path()]));
    let totals = &report["totals"];
    assert_eq!((&totals["files"], &totals["skipped"]), (&1.into(), &40.into()), "{report}");
    assert_eq!(report["skipped"][0]["code"], "seen_before", "{report}");
}

#[test]
fn loop_a_forged_directory_with_names_without_end_is_left_alone() {
    // The size of a directory is not the only thing that may be forged.
    for sectors in [8, 4_000_000_000] {
        let forged = Forged::new();
        let dir = forged.image.path().join("dir");
        fs::create_dir(&dir).unwrap();
        File::create_new(dir.join("0")).unwrap();
        (1..200).for_each(|n| fs::hard_link(dir.join("0"), dir.join(format!("{n}"))).unwrap());
        fs::write(forged.image.path().join("beside"), "x").unwrap();
        forged.image.sync();
        forged.one_block_for_all("dir", 0xFFFF_F000, sectors);
        let report = json(within(LITTLE, ["scan", "--json", forged.path()]));
        let files = report["files"].as_array().unwrap();
        let beside = |f: &Value| f["path"].as_str().unwrap().ends_with("/beside");
        assert!(files.iter().any(beside), "{report}");
        let skipped = report["skipped"].as_array().unwrap();
        let ours = |s: &&Value| s["path"].as_str().unwrap().ends_with("/dir");
        let skipped = skipped.iter().find(ours).unwrap();
        assert!(skipped["reason"].as_str().unwrap().contains("needs cleaning"), "{skipped}");
    }
}

/// Where no thread can be started at all.
#[test]
fn loop_a_process_that_may_start_no_thread_works_in_one() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    fs::set_permissions(image.scratch(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let binary = image.scratch().join("fragmend");
    fs::copy(super::FRAGMEND, &binary).unwrap();
    let path = file.to_str().unwrap();
    for args in [&["scan", path][..], &["plan", "--policy", "whole-file", path]] {
        let script = "ulimit -u 1 && exec \"$@\"";
        let user = ["--reuid=54321", "--regid=54321", "--clear-groups"];
        let mut command = std::process::Command::new("timeout");
        command.args(["-s", "KILL", "10", "bash", "-c", script, "bash", "setpriv"]).args(user);
        let ended = fragmend_testbed::process::finish(command.arg(&binary).args(args));
        ended.expect(&[0]);
    }
    fragmend(["scan", path]).expect(&[0]);
}
