//! Served files as programs see them, and how serving ends when something goes wrong.

use fragmend_served::request::{Answer, Arrived, Disk, Kind};
use fragmend_served::server::{Control, Offer, Server, Unended};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BYTES: u64 = 1 << 20;

/// A disk that panics where it is told to, and never answers reads of its second half.
#[derive(Clone, Default)]
struct Odd(Arc<Mutex<Vec<Answer>>>);

/// A read here panics.
const PANICS: u64 = 4096;

impl Disk for Odd {
    fn bytes(&self) -> u64 {
        BYTES
    }

    fn carry_out(&self, arrived: &Arrived<'_>, answer: Answer) {
        assert!(arrived.kind != Kind::Read || arrived.offset != PANICS, "told to");
        if arrived.offset >= BYTES / 2 {
            return self.0.lock().unwrap().push(answer);
        }
        answer.give(Ok(&vec![7; arrived.len as usize]));
    }
}

/// Counts how often it is read, and takes numbers only.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl Control for Counter {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(format!("{:08}\n", self.0.fetch_add(1, Ordering::Relaxed)).into_bytes())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let number = std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok());
        self.0.store(number.ok_or(Errno::INVAL)?, Ordering::Relaxed);
        Ok(())
    }
}

fn serve(dir: &Path, disk: &Odd) -> Server {
    let offer = Offer::new("fragmend-test").in_flight(16).disk("disk", disk.clone());
    Server::start(offer.control("counter", 0, Counter::default()), dir).unwrap()
}

fn mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(dir.to_str().unwrap())
}

#[test]
fn loop_files_are_listed_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &Odd::default());
    let mut names: Vec<_> =
        fs::read_dir(server.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["counter", "disk"]);
    let path = dir.path().join("counter");
    assert_eq!(fs::read_to_string(&path).unwrap(), "00000000\n");
    fs::write(&path, "41\n").unwrap();
    assert_eq!(
        fs::write(&path, "x").unwrap_err().raw_os_error(),
        Some(Errno::INVAL.raw_os_error())
    );
    // Later bytes are of the content that the first one was read of, and each handle has its own.
    let (one, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
    let read = |file: &File, len: usize, at: u64| {
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, at).unwrap();
        String::from_utf8(bytes[..read].to_vec()).unwrap()
    };
    assert_eq!((read(&one, 8, 0), read(&other, 8, 0)), ("00000041".into(), "00000042".into()));
    assert_eq!((read(&one, 8, 6), read(&other, 8, 6)), ("41\n".into(), "42\n".into()));
    assert_eq!((read(&one, 8, 0), read(&one, 8, 9)), ("00000043".into(), String::new()));
    drop((one, other));
    assert!(server.end().is_ok());
    assert!(!mounted(dir.path()));
}

#[test]
fn loop_a_panic_is_an_error_for_its_request_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &Odd::default());
    let disk = File::open(dir.path().join("disk")).unwrap();
    let mut bytes = [0; 512];
    let failed = disk.read_exact_at(&mut bytes, PANICS).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(Errno::IO.raw_os_error()));
    disk.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [7; 512]);
    // It is in use: it goes on.
    let Err(Unended::InUse(server)) = server.end() else { panic!("a file is open") };
    disk.read_exact_at(&mut bytes, 0).unwrap();
    drop(disk);
    drop(server);
    assert!(!mounted(dir.path()));
}

#[test]
fn loop_an_abort_lets_nobody_wait() {
    let dir = tempfile::tempdir().unwrap();
    let odd = Odd::default();
    let server = serve(dir.path(), &odd);
    let disk = File::open(dir.path().join("disk")).unwrap();
    let reader = std::thread::spawn(move || disk.read_at(&mut [0; 512], BYTES / 2).map(drop));
    let started = Instant::now();
    while odd.0.lock().unwrap().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "the read has not arrived");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!reader.is_finished());
    server.abort().unwrap();
    assert!(reader.join().unwrap().is_err());
    assert!(!mounted(dir.path()));
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// Panics, whatever is asked.
struct Panics;

impl Control for Panics {
    fn read(&self) -> io::Result<Vec<u8>> {
        panic!("told to")
    }

    fn write(&self, _: &[u8]) -> io::Result<()> {
        panic!("told to")
    }
}

#[test]
fn loop_a_panic_of_a_control_file_is_an_error_and_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let reported = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reported);
    let offer = Offer::new("fragmend-test").control("panics", 0, Panics).on_panic(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let server = Server::start(offer, dir.path()).unwrap();
    let path = dir.path().join("panics");
    let io = Some(Errno::IO.raw_os_error());
    assert_eq!(fs::write(&path, "x").unwrap_err().raw_os_error(), io);
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), io);
    assert_eq!(reported.load(Ordering::Relaxed), 2);
    // It serves on.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    server.end().unwrap();
    assert!(!mounted(dir.path()));
}

#[test]
fn loop_whoever_renames_the_directory_does_not_lead_the_mount_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let [own, away, victim] = ["own", "away", "victim"].map(|name| dir.path().join(name));
    fs::create_dir_all(own.join("drive")).unwrap();
    fs::create_dir(&victim).unwrap();
    // A link is not mounted on.
    std::os::unix::fs::symlink(&victim, own.join("link")).unwrap();
    let offer = || Offer::new("fragmend-test").disk("disk", Odd::default());
    assert!(Server::start(offer(), &own.join("link")).is_err());
    // The place is known by what it is, not by what its path leads to at the end.
    let on_victim = Server::start(offer(), &victim).unwrap();
    let server = Server::start(offer(), &own.join("drive")).unwrap();
    fs::rename(&own, &away).unwrap();
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink(&victim, own.join("drive")).unwrap();
    server.end().unwrap();
    assert!(mounted(&victim) && !mounted(&away));
    on_victim.end().unwrap();
    assert!(!mounted(dir.path()));
}

#[test]
fn loop_the_end_of_what_is_not_mounted_any_more_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path(), &Odd::default());
    let disk = File::open(dir.path().join("disk")).unwrap();
    // Somebody else has unmounted it, and it is in use nevertheless.
    rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let started = Instant::now();
    assert!(matches!(server.end(), Err(Unended::Elsewhere)));
    assert!(started.elapsed() < Duration::from_secs(20));
    drop(disk);
}
