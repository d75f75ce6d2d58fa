//! What is in flight beside each other where one thread reads through the page cache: its misses tell it by their order.
//!
//! The thread waits for a page that is not cached (`page_cache_sync_ra`, mm/readahead.c). Of what it reads in sequence, the first
//! two fetches are such: a read at a random place leaves no mark, and the window behind it is the first of a stream. The mark of each
//! window lets the next one be issued before the thread waits for the window itself (`page_cache_async_ra`). So from the
//! third fetch on one window is in flight beside the one before, and nothing else is but the last window of a stream,
//! for which nobody waits.

use crate::input::Basis;
use crate::survey::SurveyedFile;
use fragmend_layout::{ByteRange, Op};
use std::collections::{BTreeMap, BTreeSet};

/// Fetches of a file that the next one may continue. A page that follows what was fetched before that was not read in sequence with it.
const RECENT: usize = 16;

/// The fetches of a file by one thread, in their order.
#[derive(Debug, Default)]
pub struct Fetches {
    /// Where the last fetches ended, and how many continued each other until there.
    recent: [(u64, u32); RECENT],
    next: usize,
}

impl Fetches {
    /// Enters the next fetch; returns whether it was issued before the thread waited for the one that it continues.
    pub fn is_ahead(&mut self, range: ByteRange) -> bool {
        let ByteRange { start, end } = range;
        if let Some(before) = self.recent.iter_mut().find(|(end, n)| *end == start && *n > 0) {
            *before = (end, before.1.saturating_add(1));
            return before.1 > 2;
        }
        self.recent[self.next] = (end, 1);
        self.next = (self.next + 1) % RECENT;
        false
    }
}

/// The device numbers of file systems on which all that reached the device was misses of one thread, in an order that is known:
/// each was recorded by itself (`ordered`), and all of them were.
pub fn one_thread(files: &[SurveyedFile], basis: Basis, ordered: bool) -> BTreeSet<u64> {
    // By device: the one thread, or none if there are several, or reads that need no page cache.
    let mut threads: BTreeMap<u64, Option<u32>> = BTreeMap::new();
    if basis != Basis::MissesRecorded || !ordered {
        return BTreeSet::new();
    }
    for file in files {
        let device = file.layout.file.device;
        let reach = file.accesses.iter().filter(|a| a.direct || a.op == Op::Miss);
        for access in reach {
            let whole = !access.direct && access.count == 1 && file.recorded.is_empty();
            let thread = threads.entry(device).or_insert(Some(access.thread));
            *thread = thread.filter(|thread| whole && *thread == access.thread);
        }
    }
    threads.into_iter().filter_map(|(device, thread)| thread.map(|_| device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Device;
    use fragmend_layout::{Access, FileId, Layout};

    const KIB: u64 = 1024;

    #[test]
    fn the_third_of_what_continues_each_other_is_ahead() {
        let mut fetches = Fetches::default();
        let mut ahead = |start, len| {
            fetches.is_ahead(ByteRange { start: start * KIB, end: (start + len) * KIB })
        };
        // The first page of the file begins a sequence, whatever the empty places hold.
        assert!(!ahead(0, 16));
        // A page at a random place, its first window, and two that are begun ahead.
        assert!(!ahead(400, 4));
        assert!(!ahead(404, 16));
        assert!(ahead(420, 24));
        // Another sequence between them changes nothing.
        assert!(!ahead(16, 32));
        assert!(ahead(444, 48));
        // What happens to follow something that was fetched long ago continues nothing.
        (0..RECENT as u64).for_each(|n| assert!(!ahead(1000 + 100 * n, 4)));
        assert!(!ahead(492, 4));
    }

    #[test]
    fn one_thread_is_one_on_all_files_of_a_device() {
        let miss = |thread| Access {
            offset: 0,
            length: 4096,
            count: 1,
            thread,
            op: Op::Miss,
            direct: false,
            windowed: false,
        };
        let file = |device, accesses: &[Access]| {
            let id = FileId { device, inode: 1, generation: 0 };
            let layout = Layout::new(id, 1 << 20);
            SurveyedFile::new("f".into(), layout, accesses.to_vec(), &Device::example())
        };
        let of = |files: &[SurveyedFile]| one_thread(files, Basis::MissesRecorded, true);
        let one = [file(7, &[miss(1), miss(1)]), file(7, &[miss(1)]), file(8, &[miss(2)])];
        assert_eq!(of(&one), BTreeSet::from([7, 8]));
        assert_eq!(one_thread(&one, Basis::MissesRecorded, false), BTreeSet::new());
        assert_eq!(one_thread(&one, Basis::ImitatedCache, true), BTreeSet::new());
        // What comes from the cache may be read by any thread.
        let hit = Access { op: Op::Read, ..miss(3) };
        assert_eq!(of(&[file(7, &[miss(1), hit])]), BTreeSet::from([7]));
        for other in [miss(3), Access { direct: true, ..hit }, Access { count: 2, ..miss(1) }] {
            assert_eq!(of(&[file(7, &[miss(1)]), file(7, &[other])]), BTreeSet::new(), "{other:?}");
        }
    }
}
