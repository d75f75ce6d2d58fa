//! Of a recording of a part of all places at a time: which of the accesses that a row stands for were in ranges that the
//! recording has, and which in others.
//!
//! An access that was recorded while one place in `w` was in turn stands for `w`: the inverse of the probability that it was
//! recorded, as Horvitz and Thompson have it, so that the sum over all rows is unbiased whatever the rates were. But the
//! `w - 1` others need not be in the same range. Of files that are read once each, they are in files of which the trace has
//! nothing, and no plan moves those.
//!
//! How many they are follows from the ranges that were recorded in one turn only (Good, Biometrika 1953). Let a byte be read
//! in turns `1..n`, each of which is recorded with the probability `p_i` of its time. The estimate of the turns in which it
//! was read, if it is in the trace at all, is then the sum over the turns that were recorded of `1 + (1 / p_i - 1) * s`,
//! where `s` is 1 if another turn was recorded, and 0 otherwise: the expected value of the part left out, `(1 / p_i - 1)` where
//! no other was, is the sum over `i` of `p_i * (1 / p_i - 1)` times the product of all other `1 - p_j`, which is `n` times the
//! probability that the byte is not in the trace. So an access counts in full as far as its bytes were recorded in another
//! turn as well, and once as far as they were not; what is left stands for [`Trace::unseen`](super::reader::Trace::unseen).
//!
//! Turns count as independent. Those of one round of all places are not: what is read again within one (0.13 s at a rate of
//! 1/64), and never later, counts as less than it was. Where it is the same part of all places from beginning to end, a place
//! is in one turn, and counts as often as it was recorded.

use super::order::Reached;
use crate::meta::Meta;
use crate::{Access, FileAccesses};
use fragmend_layout::ByteRange;
use rayon::prelude::*;

/// How rows are assigned to turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// Nanoseconds; 0 if all rows are of one.
    each_ns: u64,
    /// The most that one access stands for, where a row is of several; otherwise 0.
    most: u32,
}

/// How accesses of one range were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// The turn, or [`SEVERAL`].
    turn: u32,
    /// How many were.
    times: u32,
}

/// Not one turn.
const SEVERAL: u32 = u32::MAX;

impl Turns {
    /// Those of a trace; none if everything was recorded.
    pub fn of(meta: &Meta) -> Option<Self> {
        let sampling = meta.sampling?;
        // Of an older folded trace it is not known which rows are of several turns.
        let is_known = !meta.folded || sampling.most > 0;
        let most = if meta.folded { sampling.most } else { 0 };
        is_known.then_some(Self { each_ns: sampling.turn_ns, most })
    }

    /// How the accesses of a row with this time and count were recorded.
    pub fn recorded(self, time_ns: u64, count: u32) -> Recorded {
        let turn = time_ns.checked_div(self.each_ns).unwrap_or(0).min(u64::from(SEVERAL) - 1);
        let times = if self.most > 0 { count.div_ceil(self.most) } else { 1 };
        Recorded { turn: turn as u32, times }
    }
}

/// Accesses of one file; of each, how it was recorded, if not all were.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub accesses: Vec<Access>,
    /// As many, or none.
    pub recorded: Vec<Recorded>,
}

impl Rows {
    /// Memory for so many.
    pub fn with_capacity(rows: usize) -> Self {
        Self { accesses: Vec::with_capacity(rows), recorded: Vec::new() }
    }

    /// Counts equal accesses once, whichever thread did them.
    pub fn fold(&mut self) {
        let key = |a: &Access| (a.offset, a.length, a.op as u8, a.direct, a.windowed);
        if self.recorded.is_empty() {
            self.accesses.par_sort_unstable_by_key(key);
            return self.accesses.dedup_by(|next, kept| {
                let sum = kept.count.checked_add(next.count).filter(|_| key(next) == key(kept));
                kept.count = sum.unwrap_or(kept.count);
                sum.is_some()
            });
        }
        let (accesses, recorded) = (self.accesses.drain(..), self.recorded.drain(..));
        let mut both: Vec<(Access, Recorded)> = accesses.zip(recorded).collect();
        both.par_sort_unstable_by_key(|(access, _)| key(access));
        both.dedup_by(|(next, other), (kept, recorded)| {
            let sum = kept.count.checked_add(next.count).filter(|_| key(next) == key(kept));
            if let Some(sum) = sum {
                kept.count = sum;
                recorded.times = recorded.times.saturating_add(other.times);
                recorded.turn = if recorded.turn == other.turn { other.turn } else { SEVERAL };
            }
            sum.is_some()
        });
        (self.accesses, self.recorded) = both.into_iter().unzip();
    }

    /// The accesses, none of which stands for others that were in ranges that the recording does not have; and those. Only
    /// what `reached` the device is sampled by places.
    fn apart(self, reached: Reached) -> [Vec<Access>; 2] {
        let Self { mut accesses, recorded } = self;
        let again = {
            let sampled = accesses.iter().zip(&recorded).filter(|(a, _)| reached.has(a));
            again(sampled.map(|(a, r)| (a.range(), r.turn)).collect())
        };
        let mut unseen = Vec::new();
        for (access, recorded) in accesses.iter_mut().zip(&recorded) {
            let others = access.count.saturating_sub(recorded.times);
            if others == 0 || recorded.turn == SEVERAL || !reached.has(access) {
                continue;
            }
            let alone = access.range().len() - covered(&again, access.range());
            let many = u64::from(others) * alone + access.range().len() / 2;
            let count = (many / access.range().len().max(1)) as u32;
            access.count -= count;
            unseen.extend((count > 0).then_some(Access { count, ..*access }));
        }
        [accesses, unseen]
    }
}

/// The bytes that were recorded in more than one turn, of ranges that were recorded in these: ascending and disjoint.
fn again(mut ranges: Vec<(ByteRange, u32)>) -> Vec<ByteRange> {
    ranges.par_sort_unstable();
    let mut again: Vec<ByteRange> = Vec::new();
    // How far the ranges so far reach: the furthest, and the furthest of another turn than that.
    let mut reach = [(0u64, SEVERAL); 2];
    for (range, turn) in ranges {
        let other =
            if turn == SEVERAL { u64::MAX } else { reach[usize::from(reach[0].1 == turn)].0 };
        let end = range.end.min(other);
        match again.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(end),
            _ if end > range.start => again.push(ByteRange { start: range.start, end }),
            _ => {}
        }
        if reach[0].1 == turn {
            reach[0].0 = reach[0].0.max(range.end);
        } else if range.end > reach[0].0 {
            reach = [(range.end, turn), reach[0]];
        } else if range.end > reach[1].0 {
            reach[1] = (range.end, turn);
        }
    }
    again
}

/// How many bytes of `range` are in these ranges, which are ascending and disjoint.
fn covered(ranges: &[ByteRange], range: ByteRange) -> u64 {
    let first = ranges.partition_point(|r| r.end <= range.start);
    let inside = ranges[first..].iter().take_while(|r| r.start < range.end);
    inside.map(|r| r.intersect(range).len()).sum()
}

/// Takes out of `files` what their accesses stand for in ranges that the recording does not have: the same files, with
/// the counts of those.
pub(super) fn unseen(
    files: &mut [FileAccesses],
    recorded: Vec<Vec<Recorded>>,
    reached: Reached,
) -> Vec<FileAccesses> {
    let apart = |(file, recorded): (&mut FileAccesses, Vec<Recorded>)| {
        let rows = Rows { accesses: std::mem::take(&mut file.accesses), recorded };
        let [accesses, unseen] = rows.apart(reached);
        file.accesses = accesses;
        let FileAccesses { file, path, .. } = file;
        (!unseen.is_empty()).then(|| FileAccesses {
            file: *file,
            path: path.clone(),
            accesses: unseen,
        })
    };
    files.par_iter_mut().zip(recorded).filter_map(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use proptest::prelude::*;

    fn read(offset: u64, length: u32, count: u32) -> Access {
        Access {
            offset,
            length,
            count,
            thread: 1,
            op: Op::Read,
            direct: true,
            windowed: false,
            rank: 0,
        }
    }

    const REACHED: Reached = Reached { misses: true };

    /// Offset, length and count of what was seen, and of what was not, of accesses with their turns.
    fn apart(rows: &[(Access, u32)]) -> [Vec<(u64, u32, u32)>; 2] {
        let accesses = rows.iter().map(|(access, _)| *access).collect();
        let recorded = rows.iter().map(|(_, turn)| Recorded { turn: *turn, times: 1 }).collect();
        let mut rows = Rows { accesses, recorded };
        rows.fold();
        rows.apart(REACHED).map(|all| all.iter().map(|a| (a.offset, a.length, a.count)).collect())
    }

    #[test]
    fn what_was_recorded_once_counts_once_and_what_was_again_counts_in_full() {
        let once = (read(0, 8, 64), 3);
        assert_eq!(apart(&[once]), [vec![(0, 8, 1)], vec![(0, 8, 63)]]);
        // Twice in one turn is no other turn.
        assert_eq!(apart(&[once, once]), [vec![(0, 8, 2)], vec![(0, 8, 126)]]);
        let again = (read(0, 8, 2), 9);
        assert_eq!(apart(&[once, again]), [vec![(0, 8, 66)], vec![]]);
        // As far as others were there in other turns: six bytes of eight.
        let beside = [(read(0, 4, 1), 4), (read(6, 2, 1), 9), (read(8, 8, 1), 5)];
        let all = [&[once][..], &beside].concat();
        let counts = vec![(0, 4, 1), (0, 8, 48), (6, 2, 1), (8, 8, 1)];
        assert_eq!(apart(&all), [counts, vec![(0, 8, 16)]]);
        // What programs asked for through the page cache was not sampled by places.
        let cached = (Access { direct: false, ..once.0 }, 7);
        assert_eq!(apart(&[cached]), [vec![(0, 8, 64)], vec![]]);
        assert_eq!(apart(&[cached, once])[1], [(0, 8, 63)]);
    }

    #[test]
    fn a_row_is_of_one_turn() {
        let sampling = crate::Sampling {
            region_bytes: 1 << 20,
            watched_ns: 0,
            places_ppm: 20_000,
            turn_ns: 1 << 21,
            most: 64,
        };
        let mut meta = Meta::new(crate::Level::Both, 0);
        assert!(Turns::of(&meta).is_none());
        meta.sampling = Some(sampling);
        let of = |meta: &Meta, ns, count| {
            let Recorded { turn, times } = Turns::of(meta).unwrap().recorded(ns, count);
            (turn, times)
        };
        assert_eq!((of(&meta, 5 << 21, 64), of(&meta, u64::MAX, 1)), ((5, 1), (u32::MAX - 1, 1)));
        // Of a folded one, a row is of as many as must have been.
        meta.folded = true;
        assert_eq!((of(&meta, 0, 64), of(&meta, 0, 65)), ((0, 1), (0, 2)));
        meta.sampling = Some(crate::Sampling { turn_ns: 0, ..sampling });
        assert_eq!(of(&meta, 5 << 21, 128), (0, 2));
        // An older one does not say what is of several turns.
        meta.sampling = Some(crate::Sampling { most: 0, ..sampling });
        assert!(Turns::of(&meta).is_none());
        meta.folded = false;
        assert!(Turns::of(&meta).is_some());
    }

    proptest! {
        #[test]
        fn bytes_of_several_turns_are_found(
            ranges in prop::collection::vec((0u64..40, 1u64..12, 0u32..4), 0..12),
        ) {
            let range = |(start, length, turn): &(u64, u64, u32)| {
                let turn = if *turn == 3 { SEVERAL } else { *turn };
                (ByteRange { start: *start, end: start + length }, turn)
            };
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            let found = again(ranges.clone());
            prop_assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start), "{found:?}");
            for at in 0..60 {
                let byte = ByteRange { start: at, end: at + 1 };
                let turns: Vec<u32> =
                    ranges.iter().filter(|(r, _)| r.overlaps(byte)).map(|(_, turn)| *turn).collect();
                let several = turns.contains(&SEVERAL) || turns.iter().any(|t| *t != turns[0]);
                prop_assert_eq!(covered(&found, byte) == 1, several, "{}", at);
            }
        }

        /// Reads of one range in turns that are recorded with these probabilities, each one in a power of two.
        #[test]
        fn the_estimate_is_without_bias(shifts in prop::collection::vec(0u32..4, 1..6)) {
            let (mut expected, mut estimate) = (0.0, 0.0);
            for set in 0..1u32 << shifts.len() {
                let is_in = |n: usize| set >> n & 1 == 1;
                let likely = |(n, shift): (usize, &u32)| {
                    let rate = 1.0 / f64::from(1 << shift);
                    if is_in(n) { rate } else { 1.0 - rate }
                };
                let likely: f64 = shifts.iter().enumerate().map(likely).product();
                if set == 0 {
                    continue;
                }
                let rows = shifts.iter().enumerate().filter(|(n, _)| is_in(*n));
                let rows: Vec<_> = rows.map(|(n, shift)| (read(0, 8, 1 << shift), n as u32)).collect();
                let [seen, _] = apart(&rows);
                estimate += likely * seen.iter().map(|(.., count)| f64::from(*count)).sum::<f64>();
                expected += likely * shifts.len() as f64;
            }
            prop_assert!((estimate - expected).abs() < 1e-9, "{} and {}", estimate, expected);
        }
    }
}
