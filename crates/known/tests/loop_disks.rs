//! Images of disks that the programs themselves have made, and files that look like them.

mod support;

use fragmend_known::Recogniser;
use fragmend_testbed::process::finish;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{directory, what};

const MIB: u64 = 1 << 20;

/// A sparse file.
fn sparse(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

/// Makes a table of partitions.
fn partition(path: &Path, script: &str) {
    let mut command = Command::new("sfdisk");
    command.args(["--quiet", "--no-reread"]).arg(path).stdin(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success());
}

#[test]
fn loop_raw_disks_show_what_is_on_them() {
    let (_dir, path) = directory();
    let mut recogniser = Recogniser::default();
    let mut of = |name: &str| what(&mut recogniser, &path.join(name)).unwrap_or_default();

    sparse(&path.join("gpt"), 64 * MIB);
    partition(&path.join("gpt"), "label: gpt\nsize=8MiB\nsize=8MiB\nsize=8MiB\n");
    let found = of("gpt");
    let expected =
        "Disk image: 64 MiB in raw format, 0 MiB of it allocated, with 3 partitions (GPT)";
    assert_eq!(found, expected);
    fs::write(path.join("mbr"), vec![0xA5; 16 * MIB as usize]).unwrap();
    partition(&path.join("mbr"), "label: dos\nsize=4MiB, type=83\n");
    let expected = "Disk image: 16 MiB in raw format, all allocated, with 1 partition (MBR)";
    assert_eq!(of("mbr"), expected);
    let makers: [(&str, &str, &[&str], u64); 6] = [
        ("ext2", "mke2fs", &["-q", "-t", "ext2"], 16),
        ("ext3", "mke2fs", &["-q", "-t", "ext3"], 16),
        ("ext4", "mke2fs", &["-q", "-t", "ext4"], 16),
        ("XFS", "mkfs.xfs", &["-q"], 400),
        ("Btrfs", "mkfs.btrfs", &["-q"], 200),
        ("F2FS", "mkfs.f2fs", &["-q"], 100),
    ];
    for (kind, maker, args, mib) in makers {
        let image = path.join(kind);
        sparse(&image, mib * MIB);
        finish(Command::new(maker).args(args).arg(&image)).expect(&[0]);
        let found = of(kind);
        assert!(found.starts_with(&format!("Disk image: {mib} MiB in raw format, ")), "{found}");
        assert!(found.ends_with(&format!(", with a file system ({kind})")), "{found}");
        // It is cut off: what it says of its size is not so.
        File::options().write(true).open(&image).unwrap().set_len(mib * MIB - 4096).unwrap();
        assert_eq!(of(kind), "", "{kind}");
    }
    let image = path.join("gpt");
    File::options().write(true).open(&image).unwrap().set_len(63 * MIB).unwrap();
    assert_eq!(of("gpt"), "");
    File::options().write(true).open(path.join("mbr")).unwrap().set_len(4 * MIB).unwrap();
    assert_eq!(of("mbr"), "");
}

#[test]
fn loop_a_boot_sector_proves_nothing_by_its_signature() {
    let (_dir, path) = directory();
    let file = path.join("file");
    let mut recogniser = Recogniser::default();
    let mut of = |sector: &[u8]| {
        sparse(&file, 16 * MIB);
        File::options().write(true).open(&file).unwrap().write_all_at(sector, 0).unwrap();
        what(&mut recogniser, &file)
    };
    let mut sector = [0; 512];
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    assert_eq!(of(&sector), None, "no partition");
    let entry = |kind: u8, start: u32, sectors: u32| {
        let mut entry = [0; 16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
        entry
    };
    sector[446..462].copy_from_slice(&entry(0x83, 2048, 2048));
    assert!(of(&sector).is_some());
    let bad = |at: usize, entry: [u8; 16]| {
        let mut bad = sector;
        bad[at..at + 16].copy_from_slice(&entry);
        bad
    };
    assert_eq!(of(&bad(462, entry(0x83, 4095, 1))), None, "overlap");
    assert!(of(&bad(462, entry(0x83, 4096, 1))).is_some());
    assert_eq!(of(&bad(462, entry(0x83, 0, 1))), None, "the table itself");
    assert_eq!(of(&bad(462, entry(0x83, 4096, 0))), None, "empty");
    assert_eq!(of(&bad(462, entry(0x83, 4096, u32::MAX))), None, "beyond the end");
    assert_eq!(of(&bad(462, entry(0xEE, 4096, 1))), None, "a GPT that is not there");
    let mut status = sector;
    status[446] = 1;
    assert_eq!(of(&status), None, "neither bootable nor not");
    assert_eq!(of(&sector[..511]), None, "no signature");
}
