//! Traces of one period after the other, as one trace of the whole time: what a plan is made from while a recording goes on.

use super::turns::{Rows, Turns};
use crate::meta::Meta;
use crate::{FileAccesses, ObservedLoad, ObservedRequests, Overhead, Sampling, Trace};
use fragmend_layout::{FileId, Recorded};
use std::collections::{BTreeMap, HashMap};

/// So many accesses may wait to be counted once with equal ones, beside as many as there are.
const WAITING: usize = 1 << 16;

/// Of an access that was recorded while everything was.
fn whole(count: u32) -> Recorded {
    Recorded { turn: Recorded::MANY, times: count, most: 1 }
}

/// A trace to which those of later periods are added.
#[derive(Clone, Debug)]
pub struct Joined {
    trace: Trace,
    index_of: HashMap<FileId, usize>,
    accesses: usize,
    /// How many there were when equal ones were last counted once.
    folded: usize,
}

impl Joined {
    /// Begins with the trace of the first period.
    pub fn new(trace: Trace) -> Self {
        let index_of = trace.files.iter().enumerate().map(|(i, file)| (file.file, i)).collect();
        let accesses = trace.files.iter().map(|file| file.accesses.len()).sum();
        Self { trace, index_of, accesses, folded: 0 }
    }

    /// The trace of the whole time.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The same, without the rest.
    pub fn into_trace(self) -> Trace {
        self.trace
    }

    /// How many accesses are kept, equal ones in part counted once: 40 bytes of memory each.
    pub fn accesses(&self) -> usize {
        self.accesses
    }

    /// Adds the trace of the next period, of the same recording.
    pub fn add(&mut self, later: Trace) {
        let ordered = self.trace.ordered && later.ordered;
        if self.trace.ordered && !ordered {
            self.trace.files.iter_mut().for_each(|file| file.ranks = Vec::new());
        }
        let in_turns = |trace: &Trace| trace.files.iter().any(|file| !file.recorded.is_empty());
        let in_turns = in_turns(&self.trace) || in_turns(&later);
        if in_turns {
            self.trace.files.iter_mut().for_each(record_whole);
        }
        self.trace.ordered = ordered;
        self.trace.skipped += later.skipped;
        for mut file in later.files {
            if !ordered {
                file.ranks = Vec::new();
            }
            if in_turns {
                record_whole(&mut file);
            }
            self.accesses += file.accesses.len();
            self.append(file);
        }
        add_meta(&mut self.trace.meta, later.meta);
        let pathless = self.trace.files.iter().filter(|file| file.path.is_none()).count() as u64;
        let meta = &mut self.trace.meta;
        meta.files_without_path = pathless;
        meta.files_not_looked_up = meta.files_not_looked_up.min(pathless);
        if self.accesses > 2 * self.folded + WAITING {
            self.fold();
        }
    }

    fn append(&mut self, mut file: FileAccesses) {
        let Some(index) = self.index_of.get(&file.file) else {
            self.index_of.insert(file.file, self.trace.files.len());
            return self.trace.files.push(file);
        };
        let earlier = &mut self.trace.files[*index];
        earlier.accesses.append(&mut file.accesses);
        earlier.ranks.append(&mut file.ranks);
        earlier.recorded.append(&mut file.recorded);
        // It may have been renamed.
        earlier.path = file.path.or(earlier.path.take());
    }

    fn fold(&mut self) {
        if self.trace.meta.has_misses() {
            self.trace.files.iter_mut().for_each(fold);
        }
        self.accesses = self.trace.files.iter().map(|file| file.accesses.len()).sum();
        self.folded = self.accesses;
    }
}

/// Counts equal accesses of a file once. What has a rank stays in its order, behind the others.
pub(super) fn fold(file: &mut FileAccesses) {
    let mut rows = Rows {
        accesses: std::mem::take(&mut file.accesses),
        recorded: std::mem::take(&mut file.recorded),
        ..Rows::default()
    };
    let ranks = std::mem::take(&mut file.ranks);
    let mut of_row = ranks.iter();
    let mut in_order = Vec::new();
    if !ranks.is_empty() {
        rows.accesses.retain(|access| {
            let is_ranked = of_row.next().is_some_and(|rank| *rank > 0);
            if is_ranked {
                in_order.push(*access);
            }
            !is_ranked
        });
    }
    rows.fold(Turns::RECORDING.kept_apart());
    if !ranks.is_empty() {
        file.ranks = vec![0; rows.accesses.len()];
        file.ranks.extend(ranks.into_iter().filter(|rank| *rank > 0));
    }
    rows.accesses.append(&mut in_order);
    (file.accesses, file.recorded) = (rows.accesses, rows.recorded);
}

/// Notes of a file of which everything was recorded that it was.
fn record_whole(file: &mut FileAccesses) {
    if file.recorded.is_empty() {
        file.recorded = file.accesses.iter().map(|access| whole(access.count)).collect();
    }
}

/// Adds what is known of a later recording of the same paths.
fn add_meta(meta: &mut Meta, later: Meta) {
    let lasted = [meta.duration_ns, later.duration_ns];
    meta.sampling = add_sampling([meta.sampling, later.sampling], lasted);
    meta.overhead = meta.overhead.zip(later.overhead).map(|(a, b)| Overhead {
        limit_ppm: b.limit_ppm,
        used_ppm: mean([a.used_ppm, b.used_ppm], lasted),
    });
    meta.duration_ns += later.duration_ns;
    meta.lost += later.lost;
    meta.dropped += later.dropped;
    meta.unplaced += later.unplaced;
    meta.coarsened += later.coarsened;
    meta.unseen_compat += later.unseen_compat;
    meta.unseen_splices += later.unseen_splices;
    meta.unseen_uring += later.unseen_uring;
    meta.files_not_looked_up += later.files_not_looked_up;
    meta.loads_lost += later.loads_lost;
    for what in later.unseen_sources {
        if !meta.unseen_sources.contains(&what) {
            meta.unseen_sources.push(what);
        }
    }
    for load in later.loads {
        match meta.loads.iter_mut().find(|known| known.device == load.device) {
            Some(known) => add_load(known, load),
            None => meta.loads.push(load),
        }
    }
}

/// The mean of figures of two times, by how long each lasted.
fn mean(of: [u64; 2], lasted: [u64; 2]) -> u64 {
    let [a, b] = [0, 1].map(|i| u128::from(of[i]) * u128::from(lasted[i]));
    let all = u128::from(lasted[0]) + u128::from(lasted[1]);
    u64::try_from((a + b).checked_div(all).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// How two times together were thinned out.
fn add_sampling(of: [Option<Sampling>; 2], lasted: [u64; 2]) -> Option<Sampling> {
    let known = of[1].or(of[0])?;
    let part = |i: usize| {
        let everything =
            Sampling { watched_ns: lasted[i], places_ppm: 1_000_000, most: 1, ..known };
        of[i].unwrap_or(everything)
    };
    let [a, b] = [part(0), part(1)];
    let places = mean([a.places_ppm.into(), b.places_ppm.into()], lasted);
    Some(Sampling {
        watched_ns: a.watched_ns + b.watched_ns,
        places_ppm: u32::try_from(places).unwrap_or(1_000_000),
        most: a.most.max(b.most),
        ..known
    })
}

/// Adds what a disk has answered later.
fn add_load(load: &mut ObservedLoad, later: ObservedLoad) {
    let key = |r: &ObservedRequests| (r.write, r.up_to_bytes, r.up_to_in_flight);
    let mut classes: BTreeMap<_, ObservedRequests> = BTreeMap::new();
    for requests in load.requests.drain(..).chain(later.requests) {
        let none = ObservedRequests { count: 0, bytes: 0, in_flight: 0, total_ns: 0, ..requests };
        let class = classes.entry(key(&requests)).or_insert(none);
        class.count += requests.count;
        class.bytes += requests.bytes;
        class.in_flight += requests.in_flight;
        class.total_ns += requests.total_ns;
    }
    load.requests = classes.into_values().collect();
    load.read_bursts += later.read_bursts;
    load.in_flight_before += later.in_flight_before;
    load.bursts_before = load.bursts_before.zip(later.bursts_before).map(|(a, b)| a + b);
    load.counted_reads = load.counted_reads.zip(later.counted_reads).map(|(a, b)| a + b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Level, Op};

    fn miss(offset: u64, count: u32) -> Access {
        Access {
            offset,
            length: 4096,
            count,
            thread: 1,
            op: Op::Miss,
            direct: false,
            windowed: false,
        }
    }

    fn trace(inode: u64, accesses: &[Access], ranks: &[u32]) -> Trace {
        let file = FileId { device: 1, inode, generation: 0 };
        let files = vec![FileAccesses {
            accesses: accesses.to_vec(),
            ranks: ranks.to_vec(),
            ..FileAccesses::of(file)
        }];
        let meta = Meta { duration_ns: 1000, lost: 1, ..Meta::new(Level::Miss, 5) };
        Trace { files, meta, skipped: 0, ordered: !ranks.is_empty() }
    }

    fn sampled(mut trace: Trace, places_ppm: u32) -> Trace {
        trace.meta.sampling = Some(Sampling {
            region_bytes: 1 << 20,
            watched_ns: 100,
            places_ppm,
            turn_ns: 1 << 21,
            most: 8,
        });
        for file in &mut trace.files {
            let how = |a: &Access| Recorded { turn: 3, times: 1, most: a.count };
            file.recorded = file.accesses.iter().map(how).collect();
            file.ranks.clear();
        }
        trace.ordered = false;
        trace
    }

    #[test]
    fn two_periods_are_one_trace() {
        let mut joined = Joined::new(trace(7, &[miss(0, 1), miss(4096, 1)], &[1, 2]));
        joined.add(trace(8, &[miss(0, 1)], &[3]));
        joined.add(trace(7, &[miss(0, 1)], &[4]));
        let all = joined.trace();
        assert!(all.ordered);
        assert_eq!((all.files.len(), joined.accesses()), (2, 4));
        assert_eq!(all.files[0].ranks, [1, 2, 4]);
        assert_eq!((all.meta.duration_ns, all.meta.lost, all.meta.started_unix_ns), (3000, 3, 5));
        assert_eq!(all.meta.files_without_path, 2);
    }

    #[test]
    fn what_was_recorded_whole_is_so_beside_a_part() {
        let mut joined = Joined::new(trace(7, &[miss(0, 2)], &[1]));
        joined.add(sampled(trace(7, &[miss(0, 8)], &[]), 125_000));
        let all = joined.trace();
        assert!(!all.ordered && all.files[0].ranks.is_empty());
        let recorded = &all.files[0].recorded;
        assert_eq!(recorded[..], [whole(2), Recorded { turn: 3, times: 1, most: 8 }]);
        let sampling = all.meta.sampling.unwrap();
        assert_eq!((sampling.places_ppm, sampling.watched_ns), (562_500, 1100));
        assert_eq!((sampling.most, sampling.region_bytes), (8, 1 << 20));
        // And the other way round.
        joined.add(trace(7, &[miss(0, 1)], &[]));
        assert_eq!(joined.trace().files[0].recorded[2], whole(1));
        assert_eq!(joined.trace().meta.sampling.unwrap().places_ppm, 708_333);
    }

    #[test]
    fn memory_is_as_large_as_there_are_different_accesses() {
        let same: Vec<Access> = (0..1000).map(|n| miss(n * 4096, 1)).collect();
        let mut joined = Joined::new(trace(7, &same, &[]));
        (0..1000).for_each(|_| joined.add(trace(7, &same, &[])));
        assert!(joined.accesses() < 1000 + WAITING + 2 * 1000, "{}", joined.accesses());
        let seen = joined.trace().files[0].accesses.iter().map(|a| u64::from(a.count)).sum::<u64>();
        assert_eq!(seen, 1_001_000);
    }

    #[test]
    fn what_disks_answered_adds_up_class_by_class() {
        let class = |up_to_bytes, count| ObservedRequests {
            write: false,
            up_to_bytes,
            up_to_in_flight: 1,
            count,
            bytes: count * up_to_bytes,
            in_flight: count,
            total_ns: 10 * count,
        };
        let load = |requests| ObservedLoad {
            device: 9,
            requests,
            read_bursts: 2,
            bursts_before: Some(1),
            counted_reads: Some(5),
            ..ObservedLoad::default()
        };
        let mut first = trace(7, &[], &[]);
        first.meta.loads = vec![load(vec![class(4096, 3)])];
        let mut second = first.clone();
        second.meta.loads = vec![load(vec![class(512, 1), class(4096, 4)])];
        let mut joined = Joined::new(first);
        joined.add(second);
        let all = &joined.trace().meta.loads[0];
        assert_eq!(all.requests, [class(512, 1), class(4096, 7)]);
        assert_eq!((all.read_bursts, all.bursts_before, all.counted_reads), (4, Some(2), Some(10)));
    }
}
