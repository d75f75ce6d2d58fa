//! Files of programs: whatever they hold, a recogniser ends, and answers with nothing or with a short text.

use crate::bytes::with_file;
use fragmend_known::downloads::Progress;
use fragmend_known::postgresql::RelationFile;
use fragmend_known::postgresql::catalogue::{Relation, named};
use fragmend_known::postgresql::heap::{PAGE, mapped, rows};
use fragmend_known::qcow2::{Header, Inside};
use fragmend_known::{Recogniser, journald, mysql};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most bytes of what is known of a file here, where it has no name of its own in a catalogue.
const LONGEST: usize = 400;

/// A file, by its content; what is beside a download; or the name of a table's file.
pub fn file(input: &[u8]) -> bool {
    // Of four characters at least one is left, and no character becomes longer.
    assert!(mysql::decoded(OsStr::from_bytes(input)).len() <= 3 * input.len());
    if let Some(Progress { bytes, pieces, done }) = Progress::parse(input) {
        assert!(done <= pieces && pieces <= bytes && pieces <= 8 * input.len() as u64);
        return true;
    }
    let is_known = of_a_program(input);
    is_known || mysql::tablespace(input).is_some() || mysql::is_redo_log(input)
}

/// A file with a name that says nothing.
fn of_a_program(input: &[u8]) -> bool {
    let path = Path::new("/nowhere/disk");
    let known = with_file(input, |file| Recogniser::default().known(&file.file, path));
    if let Some(header) = Header::parse(input) {
        let inside = Inside::read(&header, |buffer, at| {
            let from = usize::try_from(at).ok().and_then(|at| input.get(at..));
            let found = from.and_then(|rest| rest.get(..buffer.len()));
            found.is_some_and(|found| {
                buffer.copy_from_slice(found);
                true
            })
        });
        if let Some(Inside { clusters, fragments, runs }) = inside {
            assert!(runs <= fragments && fragments <= clusters);
        }
        assert!(known.is_some());
    }
    assert!(journald::Header::parse(input).is_none() || known.is_some());
    known.is_some_and(|known| {
        assert!(!known.what.is_empty() && known.what.len() < LONGEST, "{known:?}");
        true
    })
}

/// A map of catalogues to files, pages of rows, or the name of a file.
pub fn catalogue(input: &[u8]) -> bool {
    /// No item of a page is shorter.
    const ITEM: usize = 4;
    if let Some(found) = std::str::from_utf8(input).ok().and_then(RelationFile::parse) {
        assert!(found.number > 0);
        return true;
    }
    let mut taken = mapped(input, 1259).is_some();
    for page in input.chunks(PAGE) {
        let mut count = 0;
        rows(page, |columns| {
            count += 1;
            // A byte that is no UTF-8 becomes three.
            let longest = 3 * 64;
            for relation in [15, 18].into_iter().filter_map(|of| Relation::parse(columns, of)) {
                assert!(
                    (1..=longest).contains(&relation.name.len()) && !relation.kind().is_empty()
                );
                taken = true;
            }
            taken |= named(columns).is_some();
        });
        assert!(count <= PAGE / ITEM);
    }
    taken
}
