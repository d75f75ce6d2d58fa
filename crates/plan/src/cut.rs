//! Of a recording of a part of all places at a time: where a choice by what ranges save for their price ends.
//!
//! What was recorded of a place in one turn is one matter of chance, however many ranges it is of: all of it was recorded, or
//! nothing.

use rustc_hash::FxHashMap;

/// How many standard errors below its estimate a choice is judged.
const ERRORS: f64 = 2.0;

/// What was recorded together: the index of a file, a place of it, and the turn.
pub type Together = (usize, u64, u32);

/// What counts if the cut is not above a score.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub score: f64,
    /// Nanoseconds saved beyond the price.
    pub ns: f64,
    /// With what it was recorded; if with nothing else, its variance is known.
    pub together: Option<Together>,
    pub variance: f64,
    /// Whether it is by what was not recorded.
    pub is_of_others: bool,
}

/// A sum of figures of which some are recorded together, and its variance.
#[derive(Debug, Default)]
pub struct Sum {
    pub ns: f64,
    pub variance: f64,
    together: FxHashMap<Together, f64>,
}

impl Sum {
    /// Adds what counts, multiplied by `share`.
    pub fn add(&mut self, of: &Counts, share: f64) {
        let ns = of.ns * share;
        self.ns += ns;
        let Some(together) = of.together else {
            self.variance += of.variance * share * share;
            return;
        };
        let before = self.together.entry(together).or_default();
        self.variance += 2.0 * *before * ns + ns * ns;
        *before += ns;
    }

    /// The sum less some standard errors.
    pub fn surely(&self, errors: f64) -> f64 {
        self.ns - errors * self.variance.max(0.0).sqrt()
    }
}

/// Where a choice ends: above a score all is chosen, and of what has this score a share.
#[derive(Clone, Copy, Debug)]
pub struct Least {
    pub score: f64,
    pub share: f64,
}

impl Least {
    /// That of a choice of these ranges of the `wanted` ones, each with its bytes and its score; all that pay are chosen if
    /// nothing else was wanted.
    pub fn of(chosen: &[(u64, f64)], wanted: Option<&[(u64, f64)]>) -> Self {
        let score = chosen.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
        let Some(wanted) = wanted.filter(|_| score.is_finite()) else {
            return Self { score: 1.0, share: 1.0 };
        };
        // Figures that come about in different orders differ in their last places.
        let ends = |of: &[(u64, f64)]| -> u64 {
            let ends = of.iter().filter(|(_, other)| (other / score - 1.0).abs() < 1e-6);
            ends.map(|(bytes, _)| bytes).sum()
        };
        let share = ends(chosen) as f64 / ends(wanted).max(1) as f64;
        Self { score: f64::max(score, 1.0), share: share.min(1.0) }
    }

    /// The share of what has this score that is chosen.
    pub fn share_of(self, score: f64) -> f64 {
        if score > self.score * (1.0 + 1e-6) {
            1.0
        } else if score < self.score * (1.0 - 1e-6) {
            0.0
        } else {
            self.share
        }
    }
}

/// The score from `least` on above which most is saved, some standard errors below the estimate; above all if that is nothing.
pub fn cut(mut counts: Vec<Counts>, least: Least) -> f64 {
    counts.sort_unstable_by(|a, b| b.score.total_cmp(&a.score));
    let (mut best, mut cut) = (0.0, f64::INFINITY);
    let mut sum = Sum::default();
    let equal = counts.chunk_by(|a, b| a.score == b.score);
    for equal in equal.take_while(|equal| equal[0].score >= least.score) {
        for of in equal {
            sum.add(of, if of.is_of_others { least.share_of(of.score) } else { 1.0 });
        }
        let surely = sum.surely(ERRORS);
        // What was recorded whole is chosen in any case.
        if surely > best || equal[0].score == f64::INFINITY {
            (best, cut) = (surely, equal[0].score);
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(score: f64, ns: f64, is_of_others: bool) -> Counts {
        let variance = if is_of_others { ns * ns } else { 0.0 };
        Counts { score, ns, together: None, variance, is_of_others }
    }

    #[test]
    fn the_cut_is_where_most_is_saved_for_certain() {
        let all = Least { score: 1.0, share: 1.0 };
        // Ranges that were seen once do not pay for themselves, and of one alone that was seen twice nothing is certain.
        let seen_once = [counts(64.0, -2.0, false); 100];
        let chance = [counts(128.0, -1.0, false), counts(64.0, 126.0, true)];
        assert_eq!(cut([&seen_once[..], &chance].concat(), all), f64::INFINITY);
        // Many that were seen again outweigh the others; those below the least score count for nothing.
        let again = [counts(64.0, 126.0, true); 40];
        assert_eq!(cut([&seen_once[..], &again].concat(), all), 64.0);
        let above = Least { score: 100.0, share: 1.0 };
        assert_eq!(cut([&seen_once[..], &again].concat(), above), f64::INFINITY);
        // Of what has the score of the last one that fits, a share.
        let last = Least { score: 64.0, share: 0.01 };
        assert_eq!(cut([&seen_once[..], &again].concat(), last), f64::INFINITY);
        // What was recorded whole is chosen in any case.
        assert_eq!(cut(vec![counts(f64::INFINITY, -1.0, false)], all), f64::INFINITY);
        assert_eq!(cut(Vec::new(), all), f64::INFINITY);
    }

    #[test]
    fn what_was_recorded_together_is_one_chance() {
        let all = Least { score: 1.0, share: 1.0 };
        let of = |turn| Counts { together: Some((0, 0, turn)), ..counts(64.0, 126.0, true) };
        let apart: Vec<Counts> = (0..40).map(of).collect();
        assert_eq!(cut(apart.clone(), all), 64.0);
        assert_eq!(cut(vec![of(1); 40], all), f64::INFINITY);
        let mut sum = Sum::default();
        apart.iter().chain(&[of(1)]).for_each(|of| sum.add(of, 0.5));
        assert_eq!((sum.ns, sum.variance), (41.0 * 63.0, 43.0 * 63.0 * 63.0));
        assert_eq!(sum.surely(1.0), 63.0 * (41.0 - 43f64.sqrt()));
    }

    #[test]
    fn a_budget_ends_with_a_share_of_equal_ranges() {
        let all = Least::of(&[(1, 3.0), (1, 2.0)], None);
        assert_eq!([0.9, 1.0, 9.0].map(|score| all.share_of(score)), [0.0, 1.0, 1.0]);
        let wanted = [(1, 9.0), (1, 2.0), (1, 2.0), (2, 2.0), (1, 1.5)];
        let some = Least::of(&wanted[..2], Some(&wanted));
        assert_eq!([1.5, 2.0, 9.0].map(|score| some.share_of(score)), [0.0, 0.25, 1.0]);
        // Where everything was recorded whole, nothing is uncertain.
        let whole = Least::of(&[(1, f64::INFINITY)], Some(&wanted));
        assert_eq!((whole.score, whole.share), (1.0, 1.0));
    }
}
