//! Huge files and deep directories cost little: work and memory are proportional to the data that
//! exists, not to the numbers in a size, a trace or a plan.

use super::support::{plan, write_plan};
use super::{fragmend, refused, within};
use fragmend_pipeline::{survey, unobserved};
use fragmend_plan::{Policy, Settings};
use fragmend_sys::inode;
use fragmend_testbed::file_system::{EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::interleave;
use fragmend_testbed::image::Image;
use fragmend_trace::{Access, FileAccesses, Op};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// Runs one of the tests below again, in a process with this much memory for data, in KiB.
fn again_within(test: &str, kib: u64) {
    let script = format!("ulimit -d {kib} && exec \"$0\" \"$@\"");
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "10", "bash", "-c", &script]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let ended =
        fragmend_testbed::process::finish(command.env(INSIDE, "1").env("RUST_TEST_THREADS", "1"));
    // A name that no test has would succeed, too.
    let ran = ended.stdout.contains("1 passed");
    assert!(ended.status.success() && ran, "{}\n{}\n{}", ended.status, ended.stdout, ended.stderr);
}

const INSIDE: &str = "FRAGMEND_TEST_WITHIN";
const MIB: u64 = 1 << 20;
/// Bytes of data at either end of a sparse file.
const PART: u64 = 256 << 10;

/// A file of `size` with 256 KiB in fragments of 4 KiB at its beginning, and as much at its end.
fn sparse(image: &Image, size: u64) -> std::path::PathBuf {
    let path = image.path().join("sparse");
    let file = File::create_new(&path).unwrap();
    file.set_len(size).unwrap();
    let dummy = File::create_new(image.path().join("dummy")).unwrap();
    for start in [0, size - PART] {
        interleave(&file, &dummy, start, PART, &[4096]).unwrap();
    }
    image.sync();
    path
}

/// Reads of all of the file and more, and of nothing: 4 GiB each, over and over.
fn reads(path: &Path) -> Vec<FileAccesses> {
    let meta = path.metadata().unwrap();
    let generation = inode::generation(File::open(path).unwrap()).unwrap();
    let file = fragmend_layout::FileId { device: meta.dev(), inode: meta.ino(), generation };
    let access = |i: u64| Access {
        offset: match i % 3 {
            0 => 0,
            1 => meta.len() - u64::from(u32::MAX),
            _ => (meta.len() / 1024 * i) & !4095,
        },
        length: u32::MAX,
        count: 1,
        thread: 1,
        op: [Op::Read, Op::Miss, Op::Fault, Op::Read][(i / 3 % 4) as usize],
        direct: i.is_multiple_of(4),
        windowed: false,
    };
    let accesses = (0..1024).map(access).collect();
    vec![FileAccesses { path: Some(path.to_owned()), accesses, ..FileAccesses::of(file) }]
}

fn huge(name: &str, file_system: &'static FileSystem, size: u64) {
    if std::env::var_os(INSIDE).is_none() {
        return again_within(name, 100 << 10);
    }
    let image = Image::of(file_system, 320 * MIB);
    // Costs are guessed as those of a disk, whatever the one under the image is: each break is waited for.
    image.set_queue("rotational", "1");
    let path = sparse(&image, size);
    for policy in [Policy::Bypass, Policy::WholeFile] {
        let plan = plan(&[&path], policy);
        assert_eq!(plan.summary.bytes_to_move, 2 * PART, "{policy:?} {:?}", plan.left_alone);
    }
    for policy in [Policy::Fragpicker, Policy::Gain] {
        for hot_fraction in [1.0, 0.5] {
            let survey = survey::traced(reads(&path), &[], &[], &unobserved).unwrap();
            let settings = Settings { policy, hot_fraction, ..Settings::default() };
            let plan = fragmend_plan::make(survey, &settings);
            let moved = plan.summary.bytes_to_move;
            assert!((PART..=2 * PART).contains(&moved), "{policy:?}: {moved}");
        }
    }
    // Applied while a part of the file is dirty, which `apply` searches for.
    let plan_file = image.scratch().join("plan.json");
    write_plan(&plan(&[&path], Policy::WholeFile), &plan_file);
    File::options().write(true).open(&path).unwrap().write_all_at(&[7; 4096], size - PART).unwrap();
    let ended = fragmend(["apply".as_ref(), "--json".as_ref(), plan_file.as_os_str()]);
    let summary: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(summary["moved_bytes"], 2 * PART, "{}", ended.stdout);
}

#[test]
fn loop_sixteen_tib_of_nothing_cost_little() {
    // The kernel exchanges no range that ends with the last possible block.
    huge("bounds::loop_sixteen_tib_of_nothing_cost_little", &EXT4, (16 << 40) - 8192);
}

#[test]
fn loop_eight_eib_of_nothing_cost_little() {
    huge("bounds::loop_eight_eib_of_nothing_cost_little", &XFS, i64::MAX as u64 & !4095);
}

const LEVELS: usize = 5000;

/// Directories in each other, with a file in each and further directories beside.
fn chain(image: &Image, levels: usize, beside: bool) {
    let open = |at: &OwnedFd, name: &str| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(at, name, flags, Mode::empty()).unwrap()
    };
    let mut at: OwnedFd = File::open(image.path()).unwrap().into();
    for _ in 0..levels {
        for name in if beside { &["a", "b", "c"][..] } else { &["b"] } {
            mkdirat(&at, *name, Mode::RWXU).unwrap();
        }
        at = open(&at, "b");
        let new = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&at, "file", new, Mode::RUSR).unwrap();
        File::from(file).write_all(b"x").unwrap();
    }
    image.sync();
}

#[test]
fn loop_a_deep_chain_of_directories_is_walked_once() {
    let image = Image::ext4(128 * MIB);
    chain(&image, LEVELS, false);
    let path = image.path().to_str().unwrap();
    let told = fragmend(["scan", "--source", "fiemap", "--top", "0", path]).expect(&[0]);
    let files = told.lines().find(|l| l.trim_start().starts_with("files")).unwrap();
    let digits: String = files.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits, LEVELS.to_string(), "{told}");
    assert!(!told.contains("skipped:"), "{told}");
    fragmend(["plan", "--policy", "whole-file", path]).expect(&[0]);
}

/// With more directories that are still to be walked than may be open.
#[test]
fn loop_deep_and_wide_needs_few_descriptors() {
    let image = Image::ext4_with(128 * MIB, &["-N", "40000"], "");
    chain(&image, 2000, true);
    let path = image.path().to_str().unwrap();
    let told = within("ulimit -n 1024", ["scan", "--source", "fiemap", "--json", path]);
    let told: serde_json::Value = serde_json::from_str(&told.expect(&[0])).unwrap();
    assert_eq!(told["totals"]["files"], 2000);
    assert_eq!(told["totals"]["skipped"], 0);
}

#[test]
fn loop_a_hostile_plan_is_refused_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan.json");
    let size = 38 << 20;
    let marks = r#""format":"fragmend-plan","schema_version":1"#;
    let device = r#"{"device":7,"path":"/mnt","file_system":"ext4","total_bytes":1,"block_bytes":4096,"profile":{}}"#;
    let range = r#"{"offset":0,"length":4096,"extents":2,"seen":1,"requests_before":2,"requests_after":1,"reason":0}"#;
    // The beginning, what is repeated, and the end.
    let costly = r#"{"device":7,"path":"/mnt","file_system":"ext4","total_bytes":1,"block_bytes":4096,"profile":{"name":"x","readahead_bytes":1,"max_request_bytes":1,"rotational":false,"cost":{"source":"probed","reads":["#;
    let figure = r#"{"request_bytes":1,"in_flight":1,"burst_ns":1,"interval_ns":1},"#;
    let forms: [(String, String, &str); 8] = [
        (format!("{{{marks},\"devices\":[{costly}"), figure.into(), "0]}}}]}"),
        (format!("{{{marks},\"devices\":["), "0,".into(), "0]}"),
        (format!("{{{marks},\"devices\":["), format!("{device},"), "0]}"),
        (format!("{{{marks},\"x\":["), "[],".into(), "0]}"),
        (format!("{{{marks},\"devices\":[],\"files\":[{{\"x\":["), "0,".into(), "0]}]}"),
        (
            format!("{{{marks},\"devices\":[],\"files\":[{{\"ranges\":["),
            format!("{range},"),
            "0]}]}",
        ),
        (format!("{{{marks},\"files\":[{{\"path\":\""), "x".into(), "\"}]}"),
        ("{\"format\":[".into(), "{},".into(), "0]}"),
    ];
    for (head, body, tail) in forms {
        let text = head.clone() + &body.repeat(size / body.len()) + tail;
        fs::write(&path, text).unwrap();
        let plan = path.to_str().unwrap();
        let ended = within("ulimit -v 524288", ["apply", "--dry-run", plan]);
        refused(&ended, "plan");
    }
}
