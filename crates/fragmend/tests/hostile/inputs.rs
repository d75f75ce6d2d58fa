//! Inputs and locks: fragmend does not wait for other users.

use super::support::{apply, fragmented, holder, plan, write_plan};
use super::{PLANTED, fragmend, place, plant, refused};
use fragmend_plan::Policy;
use fragmend_testbed::image::Image;
use std::os::unix::fs::MetadataExt;

#[test]
fn loop_what_is_no_file_is_refused_at_once() {
    let (dir, victim) = place();
    for (kind, what) in PLANTED {
        let (plain, toml) = (dir.path().join(kind), dir.path().join(format!("{kind}.toml")));
        plant(kind, &plain, &victim);
        plant(kind, &toml, &victim);
        let what = match kind {
            // An input may be a link; the first leads to neither a plan nor a trace, the second nowhere.
            "link" => "",
            "dangling" => "No such file",
            _ => what,
        };
        let (plain, toml) = (plain.to_str().unwrap(), toml.to_str().unwrap());
        refused(&fragmend(["plan", "-t", plain]), what);
        refused(&fragmend(["apply", plain]), what);
        refused(&fragmend(["lab", "run", toml]), what);
        refused(&fragmend(["lab", "drive", toml]), what);
        if kind == "pipe" || kind == "device" {
            let scanned = fragmend(["scan", plain]);
            assert_eq!(scanned.status.code(), Some(4), "{}", scanned.stderr);
        }
    }
}

/// Takes a lease on the file, and keeps it when it is broken.
const LEASE: &str = "
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, 1024, fcntl.F_WRLCK)
os.write(1, b'x')
sys.stdin.read()
";

#[test]
fn loop_nobody_waits_for_the_holder_of_a_lease() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let holder = holder(&file, LEASE);
    let path = file.to_str().unwrap();
    refused(&fragmend(["plan", "-t", path]), "lease");
    refused(&fragmend(["apply", path]), "lease");
    let planned = fragmend(["plan", "--json", "--policy", "whole-file", path]).expect(&[0]);
    let planned: serde_json::Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(planned["files_left_alone"], 1, "{planned}");
    assert!(planned["skipped"][0]["reason"].as_str().unwrap().contains("lease"), "{planned}");
    let scanned = fragmend(["scan", "--source", "fiemap", path]);
    assert_eq!(scanned.status.code(), Some(0), "{}", scanned.stderr);
    drop(holder);
}

/// Locks 150,000 bytes of files of its own, one by one.
const LOCKS: &str = "
import fcntl, os, resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
files = [tempfile.TemporaryFile() for _ in range(150)]
for file in files:
    for at in range(1000, 0, -1):
        fcntl.lockf(file, fcntl.LOCK_EX, 1, at * 2)
os.write(1, b'x')
sys.stdin.read()
";

/// The time that the kernel needs to list all locks grows with the square of their number.
#[test]
fn loop_nobody_waits_for_a_list_of_many_locks() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let kept = image.scratch().join("plan.json");
    write_plan(&plan(&[&file], Policy::WholeFile), &kept);
    let holder = holder(&file, LOCKS);
    let started = std::time::Instant::now();
    fragmend(["apply", "--rate", "max", kept.to_str().unwrap()]).expect(&[0]);
    let took = started.elapsed();
    drop(holder);
    assert!(took < std::time::Duration::from_secs(3), "{took:?}");
}

/// Locks the given file, as any user with read access may.
const FLOCK: &str = "
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
os.write(1, b'x')
sys.stdin.read()
";

#[test]
fn loop_a_lock_on_the_mount_keeps_nobody_from_mending() {
    let image = Image::ext4(64 << 20);
    let file = fragmented(&image, "file");
    let planned = plan(&[&file], Policy::WholeFile);
    let theirs = holder(image.path(), FLOCK);
    let (summary, _) = apply(&planned);
    assert!(summary.ranges_moved > 0, "{summary:?}");
    drop(theirs);
    // A lock on root's own lock file does.
    let device = image.path().metadata().unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = format!("/run/fragmend/{major}:{minor}.lock");
    let ours = holder(name.as_ref(), FLOCK);
    let kept = image.scratch().join("plan.json");
    write_plan(&planned, &kept);
    refused(&fragmend(["apply", kept.to_str().unwrap()]), "another fragmend is at work");
    drop(ours);
    assert_eq!(std::fs::metadata("/run/fragmend").unwrap().mode() & 0o777, 0o700);
    let _ = std::fs::remove_file(name);
}
