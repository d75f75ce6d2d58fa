//! The ranges that a policy wants, within the budget.
//!
//! `gain` chooses by the weights of breaks, which are exact only where time is linear in breaks. So what it has chosen
//! is judged by the costs themselves: ranges that do not save their price after all are left out, and the rest is
//! compared with what FragPicker's policy saves with the same bytes, and with the same budget. The better one is the
//! plan's, so that `gain` never saves less time for the same bytes. On a device that seeks, all of a file is compared too, and
//! all of all files that may pay for themselves.

use crate::between::Between;
use crate::input::{Policy, Settings};
use crate::make::LONGEST_RANGE;
use crate::parallel;
use crate::select::gain::{self, bytes};
use crate::select::price::Price;
use crate::select::{self, Analysed, Candidate};
use fragmend_layout::ByteRange;

/// The chosen candidates.
pub fn choose(files: &[Analysed], between: &Between, settings: &Settings) -> Vec<Candidate> {
    let budget = settings.budget_bytes;
    let all = match settings.policy {
        Policy::Gain => return most_time(files, between, budget),
        Policy::WholeFile => select::whole_file::choose(files),
        Policy::Bypass => select::bypass::choose(files),
        Policy::Fragpicker => select::fragpicker::choose(files),
        Policy::Iodp => select::iodp::choose(files, settings.truncated()).0,
        // Chosen by the segments' tables, before files are analysed.
        Policy::Segments => Vec::new(),
    };
    select::within_budget(all, budget)
}

/// The ranges that save the most time beyond their price.
fn most_time(files: &[Analysed], between: &Between, budget: Option<u64>) -> Vec<Candidate> {
    let ours = proved(files, gain::choose(files, budget));
    let windows = select::fragpicker::choose(files);
    let same_bytes = select::within_budget(windows.clone(), Some(bytes(&ours)));
    let same_budget = select::within_budget(windows, budget);
    let beyond =
        |chosen: &[Candidate]| beyond_price(files, chosen) + between.saved_ns(files, chosen);
    let mut best = (beyond(&ours), ours);
    let whole = or_whole(files, &best.1, |file| file.costs.price);
    let whole = whole.map(|whole| select::within_budget(whole, budget));
    let all = (!between.is_empty())
        .then(|| select::within_budget(or_all(files, between, &best.1), budget));
    for theirs in [Some(same_bytes), Some(same_budget), whole, all].into_iter().flatten() {
        let saved = beyond(&theirs);
        if saved > best.0 {
            best = (saved, theirs);
        }
    }
    best.1
}

/// The same ranges, but all of each file where that saves more beyond this price by the ways between its reads: weights of
/// breaks say nothing of how far apart ranges are. `None` where there are no ways.
pub fn or_whole(
    files: &[Analysed],
    chosen: &[Candidate],
    price: impl Fn(&Analysed) -> Price + Sync,
) -> Option<Vec<Candidate>> {
    if files.iter().all(|file| file.ways.is_empty()) {
        return None;
    }
    let mut whole = select::whole_file::choose(files);
    whole.retain(|c| !files[c.file].ways.is_empty());
    let (some, whole) = (by_file(files.len(), chosen), by_file(files.len(), &whole));
    let better = |i: usize| {
        let (some, all) = (&some[i], &whole[i]);
        let beyond = |moves: &[ByteRange]| files[i].beyond(moves, price(&files[i]));
        let better = if !all.is_empty() && beyond(all) > beyond(some) { all } else { some };
        better.clone()
    };
    Some(candidates(parallel::map(files.len(), better)))
}

/// All of all files that were read, so that no way leads from what has moved to what has not. Of files whose bytes cost more than
/// what their reads, and all ways to and from them, could save, what was chosen.
fn or_all(files: &[Analysed], between: &Between, chosen: &[Candidate]) -> Vec<Candidate> {
    let mut all = select::whole_file::choose(files);
    all.retain(|c| !files[c.file].requests.is_empty());
    let (some, whole) = (by_file(files.len(), chosen), by_file(files.len(), &all));
    let most_ns = between.most_ns(files);
    let pays = |i: usize| {
        let beyond = |moves: &[ByteRange]| files[i].beyond(moves, files[i].costs.price);
        beyond(&whole[i]) + most_ns[i] as i128 > beyond(&some[i])
    };
    let pays = parallel::map(files.len(), pays);
    all.retain(|c| pays[c.file]);
    all.extend(chosen.iter().filter(|c| !pays[c.file]));
    all
}

/// The ranges of each file, in file order.
pub fn by_file(files: usize, chosen: &[Candidate]) -> Vec<Vec<ByteRange>> {
    let mut ranges: Vec<Vec<ByteRange>> = vec![Vec::new(); files];
    chosen.iter().for_each(|c| ranges[c.file].push(c.range));
    ranges.iter_mut().for_each(|r| r.sort_unstable());
    ranges
}

/// The ranges of all files as candidates.
pub fn candidates(ranges: Vec<Vec<ByteRange>>) -> Vec<Candidate> {
    let mut all = Vec::with_capacity(ranges.iter().map(Vec::len).sum());
    for (file, ranges) in ranges.into_iter().enumerate() {
        all.extend(ranges.into_iter().map(|range| Candidate { file, range }));
    }
    all
}

/// The nanoseconds that these ranges save in one replay, less what their bytes cost.
fn beyond_price(files: &[Analysed], chosen: &[Candidate]) -> i128 {
    let moves = by_file(files.len(), chosen);
    let of = |i: usize| files[i].beyond(&moves[i], files[i].costs.price);
    parallel::map(files.len(), of).into_iter().sum()
}

/// The nanoseconds that these ranges save in one replay, by the costs themselves.
pub fn saved_ns(files: &[Analysed], chosen: &[Candidate]) -> i128 {
    let moves = by_file(files.len(), chosen);
    parallel::map(files.len(), |i| files[i].saved_ns(&moves[i])).into_iter().sum()
}

/// Leaves out the ranges whose requests, all of them together, save less than the range's price.
fn proved(files: &[Analysed], chosen: Vec<Candidate>) -> Vec<Candidate> {
    let moves = by_file(files.len(), &chosen);
    let keep = |i: usize| {
        let (file, moves) = (&files[i], &moves[i]);
        let pays = |(range, bill): (&ByteRange, [crate::fragments::Bill; 2])| {
            let saved = bill[0].ns.saturating_sub(bill[1].ns);
            file.costs.price.is_worth(range.len(), saved).then_some(*range)
        };
        moves.iter().zip(file.bills(moves)).filter_map(pays).collect()
    };
    candidates(parallel::map(files.len(), keep))
}

/// Joins ranges that follow each other in a run: it costs nothing, and there are fewer of them.
pub fn joined(files: &[Analysed], chosen: Vec<Candidate>) -> Vec<Candidate> {
    let moves = by_file(files.len(), &chosen);
    let join = |i: usize| {
        let (file, moves) = (&files[i], &moves[i]);
        let mut out: Vec<ByteRange> = Vec::with_capacity(moves.len());
        // What is written anew because it is slow stays a range of its own.
        let is_slow = |range: ByteRange| file.slow_place(range).is_some();
        for &range in moves {
            match out.last_mut() {
                Some(last)
                    if last.end == range.start
                        && last.len() + range.len() <= LONGEST_RANGE
                        && file.is_inside_run(range.start)
                        && !is_slow(*last)
                        && !is_slow(range) =>
                {
                    last.end = range.end;
                }
                _ => out.push(range),
            }
        }
        out
    };
    candidates(parallel::map(files.len(), join))
}
