//! The format of records: files of each version stay readable, and no other file is accepted.

use fragmend_engines::rewrite::draft::read_data;
use fragmend_engines::rewrite::record::{BadRecord, Record, VERSION};
use fragmend_layout::ByteRange;
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle::Handle;
use fragmend_sys::session::Disk;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Records as versions 1 and 2 wrote them: `encode` of [`sample`], then its bytes.
const V1: &[u8] = include_bytes!("data/v1.record");
const V2: &[u8] = include_bytes!("data/v2.record");

fn data() -> Vec<u8> {
    (0..1808u32).map(|n| (n * 7 % 251) as u8).collect()
}

fn sample(version: u32) -> Record {
    let disk = Disk { attached: 0x0123_4567_89ab_cdef, lasting: 0xfedc_ba98_7654_3210 };
    Record {
        version,
        disk: if version == 1 { Disk::default() } else { disk },
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
fn each_version_is_what_it_was() {
    assert_eq!(VERSION, 2, "keep the files of older versions, and read them");
    for (version, kept) in [(1, V1), (2, V2)] {
        let bytes = [sample(version).encode(), data()].concat();
        assert!(bytes == kept, "format {version} changed without its version");
        assert_eq!(Record::decode(kept), Ok(sample(version)));
        assert_eq!(sample(version).data_len(), 1808);
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for (kept, header) in [(V1, 112), (V2, 128)] {
        for bit in 0..(header + 8 + 14) * 8 {
            let mut bytes = kept.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let bad = Record::decode(&bytes).expect_err("a flipped bit");
            let expected = match bit / 64 {
                0 => bad == BadRecord::Foreign,
                1 if bit < 96 => matches!(bad, BadRecord::Version(v) if v > 2 || v == 0),
                _ => bad == BadRecord::Damaged,
            };
            assert!(expected, "bit {bit}: {bad:?}");
        }
    }
}

#[test]
fn what_is_cut_off_is_damaged() {
    for (kept, names) in [(V1, 134), (V2, 150)] {
        for length in 0..names {
            let bad = Record::decode(&kept[..length]).expect_err("cut off");
            let expected = if length < 8 { BadRecord::Foreign } else { BadRecord::Damaged };
            assert_eq!(bad, expected, "{length} bytes");
        }
    }
}

#[test]
fn the_bytes_have_a_checksum_of_their_own() {
    let read = |version, bytes: &[u8]| {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        read_data(&file.into(), &sample(version)).unwrap()
    };
    for (version, kept) in [(1, V1), (2, V2)] {
        assert_eq!(read(version, kept), Some(data()));
        let mut flipped = kept.to_vec();
        let start = sample(version).data_start() as usize;
        flipped[start + 1000] ^= 0x10;
        assert_eq!(read(version, &flipped), None);
        assert_eq!(read(version, &kept[..kept.len() - 1]), None, "too short");
        assert_eq!(read(version, &[kept, &[0]].concat()), None, "too long");
    }
}

#[test]
fn lengths_that_lie_ask_for_no_memory() {
    let huge = Record { size: u64::MAX, range: ByteRange { start: 0, end: u64::MAX }, ..sample(2) };
    let file = tempfile::tempfile().unwrap();
    assert_eq!(read_data(&file.into(), &huge).unwrap(), None);
}

#[test]
fn what_no_rewrite_writes_is_told() {
    let fine = |record: &Record| record.check(4096);
    assert_eq!((fine(&sample(1)), fine(&sample(2))), (Ok(()), Ok(())));
    assert!(sample(2).check(1024).is_err() && sample(2).check(0).is_err());
    let at = |start, end| Record { range: ByteRange { start, end }, ..sample(2) };
    for bad in [
        at(8193, 12_288),
        at(8192, 12_287),
        at(8192, 8192),
        at(8192, 4096),
        at(12_288, 16_384),
        at(8192, 16_384),
        at(0, 1 << 63),
        at(0, u64::MAX),
        Record { size: u64::MAX, ..at(0, 4096) },
        Record { size: 1 << 40, ..at(0, (64 << 20) + 4096) },
        Record { mtime: (0, 1_000_000_000), ..sample(2) },
        Record { path: "../above".into(), ..sample(2) },
        Record { handle: Handle { kind: 1, bytes: vec![0; 129] }, ..sample(2) },
    ] {
        assert!(fine(&bad).is_err(), "{bad:?}");
    }
    // Earlier versions wrote one where the path below the mount was not known: it leads nowhere.
    let absolute = Record { path: "/etc/../passwd".into(), ..sample(2) };
    assert_eq!((fine(&absolute), absolute.path_below()), (Ok(()), Path::new("")));
}
