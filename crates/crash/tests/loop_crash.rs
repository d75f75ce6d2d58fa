//! Power cuts while files are moved under load: no engine loses a byte, and the machine finds the
//! losses of the controls. `uml_crash` does the same in guests.

mod support;

use fragmend_crash::controls;
use fragmend_crash::disk::Disk;
use fragmend_crash::log::{Entry, Log};
use fragmend_crash::marks::{Mark, Marks};
use fragmend_crash::scenario;
use fragmend_crash::serve::Served;
use fragmend_testbed::loop_device::LoopDevice;
use fragmend_testbed::tools;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use support::{SOAK, lose_nothing_alone, loses_nothing};

engines! {
    in_guest: false;
    loop_300_cuts_of_ext4_lose_nothing => "ext4", 300, 1;
    loop_300_cuts_of_ext4_1k_lose_nothing => "ext4-1k", 300, 1;
    loop_300_cuts_of_xfs_lose_nothing => "xfs", 300, 1;
    loop_300_cuts_of_xfs_exchange_lose_nothing => "xfs-exchange", 300, 1;
    loop_300_cuts_of_xfs_rmap_lose_nothing => "xfs-rmap", 300, 1;
    loop_300_cuts_of_btrfs_lose_nothing => "btrfs", 300, 1;
    loop_300_cuts_of_btrfs_zstd_lose_nothing => "btrfs-zstd", 300, 1;
    loop_300_cuts_of_rewrite_on_ext4_lose_nothing => "rewrite-ext4", 300, 1;
    loop_300_cuts_of_rewrite_on_xfs_lose_nothing => "rewrite-xfs-plain", 300, 1;
}

#[test]
fn loop_cuts_lose_nothing_where_nothing_is_moved() {
    lose_nothing_alone(false);
}

/// What others `fdatasync` on ext4 in files that they have open is lost if its blocks have moved and
/// the move is not committed: the reason why such files are left alone. The machine must find it.
#[test]
fn loop_data_syncs_beside_a_forced_move_are_lost_on_ext4() {
    controls::stops_at_moves().unwrap();
    let mut said = String::new();
    let row = controls::forced(Path::new(SOAK), |what| what.clone_into(&mut said));
    let cells = row.cells();
    println!("{}\n{said}", cells.join(" | "));
    assert!(!row.results.losses.is_empty(), "nothing was lost in {} cuts", row.results.cuts);
    assert!(said.contains("expected version"), "{said}");
}

/// A build without stop points, as releases are, would find nothing in any number of cuts.
#[test]
fn loop_the_soak_refuses_a_mover_that_never_stops() {
    let dir = tempfile::tempdir().unwrap();
    let never = dir.path().join("never-stops");
    let fragmend = tools::fragmend();
    let text = format!("#!/bin/sh\nunset FRAGMEND_STOP_AT\nexec '{}' \"$@\"\n", fragmend.display());
    std::fs::write(&never, text).unwrap();
    std::fs::set_permissions(&never, Permissions::from_mode(0o755)).unwrap();
    let soak =
        Command::new(SOAK).args(["--scenario", "ext4-alone"]).env("FRAGMEND", &never).output();
    let soak = soak.unwrap();
    let said = String::from_utf8_lossy(&soak.stderr).into_owned();
    assert_eq!(soak.status.code(), Some(1), "{said}");
    assert!(said.contains("never stops itself right after a move"), "{said}");
    assert_eq!((said.lines().count(), soak.stdout.len()), (1, 0), "{said}");
}

#[test]
fn loop_what_must_be_lost_is_found() {
    for scenario in &scenario::BROKEN {
        let mut said = String::new();
        let row = controls::broken(scenario, Path::new(SOAK), |what| what.clone_into(&mut said));
        assert!(row.results.losses.len() >= 6 && row.results.wrong_bytes() > 0, "{row:?}");
        assert!(said.contains("--replay"), "{said}");
        // The command that it names shows the same again.
        let args: Vec<&str> = said.split("soak --replay ").nth(1).unwrap().split(' ').collect();
        let replay = || Command::new(SOAK).arg("--replay").args(&args).output();
        let again = replay().unwrap();
        let text = String::from_utf8_lossy(&again.stdout).into_owned();
        assert_eq!(again.status.code(), Some(1), "{text}");
        // A tool's message names its mount point, which is another one each time.
        let wrong = said.lines().nth(1).unwrap().trim().split("/tmp/").next().unwrap();
        assert!(text.lines().any(|line| line.starts_with(wrong)), "{wrong}\n{text}");
        std::fs::remove_dir_all(args[0]).unwrap();
    }
}

#[test]
fn loop_the_disk_records_in_order() {
    const BYTES: u64 = 256 << 20;
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("served");
    std::fs::create_dir(&at).unwrap();
    let disk = Disk::create(dir.path(), BYTES).unwrap();
    let served = Served::start(disk, &at).unwrap();
    let marks = Marks::open(&served.marks()).unwrap();
    marks.write(&Mark::Recording).unwrap();
    let device = LoopDevice::attach(&served.disk());
    let node = File::options().read(true).write(true).open(device.node()).unwrap();
    let started = std::time::Instant::now();
    for n in 0..BYTES >> 20 {
        node.write_all_at(&vec![n as u8 | 1; 1 << 20], n << 20).unwrap();
    }
    node.sync_all().unwrap();
    let rate = BYTES as f64 / started.elapsed().as_secs_f64() / f64::from(1 << 20);
    println!("{rate:.0} MiB/s through the loop device");
    marks.write(&Mark::Moving).unwrap();
    node.write_all_at(&[0xEE; 512], 1024).unwrap();
    node.sync_all().unwrap();
    let mut read = [0; 2048];
    node.read_exact_at(&mut read, 0).unwrap();
    assert_eq!((read[1023], read[1024], read[1535], read[1536]), (1, 0xEE, 0xEE, 1));
    drop((node, device, marks, served));
    let log = Log::open(&dir.path().join("log")).unwrap();
    let entries = log.entries();
    let mark = entries.iter().position(|e| matches!(e, Entry::Mark { .. })).unwrap();
    let written = |entries: &[Entry]| -> u64 {
        let len = |e: &Entry| if let Entry::Write { len, .. } = e { *len } else { 0 };
        entries.iter().map(len).sum()
    };
    assert_eq!(entries[mark - 1], Entry::Flush { second: false });
    assert_eq!(written(&entries[..mark]), BYTES);
    // The block layer reads and writes whole pages.
    assert!(matches!(entries[mark + 1], Entry::Write { offset: 0 | 1024, .. }), "{entries:?}");
    assert!(entries[mark..].contains(&Entry::Flush { second: false }));
}
