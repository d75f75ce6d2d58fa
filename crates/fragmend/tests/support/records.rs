//! Records of a rewrite that tests make: of a file as it is, to be modified and put anywhere.

use fragmend_engines::rewrite::record::{Record, VERSION, data_checksum};
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::Handle;
use fragmend_sys::inode;
use fragmend_sys::session::Disk;
use fragmend_testbed::image::Image;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The journal at the top of an image.
pub fn journal(image: &Image) -> PathBuf {
    image.path().join(".fragmend-rewrite")
}

/// Creates it as `apply` does.
pub fn make_journal(image: &Image) -> PathBuf {
    let dir = journal(image);
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&dir).unwrap();
    dir
}

/// The names in a journal, in order.
pub fn names(journal: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(journal) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The only file in the journal of an image.
pub fn only_record(image: &Image) -> PathBuf {
    let names = names(&journal(image));
    assert_eq!(names.len(), 1, "{names:?}");
    journal(image).join(&names[0])
}

/// A valid record of a range of a file, with these bytes.
pub fn record_of(image: &Image, path: &Path, range: ByteRange, data: &[u8]) -> Record {
    let file = File::open(path).unwrap();
    let m = file.metadata().unwrap();
    Record {
        version: VERSION,
        fs: FsId::of(File::open(image.path()).unwrap()).unwrap(),
        disk: Disk::of(m.dev()),
        inode: m.ino(),
        generation: inode::generation(&file).unwrap(),
        handle: Handle::of(&file).unwrap(),
        path: path.strip_prefix(image.path()).unwrap().to_owned(),
        size: m.len(),
        mtime: (m.mtime(), m.mtime_nsec() as u32),
        block: 4096,
        range,
        data_checksum: data_checksum(data),
    }
}

/// The bytes of a record's file.
pub fn encoded(record: &Record, data: &[u8]) -> Vec<u8> {
    [&record.encode()[..], data].concat()
}
