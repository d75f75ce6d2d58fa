//! Ranges that are slower than their fragments explain, most of them in one, as a probe has measured them: their data is on few dies, or
//! in more flash pages than it needs, because it was overwritten, or written between other data (FAST'24, sections 3.2 and 5.1). What
//! writes them anew in one go cures that. What the fragments themselves cost is not in it: a probe compares with as many requests.
//!
//! A probe has read each part of such a range at once, and knows how much longer that lasts than the drive needs. A read of
//! the whole part loses that much. A shorter one loses less: what is on one die in any case, of the die's granularity, loses
//! nothing, and between the two it is taken to be linear. With `d` reads of programs in flight, the dies of the others have
//! work meanwhile: then of `d` such reads one ends in the time of one divided by `d`, if that is longer than what the model
//! says of reads that are not slow. Not so the windows of a stream: those in flight are of one part, which was measured read at
//! once, so that none ends in less than its share of the part's time.
//!
//! What is lost is kept beside the bills of requests, as ways are ([`crate::ways`]): now, and once ranges have moved. Any
//! move that covers a slow range cures it, whoever has chosen it. What no policy has chosen, and pays for itself, is added
//! ([`with_slow`]).

use crate::choose::{by_file, saved_ns};
use crate::fragments::Bill;
use crate::make::LONGEST_RANGE;
use crate::outlook::Outlook;
use crate::select::gain::bytes;
use crate::select::price::Price;
use crate::select::{Analysed, Candidate, touching, within_budget};
use fragmend_layout::{ByteRange, FileId, Fragment, Layout, PathText};
use std::cmp::Reverse;

/// What a read of at most so many bytes loses nothing in, where the drive's die granularity is not known: a block.
const SMALLEST: u64 = 4096;

/// What a probe has measured of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowFile {
    /// Where it was; its identity counts, not its path.
    pub path: PathText,
    /// Which file.
    pub file: FileId,
    /// Its slow ranges, in file order.
    pub ranges: Vec<SlowRange>,
}

/// A range that is slower than its fragments explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowRange {
    /// Where it is in the file, in bytes.
    pub range: ByteRange,
    /// Where it begins on the device, in bytes, as the file system reports it.
    pub physical: u64,
    /// In how many fragments it is.
    pub fragments: u64,
    /// How long reading all of it lasts, part by part, in nanoseconds.
    pub ns: u64,
    /// How long the drive needs for that, in as many requests.
    pub expected_ns: u64,
    /// Bytes that were read at once.
    pub part_bytes: u64,
    /// The die granularity where that is known, in bytes.
    pub granularity_bytes: Option<u64>,
}

impl SlowRange {
    /// Whether it is still where it was measured, and in as many fragments.
    pub fn is_in(&self, layout: &Layout) -> bool {
        let found: Vec<Fragment> = layout.fragments_within(self.range).collect();
        found.first().is_some_and(|first| first.physical == self.physical)
            && found.len() as u64 == self.fragments
            && found.iter().all(|fragment| fragment.encoded == 0)
            && found.iter().map(|fragment| fragment.range.len()).sum::<u64>() == self.range.len()
    }

    /// The share of so many bytes in the time of parts that are read at once.
    fn share_ns(&self, bytes: u64) -> f64 {
        self.ns as f64 * bytes as f64 / self.range.len().max(1) as f64
    }

    /// Nanoseconds that one read of `bytes` of it loses.
    fn lost_ns(&self, bytes: u64) -> f64 {
        let excess = self.ns.saturating_sub(self.expected_ns) as f64;
        let (part, all) = (self.part_bytes as f64, self.range.len() as f64);
        let of_part = excess * part / all.max(1.0);
        if bytes >= self.part_bytes {
            return of_part * bytes as f64 / part;
        }
        let smallest = self.granularity_bytes.unwrap_or(SMALLEST).min(self.part_bytes / 2);
        of_part * bytes.saturating_sub(smallest) as f64 / (part - smallest as f64)
    }
}

/// What one replay of a file's reads loses in its slow ranges.
#[derive(Debug, Default)]
pub struct Losses {
    losses: Vec<Loss>,
    /// Where each fragment of theirs begins, in the file and on the device, in file order.
    places: Vec<[u64; 2]>,
}

#[derive(Clone, Debug)]
struct Loss {
    at: SlowRange,
    /// From the first byte of it that is read to the last; empty where none is. What moves of the rest cures nothing.
    read: ByteRange,
    /// Nanoseconds of elapsed time that reads of each of its parts lose.
    parts_ns: Vec<f64>,
    /// The same with each read issued when the one before is done.
    alone_ns: f64,
}

impl Loss {
    /// Of a range of which nothing is read.
    fn unread(at: SlowRange) -> Self {
        let read = ByteRange::at(at.range.start, 0);
        let parts_ns = vec![0.0; at.range.len().div_ceil(at.part_bytes) as usize];
        Self { at, read, parts_ns, alone_ns: 0.0 }
    }

    /// Its parts that a range touches, as far as they are read: which ones, and what is read of each.
    fn parts(&self, range: ByteRange) -> impl Iterator<Item = (usize, ByteRange)> + use<> {
        let SlowRange { range: all, part_bytes, .. } = self.at;
        let (touched, read) = (self.read.intersect(range), self.read);
        let first = (touched.start.max(all.start) - all.start) / part_bytes;
        let end = (touched.end.max(all.start) - all.start).div_ceil(part_bytes);
        let part = move |n| ByteRange::at(all.start + n * part_bytes, part_bytes).intersect(read);
        let parts = if touched.is_empty() { 0..0 } else { first..end };
        parts.map(move |n| (n as usize, part(n)))
    }

    /// Nanoseconds that its reads lose.
    fn ns(&self) -> f64 {
        self.parts_ns.iter().sum()
    }

    /// Nanoseconds that its reads lose in a range.
    fn in_range(&self, range: ByteRange) -> f64 {
        let share = |part: ByteRange| part.intersect(range).len() as f64 / part.len().max(1) as f64;
        self.parts(range).map(|(n, part)| self.parts_ns[n] * share(part)).sum()
    }

    /// Adds what a read of `range` loses in it.
    fn lose(&mut self, range: ByteRange, ns: f64) {
        let range = self.at.range.intersect(range);
        for (n, part) in self.parts(range) {
            self.parts_ns[n] += ns * part.intersect(range).len() as f64 / range.len().max(1) as f64;
        }
    }

    /// Adds what a read of `range` touches.
    fn is_read(&mut self, range: ByteRange) {
        let part = self.at.range.intersect(range);
        self.read = if self.read.is_empty() {
            part
        } else {
            ByteRange { start: self.read.start.min(part.start), end: self.read.end.max(part.end) }
        };
    }
}

impl Losses {
    /// Ranges of a file of which nothing is known yet but that they are slow; in file order, without overlap.
    pub fn new(ranges: Vec<SlowRange>, layout: &Layout) -> Self {
        let fragments = ranges.iter().flat_map(|slow| layout.fragments_within(slow.range));
        let places = fragments.map(|f| [f.range.start, f.physical]).collect();
        Self { losses: ranges.into_iter().map(Loss::unread).collect(), places }
    }

    /// Whether no range is slow.
    pub fn is_empty(&self) -> bool {
        self.losses.is_empty()
    }

    /// The first slow range that ends behind `at`, and all after it.
    fn behind(&self, at: u64) -> &[Loss] {
        &self.losses[self.losses.partition_point(|loss| loss.at.range.end <= at)..]
    }

    /// The slow ranges that a range touches.
    fn within(&self, range: ByteRange) -> impl Iterator<Item = &Loss> {
        self.behind(range.start).iter().take_while(move |loss| loss.at.range.start < range.end)
    }

    /// Whether a range touches a slow one.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.within(range).next().is_some()
    }

    /// Nanoseconds of one replay as the file is.
    fn now_ns(&self) -> u128 {
        self.losses.iter().map(|loss| loss.ns().round() as u128).sum()
    }

    /// Nanoseconds of one replay that are lost in a range.
    fn in_range(&self, range: ByteRange) -> u128 {
        self.within(range).map(|loss| loss.in_range(range)).sum::<f64>().round() as u128
    }

    /// Nanoseconds of one replay once `moves` (sorted, disjoint) were written anew.
    pub fn after_ns(&self, moves: &[ByteRange]) -> u128 {
        self.now_ns().saturating_sub(self.cured_ns(moves))
    }

    /// Nanoseconds that one replay lasts less by what `moves` (sorted, disjoint) write anew.
    pub fn cured_ns(&self, moves: &[ByteRange]) -> u128 {
        if self.is_empty() { 0 } else { moves.iter().map(|range| self.in_range(*range)).sum() }
    }

    /// What is lost in a range as it is, and once it was written anew.
    pub fn bills(&self, range: ByteRange) -> [Bill; 2] {
        [Bill::way(self.in_range(range)), Bill::default()]
    }

    /// The outlook of what is lost: nothing, if the ranges were written anew.
    pub fn outlook(&self) -> Outlook {
        let now = Bill::way(self.now_ns());
        let alone: f64 = self.losses.iter().map(|loss| loss.alone_ns).sum();
        Outlook { now, apart_ns: now.ns, alone: [alone.round() as u128, 0], ..Outlook::default() }
    }

    /// Of a range in one fragment that is slow: where it begins on the device, and how many times longer reading it lasts than
    /// the drive needs.
    pub fn of_fragment(&self, range: ByteRange) -> Option<(u64, f64)> {
        let slow = self.within(range).next()?.at;
        // The last fragment that begins before its end is the one that it is in, whichever of the two begins first.
        let last = self.places.partition_point(|[start, _]| *start < range.end).checked_sub(1)?;
        let [start, physical] = self.places[last];
        let physical = (physical + range.start).checked_sub(start)?;
        Some((physical, slow.ns as f64 / slow.expected_ns.max(1) as f64))
    }
}

/// What the requests of an analysed file lose in its slow ranges.
pub fn weigh(file: &Analysed) -> Losses {
    let mut losses: Vec<Loss> = file.slow.losses.iter().map(|loss| Loss::unread(loss.at)).collect();
    let ranges: Vec<ByteRange> = losses.iter().map(|loss| loss.at.range).collect();
    let fetched = touching(&file.requests, &ranges).filter(|r| r.fetches > 0);
    let (mut clock, mut alone) = (file.costs.clock(), file.costs.clock_alone());
    // Beside streams, other reads are alone.
    let depth = if file.costs.streams.is_some() { 1.0 } else { file.costs.depth.max(1.0) };
    file.fragments.each_split(fetched, file.limits.max_request, |r, split| {
        let often = r.fetches as f64;
        let first = losses.partition_point(|loss| loss.at.range.end <= r.range.start);
        let many = losses[first..].iter().take_while(|l| l.at.range.start < r.range.end).count();
        let touched = &mut losses[first..first + many];
        touched.iter_mut().for_each(|loss| loss.is_read(r.range));
        let bytes = |loss: &Loss| loss.at.range.intersect(r.range).len();
        let lost: f64 = touched.iter().map(|loss| loss.at.lost_ns(bytes(loss))).sum();
        if lost <= 0.0 {
            return;
        }
        let now_ns = clock.read_ns(split);
        let together = if clock.is_of_stream(split) {
            let slow: u64 = touched.iter().map(bytes).sum();
            let share: f64 = touched.iter().map(|loss| loss.at.share_ns(bytes(loss))).sum();
            (share - now_ns * slow as f64 / split.bytes.max(1) as f64).max(0.0)
        } else {
            ((alone.read_ns(split) + lost) / depth - now_ns).clamp(0.0, lost)
        };
        for loss in touched {
            let ns = loss.at.lost_ns(bytes(loss)) * often;
            loss.alone_ns += ns;
            loss.lose(r.range, ns * together / lost);
        }
    });
    Losses { losses, places: file.slow.places.clone() }
}

/// The slow ranges of all files that `chosen` does not write anew, and that save this price.
pub fn worth(
    files: &[Analysed],
    chosen: &[Candidate],
    price: impl Fn(&Analysed) -> Price,
) -> Vec<Candidate> {
    let moves = by_file(files.len(), chosen);
    let mut all = Vec::new();
    for (index, (file, moves)) in files.iter().zip(&moves).enumerate() {
        let more = left(file, moves);
        if more.is_empty() {
            continue;
        }
        let mut both: Vec<ByteRange> = moves.iter().chain(&more).copied().collect();
        both.sort_unstable();
        for (range, [now, then]) in both.iter().zip(file.bills(&both)) {
            let pays = price(file).is_worth(range.len(), now.ns.saturating_sub(then.ns));
            if pays && more.binary_search(range).is_ok() {
                all.push(Candidate { file: index, range: *range });
            }
        }
    }
    all
}

/// What of a file's slow ranges is read, may move and is in none of `moves` (sorted, disjoint), as short as it is planned: a
/// budget may have space for a part.
fn left(file: &Analysed, moves: &[ByteRange]) -> Vec<ByteRange> {
    let mut left = Vec::new();
    let read = file.slow.losses.iter().filter(|loss| !loss.read.is_empty());
    for slow in read.map(|loss| loss.read.align_outward(file.block)) {
        let first = file.runs.partition_point(|run| run.end <= slow.start);
        for run in file.runs[first..].iter().take_while(|run| run.start < slow.end) {
            let mut rest = run.intersect(slow);
            let next = moves.partition_point(|m| m.end <= rest.start);
            for m in moves[next..].iter().take_while(|m| m.start < slow.end) {
                left.push(ByteRange { end: m.start.min(rest.end), ..rest });
                rest.start = rest.start.max(m.end);
            }
            left.push(rest);
        }
    }
    left.into_iter().flat_map(|range| range.steps(LONGEST_RANGE)).collect()
}

/// What a policy has chosen within the budget, with the slow ranges that are worth the price of their device. Where not all fits, what
/// saves most for its bytes comes first; or first what was chosen, if more is saved so.
pub fn with_slow(
    files: &[Analysed],
    mut chosen: Vec<Candidate>,
    budget: Option<u64>,
) -> Vec<Candidate> {
    if files.iter().all(|file| file.slow.is_empty()) {
        return chosen;
    }
    let mut slow = worth(files, &chosen, |file| file.costs.price);
    if budget.is_none_or(|budget| bytes(&chosen) + bytes(&slow) <= budget) {
        chosen.append(&mut slow);
        return chosen;
    }
    let place = |c: &Candidate| (c.file, c.range);
    let is_slow = |c: &Candidate| slow.binary_search_by_key(&place(c), place).is_ok();
    let all: Vec<Candidate> = chosen.iter().chain(&slow).copied().collect();
    let mut saved = Vec::with_capacity(all.len());
    for (index, (file, moves)) in files.iter().zip(by_file(files.len(), &all)).enumerate() {
        for (range, [now, then]) in moves.iter().zip(file.bills(&moves)) {
            let ns = now.ns.saturating_sub(then.ns);
            let per_gib = (ns << 30) / u128::from(range.len().max(1));
            saved.push((Reverse(per_gib), Candidate { file: index, range: *range }));
        }
    }
    saved.sort_unstable_by_key(|(saved, c)| (*saved, c.file, c.range));
    let densest: Vec<Candidate> = saved.into_iter().map(|(_, c)| c).collect();
    let rest = densest.iter().copied().filter(is_slow);
    let chosen_first = within_budget(chosen.into_iter().chain(rest).collect(), budget);
    let densest_first = within_budget(densest, budget);
    let saved = |moves: &[Candidate]| saved_ns(files, moves);
    if saved(&chosen_first) > saved(&densest_first) { chosen_first } else { densest_first }
}
