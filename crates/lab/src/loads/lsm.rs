//! A store with levelled compaction, as RocksDB with its default options: a memtable, a write-ahead log, sorted tables. FragPicker
//! (section 5.3.1) and InDeF (section V) change the length of a block, and read and write past the page cache.
//!
//! What is in memory in RocksDB is in memory here: the memtable, the indexes of the tables, and a cache of blocks. There are no
//! Bloom filters, which are not on by default: each table whose range holds a key is asked for it. A flush or a compaction is made by
//! the program whose write makes it necessary, before its next operation: RocksDB has threads for that. Keys are numbers; a
//! record is a key, and all have the same length.

use super::{Done, Scale, read_whole, write, write_whole};
use fragmend_layout::{ByteRange, FileId};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;

/// Sizes of a store, in bytes; and the number of tables in level 0 at which they are merged into level 1.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A record, with its key.
    pub record: u64,
    /// A block of a table: what is read at a time.
    pub block: u64,
    /// The memtable (`write_buffer_size`).
    pub memtable: u64,
    /// A table of level 1 and more (`target_file_size_base`).
    pub table: u64,
    /// Level 1 (`max_bytes_for_level_base`); each further one has ten times as much (`max_bytes_for_level_multiplier`).
    pub level: u64,
    /// The cache of blocks.
    pub cache: u64,
    /// `level0_file_num_compaction_trigger`.
    pub level0_tables: usize,
    /// How tables are read and written; the log is always buffered.
    pub access: Access,
}

impl Options {
    /// RocksDB's defaults with the papers' blocks of 128 KiB and direct I/O. Records are YCSB's: ten fields of 100 bytes, and a
    /// key. Memtable, tables, levels and cache scale with the number of records, so that a small store has as many levels.
    pub fn rocksdb(scale: Scale) -> Self {
        let scaled = |mib: u64| scale.of(mib << 20).next_multiple_of(128 << 10);
        Self {
            record: 1024,
            block: 128 << 10,
            memtable: scaled(64),
            table: scaled(64),
            level: scaled(256),
            cache: scaled(8),
            level0_tables: 4,
            access: Access::Direct,
        }
    }
}

/// Bytes of a call that reads or writes a table in a flush or a compaction (`writable_file_max_buffer_size`).
const CALL: u64 = 1 << 20;

/// A store.
pub struct Store {
    name: String,
    options: Options,
    memtable: BTreeSet<u64>,
    log: Option<(PathBuf, FileId, u64)>,
    /// Level 0 in the order of age, the others in the order of keys.
    levels: Vec<Vec<Table>>,
    /// The last key of the table of each level that was merged last.
    merged: Vec<u64>,
    next: u64,
    cached: VecDeque<(u64, u64)>,
}

/// A sorted table.
struct Table {
    number: u64,
    file: FileId,
    keys: Vec<u64>,
}

impl Table {
    fn first(&self) -> u64 {
        self.keys[0]
    }

    fn last(&self) -> u64 {
        self.keys[self.keys.len() - 1]
    }

    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.first() <= last && first <= self.last()
    }
}

impl Store {
    /// An empty store, whose files begin with `name`.
    pub fn new(name: &str, options: Options) -> Self {
        Self {
            name: name.into(),
            options,
            memtable: BTreeSet::new(),
            log: None,
            levels: vec![Vec::new()],
            merged: Vec::new(),
            next: 0,
            cached: VecDeque::new(),
        }
    }

    /// How many tables each level has.
    pub fn tables(&self) -> Vec<usize> {
        self.levels.iter().map(Vec::len).collect()
    }

    fn path(&self, number: u64, ending: &str) -> PathBuf {
        format!("{}/{number:06}.{ending}", self.name).into()
    }

    fn new_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The file system has refused a call.
    pub fn get(&mut self, files: &dyn FileSystem, key: u64) -> Result<Done, Error> {
        let mut done = Done::default();
        if self.memtable.contains(&key) {
            return Ok(done);
        }
        let Options { record, block, access, .. } = self.options;
        let newest_first = self.levels[0].iter().rev().chain(self.levels[1..].iter().flatten());
        for table in newest_first.filter(|table| table.overlaps(key, key)) {
            let place = table.keys.partition_point(|other| *other < key);
            let number = place as u64 * record / block;
            let cached = self.cached.iter().position(|at| *at == (table.number, number));
            if let Some(at) = cached {
                self.cached.remove(at);
            } else {
                let whole = ByteRange::at(0, table.keys.len() as u64 * record);
                let range = ByteRange::at(number * block, block).intersect(whole);
                files.read(table.file, range, access)?;
                done.read_bytes += range.len();
            }
            self.cached.push_back((table.number, number));
            if self.cached.len() as u64 * block > self.options.cache {
                self.cached.pop_front();
            }
            if table.keys.get(place) == Some(&key) {
                break;
            }
        }
        Ok(done)
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The file system has refused a call.
    pub fn put(&mut self, files: &dyn FileSystem, key: u64) -> Result<Done, Error> {
        let record = self.options.record;
        let (_, log, end) = match &mut self.log {
            Some(log) => log,
            None => {
                let number = self.new_number();
                let path = self.path(number, "log");
                let file = files.create(&path)?;
                self.log.insert((path, file, 0))
            }
        };
        // Not synced: `WriteOptions::sync` is off by default.
        let mut done = write(files, *log, ByteRange::at(*end, record), Access::Buffered)?;
        *end += record;
        self.memtable.insert(key);
        if self.memtable.len() as u64 * record >= self.options.memtable {
            done = done + self.flush(files)?;
            while let Some(level) = self.overfull() {
                done = done + self.compact(files, level)?;
            }
        }
        Ok(done)
    }

    /// The memtable becomes a table of level 0, and the log is removed.
    ///
    /// # Errors
    /// The file system has refused a call.
    pub fn flush(&mut self, files: &dyn FileSystem) -> Result<Done, Error> {
        if self.memtable.is_empty() {
            return Ok(Done::default());
        }
        let keys = std::mem::take(&mut self.memtable).into_iter().collect();
        let (table, done) = self.write_table(files, keys)?;
        self.levels[0].push(table);
        if let Some((path, ..)) = self.log.take() {
            files.remove(&path)?;
        }
        Ok(done)
    }

    fn write_table(
        &mut self,
        files: &dyn FileSystem,
        keys: Vec<u64>,
    ) -> Result<(Table, Done), Error> {
        let number = self.new_number();
        let file = files.create(&self.path(number, "sst"))?;
        let bytes = keys.len() as u64 * self.options.record;
        let done = write_whole(files, file, bytes, CALL, self.options.access)?;
        files.sync_file(file)?;
        Ok((Table { number, file, keys }, done))
    }

    /// The first level that is to be merged into the next one.
    fn overfull(&self) -> Option<usize> {
        if self.levels[0].len() >= self.options.level0_tables {
            return Some(0);
        }
        let mut most = self.options.level;
        for (level, tables) in self.levels.iter().enumerate().skip(1) {
            let bytes: u64 = tables.iter().map(|table| table.keys.len() as u64).sum();
            if bytes * self.options.record > most {
                return Some(level);
            }
            most *= 10;
        }
        None
    }

    /// Merges tables of a level into the next one: all of level 0; of another level the one after the one that was merged last, in the
    /// order of keys, as LevelDB does.
    fn compact(&mut self, files: &dyn FileSystem, level: usize) -> Result<Done, Error> {
        self.levels.resize_with(self.levels.len().max(level + 2), Vec::new);
        self.merged.resize(self.levels.len(), 0);
        let chosen: Vec<Table> = if level == 0 {
            self.levels[0].drain(..).collect()
        } else {
            let tables = &mut self.levels[level];
            let after = tables.iter().position(|table| table.first() > self.merged[level]);
            vec![tables.remove(after.unwrap_or(0))]
        };
        let first = chosen.iter().map(Table::first).min().unwrap_or(0);
        let last = chosen.iter().map(Table::last).max().unwrap_or(0);
        self.merged[level] = last;
        let (inputs, rest): (Vec<Table>, Vec<Table>) = std::mem::take(&mut self.levels[level + 1])
            .into_iter()
            .partition(|table| table.overlaps(first, last));
        self.levels[level + 1] = rest;
        let mut done = Done::default();
        let mut keys = BTreeSet::new();
        for table in chosen.iter().chain(&inputs) {
            done = done + read_whole(files, table.file, CALL, self.options.access)?;
            keys.extend(&table.keys);
        }
        let keys: Vec<u64> = keys.into_iter().collect();
        for part in keys.chunks((self.options.table / self.options.record).max(1) as usize) {
            let (table, written) = self.write_table(files, part.to_vec())?;
            done = done + written;
            self.levels[level + 1].push(table);
        }
        self.levels[level + 1].sort_by_key(Table::first);
        for table in chosen.iter().chain(&inputs) {
            files.remove(&self.path(table.number, "sst"))?;
            self.cached.retain(|(number, _)| *number != table.number);
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::distribution::scatter;
    use crate::loads::double::Double;

    #[test]
    fn levels_fill_up_and_every_record_is_found_with_few_reads() {
        let files = Double::new(1 << 16);
        let options = Options { cache: 8 << 20, ..Options::rocksdb(Scale::one_in(256)) };
        let mut store = Store::new("db", options);
        let written: u64 =
            (0..20_000).map(|n| store.put(&files, scatter(n)).unwrap().written_bytes).sum();
        let tables = store.tables();
        assert!(tables.len() >= 3 && tables[0] < 4 && tables[1] <= 5, "{tables:?}");
        for level in &store.levels[1..] {
            assert!(level.windows(2).all(|two| two[0].last() < two[1].first()));
        }
        let records: usize = store.levels.iter().flatten().map(|table| table.keys.len()).sum();
        assert!(records + store.memtable.len() >= 20_000);
        // The log, the flush, and the merges on top.
        let amplification = written as f64 / (20_000.0 * 1024.0);
        assert!((3.0..12.0).contains(&amplification), "{amplification}");
        let log = usize::from(store.log.is_some());
        assert_eq!(files.count(), tables.iter().sum::<usize>() + log, "what was merged is gone");
        let before = files.reads();
        for n in 0..1000 {
            store.get(&files, scatter(n)).unwrap();
        }
        let each = (files.reads() - before) as f64 / 1000.0;
        // Four with a cache of two blocks.
        assert!((0.5..2.0).contains(&each), "{each}");
        // What was just read is cached.
        assert_eq!(store.get(&files, scatter(999)), Ok(Done::default()));
    }
}
