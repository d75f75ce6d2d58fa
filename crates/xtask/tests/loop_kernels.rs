//! The static binaries on the kernels of distributions, in emulated machines (`packaging/guest`): on ext4, XFS and Btrfs a
//! fragmented file is scanned, recorded while it is read, planned and moved, another one is moved by the daemon; then this
//! machine's tools check the file systems and compare every byte.
//!
//! No part of `make test`: it fetches kernels, and emulation is slow. Each prints a row of the table in `docs/packages.md`.

use fragmend_testbed::file_system::{BTRFS, EXT4, FileSystem, XFS};
use fragmend_testbed::fragment::{FRAGPICKER_EXTENTS, interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::packages::{binary, script};
use fragmend_testbed::process::finish;
use fragmend_testbed::scratch;
use fragmend_testbed::tools::extents;
use serde_json::Value;
use std::fs::read_to_string;
use std::path::Path;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 4 * MIB;
/// Seconds after which a machine that is emulated counts as hung.
const LIMIT: &str = "1200";
/// The files: one is moved by `apply`, one by the daemon.
const FILES: [&str; 2] = ["file", "other"];

/// What calls on one file system printed, and how they ended.
struct Calls<'a>(&'a Path);

impl Calls<'_> {
    /// The last JSON document that a call printed; its exit code must be one of these.
    fn document(&self, call: &str, codes: &[&str]) -> Value {
        let read = |end: &str| read_to_string(self.0.join(format!("{call}.{end}"))).unwrap();
        let (code, text, said) = (read("code"), read("json"), read("err"));
        let at = self.0.display();
        assert!(codes.contains(&code.trim()), "{at}: {call} ended with {code}{said}{text}");
        let last = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        last.or_else(|| serde_json::from_str(&text).ok())
            .unwrap_or_else(|| panic!("{at}: {call} printed {text}{said}"))
    }

    /// All that the daemon printed.
    fn watched(&self) -> String {
        read_to_string(self.0.join("watch.json")).unwrap()
    }
}

/// An image with the files, unmounted.
fn image(file_system: &'static FileSystem) -> (Image, [u64; 2]) {
    let image = Image::of(file_system, 320 * MIB);
    let fragmented = FILES.map(|name| {
        let path = image.path().join(name);
        interleaved(&path, SIZE, &FRAGPICKER_EXTENTS, true).unwrap();
        path
    });
    image.sync();
    let extents = fragmented.map(|path| extents(&path));
    image.unmount();
    (image, extents)
}

/// Boots a kernel, and checks all that was done there.
fn works_on(suite: &str, debian: &str, arch: &str) {
    let images = [&EXT4, &XFS, &BTRFS].map(|file_system| (file_system.name, image(file_system)));
    let results = scratch::directory("kernels");
    let mut guest = script("guest");
    guest.args([suite, debian]).arg(binary(arch)).arg(results.path()).arg(LIMIT);
    for (name, (image, _)) in &images {
        guest.arg(format!("{name}={}", image.device()));
    }
    finish(&mut guest).expect(&[0]);
    let release = read_to_string(results.path().join("release")).unwrap();
    for (name, (image, before)) in &images {
        let calls = Calls(&results.path().join(name));
        let scanned = calls.document("before", &["0"]);
        assert_eq!(scanned["totals"]["extents"], before[0], "{name}: {scanned}");
        let recorded = calls.document("record", &["0"]);
        assert_eq!(recorded["totals"]["read_bytes"], SIZE, "{name}: {recorded}");
        assert_eq!(recorded["totals"]["lost"], 0, "{name}: {recorded}");
        calls.document("plan", &["0"]);
        let applied = calls.document("apply", &["0", "2"]);
        calls.document("watch", &["0"]);
        image.mount_with("");
        let after = FILES.map(|file| extents(&image.path().join(file)));
        assert_eq!(calls.document("after", &["0"])["totals"]["extents"], after[0]);
        println!(
            "| {} | {arch} | {name} | {} bytes | {} to {} | {} to {} |",
            release.trim(),
            recorded["totals"]["read_bytes"],
            before[0],
            after[0],
            before[1],
            after[1],
        );
        assert!(after[0] * 4 < before[0], "{name}: {applied}");
        assert!(after[1] * 4 < before[1], "{name}: {}", calls.watched());
        for file in FILES {
            assert!(is_intact(&image.path().join(file), SIZE).unwrap(), "{name}: {file}");
        }
        image.fsck();
    }
}

#[test]
#[ignore = "fetches a kernel and emulates a machine; 'make kernels' runs it"]
fn loop_debian_stable_on_x86_64() {
    works_on("stable", "amd64", "x86_64");
}

#[test]
#[ignore = "fetches a kernel and emulates a machine; 'make kernels' runs it"]
fn loop_ubuntu_jammy_with_the_oldest_kernel_on_x86_64() {
    works_on("jammy", "amd64", "x86_64");
}

#[test]
#[ignore = "fetches a kernel and emulates a machine; 'make kernels' runs it"]
fn loop_debian_stable_on_aarch64() {
    works_on("stable", "arm64", "aarch64");
}
