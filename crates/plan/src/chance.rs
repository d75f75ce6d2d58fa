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
use crate::cut::{Counts, Least, Sum, cut};
use crate::fragments::{Bill, Fragments};
use crate::heat::{Heats, Rival};
use crate::parallel;
use crate::select::bills::touched_by;
use crate::select::{Analysed, Candidate, touching};
use crate::turns;
use fragmend_layout::{ByteRange, Recorded};

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

/// What is left of a choice without a turn.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Without {
    /// The score of the range.
    score: f64,
    /// How certainly its window is hot enough.
    hot: f64,
}

/// What one file's chosen ranges come to.
#[derive(Debug, Default)]
struct Judged {
    ranges: Vec<Range>,
    /// Of each part that touches one of them: its index, and what of it counts; ascending.
    parts: Vec<(usize, Without)>,
    counts: Vec<Counts>,
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

/// How a choice was made, and is judged.
#[derive(Debug)]
pub struct How {
    /// Whether by what ranges save for their price. If not, all of it is kept.
    pub by_savings: bool,
    /// What would have been chosen by that without a budget, if there was one.
    pub wanted: Option<Vec<Candidate>>,
    /// The hottest window that was not chosen because others are hotter.
    pub rival: Option<Rival>,
    /// Bytes of a place, all of which is recorded in the same turns.
    pub place_bytes: u64,
}

/// What a choice comes to.
#[derive(Debug, Default)]
pub struct Pays {
    /// The ranges of each file that pay for themselves, ascending.
    pub moves: Vec<Vec<ByteRange>>,
    /// How much of what was recorded of each file counts.
    pub counted: Vec<Counted>,
    /// Of each file, what they save in turns that were not recorded.
    pub others: Vec<Estimate>,
}

/// An estimate in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    pub ns: f64,
    pub variance: f64,
}

impl From<Sum> for Estimate {
    fn from(sum: Sum) -> Self {
        Self { ns: sum.ns, variance: sum.variance.max(0.0) }
    }
}

/// Those of the chosen ranges that pay for themselves, and how much counts of what was recorded of them. What is promised of
/// turns that were not recorded is scaled by that of its file in `scales`, from 0 to 1; if that is `None`, nothing of the file is
/// kept that was chosen by that.
pub fn those_that_pay(
    files: &[Analysed],
    chosen: Vec<Candidate>,
    how: How,
    scales: &[Option<f64>],
) -> Pays {
    let judge_all = |chosen: &[Candidate]| {
        let moves = by_file(files.len(), chosen);
        let judged = parallel::map(files.len(), |i| judge(i, &files[i], &moves[i], &how));
        (moves, judged)
    };
    let scores = |moves: &[Vec<ByteRange>], judged: &[Judged]| -> Vec<(u64, f64)> {
        let ranges = moves.iter().flatten().zip(judged.iter().flat_map(|file| &file.ranges));
        ranges.map(|(range, judged)| (range.len(), judged.score_without(0.0))).collect()
    };
    let (moves, judged) = judge_all(&chosen);
    let (least, end) = if how.by_savings {
        let wanted = how.wanted.as_ref().map(|wanted| judge_all(wanted));
        let wanted = wanted.map(|(moves, judged)| scores(&moves, &judged));
        let least = Least::of(&scores(&moves, &judged), wanted.as_deref());
        let counts = judged.iter().zip(scales).flat_map(|(file, scale)| file.counts_by(*scale));
        (least, cut(counts.collect(), least))
    } else {
        // What was recorded in another turn as well counts in full.
        (Least { score: f64::MIN_POSITIVE, share: 1.0 }, f64::MIN_POSITIVE)
    };
    let mut pays = Pays::default();
    for ((moves, file), &scale) in moves.iter().zip(&judged).zip(scales) {
        let end = if how.by_savings && scale.is_none() { f64::INFINITY } else { end };
        let scale = scale.unwrap_or_default();
        let share = |score: f64| if score >= end { least.share_of(score) * scale } else { 0.0 };
        let mut others = Sum::default();
        for of in file.counts.iter().filter(|of| of.is_of_others) {
            others.add(of, share(of.score));
        }
        pays.others.push(others.into());
        let kept = moves.iter().zip(&file.ranges);
        let kept = kept.filter(|(_, range)| !how.by_savings || range.score_without(0.0) >= end);
        pays.moves.push(kept.map(|(range, _)| *range).collect());
        let parts = file.parts.iter().map(|(part, of)| (*part, share(of.score) * of.hot));
        pays.counted.push(Counted { parts: parts.collect() });
    }
    pays
}

impl Judged {
    /// What counts if the turns that were not recorded count so much; `None` if the file is left as it is but for what was recorded
    /// whole.
    fn counts_by(&self, scale: Option<f64>) -> impl Iterator<Item = Counts> {
        let is_left = scale.is_none();
        let scale = scale.unwrap_or_default();
        let counts = self.counts.iter().filter(move |of| !is_left || of.score == f64::INFINITY);
        counts.map(move |of| match of.is_of_others {
            true => Counts { ns: of.ns * scale, variance: of.variance * scale * scale, ..*of },
            false => *of,
        })
    }
}

/// What these ranges (sorted, disjoint) of the file with this index come to.
fn judge(index: usize, file: &Analysed, moves: &[ByteRange], how: &How) -> Judged {
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
    let heats = how.rival.map(|rival| Heats::of(file, rival));
    let place = |share: &Share| file.turns[share.part].range.start / how.place_bytes;
    for of_turn in shares.chunk_by(|a, b| (a.range, a.turn) == (b.range, b.turn)) {
        let (range, turn) = (&ranges[of_turn[0].range], of_turn[0].turn);
        let alone = turn != Recorded::MANY;
        let sum: f64 = of_turn.iter().map(|share| share.saves_ns).sum();
        let without = range.score_without(range.many_ns + if alone { sum } else { 0.0 });
        let score = without.min(range.score_without(0.0));
        let hot = heats.as_ref().map_or(1.0, |heats| {
            let of_each = of_turn.iter().map(|share| heats.share_without(file, share.part));
            of_each.fold(1.0, f64::min)
        });
        judged.parts.extend(of_turn.iter().map(|share| (share.part, Without { score, hot })));
        for of_place in of_turn.chunk_by(|a, b| place(a) == place(b)) {
            let (mut ns, mut variance) = (0.0, 0.0);
            for share in of_place {
                let own = share.others_ns / share.ranges as f64 * hot;
                ns += own;
                // As if each turn had the most of one.
                variance += own * share.most_ns / share.ranges as f64;
            }
            let together = alone.then(|| (index, place(&of_place[0]), turn));
            judged.counts.push(Counts { score, ns, together, variance, is_of_others: true });
        }
    }
    // Of a request that touches several ranges, the least score of them.
    judged.parts.sort_unstable_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    judged.parts.dedup_by_key(|(part, _)| *part);
    let own = |range: &Range| Counts {
        score: range.score_without(0.0),
        ns: range.recorded_ns - range.price_ns,
        together: None,
        variance: 0.0,
        is_of_others: false,
    };
    judged.counts.extend(ranges.iter().map(own));
    judged.ranges = ranges;
    judged
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

/// What `moves` of a file save in all turns by their counts.
pub fn saved_by_turns(file: &Analysed, moves: &[ByteRange], place_bytes: u64) -> Estimate {
    if moves.is_empty() {
        return Estimate::default();
    }
    let touched: Vec<ByteRange> =
        touching(&file.requests, moves).filter(|r| r.fetches > 0).map(|r| r.range).collect();
    let saved = saved_by_each(file, moves);
    let mut sum = Sum::default();
    turns::each(touched.iter().copied().enumerate(), &file.turns, |n, _, parts| {
        for part in parts {
            let (ns, turn) = (saved[n] * f64::from(part.count), part.recorded.turn);
            let alone = turn != Recorded::MANY;
            let together = alone.then(|| (0, part.range.start / place_bytes, turn));
            let variance = ns * saved[n] * f64::from(part.recorded.most);
            let is_of_others = true;
            sum.add(&Counts { score: 0.0, ns, together, variance, is_of_others }, 1.0);
        }
    });
    sum.ns += file.slow.cured_ns(moves) as f64;
    sum.into()
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
