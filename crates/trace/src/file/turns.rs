//! Of a recording of a part of all places at a time: in which turn each access was recorded.
//!
//! An access that was recorded while one place in `w` was in turn stands for `w`, but the `w - 1` others need not be in the
//! same range. What is known of that is in how many turns a range was recorded, and how often in each: a plan judges by it what
//! a range would look like without one of them (`crates/plan/src/chance.rs`).
//!
//! A folded trace has two rows of a range that was recorded in several turns: that in which most was recorded, and the rest,
//! none of whose turns has more. The time of the rest is the beginning of a turn, which no other row's is. Older folded traces
//! have two halves instead: any turn may have almost all of them.

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

/// How many turns are kept apart of what was folded while it was recorded.
const FOLDED: usize = 1;

/// Equal accesses are kept apart by their turns up to so many of these: what is of more is decided by no single one.
const KEPT_APART: usize = 4;

impl Turns {
    /// Those of a recording that is not folded while it is made.
    pub const RECORDING: Self = Self { each_ns: 1 << crate::record::TURN_SHIFT, most: 0 };

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
        let turn = time_ns.checked_div(self.each_ns).unwrap_or(0).min(last) as u32;
        if self.most == 0 {
            return Recorded { turn, times: 1, most: count };
        }
        let is_rest = time_ns.checked_rem(self.each_ns) == Some(0);
        let turn = if is_rest { Recorded::MANY } else { turn };
        Recorded { turn, times: count.div_ceil(self.most), most: count }
    }

    /// Of how many turns equal accesses are kept apart. A folded trace has the heaviest one alone, and the rest.
    pub fn kept_apart(self) -> usize {
        if self.most > 0 { FOLDED } else { KEPT_APART }
    }

    /// Notes of the rows of one file of a folded trace, where they stay in their order, what those of equal accesses say of
    /// each other: how heavy the turns of a rest are at most, and that halves are of many turns.
    pub fn compare(self, accesses: &[Access], recorded: &mut [Recorded]) {
        if self.most == 0 {
            return;
        }
        let mut rows: Vec<usize> = (0..recorded.len()).collect();
        rows.par_sort_unstable_by_key(|row| (key(&accesses[*row]), recorded[*row].turn));
        for equal in rows.chunk_by(|a, b| key(&accesses[*a]) == key(&accesses[*b])) {
            // In the order of their turns, the rests behind the others.
            let rest = equal.partition_point(|row| recorded[*row].turn != Recorded::MANY);
            let (heaviest, rests) = equal.split_at(rest);
            let turns =
                [heaviest.first(), heaviest.last()].map(|row| row.map(|r| recorded[*r].turn));
            if rests.is_empty() && turns[0] != turns[1] {
                heaviest.iter().for_each(|row| recorded[*row].turn = Recorded::MANY);
            } else if !heaviest.is_empty() {
                let sum = |sum: u32, row: &usize| sum.saturating_add(recorded[*row].most);
                let most = heaviest.iter().fold(0, sum);
                rests.iter().for_each(|row| recorded[*row].most = recorded[*row].most.min(most));
            }
        }
    }
}

/// What equal accesses have in common.
fn key(a: &Access) -> (u64, u32, u8, bool, bool) {
    (a.offset, a.length, a.op as u8, a.direct, a.windowed)
}

/// The most that one turn of these equal accesses of a folded trace stands for. Each of several heaviest turns, as there are where a
/// range was counted in two tables, may have been of the others' rest; where there is no rest, the count is in halves.
fn most_of_folded(equal: &[(Access, Recorded)]) -> u32 {
    let is_rest = |(a, how): &(Access, Recorded)| how.turn == Recorded::MANY && how.most == a.count;
    let sum = |most: u32, (_, how): &(Access, Recorded)| most.saturating_add(how.most);
    match equal.iter().filter(|row| !is_rest(row)).fold(0, sum) {
        0 => equal.iter().fold(0, sum),
        most => most,
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

    /// Counts equal accesses once, whichever thread did them; those of up to `kept_apart` turns once for each. One turn is
    /// that of a folded trace. They have no order, and no ranks.
    pub fn fold(&mut self, kept_apart: usize) {
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
        let is_folded = kept_apart == FOLDED;
        if !is_folded {
            once(&mut both);
        }
        for equal in both.chunk_by_mut(|(a, _), (b, _)| key(a) == key(b)) {
            if is_folded && equal.len() > 1 {
                let most = most_of_folded(equal);
                equal.iter_mut().for_each(|(_, recorded)| recorded.most = most);
            }
            // In the order of their turns.
            let (first, last) = (equal[0].1.turn, equal[equal.len() - 1].1.turn);
            let several = if is_folded { first != last } else { equal.len() > kept_apart };
            if several || last == Recorded::MANY {
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

    fn rows(rows: &[(u32, u32)]) -> Rows {
        let accesses = rows.iter().map(|(count, _)| read(0, 8, *count)).collect();
        let how = |(count, turn): &(u32, u32)| Recorded { turn: *turn, times: 1, most: *count };
        let recorded = rows.iter().map(how).collect();
        Rows { accesses, recorded, ..Rows::default() }
    }

    /// Count, turn, times and most of each.
    fn figures(rows: &Rows) -> Vec<(u32, u32, u32, u32)> {
        let both = rows.accesses.iter().zip(&rows.recorded);
        both.map(|(access, how)| (access.count, how.turn, how.times, how.most)).collect()
    }

    /// Those of equal accesses with these counts and turns, up to two of which are kept apart.
    fn folded(counts: &[(u32, u32)]) -> Vec<(u32, u32, u32, u32)> {
        let mut rows = rows(counts);
        rows.fold(2);
        figures(&rows)
    }

    #[test]
    fn of_a_folded_trace_the_heaviest_turn_is_known() {
        const REST: u32 = Recorded::MANY;
        let fold = |counts: &[(u32, u32)]| {
            let mut rows = rows(counts);
            rows.fold(FOLDED);
            figures(&rows)
        };
        assert_eq!(fold(&[(64, 3)]), [(64, 3, 1, 64)]);
        // A burst and one more, in any order; and a rest that is far more than the heaviest.
        for rows in [[(64, 3), (1, REST)], [(1, REST), (64, 3)]] {
            assert_eq!(fold(&rows), [(65, REST, 2, 64)]);
        }
        assert_eq!(fold(&[(900, REST), (64, 3)]), [(964, REST, 2, 64)]);
        // Counted in two tables, and an access that was left at the end.
        assert_eq!(fold(&[(64, 3), (9, REST), (2, 5), (1, REST)]), [(76, REST, 4, 66)]);
        assert_eq!(fold(&[(64, 3), (9, REST), (1, 3)]), [(74, REST, 3, 65)]);
        // Two halves of an older one: almost all may be of one turn.
        assert_eq!(fold(&[(32, 3), (33, 9)]), [(65, REST, 2, 65)]);
        assert_eq!(fold(&[(33, REST)]), [(33, REST, 1, 33)]);
        // What comes later is folded in.
        let mut first = rows(&[(900, REST)]);
        first.fold(FOLDED);
        first.accesses.push(read(0, 8, 64));
        first.recorded.push(Recorded { turn: 3, times: 1, most: 64 });
        first.fold(FOLDED);
        assert_eq!(figures(&first), [(964, REST, 2, 64)]);
        first.fold(FOLDED);
        assert_eq!(figures(&first), [(964, REST, 2, 64)]);
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
        assert_eq!((of(&meta, 1, 64), of(&meta, 1, 65)), ((0, 1), (0, 2)));
        // At the beginning of one, it is the rest: of which turns is not known.
        assert_eq!(of(&meta, 5 << 21, 65), (Recorded::MANY, 2));
        let mut both = rows(&[(64, 3), (900, Recorded::MANY)]);
        both.accesses.push(read(8, 8, 7));
        both.recorded.push(Recorded { turn: Recorded::MANY, times: 1, most: 7 });
        let compared = |mut rows: Rows| -> Vec<(u32, u32)> {
            Turns::of(&meta).unwrap().compare(&rows.accesses, &mut rows.recorded);
            rows.recorded.iter().map(|how| (how.turn, how.most)).collect()
        };
        let many = Recorded::MANY;
        assert_eq!(compared(both), [(3, 64), (many, 64), (many, 7)]);
        // Of two halves, almost all may be of one turn.
        assert_eq!(compared(rows(&[(32, 3), (33, 9)])), [(many, 32), (many, 33)]);
        assert_eq!(compared(rows(&[(32, 3), (33, 3)])), [(3, 32), (3, 33)]);
        meta.sampling = Some(crate::Sampling { turn_ns: 0, ..sampling });
        assert_eq!(of(&meta, 5 << 21, 128), (0, 2));
        // An older one does not say what is of several turns.
        meta.sampling = Some(crate::Sampling { most: 0, ..sampling });
        assert!(Turns::of(&meta).is_none());
        meta.folded = false;
        assert!(Turns::of(&meta).is_some());
    }
}
