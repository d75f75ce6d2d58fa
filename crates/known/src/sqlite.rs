//! Databases and write-ahead logs of SQLite (<https://www.sqlite.org/fileformat2.html>, sections 1.3 and 4.1).

use crate::Candidate;
use crate::Known;
use crate::bytes::{be16, be32};

const ADVICE: (&str, &str) = (
    "let it grow in large steps: sqlite3_file_control() with SQLITE_FCNTL_CHUNK_SIZE; VACUUM INTO writes a copy into a new file",
    "https://www.sqlite.org/c3ref/c_fcntl_begin_atomic_write.html",
);

/// What the header of a database says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Whether changes go to a write-ahead log.
    pub has_log: bool,
}

impl Database {
    /// Parses the first bytes of a file; `None` if it is no database.
    pub fn parse(head: &[u8]) -> Option<Self> {
        if !head.starts_with(b"SQLite format 3\0") || head.len() < 100 {
            return None;
        }
        let page_bytes = page_bytes(be16(head, 16)?.into())?;
        // The fractions of a page's payload are fixed.
        let is_sound = head[21..24] == [64, 32, 32] && [1, 2].contains(&head[19]);
        is_sound.then_some(Self { page_bytes, has_log: head[19] == 2 })
    }
}

/// Parses the first bytes of a write-ahead log; returns the bytes of its pages.
pub fn log(head: &[u8]) -> Option<u32> {
    const MAGIC: [u32; 2] = [0x377F_0682, 0x377F_0683];
    const VERSION: u32 = 3_007_000;
    let is_log = MAGIC.contains(&be32(head, 0)?) && be32(head, 4)? == VERSION;
    is_log.then(|| page_bytes(be32(head, 8)?)).flatten()
}

/// The size of a page, of which 64 KiB are written as 1.
fn page_bytes(written: u32) -> Option<u32> {
    let bytes = if written == 1 { 1 << 16 } else { written };
    (bytes.is_power_of_two() && (512..=1 << 16).contains(&bytes)).then_some(bytes)
}

/// A database or a log.
pub fn known(file: &Candidate) -> Option<Known> {
    if let Some(Database { page_bytes, has_log }) = Database::parse(&file.head) {
        let log = if has_log { ", with a write-ahead log" } else { "" };
        let what = format!("database in pages of {page_bytes} bytes{log}");
        return Some(known_as(what));
    }
    let page_bytes = log(&file.head)?;
    Some(known_as(format!("write-ahead log of pages of {page_bytes} bytes")))
}

fn known_as(what: String) -> Known {
    crate::known("SQLite", what, Some(ADVICE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> [u8; 100] {
        let mut header = [0; 100];
        header[..16].copy_from_slice(b"SQLite format 3\0");
        header[16..24].copy_from_slice(&[0x10, 0, 1, 1, 0, 64, 32, 32]);
        header
    }

    #[test]
    fn a_header_says_how_long_pages_are() {
        let good = header();
        assert_eq!(Database::parse(&good), Some(Database { page_bytes: 4096, has_log: false }));
        let mut large = good;
        (large[16], large[17], large[18], large[19]) = (0, 1, 2, 2);
        assert_eq!(Database::parse(&large), Some(Database { page_bytes: 1 << 16, has_log: true }));
        assert_eq!(Database::parse(&good[..99]), None);
        for (at, value) in [(0, b's'), (16, 0x30), (19, 3), (21, 65)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Database::parse(&bad), None, "{at}");
        }
    }

    #[test]
    fn a_log_has_its_own_header() {
        let of = |magic: u32, version: u32, page: u32| {
            log(&[magic, version, page].map(u32::to_be_bytes).concat())
        };
        assert_eq!(of(0x377F_0682, 3_007_000, 4096), Some(4096));
        assert_eq!(of(0x377F_0684, 3_007_000, 4096), None);
        assert_eq!(of(0x377F_0683, 3_007_001, 4096), None);
        assert_eq!(of(0x377F_0683, 3_007_000, 4095), None);
        assert_eq!(log(&[0x37, 0x7F]), None);
    }
}
