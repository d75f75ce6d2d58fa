//! The verb `record` as a person runs it: summary, exit codes, Ctrl-C, and bad input.

use fragmend_testbed::image::{Image, run};
use fragmend_trace::{Filter, read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn fragmend(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args).output().unwrap()
}

fn image() -> Image {
    let image = Image::ext4(256 << 20);
    std::fs::write(image.path().join("f"), vec![1; 1 << 20]).unwrap();
    image
}

/// Starts a recording and returns when it records.
fn begin(image: &Image, output: &Path, args: &[&str]) -> Child {
    let recorder = Command::new(env!("CARGO_BIN_EXE_fragmend"))
        .arg("record")
        .arg("-o")
        .arg(output)
        .args(args)
        .arg(image.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It keeps its programs open once they are loaded; attaching takes a moment more.
    let deadline = Instant::now() + Duration::from_secs(20);
    let fds = format!("/proc/{}/fd", recorder.id());
    let links = || {
        let entries = std::fs::read_dir(&fds).into_iter().flatten().flatten();
        let targets = entries.filter_map(|e| std::fs::read_link(e.path()).ok());
        targets.filter(|t| t.to_string_lossy().contains("bpf_link")).count()
    };
    while links() == 0 {
        assert!(Instant::now() < deadline, "the recorder attached nothing in 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    recorder
}

#[test]
fn loop_a_signal_ends_a_recording_with_everything_kept() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    for signal in ["-INT", "-TERM"] {
        let recorder = begin(&image, &output, &["--json"]);
        run("cat", [image.path().join("f")]);
        run("kill", [signal, &recorder.id().to_string()]);
        let out = recorder.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!(json["schema_version"], 1);
        assert_eq!(json["totals"]["read_bytes"], 1 << 20);
        assert_eq!(json["totals"]["lost"], 0);
        let trace = read(&output, &Filter::default()).unwrap();
        assert_eq!(trace.files.len(), 1);
        assert_eq!(trace.files[0].path, Some(image.path().join("f")));
    }
}

#[test]
fn loop_a_killed_recorder_leaves_no_trace_and_the_next_tidies_up() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let mut recorder = begin(&image, &output, &[]);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(!output.exists());
    let partials = || {
        let names = std::fs::read_dir(image.scratch()).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|n| n.to_string_lossy().ends_with(".partial")).count()
    };
    assert_eq!(partials(), 1);
    let next = begin(&image, &output, &["--duration", "1s"]).wait_with_output().unwrap();
    assert_eq!(next.status.code(), Some(0), "{}", String::from_utf8_lossy(&next.stderr));
    assert_eq!(partials(), 0);
    assert!(output.exists());
}

#[test]
fn loop_a_recording_of_a_given_length_sums_up_and_suggests_the_plan() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &["--duration", "2s", "--fold"]);
    run("cat", [image.path().join("f")]);
    let out = recorder.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    let (stdout, stderr) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(stdout.contains("1.0 MiB"), "{stdout}");
    let watching = format!("watching {} for 2s\n", image.path().display());
    assert!(stderr.starts_with(&watching), "{stderr}");
    assert!(stderr.contains("fragmend plan -t "), "{stderr}");
}

#[test]
fn loop_loss_is_said_loudly_and_shows_in_the_exit_code() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &["--buffer", "4096"]);
    let burst = "
import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
for _ in range(100000): os.pread(f, 1, 0)
";
    run("python3", [Path::new("-c"), burst.as_ref(), &image.path().join("f")]);
    run("kill", ["-INT", &recorder.id().to_string()]);
    let out = recorder.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(16));
    assert!(String::from_utf8_lossy(&out.stderr).contains("LOST"));
}

/// Fails with this code and one line that contains `says`; nothing is left behind.
fn refused(image: &Image, args: &[&str], code: i32, says: &str) {
    one_line(&fragmend(args), code, says);
    let left = std::fs::read_dir(image.scratch()).unwrap().count();
    assert_eq!(left, 2, "only the image and its mount point may be here after {args:?}");
}

fn one_line(out: &Output, code: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(says), "{stderr}");
    if code != 8 {
        assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    }
}

#[test]
fn loop_bad_input_is_one_line_and_leaves_nothing() {
    let image = image();
    let output = image.scratch().join("t");
    let (t, mount) = (output.to_str().unwrap(), image.path().to_str().unwrap());
    let refused = |args: &[&str], code, says| refused(&image, args, code, says);
    refused(&["record", "-o", t, "/absent"], 4, "/absent");
    refused(&["record", "-o", "/absent/t", mount], 4, "/absent/t");
    refused(&["record", "-o", t, "--pid", "4000000", mount], 4, "no such process");
    refused(&["record", "-o", t, "--user", "no-such-user", mount], 8, "no such user");
    refused(&["record", "-o", t, "--cgroup", "/tmp", mount], 4, "cgroup v2");
    refused(&["record", "-o", t, "--duration", "soon", mount], 8, "90s");
    refused(&["record", "-o", t, "--duration", "0s", mount], 8, "no length");
    refused(&["record", "-o", t, "--duration", "11years", mount], 8, "ten years");
    refused(&["record", "-o", t, "--comm", "sixteen-bytes-no", mount], 8, "15 bytes");
    refused(&["record", "-o", t, "--buffer", "lots", mount], 8, "64M");
    refused(&["record", "-o", t], 8, "PATH");

    let precious = image.path().join("precious");
    std::fs::write(&precious, "text").unwrap();
    refused(&["record", "-o", precious.to_str().unwrap(), mount], 4, "--force");
    assert_eq!(std::fs::read(&precious).unwrap(), b"text");
}

#[test]
fn loop_what_the_system_lacks_is_named() {
    let image = image();
    let output = image.scratch().join("t");
    let binary = env!("CARGO_BIN_EXE_fragmend");
    let hidden = Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"", "sh"])
        .args([binary, "record", "--duration", "1s", "-o"])
        .args([&output, image.path()])
        .output()
        .unwrap();
    one_line(&hidden, 4, "CONFIG_DEBUG_INFO_BTF");
    let stripped = Command::new("setpriv")
        .args(["--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin"])
        .args([binary, "record", "--duration", "1s", "-o"])
        .args([&output, image.path()])
        .output()
        .unwrap();
    one_line(&stripped, 4, "CAP_PERFMON, CAP_BPF");
    assert_eq!(std::fs::read_dir(image.scratch()).unwrap().count(), 2);
}
