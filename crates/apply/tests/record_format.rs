//! The format of records: files of each version stay readable, and nothing else passes for one.

use fragmend_apply::rewrite::journal::read_data;
use fragmend_apply::rewrite::record::{BadRecord, Record, VERSION};
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::Handle;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A record as version 1 wrote it: `encode` of [`sample`], then its bytes.
const V1: &[u8] = include_bytes!("data/v1.record");

fn data() -> Vec<u8> {
    (0..1808u32).map(|n| (n * 7 % 251) as u8).collect()
}

fn sample() -> Record {
    Record {
        fs: FsId { uuid: *b"0123456789abcdef", fsid: 0x1122_3344_5566_7788 },
        inode: 0xfff_ffff_fff1,
        generation: 77,
        handle: Handle { kind: 1, bytes: b"12345678".to_vec() },
        path: OsStr::from_bytes(b"dir/new\nline \xff").into(),
        size: 10_000,
        mtime: (-5, 999_999_999),
        block: 4096,
        range: ByteRange { start: 8192, end: 12_288 },
        data_checksum: crc32c::crc32c(&data()),
    }
}

#[test]
fn version_1_is_what_it_was() {
    assert_eq!(VERSION, 1, "keep the files of older versions, and read them");
    let bytes = [sample().encode(), data()].concat();
    assert!(bytes == V1, "the format changed without its version");
    assert_eq!(Record::decode(V1), Ok(sample()));
    assert_eq!(sample().data_len(), 1808);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let names = 112 + 8 + 14;
    for bit in 0..names * 8 {
        let mut bytes = V1.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let bad = Record::decode(&bytes).expect_err("a flipped bit");
        let expected = match bit / 64 {
            0 => bad == BadRecord::Foreign,
            1 if bit < 96 => matches!(bad, BadRecord::Version(v) if v != 1),
            _ => bad == BadRecord::Damaged,
        };
        assert!(expected, "bit {bit}: {bad:?}");
    }
}

#[test]
fn what_is_cut_off_is_damaged() {
    for length in 0..134 {
        let bad = Record::decode(&V1[..length]).expect_err("cut off");
        let expected = if length < 8 { BadRecord::Foreign } else { BadRecord::Damaged };
        assert_eq!(bad, expected, "{length} bytes");
    }
}

#[test]
fn the_bytes_have_a_checksum_of_their_own() {
    let read = |bytes: &[u8]| {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        read_data(&file.into(), &sample()).unwrap()
    };
    assert_eq!(read(V1), Some(data()));
    let mut flipped = V1.to_vec();
    flipped[4096 + 1000] ^= 0x10;
    assert_eq!(read(&flipped), None);
    assert_eq!(read(&V1[..V1.len() - 1]), None);
}

#[test]
fn lengths_that_lie_ask_for_no_memory() {
    let huge = Record { size: u64::MAX, range: ByteRange { start: 0, end: u64::MAX }, ..sample() };
    let file = tempfile::tempfile().unwrap();
    assert_eq!(read_data(&file.into(), &huge).unwrap(), None);
}
