//! Accesses of a recording that goes on, joined in memory: what the reader would make of a trace file of the same accesses
//! ([`super::reader`]), without writing one.
//!
//! Invariant: each access is in a file, or counted as left out.

use super::join::unescaped;
use super::joined::fold;
use super::names::Names;
use super::order::{Disks, Ranks, Reached};
use super::turns::Turns;
use super::writer::FindPath;
use crate::meta::{DeviceMeta, Meta};
use crate::{Access, Event, FileAccesses, Trace};
use fragmend_layout::FileId;
use std::collections::HashMap;

/// The most accesses that are kept of one period: some 40 MB of them.
const MOST_KEPT: usize = 1 << 20;

/// Collects accesses, until they are taken as a trace.
pub(crate) struct Collector {
    names: Names,
    disks: Disks,
    /// What has a rank, if the order is kept.
    reached: Option<Reached>,
    ranks: Ranks,
    folds: bool,
    index_of: HashMap<FileId, usize>,
    files: Vec<FileAccesses>,
    kept: usize,
    left_out: u64,
}

impl Collector {
    /// Nothing yet, of files on these file systems. Where `misses` are recorded, nothing has to be imitated, and equal accesses
    /// are counted once; what reaches a device stays in its order if that is `ordered`.
    pub fn new(devices: &[DeviceMeta], misses: bool, ordered: bool, find_path: FindPath) -> Self {
        Self {
            names: Names::new(find_path),
            disks: Disks::of(devices),
            reached: ordered.then_some(Reached { misses }),
            ranks: Ranks::default(),
            folds: misses,
            index_of: HashMap::new(),
            files: Vec::new(),
            kept: 0,
            left_out: 0,
        }
    }

    /// Adds accesses, in the order of their recording.
    pub fn append(&mut self, events: &[Event]) {
        for event in events {
            if self.kept == MOST_KEPT {
                self.left_out += u64::from(event.count);
            } else {
                self.push(event);
            }
        }
    }

    fn push(&mut self, event: &Event) {
        let access = Access {
            offset: event.offset,
            length: event.length,
            count: event.count,
            thread: event.thread,
            op: event.op,
            direct: event.direct,
            windowed: event.windowed,
        };
        let index = *self.index_of.entry(event.file).or_insert_with(|| {
            self.files.push(FileAccesses::of(event.file));
            self.files.len() - 1
        });
        let file = &mut self.files[index];
        if let Some(reached) = self.reached {
            let reaches = reached.has(&access);
            let rank = reaches.then(|| self.ranks.next(&self.disks, event.file, &access));
            file.ranks.push(rank.unwrap_or(0));
        }
        file.accesses.push(access);
        file.recorded.push(Turns::RECORDING.recorded(event.time_ns, event.count));
        self.kept += 1;
    }

    /// What was collected since the last call, as a trace with this metadata.
    pub fn take(&mut self, mut meta: Meta) -> Trace {
        self.names.begin_batch();
        self.names.begin_row_group();
        let mut files = std::mem::take(&mut self.files);
        for file in &mut files {
            file.path = self.names.path(file.file).map(|path| unescaped(&path));
            meta.files_without_path += u64::from(file.path.is_none());
            meta.files_not_looked_up += u64::from(!self.names.was_looked_up(file.file));
        }
        self.index_of.clear();
        self.kept = 0;
        meta.lost += std::mem::take(&mut self.left_out);
        let whole = meta.sampling.is_none_or(|sampling| sampling.places_ppm == 1_000_000);
        let ordered = self.reached.is_some() && whole;
        for file in &mut files {
            if !ordered {
                file.ranks = Vec::new();
            }
            // What is in its order was recorded whole.
            if ordered || meta.sampling.is_none() {
                file.recorded = Vec::new();
            }
            if self.folds {
                fold(file);
            }
        }
        Trace { files, meta, skipped: 0, ordered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Op, Sampling};

    fn event(inode: u64, offset: u64, op: Op, time_ns: u64) -> Event {
        Event {
            time_ns,
            file: FileId { device: 1, inode, generation: 0 },
            offset,
            length: 4096,
            bytes: 4096,
            count: 1,
            pid: 1,
            thread: 1,
            uid: 0,
            comm: [0; 16],
            op,
            direct: false,
            windowed: false,
        }
    }

    fn collector() -> Collector {
        Collector::new(&[], true, true, Box::new(|file| Some(format!("/{}\n", file.inode).into())))
    }

    /// Offset, count and rank of each access of a file.
    fn figures(file: &FileAccesses) -> Vec<(u64, u32, u32)> {
        let both = file.accesses.iter().zip(&file.ranks);
        both.map(|(access, rank)| (access.offset, access.count, *rank)).collect()
    }

    #[test]
    fn each_period_has_its_own_accesses_and_ranks_go_on() {
        let mut collector = collector();
        let read = |offset, ns| event(7, offset, Op::Miss, ns);
        collector.append(&[
            read(0, 1),
            read(4096, 2),
            event(7, 0, Op::Write, 3),
            event(8, 0, Op::Miss, 4),
        ]);
        collector.append(&[event(7, 0, Op::Write, 5)]);
        let first = collector.take(Meta::new(Level::Both, 0));
        assert!(first.ordered);
        assert_eq!(first.files[0].path.as_deref(), Some(std::path::Path::new("/7\n")));
        // What has no order is counted once.
        assert_eq!(figures(&first.files[0]), [(0, 2, 0), (0, 1, 1), (4096, 1, 2)]);
        assert_eq!(figures(&first.files[1]), [(0, 1, 3)]);
        collector.append(&[read(8192, 6)]);
        let second = collector.take(Meta::new(Level::Both, 0));
        assert_eq!((second.files.len(), figures(&second.files[0])), (1, vec![(8192, 1, 4)]));
        assert!(collector.take(Meta::new(Level::Both, 0)).files.is_empty());
    }

    #[test]
    fn of_a_part_of_all_places_turns_are_known_instead() {
        let mut collector = collector();
        let turn = 1 << 21;
        collector.append(&[0, 1, turn].map(|ns| event(7, 0, Op::Miss, ns)));
        let mut meta = Meta::new(Level::Miss, 0);
        meta.sampling = Some(Sampling {
            region_bytes: 1 << 20,
            watched_ns: 0,
            places_ppm: 500_000,
            turn_ns: turn,
            most: 2,
        });
        let trace = collector.take(meta);
        assert!(!trace.ordered && trace.files[0].ranks.is_empty());
        let turns: Vec<_> = trace.files[0].recorded.iter().map(|r| (r.turn, r.times)).collect();
        assert_eq!(turns, [(0, 2), (1, 1)]);
    }

    #[test]
    fn what_does_not_fit_is_counted_as_lost() {
        let mut collector = collector();
        let events = [event(7, 0, Op::Miss, 0); 1024];
        (0..=MOST_KEPT / events.len()).for_each(|_| collector.append(&events));
        let trace = collector.take(Meta::new(Level::Miss, 0));
        let kept: u64 = trace.files[0].accesses.iter().map(|a| u64::from(a.count)).sum();
        assert_eq!((kept, trace.meta.lost), (MOST_KEPT as u64, 1024));
        collector.append(&events);
        assert_eq!(collector.take(Meta::new(Level::Miss, 0)).meta.lost, 0);
    }
}
