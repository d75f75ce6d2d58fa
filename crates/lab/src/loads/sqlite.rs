//! A database as SQLite keeps it: a table by row number, with a value in each row, in pages of 4 KiB. Which pages an insert writes
//! and syncs, and in which order, was traced with SQLite 3.40.1 (`synchronous=FULL`, its default); so were the sizes of databases
//! that the tests compare with.
//!
//! | figures | rows | value |
//! |---|---|---|
//! | F-sqlite (FragPicker, 5.3.2) | 100,000, of which 30 % are selected | 4 KiB |
//! | D-fig12 (FAST'24, 5.3) | 10,000, all selected | 16 KiB |

use super::{Done, Load, write};
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::collections::BTreeSet;
use std::path::PathBuf;

const PAGE: u64 = 4096;
/// Bytes of a value in each page of a row that does not fit in a leaf: a page but the number of the next one.
const OVERFLOW_BYTES: u64 = PAGE - 4;
/// The most bytes of a row that a leaf holds, and what it holds of a longer one: at least so many (SQLite's file format, 1.6).
const MOST_IN_LEAF: u64 = PAGE - 35;
const LEAST_IN_LEAF: u64 = (PAGE - 12) * 32 / 255 - 23;
/// Leaves of a page above them, as SQLite leaves them when rows are appended: 12,500 leaves had 31 such pages.
const LEAVES_ABOVE: u64 = 403;
/// The header of a row's record; what a row in a leaf needs besides: its length, its number, its place in the page; and the number of
/// its first overflow page.
const HEADER_BYTES: u64 = 4;
const ROW_BYTES: u64 = 6;
const LINK_BYTES: u64 = 4;
/// A page in a rollback journal, and in a write-ahead log, with what belongs to it; and their headers.
const JOURNALED: u64 = 4 + PAGE + 4;
const JOURNAL_HEADER: u64 = 512;
const LOGGED: u64 = 24 + PAGE;
const LOG_HEADER: u64 = 32;
/// Pages in a write-ahead log at which it is copied into the database (`wal_autocheckpoint`).
const CHECKPOINT: u64 = 1000;

/// How a transaction is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// The old pages go to a file of their own, which is removed afterwards (`journal_mode=DELETE`, the default).
    Rollback,
    /// The new pages go to a log (`journal_mode=WAL`), which each transaction syncs.
    Log,
}

/// A database that grows by one row with each transaction.
#[derive(Clone, Debug)]
pub struct Inserts {
    path: PathBuf,
    journal: Journal,
    left: u64,
    tree: Tree,
    file: Option<FileId>,
    log: Option<Log>,
}

/// The log, and the pages that are in it alone.
#[derive(Clone, Debug)]
struct Log {
    file: FileId,
    end: u64,
    pages: BTreeSet<u64>,
}

/// The pages of the table. Page 0 is the header, page 1 the root.
#[derive(Clone, Debug)]
struct Tree {
    rows: u64,
    rows_in_leaf: u64,
    overflow_pages: u64,
    pages: u64,
    leaf: u64,
    leaves: u64,
    above: u64,
}

/// The pages that a transaction changes: those that existed before, and new ones.
struct Changed {
    old: Vec<u64>,
    new: std::ops::Range<u64>,
}

impl Tree {
    fn new(value_bytes: u64) -> Self {
        let payload = value_bytes + HEADER_BYTES;
        let (in_leaf, overflow_pages) = if payload <= MOST_IN_LEAF {
            (payload, 0)
        } else {
            let fits = LEAST_IN_LEAF + (payload - LEAST_IN_LEAF) % OVERFLOW_BYTES;
            let local = if fits <= MOST_IN_LEAF { fits } else { LEAST_IN_LEAF };
            (local + LINK_BYTES, (payload - local).div_ceil(OVERFLOW_BYTES))
        };
        let rows_in_leaf = ((PAGE - 8) / (in_leaf + ROW_BYTES)).max(1);
        Self { rows: 0, rows_in_leaf, overflow_pages, pages: 2, leaf: 1, leaves: 0, above: 1 }
    }

    /// Adds a row; returns the pages that change.
    fn insert(&mut self) -> Changed {
        let first = self.pages;
        let mut old = vec![0];
        self.pages += self.overflow_pages;
        if !self.rows.is_multiple_of(self.rows_in_leaf) {
            old.push(self.leaf);
        } else {
            old.push(self.above);
            self.leaf = self.pages;
            self.leaves += 1;
            self.pages += 1;
            if self.leaves % LEAVES_ABOVE == 1 {
                self.above = self.pages;
                self.pages += 1;
            }
        }
        self.rows += 1;
        Changed { old, new: first..self.pages }
    }
}

impl Inserts {
    /// A new database, into which `rows` rows are inserted, with values of `value_bytes` bytes.
    pub fn new(path: impl Into<PathBuf>, rows: u64, value_bytes: u64, journal: Journal) -> Self {
        let tree = Tree::new(value_bytes);
        Self { path: path.into(), journal, left: rows, tree, file: None, log: None }
    }

    /// Bytes of the database so far.
    pub fn bytes(&self) -> u64 {
        self.tree.pages * PAGE
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(ending);
        path.into()
    }

    /// The old pages become durable in a journal before the database changes. It is created and removed each time.
    fn with_journal(
        &self,
        files: &dyn FileSystem,
        file: FileId,
        changed: &Changed,
    ) -> Result<Done, Error> {
        let path = self.beside("-journal");
        let journal = files.create(&path)?;
        let bytes = JOURNAL_HEADER + changed.old.len() as u64 * JOURNALED;
        let mut done = write(files, journal, ByteRange::at(0, bytes), Access::Buffered)?;
        files.sync_file(journal)?;
        // The number of pages in it, once they are durable.
        done = done + write(files, journal, ByteRange::at(0, 12), Access::Buffered)?;
        files.sync_file(journal)?;
        let pages = changed.old.iter().copied().chain(changed.new.clone());
        done = done + write_pages(files, file, pages)?;
        files.sync_file(file)?;
        files.remove(&path)?;
        Ok(done)
    }

    /// The new pages become durable in a log; when it is long, they are copied into the database, and it begins anew.
    fn with_log(
        &mut self,
        files: &dyn FileSystem,
        file: FileId,
        changed: &Changed,
    ) -> Result<Done, Error> {
        let path = self.beside("-wal");
        let log = match &mut self.log {
            Some(log) => log,
            none => {
                let file = files.create(&path)?;
                none.insert(Log { file, end: LOG_HEADER, pages: BTreeSet::new() })
            }
        };
        log.pages.extend(changed.old.iter().copied().chain(changed.new.clone()));
        let frames = changed.old.len() as u64 + (changed.new.end - changed.new.start);
        let range = ByteRange::at(log.end, frames * LOGGED);
        let mut done = write(files, log.file, range, Access::Buffered)?;
        files.sync_file(log.file)?;
        log.end = range.end;
        if log.end >= LOG_HEADER + CHECKPOINT * LOGGED {
            done = done + write_pages(files, file, std::mem::take(&mut log.pages))?;
            files.sync_file(file)?;
            log.end = LOG_HEADER;
        }
        Ok(done)
    }
}

/// Writes pages of a database in the order of their numbers, neighbours with one call.
fn write_pages(
    files: &dyn FileSystem,
    file: FileId,
    pages: impl IntoIterator<Item = u64>,
) -> Result<Done, Error> {
    let sorted: BTreeSet<u64> = pages.into_iter().collect();
    let each = sorted.into_iter().map(|page| ByteRange::at(page * PAGE, PAGE));
    let mut all = Done::default();
    for run in ByteRange::joined(each) {
        all = all + write(files, file, run, Access::Buffered)?;
    }
    Ok(all)
}

impl Load for Inserts {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let file = match self.file {
            Some(file) => file,
            None => *self.file.insert(files.create(&self.path)?),
        };
        let changed = self.tree.insert();
        self.left -= 1;
        let done = match self.journal {
            Journal::Rollback => self.with_journal(files, file, &changed)?,
            Journal::Log => self.with_log(files, file, &changed)?,
        };
        Ok(Some(done))
    }
}

/// A select of consecutive rows: their pages are read through the page cache, a call for what the kernel reads ahead. How long the
/// program uses each page is the machine's ([`set_use_page_ns`](fragmend_simfs::machine::Machine::set_use_page_ns)).
#[derive(Clone, Debug)]
pub struct Select {
    path: PathBuf,
    /// In hundredths of the file.
    percent: std::ops::Range<u64>,
    left: Option<ByteRange>,
}

impl Select {
    /// A select of the rows of a database from the first to the second of these percentages on: rows are in the file in their order.
    pub fn new(path: impl Into<PathBuf>, percent: std::ops::Range<u64>) -> Self {
        Self { path: path.into(), percent, left: None }
    }
}

impl Load for Select {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let file = files.find(&self.path)?;
        let mut left = match self.left {
            Some(left) => left,
            None => {
                let pages = files.size(file)? / PAGE;
                let at = |percent: u64| pages * percent / 100 * PAGE;
                ByteRange { start: at(self.percent.start), end: at(self.percent.end) }
            }
        };
        let Some(part) = left.steps(super::grep::CALL).next() else { return Ok(None) };
        files.read(file, part, Access::Buffered)?;
        left.start = part.end;
        self.left = Some(left);
        Ok(Some(Done { read_bytes: part.len(), ..Done::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use std::path::Path;

    /// `pragma page_count` of SQLite 3.40.1 after so many inserts of `zeroblob(n)`.
    #[test]
    fn databases_have_the_size_of_sqlites() {
        for (rows, value, pages) in
            [(10_000, 16_384, 41_255), (100_000, 4096, 112_533), (100_000, 100, 2712)]
        {
            let mut tree = Tree::new(value);
            (0..rows).for_each(|_| drop(tree.insert()));
            let off = tree.pages.abs_diff(pages);
            assert!(
                off * 200 <= pages,
                "{rows} rows of {value}: {} pages and not {pages}",
                tree.pages
            );
        }
    }

    #[test]
    fn a_transaction_syncs_as_sqlite_does() {
        let files = Double::new(1 << 16);
        let done = Inserts::new("db", 9, 4096, Journal::Rollback).finish(&files).unwrap();
        assert_eq!((files.syncs(), files.count()), (9 * 3, 1), "and no journal is left");
        // Two old pages in the journal, its header twice, those two and one or two new ones.
        let each = 512 + 2 * (4 + 4096 + 4) + 12 + 3 * 4096;
        // The first and the ninth row begin a leaf, the first also a page above it.
        assert_eq!(done.written_bytes, 9 * each + 3 * 4096);

        let files = Double::new(1 << 16);
        let mut inserts = Inserts::new("db", 400, 4096, Journal::Log);
        let done = inserts.finish(&files).unwrap();
        // Three pages each: 334 transactions until the log is copied, once.
        assert_eq!((files.syncs(), files.count()), (400 + 1, 2));
        assert!(done.written_bytes > 400 * 3 * (24 + 4096));
        let log = files.size(files.find(Path::new("db-wal")).unwrap()).unwrap();
        assert!(log < 32 + 1010 * (24 + 4096), "{log}");
    }

    #[test]
    fn a_select_reads_its_share() {
        let files = Double::new(1 << 16);
        Inserts::new("db", 1000, 4096, Journal::Rollback).finish(&files).unwrap();
        let read = |percent| Select::new("db", percent).finish(&files).unwrap().read_bytes;
        let size = files.size(files.find(Path::new("db")).unwrap()).unwrap();
        assert_eq!(read(0..100), size);
        assert_eq!(read(20..50), (size / PAGE * 50 / 100 - size / PAGE * 20 / 100) * PAGE);
    }
}
