//! Of a recording of a part of all places at a time: in which turn each access was recorded.
//!
//! An access that was recorded while one place in `w` was in turn stands for `w`, but the `w - 1` others need not be in the
//! same range. What is known of that is in how many turns a range was recorded, and how often in each: a plan judges by it what
//! a range would look like without one of them (`crates/plan/src/chance.rs`).

use crate::Access;
use crate::meta::Meta;
use fragmend_layout::Recorded;
use rayon::prelude::*;

/// How rows are assigned to turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// Nanoseconds; 0 if all rows are of one.
    each_ns: u64,
    /// The most that one access stands for, where a row is of several; otherwise 0.
    most: u32,
}

/// Equal accesses are kept apart by their turns up to so many of these: what is of more is decided by no single one.
const KEPT_APART: usize = 4;

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
        let last = u64::from(Recorded::MANY) - 1;
        let turn = time_ns.checked_div(self.each_ns).unwrap_or(0).min(last);
        let times = if self.most > 0 { count.div_ceil(self.most) } else { 1 };
        Recorded { turn: turn as u32, times, most: count }
    }

    /// Of how many turns equal accesses are kept apart. A folded trace has the first and the last one, with what was between.
    pub fn kept_apart(self) -> usize {
        if self.most > 0 { 1 } else { KEPT_APART }
    }
}

/// Accesses of one file, with what is known of each as in [`FileAccesses`](crate::FileAccesses).
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub accesses: Vec<Access>,
    /// As many, or none.
    pub ranks: Vec<u32>,
    /// As many, or none.
    pub recorded: Vec<Recorded>,
}

impl Rows {
    /// Memory for so many.
    pub fn with_capacity(rows: usize) -> Self {
        Self { accesses: Vec::with_capacity(rows), ..Self::default() }
    }

    /// Counts equal accesses once, whichever thread did them; those of up to `kept_apart` turns once for each. They have no
    /// order, and no ranks.
    pub fn fold(&mut self, kept_apart: usize) {
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
        let in_turn = |(access, recorded): &(Access, Recorded)| (key(access), recorded.turn);
        both.par_sort_unstable_by_key(in_turn);
        let once = |both: &mut Vec<(Access, Recorded)>| {
            both.dedup_by(|next, kept| {
                let sum = kept.0.count.checked_add(next.0.count);
                let sum = sum.filter(|_| in_turn(next) == in_turn(kept));
                if let Some(sum) = sum {
                    kept.0.count = sum;
                    kept.1.times = kept.1.times.saturating_add(next.1.times);
                    let many = kept.1.turn == Recorded::MANY;
                    kept.1.most = if many { kept.1.most.max(next.1.most) } else { sum };
                }
                sum.is_some()
            });
        };
        once(&mut both);
        for equal in both.chunk_by_mut(|(a, _), (b, _)| key(a) == key(b)) {
            let many = equal.iter().any(|(_, recorded)| recorded.turn == Recorded::MANY);
            if many || equal.len() > kept_apart {
                equal.iter_mut().for_each(|(_, recorded)| recorded.turn = Recorded::MANY);
            }
        }
        once(&mut both);
        (self.accesses, self.recorded) = both.into_iter().unzip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    fn read(offset: u64, length: u32, count: u32) -> Access {
        Access { offset, length, count, thread: 1, op: Op::Read, direct: true, windowed: false }
    }

    /// Count, turn, times and most of equal accesses with these counts and turns, up to two of which are kept apart.
    fn folded(rows: &[(u32, u32)]) -> Vec<(u32, u32, u32, u32)> {
        let accesses = rows.iter().map(|(count, _)| read(0, 8, *count)).collect();
        let how = |(count, turn): &(u32, u32)| Recorded { turn: *turn, times: 1, most: *count };
        let recorded = rows.iter().map(how).collect();
        let mut rows = Rows { accesses, recorded, ..Rows::default() };
        rows.fold(2);
        let both = rows.accesses.iter().zip(&rows.recorded);
        both.map(|(access, how)| (access.count, how.turn, how.times, how.most)).collect()
    }

    #[test]
    fn equal_accesses_are_counted_once_in_each_of_a_few_turns() {
        assert_eq!(folded(&[(64, 3), (64, 9), (64, 3)]), [(128, 3, 2, 128), (64, 9, 1, 64)]);
        assert_eq!(folded(&[(64, 3), (64, 9), (2, 4)]), [(130, Recorded::MANY, 3, 64)]);
        let again = folded(&[(64, 3), (64, 3), (9, Recorded::MANY)]);
        assert_eq!(again, [(137, Recorded::MANY, 3, 128)]);
        assert_eq!(folded(&[(64, 3), (u32::MAX, 3)]).len(), 2, "no count overflows");
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
            let Recorded { turn, times, .. } = Turns::of(meta).unwrap().recorded(ns, count);
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
}
