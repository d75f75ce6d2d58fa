//! `fragmend probe` on real loop devices: it reads no more than it says, writes nothing, tells what cannot be told, and
//! keeps a profile that the library finds again.

use fragmend_device::probe::pace::{Manner, Pace};
use fragmend_device::profile;
use fragmend_sys::block::BlockDevice;
use fragmend_testbed::image::Image;
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::process::{Running, run};
use fragmend_testbed::scratch;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Runs the verb; returns its output and its exit code.
fn probe(args: &[&str], target: &Path, profiles: &Path) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.arg("probe").args(args).arg("--profiles").arg(profiles).arg(target);
    let output = command.output().expect("fragmend runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap_or(-1))
}

fn document(args: &[&str], target: &Path, profiles: &Path) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let (out, err, code) = probe(&args, target, profiles);
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// A file of data behind a loop device.
fn disk(dir: &Path, mib: u64) -> LoopDevice {
    let path = dir.join("disk.img");
    let mut file = File::create(&path).expect("a file");
    let mut rng = fragmend_testbed::random::Random::new(1);
    for _ in 0..mib {
        let data: Vec<u8> = (0..MIB / 8).flat_map(|_| rng.bits().to_le_bytes()).collect();
        file.write_all(&data).expect("space");
    }
    file.sync_all().expect("written");
    LoopDevice::attach(&path)
}

fn device(node: &Path) -> BlockDevice {
    BlockDevice::from_dev(node.metadata().expect("a node").rdev()).expect("a device")
}

#[test]
fn loop_a_probe_keeps_to_its_budget_and_its_profile_is_found() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 96);
    let node = Path::new(disk.node());
    let profiles = dir.path().join("kept/profiles");
    let before = device(node).counters().unwrap();
    let found = document(&["--pace", "max"], node, &profiles);
    let done = device(node).counters().unwrap() - before;
    // Neighbours that the kernel joins would be no split any more.
    assert!(done.reads_merged * 100 <= done.reads, "{done:?}");
    let limit = |name: &str| found["limits"][name].as_u64().unwrap();
    assert_eq!((done.writes, done.written_bytes), (0, 0));
    assert!(done.read_bytes <= limit("bytes") + MIB, "{done:?}");
    assert!(found["read_bytes"].as_u64().unwrap() <= limit("bytes"));
    assert!(found["read_requests"].as_u64().unwrap() <= limit("requests"));
    assert!(found["seconds"].as_f64().unwrap() <= 61.0);
    for name in ["die_granularity_bytes", "stripe_bytes", "confidence"] {
        assert_eq!(found[name], Value::Null, "{name}");
    }
    assert_eq!((&found["schema_version"], &found["cannot_tell"]), (&1.into(), &"layered".into()));
    assert_eq!((&found["clock"], &found["content"]), (&"wall".into(), &"data".into()));
    let costs = found["costs"]["reads"].as_array().unwrap();
    // Powers of two from 4 KiB to the longest request; a limit of the queue stays when a loop device is used anew.
    let longest = device(node).queue().unwrap().max_request_bytes.min(MIB);
    let lengths = (12..=longest.ilog2()).count() + usize::from(!longest.is_power_of_two());
    assert_eq!(costs.len(), lengths * 6);
    assert_eq!(costs.last().unwrap()["request_bytes"], longest / 4096 * 4096);
    // A longer request lasts longer, and so do more of them.
    let burst = |bytes: u64, depth: u64| {
        let same = |c: &&Value| c["request_bytes"] == bytes && c["in_flight"] == depth;
        costs.iter().find(same).unwrap()["burst_ns"].as_u64().unwrap()
    };
    assert!(burst(longest, 1) > burst(4096, 1) && burst(65536, 32) > burst(65536, 1));

    let kept = PathBuf::from(found["kept"]["path"].as_str().unwrap());
    assert!(kept.starts_with(&profiles));
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    let stored = profile::stored(&device(node), &profiles).unwrap().expect("a profile");
    assert_eq!(serde_json::to_value(&stored.costs).unwrap(), found["costs"]);
    // Another disk behind the same node is another device.
    drop(disk);
    fs::remove_file(dir.path().join("disk.img")).unwrap();
    let other = self::disk(dir.path(), 4);
    assert!(profile::stored(&device(Path::new(other.node())), &profiles).unwrap().is_none());
}

/// Programs that only discard or flush use the device, too.
#[test]
fn loop_who_discards_or_flushes_disturbs_a_probe() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 4);
    let node = Path::new(disk.node());
    let beside = |others: &dyn Fn()| {
        let mut pace = Pace::new(Manner::Yielding, Some(device(node)));
        pace.before();
        others();
        pace.after(0, Duration::ZERO);
        pace.disturbed()
    };
    assert_eq!(beside(&|| ()), Some(0.0));
    assert_eq!(beside(&|| drop(run("blkdiscard", ["-l", "4096", disk.node()]))), Some(1.0));
    assert_eq!(beside(&|| File::open(node).and_then(|node| node.sync_all()).unwrap()), Some(1.0));
}

/// Without direct I/O a loop device is as fast as memory: that is said, and holds for it alone.
#[test]
fn loop_what_comes_through_the_page_cache_is_said_and_is_not_the_drives() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 8);
    let (node, profiles) = (Path::new(disk.node()), dir.path().join("profiles"));
    run("losetup", ["--direct-io=off", disk.node()]);
    let found = document(&["--no-intervals", "--pace", "max"], node, &profiles);
    let note = found["notes"][0].as_str().unwrap();
    assert!(note.contains("it reads its file through the page cache of this machine"), "{note}");
    let stored = profile::stored(&device(node), &profiles).unwrap().expect("a profile");
    assert!(stored.caveat().unwrap().unwrap().contains("through the page cache"));
    run("losetup", ["--direct-io=on", disk.node()]);
    assert!(profile::stored(&device(node), &profiles).unwrap().is_none());
    let found = document(&["--no-intervals", "--pace", "max"], node, &profiles);
    assert_eq!(found["notes"], serde_json::json!([]));
    let stored = profile::stored(&device(node), &profiles).unwrap().expect("a profile");
    assert_eq!(stored.caveat(), Ok(None));
}

/// A loop device that is read in another way from some moment on has no profile of one of the two.
#[test]
fn loop_what_becomes_another_device_meanwhile_has_no_profile() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 64);
    let profiles = dir.path().join("profiles");
    run("losetup", ["--direct-io=off", disk.node()]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["probe", "--no-intervals", "--profiles"]).arg(&profiles).arg(disk.node());
    let mut probe = Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut said = BufReader::new(probe.child().stderr.take().expect("its messages"));
    let mut text = String::new();
    // It says what it is going to read, and has seen by then which device that is.
    while !text.contains("nothing is written") {
        assert!(said.read_line(&mut text).unwrap() > 0, "{text}");
    }
    run("losetup", ["--direct-io=on", disk.node()]);
    said.read_to_string(&mut text).unwrap();
    let ended = probe.wait();
    assert_eq!(ended.status.code(), Some(4), "{text}");
    assert!(text.contains("read in another way, since the probe began"), "{text}");
    assert!(!profiles.exists(), "{ended:?}");
}

#[test]
fn loop_a_mounted_file_is_read_range_by_range() {
    let image = Image::ext4(256 * MIB);
    let profiles = image.scratch().join("profiles");
    let path = image.path().join("file");
    let data: Vec<u8> = (0..32 * MIB).map(|n| ((n * 7) >> 3) as u8).collect();
    fs::write(&path, &data).unwrap();
    image.sync();
    // Nothing else writes then; and a probe needs no more.
    let root = image.path().to_str().unwrap();
    run("mount", ["-o", "remount,ro", root]);
    let before = image.counters();
    let pictures = image.scratch().join("pictures");
    let out = pictures.to_str().unwrap();
    let found = document(&["--no-intervals", "--pace", "max", "--out", out], &path, &profiles);
    let file = &found["file"];
    assert_eq!(file["timed_bytes"].as_u64(), Some(32 * MIB));
    assert_eq!(file["ranges"].as_array().unwrap().len(), 32);
    assert_eq!(file["complete"], true);
    assert_eq!(found["cannot_tell"], "not-asked");
    for picture in ["probe-requests.svg", "probe-file.svg"] {
        assert!(fs::read_to_string(pictures.join(picture)).unwrap().starts_with("<svg"));
    }
    // The profile of its device is used from now on.
    assert!(found["limits"]["bytes"].as_u64().unwrap() > 0);
    let again = document(&[], &path, &profiles);
    assert_eq!((&again["limits"], &again["costs"]), (&Value::Null, &found["costs"]));
    assert_eq!((image.counters() - before).writes, 0, "a probe writes nothing");
    assert_eq!(fs::read(&path).unwrap(), data);
    // A directory on the device is the device.
    let whole = document(&["--no-keep", "--pace", "max"], image.path(), &profiles);
    assert_eq!((&whole["file"], &whole["kept"]), (&Value::Null, &Value::Null));
    assert_eq!(whole["device"]["kind"], "loop");
}

#[test]
fn loop_a_profile_that_cannot_be_used_is_told_and_replaced() {
    let image = Image::ext4(128 * MIB);
    let profiles = image.scratch().join("profiles");
    let path = image.path().join("file");
    fs::write(&path, vec![5; 4 * MIB as usize]).unwrap();
    image.sync();
    let found = document(&["--no-intervals", "--pace", "max"], &path, &profiles);
    let kept = found["kept"]["path"].as_str().unwrap();
    let text = fs::read_to_string(kept).unwrap();
    fs::write(kept, text.replace("\"profile_version\": 1", "\"profile_version\": 7")).unwrap();
    let (out, err, code) = probe(&["--no-intervals", "--pace", "max", "--json"], &path, &profiles);
    assert_eq!(code, 0);
    assert!(err.contains("has version 7, this program reads 1"), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert!(found["limits"]["bytes"].is_u64() && found["notes"][0].as_str().unwrap().contains("7"));
    assert!(fs::read_to_string(kept).unwrap().contains("\"profile_version\": 1"));
}

#[test]
fn loop_what_cannot_be_probed_says_why_in_a_line() {
    let dir = scratch::for_disks();
    let profiles = dir.path().join("profiles");
    let small = dir.path().join("small.img");
    File::create(&small).unwrap().set_len(64 << 10).unwrap();
    let small = LoopDevice::attach(&small);
    let empty = dir.path().join("empty");
    File::create(&empty).unwrap();
    let sparse = dir.path().join("sparse");
    File::create(&sparse).unwrap().set_len(8 * MIB).unwrap();
    let on_tmpfs = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    on_tmpfs.as_file().set_len(1).unwrap();
    for (target, code, why) in [
        (Path::new("/nowhere"), 4, "No such file"),
        (Path::new("/dev/null"), 8, "neither a block device"),
        (on_tmpfs.path(), 8, "on tmpfs, which has no block device"),
        (Path::new(small.node()), 4, "too few to be measured"),
        (&empty, 8, "is empty"),
        (&sparse, 8, "nothing to time"),
    ] {
        let (out, err, got) = probe(&[], target, &profiles);
        assert_eq!((got, out.as_str()), (code, ""), "{err}");
        assert!(err.contains(why) && err.lines().count() == 1, "{err}");
    }
    assert!(!profiles.exists());
    // Nobody else may read the device.
    let binary = dir.path().join("fragmend");
    fs::copy(env!("CARGO_BIN_EXE_fragmend"), &binary).unwrap();
    for path in [dir.path(), &binary] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut other = Command::new("setpriv");
    other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&binary);
    let output = other.arg("probe").arg(small.node()).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(line.contains("run as root") && line.contains("ermission denied"), "{line}");
}

#[test]
fn loop_a_partition_is_read_and_its_disk_is_profiled() {
    let dir = scratch::for_disks();
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    let disk = LoopDevice::attach(&path);
    // From the first MiB on, 32 MiB.
    run("addpart", [disk.node(), "1", "2048", "65536"]);
    let part = PathBuf::from(format!("{}p1", disk.node()));
    let found = document(&["--pace", "max", "--no-keep"], &part, dir.path());
    run("delpart", [disk.node(), "1"]);
    assert_eq!(found["device"]["partition_start_bytes"].as_u64(), Some(MIB));
    assert_eq!(found["device"]["identity"]["bytes"].as_u64(), Some(64 * MIB));
    assert_eq!(found["content"], "zeroes");
}

#[test]
fn loop_a_device_that_vanishes_is_told_and_nothing_is_kept() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 64);
    let profiles = dir.path().join("profiles");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.arg("probe").arg("--profiles").arg(&profiles).arg(disk.node());
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = device(Path::new(disk.node())).counters().unwrap().reads;
    while device(Path::new(disk.node())).counters().unwrap().reads < started + 3000 {
        std::thread::sleep(Duration::from_millis(2));
    }
    // Its size becomes 0, as when a drive is pulled: at once, as far as the program sees.
    let signal = |signal: &str| run("kill", [signal, &running.id().to_string()]);
    signal("-STOP");
    File::options().write(true).open(dir.path().join("disk.img")).unwrap().set_len(0).unwrap();
    run("losetup", ["--set-capacity", disk.node()]);
    signal("-CONT");
    let output = running.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{err}");
    assert!(err.contains("vanished while it was probed"), "{err}");
    assert!(output.stdout.is_empty() && !profiles.exists());
}

#[test]
fn loop_an_interrupted_probe_keeps_nothing() {
    let dir = scratch::for_disks();
    let disk = disk(dir.path(), 64);
    let profiles = dir.path().join("profiles");
    let mut command = Command::new("timeout");
    command.args(["--preserve-status", "--signal", "INT", "0.4"]);
    command.arg(env!("CARGO_BIN_EXE_fragmend")).arg("probe").arg("--profiles").arg(&profiles);
    let output = command.arg(disk.node()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(16), "{err}");
    assert!(err.contains("interrupted: nothing was kept"), "{err}");
    assert!(!profiles.exists());
}
