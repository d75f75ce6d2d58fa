//! Of a recording of a part of all places at a time: which of the ranges that were chosen by their counts pay for themselves,
//! and what they save.
//!
//! A range that was recorded in two turns at a rate of 1/64 counts as 128 reads, though it may have been read twice. The sum over
//! all ranges is right; but a choice by such counts takes those that are too large by chance, and what they save by their counts
//! is too much. So each turn is judged by the others: what was recorded in it counts in full only if its range would have been
//! chosen without it, and as often as it was recorded otherwise. That is without bias, because what was recorded in other turns
//! says nothing of whether this one was: let a range save `s_i` in turn `i`, which is recorded with the probability `p_i`, and let
//! `C` be whether it is chosen. In turns that were not recorded, it then saves the sum over `i` of `(1 - p_i) * s_i` times the
//! probability of `C` without `i`; and that is the expected sum, over the turns that were recorded, of `(1 / p_i - 1) * s_i` where
//! `C` holds without `i`. (Where everything that was seen is chosen, that is Good's estimate, [`crate::turns`].)
//!
//! By that, a choice may save less than its price. So the ranges are cut at a *score*, what a range saves by its counts for its
//! price: of all scores from 1 on, the one above which they save most beyond their price, two standard errors below the estimate.
//! Where most ranges were read twice and do not pay, that is none of them, though some count as 128 reads; where each was read
//! often, it is all of them. With a budget, a range is chosen if its score is above that of the last one that fits; of those that
//! have the same score as this one, a share is.

use crate::choose::by_file;
use crate::fragments::{Bill, Fragments};
use crate::parallel;
use crate::select::bills::touched_by;
use crate::select::{Analysed, Candidate, touching};
use crate::turns;
use fragmend_layout::{ByteRange, Recorded};
use std::collections::BTreeMap;

/// How many standard errors below its estimate a choice is judged.
const ERRORS: f64 = 2.0;
/// A request that touches more ranges than this counts for none of them: a trace may have any number of long requests.
const MOST_RANGES: usize = 64;

/// A chosen range of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    /// What it saves by all counts, in nanoseconds.
    saves_ns: f64,
    /// The part of it that was recorded in many turns, for each of them at most.
    many_ns: f64,
    /// What it saves by what was recorded alone.
    recorded_ns: f64,
    price_ns: f64,
    /// Whether it stands for others that were not recorded.
    is_estimate: bool,
}

impl Range {
    /// What it saves for its price if so much of it is left out. What was recorded whole is no matter of chance.
    fn score_without(&self, ns: f64) -> f64 {
        if self.is_estimate { (self.saves_ns - ns) / self.price_ns.max(1.0) } else { f64::INFINITY }
    }
}

/// What was recorded of a range in one turn.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Index of the range, and of the part.
    range: usize,
    part: usize,
    turn: u32,
    /// What it saves by its count, in nanoseconds, and the part of this by others than those that were recorded.
    saves_ns: f64,
    others_ns: f64,
    /// If it was recorded in many turns, what those of one save at most.
    most_ns: f64,
    /// Ranges that its request touches.
    ranges: usize,
}

/// What one file's chosen ranges come to.
#[derive(Debug, Default)]
struct Judged {
    ranges: Vec<Range>,
    /// Of each part that touches one of them: its index, and the score of its range without its turn; ascending.
    parts: Vec<(usize, f64)>,
    counts: Vec<Counts>,
}

/// What counts if the cut is not above a score.
#[derive(Clone, Copy, Debug)]
struct Counts {
    score: f64,
    /// Nanoseconds saved beyond the price, and their variance.
    ns: f64,
    variance: f64,
    /// Whether it is by what was not recorded.
    is_of_others: bool,
}

/// How much counts of what the parts of a file's requests stand for.
#[derive(Debug, Default)]
pub struct Counted {
    parts: Vec<(usize, f64)>,
}

impl Counted {
    /// The share that counts of what was not recorded of a part, by its index; `None` if it touches no range that was chosen.
    pub fn of(&self, part: usize) -> Option<f64> {
        let at = self.parts.binary_search_by_key(&part, |(index, _)| *index).ok()?;
        Some(self.parts[at].1)
    }
}

/// Where a choice ends: above a score all is chosen, and of what has this score a share.
#[derive(Clone, Copy, Debug)]
struct Least {
    score: f64,
    share: f64,
}

impl Least {
    /// That of a choice of these ranges of the `wanted` ones, each with its bytes and its score; all that pay are chosen if
    /// nothing else was wanted.
    fn of(chosen: &[(u64, f64)], wanted: Option<&[(u64, f64)]>) -> Self {
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
    fn share_of(self, score: f64) -> f64 {
        if score > self.score * (1.0 + 1e-6) {
            1.0
        } else if score < self.score * (1.0 - 1e-6) {
            0.0
        } else {
            self.share
        }
    }
}

/// How a choice was made, and is judged.
#[derive(Debug)]
pub struct How {
    /// Whether by what ranges save for their price. If not, all of it is kept.
    pub by_savings: bool,
    /// What would have been chosen by that without a budget, if there was one.
    pub wanted: Option<Vec<Candidate>>,
    /// How often the windows were asked for at least from which it was chosen: 0 if any were.
    pub least_heat: u64,
}

/// What a choice comes to.
#[derive(Debug, Default)]
pub struct Pays {
    /// The ranges of each file that pay for themselves, ascending.
    pub moves: Vec<Vec<ByteRange>>,
    /// How much of what was recorded of each file counts.
    pub counted: Vec<Counted>,
    /// Nanoseconds that they save in turns that were not recorded, and the variance of that.
    pub others_ns: f64,
    pub variance: f64,
}

/// Those of the chosen ranges that pay for themselves, and how much counts of what was recorded of them. What is promised of
/// turns that were not recorded is scaled by `scale`, from 0 to 1; by 0, nothing is kept that was chosen by that.
pub fn those_that_pay(files: &[Analysed], chosen: Vec<Candidate>, how: How, scale: f64) -> Pays {
    let judge_all = |chosen: &[Candidate]| {
        let moves = by_file(files.len(), chosen);
        let judged = parallel::map(files.len(), |i| judge(&files[i], &moves[i], how.least_heat));
        (moves, judged)
    };
    let scores = |moves: &[Vec<ByteRange>], judged: &[Judged]| -> Vec<(u64, f64)> {
        let ranges = moves.iter().flatten().zip(judged.iter().flat_map(|file| &file.ranges));
        ranges.map(|(range, judged)| (range.len(), judged.score_without(0.0))).collect()
    };
    let (moves, judged) = judge_all(&chosen);
    let counts = || judged.iter().flat_map(|file| &file.counts).copied();
    let (least, cut) = if how.by_savings {
        let wanted = how.wanted.as_ref().map(|wanted| judge_all(wanted));
        let wanted = wanted.map(|(moves, judged)| scores(&moves, &judged));
        let least = Least::of(&scores(&moves, &judged), wanted.as_deref());
        let cut = if scale > 0.0 { cut(counts().collect(), least, scale) } else { f64::INFINITY };
        (least, cut)
    } else {
        // What was recorded in another turn as well counts in full.
        (Least { score: f64::MIN_POSITIVE, share: 1.0 }, f64::MIN_POSITIVE)
    };
    let share = |score: f64| if score >= cut { least.share_of(score) * scale } else { 0.0 };
    let mut pays = Pays::default();
    for of in counts().filter(|of| of.is_of_others) {
        pays.others_ns += of.ns * share(of.score);
        pays.variance += of.variance * share(of.score).powi(2);
    }
    for (moves, file) in moves.iter().zip(&judged) {
        let kept = moves.iter().zip(&file.ranges);
        let kept = kept.filter(|(_, range)| !how.by_savings || range.score_without(0.0) >= cut);
        pays.moves.push(kept.map(|(range, _)| *range).collect());
        let parts = file.parts.iter().map(|(part, score)| (*part, share(*score)));
        pays.counted.push(Counted { parts: parts.collect() });
    }
    pays
}

/// The score from `least` on above which most is saved, some standard errors below the estimate; above all if that is nothing.
fn cut(mut counts: Vec<Counts>, least: Least, scale: f64) -> f64 {
    counts.sort_unstable_by(|a, b| b.score.total_cmp(&a.score));
    let (mut best, mut cut) = (0.0, f64::INFINITY);
    let (mut sum, mut variance) = (0.0, 0.0);
    let equal = counts.chunk_by(|a, b| a.score == b.score);
    for equal in equal.take_while(|equal| equal[0].score >= least.score) {
        for of in equal {
            let share = if of.is_of_others { least.share_of(of.score) * scale } else { 1.0 };
            (sum, variance) = (sum + of.ns * share, variance + of.variance * share * share);
        }
        let surely = sum - ERRORS * f64::sqrt(variance);
        // What was recorded whole is chosen in any case.
        if surely > best || equal[0].score == f64::INFINITY {
            (best, cut) = (surely, equal[0].score);
        }
    }
    cut
}

/// What these ranges (sorted, disjoint) of a file come to, of windows that were asked for as often as `least_heat`.
fn judge(file: &Analysed, moves: &[ByteRange], least_heat: u64) -> Judged {
    if moves.is_empty() {
        return Judged::default();
    }
    let (mut ranges, shares) = shares(file, moves);
    for share in &shares {
        let range = &mut ranges[share.range];
        range.is_estimate |= share.others_ns != 0.0;
        range.many_ns += share.most_ns.max(0.0);
    }
    let mut judged = Judged::default();
    let heats = (least_heat > 0).then(|| Heats::of(file));
    for of_turn in shares.chunk_by(|a, b| (a.range, a.turn) == (b.range, b.turn)) {
        let range = &ranges[of_turn[0].range];
        let alone = of_turn[0].turn != Recorded::MANY;
        let sum: f64 = of_turn.iter().map(|share| share.saves_ns).sum();
        let without = range.score_without(range.many_ns + if alone { sum } else { 0.0 });
        let is_hot = heats.as_ref().is_none_or(|heats| {
            of_turn.iter().all(|share| heats.without(file, share.part) > least_heat)
        });
        let score = if is_hot { without.min(range.score_without(0.0)) } else { 0.0 };
        let (mut others, mut variance) = (0.0, 0.0);
        for share in of_turn {
            let own = share.others_ns / share.ranges as f64;
            others += own;
            // As if each turn had the most of one.
            variance += own * share.most_ns / share.ranges as f64;
            judged.parts.push((share.part, score));
        }
        let variance = if alone { others * others } else { variance };
        judged.counts.push(Counts { score, ns: others, variance, is_of_others: true });
    }
    // Of a request that touches several ranges, the least score of them.
    judged.parts.sort_unstable_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).expect("no NaN"));
    judged.parts.dedup_by_key(|(part, _)| *part);
    let own = |range: &Range| Counts {
        score: range.score_without(0.0),
        ns: range.recorded_ns - range.price_ns,
        variance: 0.0,
        is_of_others: false,
    };
    judged.counts.extend(ranges.iter().map(own));
    judged.ranges = ranges;
    judged
}

/// How often windows were asked for in single turns.
struct Heats {
    /// By window and turn.
    of: BTreeMap<(usize, u32), u64>,
}

impl Heats {
    fn of(file: &Analysed) -> Self {
        let mut of: BTreeMap<(usize, u32), u64> = BTreeMap::new();
        for part in file.turns.iter().filter(|part| part.is_heat) {
            let Recorded { turn, most, .. } = part.recorded;
            let count = if turn == Recorded::MANY { most } else { part.count };
            *of.entry((file.window_at(part.range.start), turn)).or_default() += u64::from(count);
        }
        Self { of }
    }

    /// How often the window of a part was asked for without its turn, and without the heaviest of many.
    fn without(&self, file: &Analysed, part: usize) -> u64 {
        let part = &file.turns[part];
        let (window, turn) = (file.window_at(part.range.start), part.recorded.turn);
        let of = |turn| self.of.get(&(window, turn)).copied().unwrap_or_default();
        let many = of(Recorded::MANY);
        let own = if turn == Recorded::MANY { many } else { many + of(turn) };
        file.windows.get(window).map_or(0, |window| window.seen.saturating_sub(own))
    }
}

/// What each of these ranges saves, and by what of it was recorded in which turn; by range and turn.
fn shares(file: &Analysed, moves: &[ByteRange]) -> (Vec<Range>, Vec<Share>) {
    let price = |range: &ByteRange| file.costs.price.of(range.len()) as f64;
    let range = |range| Range { price_ns: price(range), ..Range::default() };
    let mut ranges: Vec<Range> = moves.iter().map(range).collect();
    let touched: Vec<usize> = {
        let all = file.requests.iter().enumerate();
        let is_touched = |request: &ByteRange| !touched_by(moves, *request).is_empty();
        all.filter(|(_, r)| r.fetches > 0 && is_touched(&r.range)).map(|(i, _)| i).collect()
    };
    let saved = saved_by_each(file, moves);
    let mut shares = Vec::new();
    // Of long requests, by the range: one more than before.
    let mut more = vec![0isize; moves.len() + 1];
    for (&index, &ns) in touched.iter().zip(&saved) {
        let request = &file.requests[index];
        let touched = touched_by(moves, request.range);
        let many = touched.len();
        if many > MOST_RANGES {
            (more[touched.start], more[touched.end]) =
                (more[touched.start] + 1, more[touched.end] - 1);
            continue;
        }
        let all = ns * request.fetches as f64;
        for range in &mut ranges[touched] {
            range.saves_ns += all;
            range.recorded_ns += all / many as f64;
        }
    }
    let mut long = 0;
    for (range, more) in ranges.iter_mut().zip(more) {
        long += more;
        range.is_estimate = long > 0;
    }
    let of_requests = touched.iter().enumerate().map(|(n, &index)| (n, file.requests[index].range));
    turns::each(of_requests, &file.turns, |n, numbers, parts| {
        let touched = touched_by(moves, file.requests[touched[n]].range);
        let many = touched.len();
        if many > MOST_RANGES {
            return;
        }
        for (part, of) in numbers.zip(parts) {
            let most = if of.recorded.turn == Recorded::MANY { of.recorded.most } else { 0 };
            let [saves_ns, others_ns, most_ns] =
                [of.count, of.others(), most].map(|count| saved[n] * f64::from(count));
            for range in touched.clone() {
                ranges[range].recorded_ns -= others_ns / many as f64;
                let (turn, ranges) = (of.recorded.turn, many);
                shares.push(Share { range, part, turn, saves_ns, others_ns, most_ns, ranges });
            }
        }
    });
    add_slow(file, moves, &mut ranges, &mut shares);
    shares.sort_unstable_by_key(|share| (share.range, share.turn, share.part));
    (ranges, shares)
}

/// The nanoseconds that each request that touches `moves` lasts less once these are contiguous; below zero if more.
fn saved_by_each(file: &Analysed, moves: &[ByteRange]) -> Vec<f64> {
    let (limit, mut clock) = (file.limits.max_request, file.costs.clock());
    let mut ns = |fragments: &Fragments| -> Vec<f64> {
        let touched = touching(&file.requests, moves).filter(|r| r.fetches > 0);
        let mut all = Vec::new();
        fragments.each_split(touched, limit, |_, split| {
            all.push(Bill::of(split, 1, &mut clock).ns as f64);
        });
        all
    };
    let (before, after) = (ns(&file.fragments), ns(&file.fragments_after(moves)));
    before.iter().zip(after).map(|(before, after)| before - after).collect()
}

/// The nanoseconds that `moves` of a file save in all turns by their counts, and the variance of that.
pub fn saved_by_turns(file: &Analysed, moves: &[ByteRange]) -> (f64, f64) {
    if moves.is_empty() {
        return (0.0, 0.0);
    }
    let touched: Vec<ByteRange> =
        touching(&file.requests, moves).filter(|r| r.fetches > 0).map(|r| r.range).collect();
    let saved = saved_by_each(file, moves);
    let mut by_turn: BTreeMap<u32, f64> = BTreeMap::new();
    let mut variance = 0.0;
    turns::each(touched.iter().copied().enumerate(), &file.turns, |n, _, parts| {
        for part in parts {
            let ns = saved[n] * f64::from(part.count);
            *by_turn.entry(part.recorded.turn).or_default() += ns;
            if part.recorded.turn == Recorded::MANY {
                variance += ns * saved[n] * f64::from(part.recorded.most);
            }
        }
    });
    let sum = by_turn.values().sum::<f64>() + file.slow.cured_ns(moves) as f64;
    by_turn.remove(&Recorded::MANY);
    variance += by_turn.values().map(|ns| ns * ns).sum::<f64>();
    (sum, variance)
}

/// Adds what is lost in ranges that are in one fragment and slow, to each request by the bytes that it has of the range.
fn add_slow(file: &Analysed, moves: &[ByteRange], ranges: &mut [Range], shares: &mut [Share]) {
    if file.slow.is_empty() {
        return;
    }
    let lost: Vec<f64> = moves.iter().map(|m| file.slow.bills(*m)[0].ns as f64).collect();
    let mut bytes = vec![0.0; moves.len()];
    for request in touching(&file.requests, moves) {
        for range in touched_by(moves, request.range).take(MOST_RANGES) {
            let own = request.range.intersect(moves[range]).len();
            bytes[range] += own as f64 * request.fetches as f64;
        }
    }
    for (range, lost) in ranges.iter_mut().zip(&lost) {
        range.saves_ns += lost;
        range.recorded_ns += lost;
    }
    for share in shares {
        let part = &file.turns[share.part];
        let own = part.range.intersect(moves[share.range]).len() as f64;
        let each = lost[share.range] * own / f64::max(bytes[share.range], 1.0);
        share.saves_ns += each * f64::from(part.count);
        if share.turn == Recorded::MANY {
            share.most_ns += each * f64::from(part.recorded.most);
        }
        let others = each * f64::from(part.others());
        share.others_ns += others * share.ranges as f64;
        ranges[share.range].recorded_ns -= others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(score: f64, ns: f64, is_of_others: bool) -> Counts {
        let variance = if is_of_others { ns * ns } else { 0.0 };
        Counts { score, ns, variance, is_of_others }
    }

    #[test]
    fn the_cut_is_where_most_is_saved_for_certain() {
        let all = Least { score: 1.0, share: 1.0 };
        // Ranges that were seen once do not pay for themselves, and of one alone that was seen twice nothing is certain.
        let seen_once = [counts(64.0, -2.0, false); 100];
        let chance = [counts(128.0, -1.0, false), counts(64.0, 126.0, true)];
        assert_eq!(cut([&seen_once[..], &chance].concat(), all, 1.0), f64::INFINITY);
        // Many that were seen again outweigh the others; those below the least score count for nothing.
        let again = [counts(64.0, 126.0, true); 40];
        assert_eq!(cut([&seen_once[..], &again].concat(), all, 1.0), 64.0);
        let above = Least { score: 100.0, share: 1.0 };
        assert_eq!(cut([&seen_once[..], &again].concat(), above, 1.0), f64::INFINITY);
        // Of what has the score of the last one that fits, a share.
        let last = Least { score: 64.0, share: 0.01 };
        assert_eq!(cut([&seen_once[..], &again].concat(), last, 1.0), f64::INFINITY);
        // What was recorded whole is chosen in any case.
        assert_eq!(cut(vec![counts(f64::INFINITY, -1.0, false)], all, 1.0), f64::INFINITY);
        assert_eq!(cut(Vec::new(), all, 1.0), f64::INFINITY);
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
