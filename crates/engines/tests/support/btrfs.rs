//! What the tests of Btrfs share: compressed files, snapshots, and the output of its tools.

use super::conformance::shared_bytes;
use super::{SIZE, fragmented};
use fragmend_sys::btrfs::{Compressed, Compression, compressed};
use fragmend_testbed::fragment::{alternating, compressible, interleave};
use fragmend_testbed::image::{Image, run};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Remounts the image with another compression: `no`, `zstd:7`, or `force=lzo`.
pub fn compress(image: &Image, how: &str) {
    let option = if how.starts_with("force=") { "compress-" } else { "compress=" };
    let options = format!("remount,{option}{how}");
    run("mount", ["-o".as_ref(), options.as_ref(), image.path().as_os_str()]);
}

/// A file of [`SIZE`] in compressed extents of 32 KiB, each of which is a fragment.
pub fn squeezed(image: &Image, name: &str) -> PathBuf {
    let path = image.path().join(name);
    alternating(&path, SIZE, 32 << 10, compressible).expect("a compressed file");
    image.sync();
    assert_eq!(how(&path).len() as u64, SIZE >> 15, "{name} is compressed, extent by extent");
    path
}

/// How a file's compressed extents are compressed, one by one.
pub fn how(path: &Path) -> Vec<Compression> {
    stored(path).iter().map(|e| e.compression).collect()
}

/// Its compressed extents.
pub fn stored(path: &Path) -> Vec<Compressed> {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    compressed(&file, file.metadata().unwrap().ino(), 0..u64::MAX).unwrap()
}

/// Runs `btrfs` on some paths.
pub fn btrfs(args: &[&str], paths: &[&Path]) -> String {
    let paths = paths.iter().map(|p| p.as_os_str());
    run("btrfs", args.iter().map(AsRef::as_ref).chain(paths))
}

/// Bytes of data on the file system, by `btrfs filesystem df`.
pub fn data_used(image: &Image) -> u64 {
    image.sync();
    let said = btrfs(&["filesystem", "df", "--raw"], &[image.path()]);
    let line = said.lines().find(|l| l.starts_with("Data")).expect("a line about data");
    line.rsplit("used=").next().and_then(|n| n.trim().parse().ok()).expect("bytes used")
}

/// A snapshot of a subvolume, writable or not.
pub fn snapshot(subvolume: &Path, at: &Path, how: &[&str]) {
    btrfs(&[&["subvolume", "snapshot"], how].concat(), &[subvolume, at]);
}

/// A subvolume `source` with a file that its snapshot `snap` shares but for the second half.
pub fn half_shared(image: &Image) -> (std::path::PathBuf, std::path::PathBuf) {
    let at = |name: &str| image.path().join(name);
    btrfs(&["subvolume", "create"], &[&at("source")]);
    let file = fragmented(image, "source/file");
    image.sync();
    snapshot(&at("source"), &at("snap"), &[]);
    // With the same bytes, in fragments of its own.
    let own = File::options().write(true).open(&file).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&own, hole, SIZE / 2, SIZE / 2).unwrap();
    let between = File::create(at("between")).unwrap();
    interleave(&own, &between, SIZE / 2, SIZE / 2, &[4096]).unwrap();
    image.sync();
    let snap = at("snap/file");
    assert_eq!((shared_bytes(&file), shared_bytes(&snap)), (SIZE / 2, SIZE / 2));
    (file, snap)
}
