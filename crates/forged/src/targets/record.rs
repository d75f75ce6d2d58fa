//! The record of a rewrite: an accepted record is written again byte for byte, and computing with its
//! figures does not overflow.

use fragmend_engines::rewrite::record::{BadRecord, Record};
use std::path::Component;

/// Where the checksum is, in every version.
const CHECKSUM: std::ops::Range<usize> = 12..16;
/// Most bytes of a header, of any version.
const HEADER: usize = 128;
/// Where the lengths of handle and path are.
const LENGTHS: usize = 56;

/// A record, checked as it is and with its checksum corrected, because a fuzzer cannot guess one.
pub fn run(input: &[u8]) -> bool {
    let taken = check(input);
    match with_checksum(input) {
        Some(whole) => check(&whole) || taken,
        None => taken,
    }
}

fn check(input: &[u8]) -> bool {
    let record = match Record::decode(input) {
        Ok(record) => record,
        Err(BadRecord::Foreign) => {
            assert!(!input.starts_with(b"FRAGMRW\n"));
            return false;
        }
        Err(_) => return false,
    };
    let (start, length) = (record.data_start(), record.data_len());
    // Head and names, and a block of notes.
    assert!(start <= (HEADER + input.len()).next_multiple_of(4096) as u64 + 4096);
    assert!(length <= record.size && length <= record.range.len());
    if record.check(4096).is_ok() {
        assert!((1..=64 << 20).contains(&record.range.len()) && record.range.start < record.size);
        assert!(record.range.start % 4096 == 0 && record.range.end % 4096 == 0);
        // What is joined to the mount point; an absolute path is not.
        let below = record.path_below();
        assert!(below.components().all(|part| matches!(part, Component::Normal(_))));
        assert!(below == record.path || record.path.is_absolute());
        // Only such a record's bytes are read (`read_data`); another one may have any size.
        let end = start.checked_add(length).expect("its file has an end");
        assert!(end <= start + (64 << 20));
    }
    let encoded = record.encode();
    assert_eq!(encoded.len() as u64, start);
    assert_eq!(Record::decode(&encoded).as_ref(), Ok(&record), "not the same again");
    true
}

fn with_checksum(input: &[u8]) -> Option<Vec<u8>> {
    let mut whole = input.to_vec();
    let u32_at = |at: usize| Some(u32::from_le_bytes(input.get(at..at + 4)?.try_into().ok()?));
    let names = u32_at(LENGTHS)?.checked_add(u32_at(LENGTHS + 4)?)?;
    let header = if u32_at(8)? == 1 { 112 } else { HEADER };
    let end = header.checked_add(names as usize)?;
    whole.get_mut(CHECKSUM)?.fill(0);
    let sum = crc32c::crc32c(whole.get(..end)?);
    whole[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    Some(whole)
}
