//! A plan that a user wrote may have ranges of any length: a long one moves in bounded memory. In a
//! test program of its own, because the peak memory of the process is measured.

mod support;

use fragmend_engines::{Choice, engine};
use fragmend_layout::{ByteRange, FileId};
use fragmend_sys::{inode, mounts};
use fragmend_testbed::fragment::{interleaved, is_intact};
use fragmend_testbed::image::Image;
use fragmend_testbed::tools::extents;
use fragmend_testbed::usage::Process;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 24 * MIB;

#[test]
fn loop_a_range_of_any_length_moves_in_little_memory() {
    let image = Image::ext4(1024 * MIB);
    let path = image.path().join("file");
    interleaved(&path, SIZE, &[4096], true).unwrap();
    image.sync();
    let meta = path.metadata().unwrap();
    let generation = inode::generation(File::open(&path).unwrap()).unwrap();
    let id = FileId { device: meta.dev(), inode: meta.ino(), generation };
    let mount = mounts::of_path(&path).unwrap();
    let volume = engine::volume_for(&mount, &Choice::Native, false).unwrap();
    let (before, lay) = (Process::This.peak_bytes().unwrap(), extents(&path));
    assert!(lay > 100, "{lay}");
    let mut file = volume.open(id, &path).unwrap_or_else(|skip| panic!("{skip:?}"));
    let all = ByteRange { start: 0, end: SIZE };
    // The pace limits no step.
    let done = support::pace::relocate(&mut *file, &[all], || {}).unwrap().remove(0);
    assert!(done.bytes == SIZE && done.skip.is_none(), "{done:?}");
    drop(file);
    // It has the root of the file system open.
    drop(volume);
    let took = Process::This.peak_bytes().unwrap() - before;
    println!("{} MiB in one range took {} KiB", SIZE / MIB, took / 1024);
    assert!(took < 8 * MIB, "{took} bytes of memory");
    assert!(extents(&path) < lay / 10, "{}", extents(&path));
    image.fsck();
    assert!(is_intact(&path, SIZE).unwrap());
}
