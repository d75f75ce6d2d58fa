//! The verb `record` as a user runs it: summary, exit codes, Ctrl-C, and bad input.

use fragmend_testbed::image::{Image, run};
use fragmend_testbed::process::Running;
use fragmend_testbed::tools::WATCHING;
use fragmend_trace::{Filter, read};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn fragmend(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fragmend")).args(args).output().unwrap()
}

fn image() -> Image {
    let image = Image::ext4(256 << 20);
    std::fs::write(image.path().join("f"), vec![1; 1 << 20]).unwrap();
    image
}

/// Starts a recording, and returns once it records.
fn begin(image: &Image, output: &Path, args: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["record", "--overhead", "100", "-o"]).arg(output).args(args).arg(image.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(&mut command).wait_until_it_says(WATCHING)
}

#[test]
fn loop_a_signal_ends_a_recording_with_everything_kept() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    for signal in ["-INT", "-TERM"] {
        let recorder = begin(&image, &output, &["--json"]);
        run("cat", [image.path().join("f")]);
        run("kill", [signal, &recorder.id().to_string()]);
        let json: serde_json::Value = serde_json::from_str(&recorder.wait().expect(&[0])).unwrap();
        assert_eq!(json["schema_version"], 1);
        assert_eq!(json["totals"]["read_bytes"], 1 << 20);
        assert_eq!(json["totals"]["lost"], 0);
        assert_eq!((&json["level"], &json["misses"]), (&"both".into(), &"recorded".into()));
        assert_eq!(json["loads"][0]["disk"], image.block_device().name());
        let trace = read(&output, &Filter::default()).unwrap();
        assert_eq!(trace.files.len(), 1);
        assert_eq!(trace.files[0].path, Some(image.path().join("f")));
    }
    // Shorter than was asked for: all is kept, and it is incomplete.
    let recorder = begin(&image, &output, &["--duration", "1h"]);
    recorder.signal(Signal::INT);
    recorder.wait().expect(&[16]);
    assert!(read(&output, &Filter::default()).is_ok());
}

/// With `--fold` all ranges are read from the kernel, and all files looked up, when the recording has ended.
#[test]
fn loop_a_signal_ends_a_folded_recording_beside_a_load_on_many_files() {
    const FILES: usize = 30_000;
    const LATEST: Duration = Duration::from_secs(3);
    let image = image();
    (0..FILES).for_each(|n| std::fs::write(image.path().join(n.to_string()), "x").unwrap());
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &["--fold", "--json"]);
    let load = "
import os, sys
for turn in range(1000000):
    for n in range(30000):
        f = os.open(f'{sys.argv[1]}/{n}', os.O_RDONLY)
        os.pread(f, 1, 0)
        os.close(f)
    if turn == 0: print('all were read', file=sys.stderr, flush=True)
";
    let mut command = Command::new("python3");
    command.args(["-c", load]).arg(image.path()).stderr(Stdio::piped());
    let load = Running::start(&mut command).wait_until_it_says("all were read");
    let start = Instant::now();
    recorder.signal(Signal::INT);
    let out = recorder.wait().expect(&[0]);
    let lasted = start.elapsed();
    drop(load);
    println!("{lasted:?}, {out}");
    assert!(lasted < LATEST, "{lasted:?}");
    let trace = read(&output, &Filter::default()).unwrap();
    assert_eq!(trace.files.len(), FILES);
}

#[test]
fn loop_a_killed_recorder_leaves_nothing() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &[]);
    recorder.signal(Signal::KILL);
    assert_eq!(recorder.wait().status.code(), None);
    assert_eq!(std::fs::read_dir(image.scratch()).unwrap().count(), 1, "the mount point");
}

/// A trace contains the names of all users' files and processes.
#[test]
fn loop_a_trace_is_its_owners_alone() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    begin(&image, &output, &["--duration", "1s"]).wait().expect(&[0]);
    assert_eq!(output.metadata().unwrap().mode() & 0o7777, 0o600);
}

/// Whatever is planted in the place of the trace: an error in one line, at once, and it is not touched.
#[test]
fn loop_only_a_file_is_recorded_to() {
    let image = image();
    let victim = image.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let at = |name: &str| image.scratch().join(name);
    run("mkfifo", [at("fifo")]);
    run("mknod", [at("device").as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()]);
    std::os::unix::fs::symlink(&victim, at("link")).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for (name, what) in [
        ("fifo", "a pipe"),
        ("device", "a device"),
        ("link", "a symbolic link"),
        ("directory", "a directory"),
        ("socket", "a socket"),
    ] {
        for force in [&[][..], &["--force"]] {
            let output = at(name);
            // A recorder that waited would have to be killed: SIGTERM did not end that of earlier versions.
            let out = Command::new("timeout")
                .args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_fragmend"), "record"])
                .args(["--duration", "1s", "-o"])
                .arg(&output)
                .args(force)
                .arg(image.path())
                .output()
                .unwrap();
            let says = format!("cannot write the trace to {}: it is {what}", output.display());
            one_line(&out, 4, &says);
            let line = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(line.matches("it is").count(), 1, "{line}");
            assert!(line.contains("; name a regular file, or - for") || what == "a symbolic link");
        }
    }
    drop(socket);
    assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    let kind = at("fifo").symlink_metadata().unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind));
    // A trace that is to be read may be something else, too.
    let plan = Command::new("timeout")
        .args(["-s", "KILL", "20", env!("CARGO_BIN_EXE_fragmend"), "plan", "-t"])
        .arg(at("fifo"))
        .output()
        .unwrap();
    one_line(&plan, 4, "it is a pipe");
}

#[test]
fn loop_a_trace_goes_to_standard_output_alone() {
    let image = image();
    let file = std::fs::File::create(image.scratch().join("t")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["record", "--duration", "2s", "-o", "-"]).arg(image.path());
    let recorder = Running::start(command.stdout(file).stderr(Stdio::piped()));
    let recorder = recorder.wait_until_it_says(WATCHING);
    run("cat", [image.path().join("f")]);
    let ended = recorder.wait();
    assert!(ended.status.success() && ended.stderr.contains("1.0 MiB"), "{ended:?}");
    let trace = read(&image.scratch().join("t"), &Filter::default()).unwrap();
    assert_eq!(trace.files.len(), 1);
    let path = image.path().to_str().unwrap();
    one_line(&fragmend(&["--json", "record", "-o", "-", path]), 8, "cannot both go");
}

/// Reads single bytes of a file at random places, so that a trace grows by megabytes a second.
fn busy(image: &Image) -> Running {
    let load = "
import os, random, sys
f = os.open(sys.argv[1], os.O_RDONLY)
while True: os.pread(f, 1, random.randrange(1 << 20))
";
    let mut command = Command::new("python3");
    Running::start(command.args(["-c", load]).arg(image.path().join("f")))
}

#[test]
fn loop_a_recording_to_a_pipe_that_nobody_reads_ends() {
    const LATEST: Duration = Duration::from_secs(4);
    let image = image();
    for (length, signal) in [("3s", None), ("60s", Some(Signal::TERM))] {
        let mut recorder = begin(&image, Path::new("-"), &["--duration", length]);
        let unread = recorder.child().stdout.take().unwrap();
        let load = busy(&image);
        std::thread::sleep(Duration::from_secs(3));
        let over = Instant::now();
        signal.into_iter().for_each(|signal| recorder.signal(signal));
        while recorder.child().try_wait().unwrap().is_none() {
            assert!(over.elapsed() < LATEST, "it waits for a reader");
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("{:?}", over.elapsed());
        let ended = recorder.wait();
        assert_eq!(ended.status.code(), Some(16), "{ended:?}");
        let said: Vec<_> =
            ended.stderr.lines().filter(|line| !line.starts_with(WATCHING)).collect();
        assert!(matches!(said[..], [line] if line.contains("incomplete")), "{said:?}");
        drop((unread, load));
    }
}

/// The BPF programs that a process has attached.
fn attached(process: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let leads_to = |entry: std::io::Result<DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    open.filter_map(leads_to).filter(|to| to.to_string_lossy().contains("bpf_link")).count()
}

/// The reader begins a second after the end, when nothing is attached any more, and is slow.
#[test]
fn loop_a_slow_reader_of_a_trace_gets_all_of_it() {
    let image = image();
    let mut recorder = begin(&image, Path::new("-"), &["--duration", "2s"]);
    let mut slow = recorder.child().stdout.take().unwrap();
    let load = busy(&image);
    assert!(attached(recorder.id()) > 0);
    std::thread::sleep(Duration::from_secs(3));
    drop(load);
    assert_eq!(attached(recorder.id()), 0);
    let (mut trace, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match slow.read(&mut buffer).unwrap() {
            0 => break,
            bytes => trace.extend_from_slice(&buffer[..bytes]),
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    // The buffer may have been full while nothing was read.
    recorder.wait().expect(&[0, 16]);
    assert!(trace.len() > 256 << 10, "{}", trace.len());
    let output = image.scratch().join("t.parquet");
    std::fs::write(&output, trace).unwrap();
    assert_eq!(read(&output, &Filter::default()).unwrap().files.len(), 1);
}

/// The recorder is stopped until the kernel has dropped the names of the files from memory: the files
/// are not deleted, and they are recorded, counted and found again by their identity.
#[test]
fn loop_files_whose_path_is_forgotten_are_kept_and_counted() {
    let image = image();
    for n in 0..60 {
        std::fs::write(image.path().join(format!("g{n}")), vec![1; 4096]).unwrap();
    }
    image.sync();
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &["--json"]);
    let signal = |name: &str| run("kill", [name, &recorder.id().to_string()]);
    signal("-STOP");
    let code = "
import os, sys
for n in range(60):
    f = os.open(f'{sys.argv[1]}/g{n}', os.O_RDONLY); os.pread(f, 100, 0); os.close(f)
";
    run("python3", [Path::new("-c"), code.as_ref(), image.path()]);
    image.remount();
    signal("-CONT");
    std::thread::sleep(Duration::from_millis(300));
    signal("-INT");
    let json: serde_json::Value = serde_json::from_str(&recorder.wait().expect(&[0])).unwrap();
    let trace = read(&output, &Filter::default()).unwrap();
    let without = trace.files.iter().filter(|f| f.path.is_none()).count();
    assert_eq!((trace.files.len(), json["totals"]["files"].as_u64()), (60, Some(60)));
    assert!(without > 0, "all paths were still known");
    assert_eq!(json["totals"]["files_without_path"].as_u64(), Some(without as u64));
    assert_eq!(trace.meta.files_without_path, without as u64);
    let there: BTreeSet<u64> =
        (0..60).map(|n| image.path().join(format!("g{n}")).metadata().unwrap().ino()).collect();
    assert_eq!(trace.files.iter().map(|f| f.file.inode).collect::<BTreeSet<_>>(), there);
}

/// An impossible access is reported in each of the three places, and the plan is made from the others.
#[test]
fn loop_an_access_that_cannot_be_is_told_and_spoils_no_plan() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let code = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
context = ctypes.c_ulong(0)
assert libc.syscall(206, 8, ctypes.byref(context)) == 0
a = os.open(sys.argv[1] + '/a', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
raw = struct.pack('<QIIHhIQQqQII', 0, 0, 0, 1, 0, a, 8, 4096, 0, 0, 0, 0)
iocb = ctypes.create_string_buffer(raw, len(raw))
pointers = (ctypes.c_void_p * 1)(ctypes.addressof(iocb))
assert libc.syscall(209, context, ctypes.c_long(1), pointers) == 1
f = os.open(sys.argv[1] + '/f', os.O_RDONLY); os.pread(f, 4096, 0)
";
    let recorder = begin(&image, &output, &["--json"]);
    run("python3", [Path::new("-c"), code.as_ref(), image.path()]);
    run("kill", ["-INT", &recorder.id().to_string()]);
    let out = recorder.wait();
    let stderr = &out.stderr;
    assert_eq!(out.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("1 accesses were dropped"), "{stderr}");
    let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(json["totals"]["dropped"], 1);
    assert_eq!(fragmend_trace::read_meta(&output).unwrap().dropped, 1);
    let plan = fragmend(&["plan", "-t", output.to_str().unwrap()]);
    assert_eq!(plan.status.code(), Some(0), "{}", String::from_utf8_lossy(&plan.stderr));
}

#[test]
fn loop_a_recording_of_a_given_length_sums_up_and_suggests_the_plan() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let recorder = begin(&image, &output, &["--duration", "2s", "--fold"]);
    run("cat", [image.path().join("f")]);
    let out = recorder.wait();
    assert_eq!(out.status.code(), Some(0));
    let (stdout, stderr) = (&out.stdout, &out.stderr);
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
    let out = recorder.wait();
    assert_eq!(out.status.code(), Some(16));
    assert!(out.stderr.contains("LOST"), "{out:?}");
}

/// Checks that it fails with this code and one line that contains `says`, and leaves nothing behind.
fn refused(image: &Image, args: &[&str], code: i32, says: &str) {
    one_line(&fragmend(args), code, says);
    let left = std::fs::read_dir(image.scratch()).unwrap().count();
    assert_eq!(left, 1, "only the mount point may be here after {args:?}");
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
    refused(&["record", "-o", t, "--overhead", "0", mount], 8, "between 0.1 and 100");
    refused(&["record", "-o", t, "--overhead", "much", mount], 8, "between 0.1 and 100");
    refused(&["record", "-o", t], 8, "PATH");

    let precious = image.path().join("precious");
    std::fs::write(&precious, "text").unwrap();
    refused(&["record", "-o", precious.to_str().unwrap(), mount], 4, "--force");
    assert_eq!(std::fs::read(&precious).unwrap(), b"text");
}

/// The recorder's programs in the kernel see other numbers: another process would be recorded, without an
/// error.
#[test]
fn loop_numbers_of_a_pid_namespace_are_refused() {
    let image = image();
    let output = image.scratch().join("t.parquet");
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", "sh", "-c"]);
    command.arg(
        "sleep 30 & \"$0\" record --duration 1s --pid $! -o \"$1\" \"$2\"; c=$?; kill $!; exit $c",
    );
    command.args([Path::new(env!("CARGO_BIN_EXE_fragmend")), &output, image.path()]);
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("--pid: in a container"), "{out:?}");
    assert_eq!((said.lines().count(), output.exists()), (1, false), "{said}");
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
    assert_eq!(std::fs::read_dir(image.scratch()).unwrap().count(), 1);
}

/// The suggested command can be pasted into a shell, whatever the paths are.
#[test]
fn loop_the_next_command_is_quoted() {
    let image = image();
    let dir = image.path().join("x;touch pwned;#' $(touch pwned)\n`touch pwned`");
    std::fs::create_dir(&dir).unwrap();
    let (file, output) = (dir.join("f"), image.scratch().join("t; touch pwned #.parquet"));
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["record", "--duration", "3s", "-o"]).arg(&output).arg(&dir);
    let recorder = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let recorder = recorder.wait_until_it_says(WATCHING);
    std::fs::read(&file).unwrap();
    let said = recorder.wait().stderr;
    let next = said.lines().find(|line| line.starts_with("Next: ")).expect("a hint");
    let script = format!("fragmend() {{ printf '%s\\0' \"$@\"; }}; {}", &next["Next: ".len()..]);
    let shell = Command::new("bash").arg("-c").arg(script).current_dir(image.path()).output();
    let words = shell.unwrap().stdout;
    let words: Vec<&[u8]> = words.split(|b| *b == 0).collect();
    let (output, dir) = (output.as_os_str().as_bytes(), dir.as_os_str().as_bytes());
    assert_eq!(words, [&b"plan"[..], b"-t", output, b"-o", b"plan.json", dir, b""], "{next}");
    assert!(!image.path().join("pwned").exists());
}
