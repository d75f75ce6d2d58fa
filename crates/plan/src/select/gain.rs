//! The fewest bytes moved for the most time saved.
//!
//! A request costs some time, and more for every break that it crosses. Making a range contiguous removes the breaks
//! inside it, and leaves or makes one at each of its ends. With `w(p)` the time that all requests which cross offset `p`
//! wait for a break there ([`crate::outlook`]), and a price `l` per byte moved, the best set of ranges of a run minimises
//!
//! ```text
//! sum of w(p) over the breaks that are left + l * bytes moved
//! ```
//!
//! (at the ends of the ranges `w` of a break at the end of a range, which is more on a device that seeks).
//!
//! Only breaks and the ends of requests need to be considered as ends of a range: between two of them `w` is
//! constant and a shorter range is cheaper. So a dynamic program over those points, with two states (stay,
//! move), is exact, in linear time. All arithmetic is in integers. `w` counts what reaches the device, so that time
//! decides where a budget goes.
//!
//! FragPicker's windows are one feasible solution of this problem; for the same price the optimum never costs
//! more. It is better where many windows overlap and become one (a hot file read in overlapping ranges), and
//! where a request's fragmented part is small compared with the rest. Where time is not linear in breaks, the optimum is
//! one of the weights, not of time: [`crate::choose`] compares.
//!
//! A budget is met by raising the price (the Lagrangian of the byte limit) until what is chosen fits; what is
//! left of the budget goes to the densest further ranges.

use super::price::Price;
use super::{Analysed, Candidate};
use crate::parallel;
use fragmend_layout::ByteRange;

/// A candidate, and the nanoseconds that it saves in one replay as far as it is known before all are chosen.
type Priced = (Candidate, i128);

/// The ranges that are worth their price, in the order of files and ranges.
fn priced(files: &[Analysed], price: impl Fn(&Analysed) -> Price + Sync) -> Vec<Priced> {
    let ranges = |i: usize| {
        let file = &files[i];
        let (price, crossings) = (price(file), file.crossings());
        let mut chosen: Vec<(ByteRange, i128)> = crossings
            .best(&file.runs, price)
            .into_iter()
            .map(|range| (range, crossings.gain(range)))
            .chain(crossings.isolated.best(price))
            .collect();
        chosen.sort_unstable();
        chosen
    };
    let mut all = Vec::new();
    for (file, ranges) in parallel::map(files.len(), ranges).into_iter().enumerate() {
        all.extend(ranges.into_iter().map(|(range, ns)| (Candidate { file, range }, ns)));
    }
    all
}

/// The ranges that are worth this price, whatever that of their device.
pub fn at(files: &[Analysed], price: Price) -> Vec<Candidate> {
    candidates(priced(files, |_| price))
}

fn candidates(priced: Vec<Priced>) -> Vec<Candidate> {
    priced.into_iter().map(|(candidate, _)| candidate).collect()
}

/// The ranges that are worth the price of their device, within the budget if there is one.
pub fn choose(files: &[Analysed], budget: Option<u64>) -> Vec<Candidate> {
    // The price of a file's device, or one that is higher.
    let at_least = |least: Price| priced(files, move |file| file.costs.price.max(least));
    let unlimited = at_least(Price::LEAST);
    let bytes_of = |priced: &[Priced]| priced.iter().map(|(c, _)| c.range.len()).sum::<u64>();
    let Some(budget) = budget.filter(|b| bytes_of(&unlimited) > *b) else {
        return candidates(unlimited);
    };

    // Fewer bytes are chosen as the price rises: bisects its logarithm, then its value.
    let (mut low, mut high) = (1, Price::MOST.0);
    // What is chosen at the lowest price that fits, and at the highest that does not.
    let (mut chosen, mut more) = (Vec::new(), Vec::new());
    for _ in 0..48 {
        if high - low <= low / 64 + 1 {
            break;
        }
        let middle =
            if high / 4 > low { Price(low).between(Price(high)).0 } else { low + (high - low) / 2 };
        let middle = middle.clamp(low + 1, high - 1);
        let tried = at_least(Price(middle));
        if bytes_of(&tried) <= budget {
            (high, chosen) = (middle, tried);
        } else {
            (low, more) = (middle, tried);
        }
    }
    // Ranges of one density are chosen at one price, all or none.
    let filled = fill(candidates(chosen), more, budget);
    fill(filled, unlimited, budget)
}

/// Bytes of all candidates.
pub fn bytes(candidates: &[Candidate]) -> u64 {
    candidates.iter().map(|c| c.range.len()).sum()
}

/// Adds the densest ranges of `more` that fit into the budget and overlap no chosen one.
fn fill(mut chosen: Vec<Candidate>, more: Vec<Priced>, budget: u64) -> Vec<Candidate> {
    let mut left = budget - bytes(&chosen);
    let mut by_density: Vec<_> =
        more.into_iter().map(|(c, ns)| (ns, c)).filter(|(ns, _)| *ns > 0).collect();
    by_density.sort_by(|(ga, a), (gb, b)| {
        let density =
            |gain: i128, other: ByteRange| (gain as u128).saturating_mul(other.len().into());
        let (da, db) = (density(*ga, b.range), density(*gb, a.range));
        db.cmp(&da).then((a.file, a.range).cmp(&(b.file, b.range)))
    });
    let mut taken: std::collections::BTreeSet<(usize, ByteRange)> =
        chosen.iter().map(|c| (c.file, c.range)).collect();
    for (_, c) in by_density {
        let at = (c.file, c.range);
        let before = taken.range(..=at).next_back();
        let after = taken.range(at..).next();
        let clear = |n: Option<&(usize, ByteRange)>| {
            n.is_none_or(|(f, r)| *f != c.file || !r.overlaps(c.range))
        };
        if c.range.len() <= left && clear(before) && clear(after) {
            left -= c.range.len();
            taken.insert(at);
            chosen.push(c);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::price::UNIT;
    use super::*;
    use crate::costs::Costs;
    use crate::requests::Request;
    use fragmend_layout::{CostModel, CostSource, RequestCost};
    use fragmend_layout::{DeviceLimits, Extent, ExtentKind, FileId, Layout};
    use proptest::prelude::*;
    use std::sync::Arc;

    const LIMITS: DeviceLimits =
        DeviceLimits { largest_extent: 1 << 27, readahead: 1 << 17, max_request: 1 << 40 };

    /// Nanoseconds of a request on a device that serves one after the other; bytes cost nothing.
    const REQUEST_NS: u64 = 1 << 20;

    fn costs(price: Price) -> Arc<Costs> {
        let cost = |in_flight: u32| RequestCost {
            request_bytes: 1,
            in_flight,
            burst_ns: REQUEST_NS * u64::from(in_flight),
            interval_ns: REQUEST_NS,
            split_ns: None,
            stream_ns: None,
        };
        let model = CostModel::new(CostSource::Probed, [1, 64].map(cost).to_vec(), Vec::new());
        Arc::new(Costs {
            model: model.unwrap(),
            depth: 1.0,
            depth_seen: false,
            one_thread: false,
            streams: None,
            far_ns: 0,
            price,
            min_gain_s_per_gib: 0.0,
            undetermined: None,
            one_more: None,
        })
    }

    /// A file whose fragments have the given lengths, scattered, on a device with the least price.
    fn file(lengths: &[u64], requests: &[(u64, u64, u64)]) -> Analysed {
        file_at(Price::LEAST, lengths, requests)
    }

    fn file_at(price: Price, lengths: &[u64], requests: &[(u64, u64, u64)]) -> Analysed {
        let mut layout = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 0);
        let mut at = 0;
        for (i, length) in lengths.iter().enumerate() {
            let physical = 1_000_000 * (i as u64 + 1);
            layout.push(Extent { logical: at, physical, length: *length, kind: ExtentKind::Data });
            at += length;
        }
        let mut requests: Vec<_> = requests
            .iter()
            .map(|(start, end, seen)| Request {
                range: ByteRange { start: *start, end: *end },
                seen: *seen as u32,
                fetches: *seen,
                streamed: false,
            })
            .collect();
        requests.sort();
        Analysed::of(requests, &layout, LIMITS, 1, false, costs(price))
    }

    fn ranges(chosen: &[Candidate]) -> Vec<(u64, u64)> {
        chosen.iter().map(|c| (c.range.start, c.range.end)).collect()
    }

    #[test]
    fn long_ranges_are_cut_between_requests() {
        // Fragments of 4, requests of 10 and one across the boundary at 20.
        let f = file(&[4; 10], &[(0, 10, 1), (10, 20, 1), (15, 25, 3), (20, 30, 1), (30, 40, 1)]);
        let within = |start, end| ByteRange { start, end };
        assert_eq!(f.crossings().quietest(within(0, 40), 1), Some(40));
        assert_eq!(f.crossings().quietest(within(5, 19), 1), Some(10), "nothing crosses there");
        assert_eq!(f.crossings().quietest(within(10, 24), 1), Some(15), "one, not three or four");
        assert_eq!(f.crossings().quietest(within(10, 24), 4), Some(12));
        assert_eq!(f.crossings().quietest(within(4, 7), 1), None);
    }

    #[test]
    fn only_what_is_read_across_a_break_moves() {
        let f = file(&[4, 4, 4, 4, 4], &[(0, 8, 10), (12, 16, 10)]);
        assert_eq!(ranges(&choose(&[f], None)), [(0, 8)]);
    }

    #[test]
    fn a_large_neighbour_is_not_dragged_along() {
        // One access crosses into a fragment of a million bytes: worth it if bytes cost nothing, but not at a
        // price; the hot one beside it is.
        let price = Price(REQUEST_NS << 20 >> 14);
        let f = file_at(price, &[4, 4, 1_000_000], &[(0, 8, 1000), (4, 1_000_008, 1)]);
        assert_eq!(ranges(&choose(&[f], None)), [(0, 8)]);
    }

    #[test]
    fn the_budget_goes_to_the_hottest() {
        let f = file(&[4; 6], &[(0, 8, 1), (8, 16, 100), (16, 24, 10)]);
        assert_eq!(ranges(&choose(&[f], Some(8))), [(8, 16)]);
    }

    #[test]
    fn the_ends_of_a_moved_range_are_far_away_on_a_disk() {
        let disk = CostModel::guessed(fragmend_layout::DeviceKind::Disk);
        let far_ns = disk.seek_either_ns(1 << 38);
        let (depth_seen, price) = (false, Price::LEAST);
        let costs =
            Costs { model: disk, far_ns, depth_seen, price, ..Costs::clone(&costs(Price::LEAST)) };
        // Three fragments, 4 KiB from each other, and one read of them all.
        let mut layout = Layout::new(FileId { device: 0, inode: 0, generation: 0 }, 3 << 16);
        for n in 0..3 {
            let (logical, physical) = (n << 16, n * (68 << 10));
            layout.push(Extent { logical, physical, length: 1 << 16, kind: ExtentKind::Data });
        }
        let range = |start: u64, end: u64| ByteRange { start: start << 16, end: end << 16 };
        let read = Request { range: range(0, 3), seen: 5, fetches: 5, streamed: false };
        let f = Analysed::of(vec![read], &layout, LIMITS, 4096, false, Arc::new(costs));
        // By the weights and by the costs themselves: 5 times a long seek that was a short one.
        let part = (f.crossings().gain(range(1, 3)), f.saved_ns(&[range(1, 3)]));
        let long = -5 * i128::from(far_ns);
        assert!((long..long / 2).contains(&part.0), "{part:?}");
        assert!((part.0 - part.1).abs() < 5_000_000, "{part:?}");
        let whole = (f.crossings().gain(range(0, 3)), f.saved_ns(&[range(0, 3)]));
        assert!(whole.0 > 0 && (whole.0 - whole.1).abs() <= 10, "{whole:?}");
    }

    #[test]
    fn nothing_moves_for_nothing() {
        assert!(choose(&[file(&[4; 6], &[])], None).is_empty());
        assert!(choose(&[file(&[24], &[(0, 24, 5)])], None).is_empty());
    }

    /// The objective of a set of ranges, computed by its definition and not by the dynamic program.
    fn objective(f: &Analysed, moves: &[ByteRange], price: Price) -> u128 {
        let after = f.fragments_after(moves);
        let requests: u128 =
            f.requests.iter().map(|r| u128::from(r.fetches * after.count(r.range))).sum();
        let bytes: u64 = moves.iter().map(|m| m.len()).sum();
        requests * u128::from(REQUEST_NS) * UNIT + u128::from(bytes) * u128::from(price.0)
    }

    /// Requests, each with its start, length and count, as those of a file of `size` bytes.
    fn within(raw: &[(u64, u64, u64)], size: u64) -> Vec<(u64, u64, u64)> {
        raw.iter()
            .filter(|(start, ..)| *start < size)
            .map(|(start, len, seen)| (*start, (start + len).min(size), *seen))
            .collect()
    }

    /// All sets of disjoint ranges with ends on the given points.
    fn every_choice(points: &[u64]) -> Vec<Vec<ByteRange>> {
        let segments = points.len() - 1;
        (0..1u32 << segments)
            .map(|mask| {
                let mut moves: Vec<ByteRange> = Vec::new();
                for i in (0..segments).filter(|i| mask >> i & 1 == 1) {
                    match moves.last_mut() {
                        Some(last) if last.end == points[i] => last.end = points[i + 1],
                        _ => moves.push(ByteRange { start: points[i], end: points[i + 1] }),
                    }
                }
                moves
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_choice_is_optimal(
            lengths in prop::collection::vec(1u64..6, 1..5),
            raw in prop::collection::vec((0u64..20, 1u64..12, 1u64..9), 0..5),
            price in 1u64..((8 * REQUEST_NS) << 20),
            apart in any::<bool>(),
        ) {
            let size: u64 = lengths.iter().sum();
            let price = Price(price);
            let mut f = file_at(price, &lengths, &within(&raw, size));
            f.apart = apart;
            let ours: Vec<_> =
                choose(std::slice::from_ref(&f), None).iter().map(|c| c.range).collect();
            // Every block boundary is a possible end, not only the program's own points.
            let points: Vec<u64> = (0..=size).collect();
            prop_assume!(points.len() <= 14);
            let best = every_choice(&points)
                .iter()
                .map(|moves| objective(&f, moves, price))
                .min()
                .unwrap();
            prop_assert_eq!(objective(&f, &ours, price), best);
        }

        #[test]
        fn a_budget_is_kept(
            lengths in prop::collection::vec(1u64..50, 1..30),
            raw in prop::collection::vec((0u64..600, 1u64..60, 1u64..9), 0..40),
            budget in 0u64..400,
        ) {
            let f = file(&lengths, &within(&raw, lengths.iter().sum()));
            let chosen = choose(&[f], Some(budget));
            prop_assert!(bytes(&chosen) <= budget);
            let mut sorted = ranges(&chosen);
            sorted.sort_unstable();
            prop_assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }
}
