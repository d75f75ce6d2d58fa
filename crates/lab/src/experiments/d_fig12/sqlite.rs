//! SQLite's bar, as in the artefact's sqlite_append.c: 10,000 records of 16 KiB are inserted, each of them
//! durable before the next, without a journal of SQLite's; after each of them 100 KiB are appended to a dummy file and
//! synced. A select then reads all records through the page cache. On the artefact's ext4 (`ext4.rs`), where each insert
//! is an extent of its own: the paper's database was in 10,011.
//!
//! What an insert writes was traced of SQLite 3.40 (`strace -e pwrite64,fsync` of the artefact's statements).
//! A record has four overflow pages, which extend the file. Three pages are written again: the header, a page
//! of the index, and the table's leaf, in which eight records begin; for each eighth record there is a new
//! leaf behind its overflow pages. These 28 KiB and the dummy's 100 are four flash pages of 32 KiB: without
//! hints, records go to two of the eight dies, on one channel. Where an insert writes more, the following
//! ones no longer begin where a flash page does, and are in two of them.

use super::ext4::{Ext4, WRITTEN_BEFORE};
use crate::file::FileOnDrive;
use fragmend_flash::command::{Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::{Host, HostPath};
use std::collections::VecDeque;

/// Records, and what the artefact counts as their size: its throughputs are 156.25 MiB over time.
const RECORDS: u32 = 10_000;
const RECORD_BYTES: f64 = 16_384.0;
/// Overflow pages of a record, and records of a leaf of the table.
const OVERFLOW: u32 = 4;
const LEAF_RECORDS: u32 = 8;
/// Pages of the dummy file after each record: 100 KiB.
const DUMMY: u32 = 25;
/// The window of the kernel's readahead.
const READAHEAD: u32 = 128 << 10;
/// The time that SQLite needs for a page of 4 KiB: a system call, a copy, and the evaluation of its content.
/// Fitted to the 870 MiB/s that the artefact reports for a contiguous database.
pub const SELECT_PAGE_NS: u64 = 3_930;

/// Pages that an insert writes, each by its number in the file.
struct Insert {
    /// Pages that are written again, in order.
    old: Vec<u32>,
    /// How many new pages follow at the end of the file.
    new: u32,
}

/// The pages of a database to which records with ever smaller keys are added.
struct Database {
    pages: u32,
    records: u32,
    /// The leaf of the table that new records are in.
    leaf: u32,
    /// Leaves of the index that are balanced with the one that new keys are in, [`INDEX`].
    siblings: VecDeque<u32>,
    /// Keys for which that leaf has space, and for how many it had when it was balanced last.
    space: u32,
    balanced_space: u32,
}

const HEADER: u32 = 0;
const TABLE_ROOT: u32 = 1;
const INDEX: u32 = 2;
/// Leaves of the index that are written with [`INDEX`] when it is balanced.
const SIBLINGS: usize = 3;
/// Keys for which a leaf of the index has space after it was split. After it was balanced with its siblings, it
/// has three quarters of the space that it had the last time.
const SPLIT_SPACE: u32 = 52;

impl Database {
    fn new() -> Self {
        let (space, balanced_space) = (SPLIT_SPACE, SPLIT_SPACE);
        let siblings = VecDeque::new();
        Self { pages: INDEX + 1, records: 0, leaf: 0, siblings, space, balanced_space }
    }

    fn insert(&mut self) -> Insert {
        let (mut old, mut new) = (vec![HEADER, INDEX], OVERFLOW);
        self.space -= 1;
        if self.space == 0 {
            old.extend(&self.siblings);
            self.balanced_space = self.balanced_space * 3 / 4;
            if self.balanced_space == 0 {
                self.balanced_space = SPLIT_SPACE;
                self.siblings.push_front(self.pages + new);
                self.siblings.truncate(SIBLINGS);
                new += 1;
            }
            self.space = self.balanced_space;
        }
        if self.records.is_multiple_of(LEAF_RECORDS) {
            old.push(TABLE_ROOT);
            self.leaf = self.pages + new;
            new += 1;
        } else {
            old.push(self.leaf);
        }
        old.sort_unstable();
        self.pages += new;
        self.records += 1;
        Insert { old, new }
    }
}

/// MiB/s of a select of all records of a database that grew alone.
pub fn contiguous(flash: &Drive, path: &HostPath) -> f64 {
    select(flash, path, Placement::RoundRobin, false)
}

/// MiB/s of a select of all records of a database that grew in turns with the dummy file.
pub fn fragmented(flash: &Drive, path: &HostPath, placement: Placement) -> f64 {
    select(flash, path, placement, true)
}

fn select(flash: &Drive, path: &HostPath, placement: Placement, in_turns: bool) -> f64 {
    let ext4 = Ext4::new(flash, path, placement, 2, WRITTEN_BEFORE);
    let file = ext4.create("testdb.db");
    let dummy = in_turns.then(|| ext4.create("duymmy.data"));
    let mut database = Database::new();
    ext4.write(file, 0, database.pages);
    ext4.sync_file(file);
    for n in 0..RECORDS {
        let end = database.pages;
        let insert = database.insert();
        // A call for each page, in their order, as SQLite writes them.
        let pages = insert.old.into_iter().chain(end..end + insert.new);
        pages.for_each(|page| ext4.write(file, page, 1));
        ext4.sync_file(file);
        if let Some(dummy) = dummy {
            ext4.write(dummy, n * DUMMY, DUMMY);
            ext4.sync_file(dummy);
        }
    }
    let path = HostPath { readahead_bytes: READAHEAD, ..path.clone() };
    ext4.machine.with_drive(|drive| read(drive, &path, &ext4, &ext4.on_drive(file)))
}

/// MiB/s of the select, with cold caches.
fn read(drive: &mut dyn Device, path: &HostPath, ext4: &Ext4, file: &FileOnDrive) -> f64 {
    let mut host = Host::new(path, drive, 0);
    // The kernel's caches are dropped before, so the file's map is read, too. The sync before that has written it.
    let map: Vec<(u32, Units)> = (0..)
        .map(|n| ext4.unused(n))
        .zip(file.map_blocks())
        .map(|(unit, first)| (first, unit))
        .collect();
    for (_, block) in &map {
        host.write(&[*block], Hint::None).expect("room");
    }
    host.use_page_ns = SELECT_PAGE_NS;
    let start = host.wait_until_idle();
    host.read_buffered_by_map(&file.within(0, file.units()), &map).expect("a read");
    let bytes = f64::from(RECORDS) * RECORD_BYTES;
    bytes / f64::from(1 << 20) / ((host.now - start) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace has 41,302 pages in the end; 94 of 100 inserts wrote three pages again, and 12 of 100 a new
    /// leaf.
    #[test]
    fn inserts_write_what_was_traced_of_sqlite() {
        let mut database = Database::new();
        let inserts: Vec<Insert> = (0..RECORDS).map(|_| database.insert()).collect();
        assert!(database.pages.abs_diff(41_302) < 10, "{}", database.pages);
        let share = |which: fn(&Insert) -> bool| {
            inserts.iter().filter(|insert| which(insert)).count() as f64 / f64::from(RECORDS)
        };
        let (three, new_leaf) = (share(|i| i.old.len() == 3), share(|i| i.new > OVERFLOW));
        assert!(
            (three - 0.93).abs() < 0.02 && (new_leaf - 0.128).abs() < 0.01,
            "{three} {new_leaf}"
        );
    }
}
