//! YCSB (Cooper et al., SoCC'10) on the [store](super::lsm): workloads A (half of the operations are updates), B (a twentieth) and C
//! (none), on records that are chosen by a scattered zipfian distribution with the exponent 0.99. An update reads the record, as YCSB's
//! binding for RocksDB does, which writes whole records.
//!
//! | figures | records |
//! |---|---|
//! | F-fig10 (FragPicker, 5.3.1) | C: 20,000,000 |
//! | F-fig2 (FragPicker, 2.3) | A |
//! | InDeF, V | C: 4,000,000 |

use super::distribution::{THETA, Zipf, scatter};
use super::lsm::Store;
use super::{Done, Load};
use crate::random::Random;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::FileSystem;
use std::cell::RefCell;
use std::rc::Rc;

/// Records of FragPicker's figure 10.
pub const RECORDS: u64 = 20_000_000;

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads alone.
    C,
}

impl Workload {
    /// The share of its operations that are updates, in per cent.
    pub fn updates_percent(self) -> u32 {
        match self {
            Self::A => 50,
            Self::B => 5,
            Self::C => 0,
        }
    }
}

/// Writes all records, in the order of their numbers, whose keys are scattered; then what is in memory.
pub struct Fill {
    store: Rc<RefCell<Store>>,
    numbers: std::ops::Range<u64>,
    is_flushed: bool,
}

impl Fill {
    /// Fills a store with so many records.
    pub fn new(store: &Rc<RefCell<Store>>, records: u64) -> Self {
        Self { store: Rc::clone(store), numbers: 0..records, is_flushed: false }
    }
}

impl Load for Fill {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let store = &mut *self.store.borrow_mut();
        if let Some(number) = self.numbers.next() {
            return store.put(files, scatter(number)).map(Some);
        }
        if std::mem::replace(&mut self.is_flushed, true) {
            return Ok(None);
        }
        store.flush(files).map(Some)
    }
}

/// A client of a store that is filled.
pub struct Client {
    store: Rc<RefCell<Store>>,
    workload: Workload,
    zipf: Rc<Zipf>,
    random: Random,
    left: u64,
}

impl Client {
    /// A client that makes so many operations on `records` records. Several clients have different numbers.
    pub fn new(
        store: &Rc<RefCell<Store>>,
        workload: Workload,
        records: u64,
        operations: u64,
        (seed, number): (u64, u32),
    ) -> Self {
        Self {
            store: Rc::clone(store),
            workload,
            zipf: Rc::new(Zipf::new(records.max(1), THETA)),
            random: Random::new(seed, &format!("client {number}")),
            left: operations,
        }
    }
}

impl Load for Client {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let key = scatter(self.zipf.draw_scattered(&mut self.random));
        let is_update = self.random.below(100) < self.workload.updates_percent();
        let store = &mut *self.store.borrow_mut();
        let mut done = store.get(files, key)?;
        if is_update {
            done = done + store.put(files, key)?;
        }
        Ok(Some(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::Scale;
    use crate::loads::double::Double;
    use crate::loads::lsm::Options;

    fn written(workload: Workload) -> (u64, u64, Done) {
        let files = Double::new(1 << 16);
        let options = Options::rocksdb(Scale::one_in(256));
        let store = Rc::new(RefCell::new(Store::new("db", options)));
        let filled = Fill::new(&store, 5000).finish(&files).unwrap();
        let done = Client::new(&store, workload, 5000, 2000, (1, 0)).finish(&files).unwrap();
        (filled.written_bytes, files.reads(), done)
    }

    #[test]
    fn workloads_differ_in_what_they_write() {
        let (filled, reads, c) = written(Workload::C);
        assert!(filled > 5000 * 2048 && reads > 100);
        assert!(c.written_bytes == 0 && c.read_bytes > 0);
        let (_, _, a) = written(Workload::A);
        let (_, _, b) = written(Workload::B);
        assert!(a.written_bytes > 5 * b.written_bytes && b.written_bytes > 50 * 1024);
        assert_eq!(written(Workload::C).2, c, "the same again");
    }
}
