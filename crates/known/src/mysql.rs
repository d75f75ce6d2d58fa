//! Tables and logs of MySQL and MariaDB: of the storage engines InnoDB (storage/innobase of either: fil0types.h, fsp0types.h,
//! log0types.h), MyISAM (myisamdef.h) and Aria (maria_def.h). A table has the name of its file, in the directory of its
//! database, so no catalogue is read.

use crate::bytes::{be16, be32};
use crate::{Candidate, Known, candidate};
use std::ffi::OsStr;
use std::os::unix::fs::FileExt;

const PROGRAM: &str = "MySQL or MariaDB";
const ADVICE: (&str, &str) = (
    "OPTIMIZE TABLE writes a table anew, into a new file; MySQL 8.0.23 and later let one grow in large steps: ALTER TABLE ... AUTOEXTEND_SIZE = 64M",
    "https://dev.mysql.com/doc/refman/8.4/en/innodb-tablespace-autoextend-size.html",
);

/// Parses the first page of a tablespace of InnoDB; returns its number.
pub fn tablespace(head: &[u8]) -> Option<u32> {
    const FSP_HDR: u16 = 8;
    let (page, kind) = (be32(head, 4)?, be16(head, 24)?);
    let (space, again) = (be32(head, 34)?, be32(head, 38)?);
    (page == 0 && kind == FSP_HDR && space == again).then_some(space)
}

/// Whether a file begins as a redo log of InnoDB does: with the program that has made it.
pub fn is_redo_log(head: &[u8]) -> bool {
    let creator = head.get(16..48).unwrap_or_default();
    ["MySQL ", "MariaDB ", "Backup "].iter().any(|name| creator.starts_with(name.as_bytes()))
}

/// Whether a file begins as a binary log does: with an event that describes its format.
pub fn is_binary_log(head: &[u8]) -> bool {
    const FORMAT_DESCRIPTION: u8 = 15;
    head.starts_with(b"\xFEbin") && head.get(8) == Some(&FORMAT_DESCRIPTION)
}

/// Whether an index file of MyISAM (`MYI`) or Aria (`MAI`) begins in this way.
fn is_index(head: &[u8], extension: &str) -> bool {
    let engine = if extension == "MYI" { 7 } else { 9 };
    head.starts_with(&[0xFE, 0xFE, engine])
}

/// A name as MySQL writes it for files: characters beyond ASCII letters and digits are `@` and four hexadecimal digits. Some
/// letters have shorter codes, for which there is a table in the server (strings/ctype-utf8.c): these stay as they are.
pub fn decoded(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    let mut units: Vec<u16> = Vec::new();
    let mut rest = &*name;
    while let Some(first) = rest.chars().next() {
        let code = rest.get(1..5).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.filter(|_| first == '@').and_then(|hex| u16::from_str_radix(hex, 16).ok());
        match code {
            Some(unit) => units.push(unit),
            None => units.extend(first.encode_utf16(&mut [0; 2]).iter()),
        }
        rest = &rest[if code.is_some() { 5 } else { first.len_utf8() }..];
    }
    String::from_utf16_lossy(&units)
}

/// A table of a database, by the name of its file without extension, and the name of its directory.
fn table(file: &str, directory: &OsStr) -> String {
    let database = decoded(directory);
    // MariaDB writes the separator in capitals, MySQL 8 does not.
    let parts = file.split_once("#P#").or_else(|| file.split_once("#p#"));
    let Some((table, partition)) = parts else {
        return format!("table {} of database {database}", decoded(OsStr::new(file)));
    };
    let (table, partition) = (decoded(OsStr::new(table)), decoded(OsStr::new(partition)));
    format!("table {table} of database {database}, partition {partition}")
}

/// A table, or one of the server's own files.
pub fn known(file: &Candidate) -> Option<Known> {
    let name = file.name(0)?.to_str()?;
    let own = |what: &str| Some(crate::known(PROGRAM, what, None));
    match name.rsplit_once('.') {
        // The data dictionary of MySQL 8 is no table.
        Some(("mysql", "ibd")) => {
            return tablespace(&file.head).and_then(|_| own("tablespace of the data dictionary"));
        }
        Some((stem, extension @ ("ibd" | "MYI" | "MYD" | "MAI" | "MAD"))) => {
            let part = match extension {
                "ibd" => tablespace(&file.head).map(|_| "")?,
                "MYI" | "MAI" => is_index(&file.head, extension).then_some("indexes of ")?,
                // Data has no header of its own.
                _ => has_index(file, extension).then_some("")?,
            };
            let what = format!("{part}{}", table(stem, file.name(1)?));
            return Some(crate::known(PROGRAM, what, Some(ADVICE)));
        }
        _ => {}
    }
    match name {
        _ if is_binary_log(&file.head) => own("binary log"),
        _ if name.starts_with("aria_log.") && file.head.get(4..12) == Some(b"MARIALOG") => {
            own("log of Aria")
        }
        _ if name.starts_with("ib_logfile") || name.starts_with("#ib_redo") => {
            is_redo_log(&file.head).then(|| own("redo log"))?
        }
        _ => {
            tablespace(&file.head)?;
            let names = [
                ("ibdata", "system tablespace"),
                ("ibtmp", "temporary tablespace"),
                ("undo", "undo log"),
            ];
            own(names.iter().find(|(begin, _)| name.starts_with(begin))?.1)
        }
    }
}

/// Whether a file of data has its file of indexes beside it.
fn has_index(data: &Candidate, extension: &str) -> bool {
    let index = if extension == "MYD" { "MYI" } else { "MAI" };
    let mut head = [0; 3];
    let opened = candidate::open(&data.path.with_extension(index));
    opened.is_some_and(|file| file.read_exact_at(&mut head, 0).is_ok()) && is_index(&head, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_names_its_space_twice() {
        let mut page = [0; 64];
        (page[25], page[37], page[41]) = (8, 7, 7);
        assert_eq!(tablespace(&page), Some(7));
        for (at, value) in [(7, 1), (25, 2), (41, 8)] {
            let mut bad = page;
            bad[at] = value;
            assert_eq!(tablespace(&bad), None, "{at}");
        }
        assert_eq!(tablespace(&page[..41]), None);
    }

    #[test]
    fn names_of_files_are_those_of_tables() {
        let of = |name: &str| decoded(OsStr::new(name));
        assert_eq!(of("orders"), "orders");
        assert_eq!(of("my@002dshop@0020"), "my-shop ");
        assert_eq!(of("gr@00fc@00dfe"), "gr\u{fc}\u{df}e");
        assert_eq!(of("@d83d@de00"), "\u{1F600}");
        for kept in ["@", "@00", "@00f", "@00gz", "a@", "@\u{fc}\u{fc}", "gr@1T@1Re"] {
            assert_eq!(of(kept), kept);
        }
        let of = |name: &str| table(name, OsStr::new("my@002dshop"));
        assert_eq!(of("parts#P#p0"), "table parts of database my-shop, partition p0");
        assert_eq!(of("parts#p#p0#sp#s1"), "table parts of database my-shop, partition p0#sp#s1");
    }

    #[test]
    fn logs_begin_with_what_has_made_them() {
        let mut redo = [0; 64];
        redo[16..23].copy_from_slice(b"MySQL 8");
        assert!(is_redo_log(&redo) && !is_redo_log(&redo[..20]) && !is_redo_log(&[]));
        let log = b"\xFEbin\0\0\0\0\x0F";
        assert!(is_binary_log(log) && !is_binary_log(&log[..8]) && !is_binary_log(b"\xFEbin12345"));
    }
}
