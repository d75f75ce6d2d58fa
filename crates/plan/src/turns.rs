//! Of a recording of a part of all places at a time: in which turns the requests of a file were recorded, and for how many more
//! each part stands.
//!
//! An access that was recorded while one place in `w` was in turn stands for `w`: the inverse of the probability that it was
//! recorded (Horvitz and Thompson, JASA 1952), so that the sum over all is unbiased whatever the rates were. But the `w - 1`
//! others need not be in the same range. Of files that are read once each, they are in files of which the trace has nothing, and
//! no plan moves those.
//!
//! How many they are follows from the ranges that were recorded in one turn only (Good, Biometrika 1953). Let a byte be read
//! in turns `1..n`, each of which is recorded with the probability `p_i` of its time. The estimate of the turns in which it
//! was read, if it is in the trace at all, is then the sum over the turns that were recorded of `1 + (1 / p_i - 1) * s`,
//! where `s` is 1 if another turn was recorded, and 0 otherwise: the expected value of the part left out, `(1 / p_i - 1)` where
//! no other was, is the sum over `i` of `p_i * (1 / p_i - 1)` times the product of all other `1 - p_j`, which is `n` times the
//! probability that the byte is not in the trace. So what was recorded counts in full as far as its bytes were recorded in
//! another turn as well, and once as far as they were not; what is left stands for [unseen requests](crate::unseen).
//! Ranges that a plan moves were chosen by their counts, and are judged more strictly (`crate::chance`).
//!
//! Turns count as independent. Those of one round of all places are not: what is read again within one (0.13 s at a rate of
//! 1/64), and never later, counts as less than it was. Where it is the same part of all places from beginning to end, a place
//! is in one turn, and counts as often as it was recorded.

use crate::bounded::Bounds;
use crate::input::Basis;
use crate::requests::{Request, Shape};
use fragmend_layout::{Access, ByteRange, Op, Recorded};

/// What was recorded of a request in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTurn {
    /// That of the request.
    pub range: ByteRange,
    /// In which turn, and how often.
    pub recorded: Recorded,
    /// For how many it stands.
    pub count: u32,
    /// Whether it is counted in what programs asked for as well.
    pub is_heat: bool,
}

impl InTurn {
    /// For how many it stands besides those that were recorded.
    pub fn others(&self) -> u32 {
        self.count.saturating_sub(self.recorded.times)
    }

    /// The same if it stood for no others.
    pub fn alone(&self) -> Self {
        Self { count: self.recorded.times.min(self.count), ..*self }
    }

    /// For how many it stands in what programs asked for.
    fn heat(&self) -> u32 {
        if self.is_heat { self.count } else { 0 }
    }

    /// The same if only one half of the turns had been recorded, the first or the second; `None` if it is of the other one.
    /// What was recorded in many turns is taken to be of both alike.
    pub fn of_half(&self, half: u32) -> Option<Self> {
        if self.recorded.turn == Recorded::MANY {
            let times = self.recorded.times.div_ceil(2);
            return Some(Self { recorded: Recorded { times, ..self.recorded }, ..*self });
        }
        // Of neighbours, any: turns that follow each other are of one round.
        let own = self.recorded.turn.wrapping_mul(0x9e37_79b1) >> 31;
        let twice = |count: u32| count.saturating_mul(2);
        let recorded = Recorded { most: twice(self.recorded.most), ..self.recorded };
        (own == half).then_some(Self { count: twice(self.count), recorded, ..*self })
    }

    /// Of a half of the turns, for how many it stands besides those that were recorded in the other half.
    pub fn others_of(&self, half: u32) -> Option<Self> {
        let part = self.of_half(half)?;
        Some(Self { count: part.others(), ..part })
    }
}

/// These requests, in ascending order, by these `parts` of them instead of all their `turns`; with what is sampled in no turns,
/// if wanted. Those that nobody waits for or asked for are left out.
pub fn counted(
    requests: &[Request],
    turns: &[InTurn],
    parts: &[InTurn],
    rest: bool,
) -> Vec<Request> {
    let mut out = requests.to_vec();
    let ranges = || requests.iter().map(|r| r.range).enumerate();
    if rest {
        each(ranges(), turns, |index, _, turns| {
            for part in turns {
                out[index].fetches = out[index].fetches.saturating_sub(part.count.into());
                out[index].seen = out[index].seen.saturating_sub(part.heat());
            }
        });
    } else {
        out.iter_mut().for_each(|r| (r.fetches, r.seen) = (0, 0));
    }
    each(ranges(), parts, |index, _, parts| {
        for part in parts {
            out[index].fetches = out[index].fetches.saturating_add(part.count.into());
            out[index].seen = out[index].seen.saturating_add(part.heat());
        }
    });
    out.retain(|r| r.fetches > 0 || r.seen > 0);
    out
}

/// The parts of the requests that these accesses, recorded so, are in a file, by range and turn. Only what reaches the device is
/// sampled by places: what programs ask for through the page cache is thinned out by pauses instead.
pub fn of(
    accesses: &[Access],
    recorded: &[Recorded],
    shape: Shape,
    bounds: &Bounds,
    basis: Basis,
) -> Vec<InTurn> {
    let misses = basis == Basis::MissesRecorded;
    let asked = accesses.iter().any(|a| !a.direct && matches!(a.op, Op::Read | Op::Fault));
    let by_places = |a: &Access| a.direct || misses && a.op == Op::Miss;
    let all = accesses.iter().zip(recorded).filter(|(a, _)| by_places(a));
    let parts = all.flat_map(|(access, recorded)| {
        let is_heat = access.direct || !asked;
        let ranges = bounds.clip(access.range()).filter_map(|part| shape.clamp(part));
        ranges.map(move |range| InTurn { range, recorded: *recorded, count: access.count, is_heat })
    });
    let mut parts: Vec<InTurn> = parts.collect();
    parts.sort_unstable_by_key(|part| (part.range, part.recorded.turn));
    parts
}

/// Shows the parts of each of these requests, which are in ascending order, with its index.
pub fn each<'a>(
    requests: impl IntoIterator<Item = (usize, ByteRange)>,
    parts: &'a [InTurn],
    mut show: impl FnMut(usize, std::ops::Range<usize>, &'a [InTurn]),
) {
    let mut next = 0;
    for (index, range) in requests {
        next += parts[next..].partition_point(|part| part.range < range);
        let many = parts[next..].iter().take_while(|part| part.range == range).count();
        if many > 0 {
            show(index, next..next + many, &parts[next..next + many]);
        }
    }
}

/// Takes out of `requests` of a file what their parts stand for besides, and returns it. It stays as far as `share` of a part, by
/// its index, says; where that is `None`, as far as its bytes were recorded in another turn.
pub fn take_unseen(
    requests: &mut [Request],
    parts: &[InTurn],
    share: impl Fn(usize) -> Option<f64>,
) -> Vec<Request> {
    let again =
        Covered::of(again(parts.iter().map(|part| (part.range, part.recorded.turn)).collect()));
    let ranges: Vec<(usize, ByteRange)> =
        requests.iter().enumerate().map(|(i, r)| (i, r.range)).collect();
    let mut unseen = Vec::new();
    each(ranges, parts, |index, numbers, parts| {
        let (mut fetches, mut heat) = (0, 0u64);
        for (number, part) in numbers.zip(parts) {
            let others = u64::from(part.others());
            let is_many = part.recorded.turn == Recorded::MANY;
            let taken = match share(number) {
                Some(share) => others - (others as f64 * share).round() as u64,
                None if is_many || others == 0 => 0,
                None => {
                    let bytes = part.range.len().max(1);
                    let alone = bytes.saturating_sub(again.bytes_of(part.range));
                    let taken = (u128::from(others) * u128::from(alone) + u128::from(bytes) / 2)
                        / u128::from(bytes);
                    taken as u64
                }
            };
            fetches += taken;
            heat += if part.is_heat { taken } else { 0 };
        }
        let request = &mut requests[index];
        let before = *request;
        request.fetches = before.fetches.saturating_sub(fetches);
        request.seen = before.seen.saturating_sub(heat.try_into().unwrap_or(u32::MAX));
        let fetches = before.fetches - request.fetches;
        let seen = before.seen - request.seen;
        unseen.extend((fetches > 0).then_some(Request { fetches, seen, ..before }));
    });
    unseen
}

/// The bytes that were recorded in more than one turn, of ranges that were recorded in these: ascending and disjoint.
fn again(mut ranges: Vec<(ByteRange, u32)>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut again: Vec<ByteRange> = Vec::new();
    // How far the ranges so far reach: the furthest, and the furthest of another turn than that.
    let mut reach = [(0u64, Recorded::MANY); 2];
    for (range, turn) in ranges {
        let other = if turn == Recorded::MANY {
            u64::MAX
        } else {
            reach[usize::from(reach[0].1 == turn)].0
        };
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

/// Ranges, ascending and disjoint, and how many bytes those before each have.
struct Covered {
    ranges: Vec<ByteRange>,
    before: Vec<u64>,
}

impl Covered {
    fn of(ranges: Vec<ByteRange>) -> Self {
        let mut sum = 0;
        let before = ranges.iter().map(|range| {
            sum += range.len();
            sum - range.len()
        });
        Self { before: before.collect(), ranges }
    }

    /// How many bytes up to here are in them.
    fn up_to(&self, at: u64) -> u64 {
        let Some(last) = self.ranges.partition_point(|range| range.start < at).checked_sub(1)
        else {
            return 0;
        };
        self.before[last] + self.ranges[last].end.min(at) - self.ranges[last].start
    }

    /// How many bytes of `range` are.
    fn bytes_of(&self, range: ByteRange) -> u64 {
        self.up_to(range.end) - self.up_to(range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::Window;
    use crate::requests;
    use crate::ways::Head;
    use fragmend_layout::WindowEnds;
    use proptest::prelude::*;

    const WINDOW: Window =
        Window { readahead: 1 << 17, longest: 1 << 17, ends: WindowEnds::AnyPage };
    const SHAPE: Shape = Shape { file_size: 1 << 20, block: 1, window: WINDOW };

    fn read(offset: u64, length: u32, count: u32) -> Access {
        Access { offset, length, count, thread: 1, op: Op::Read, direct: true, windowed: false }
    }

    /// Offset, length and fetches of what was seen, and of what was not, of accesses with their turns.
    fn apart(rows: &[(Access, u32)]) -> [Vec<(u64, u64, u64)>; 2] {
        let accesses: Vec<Access> = rows.iter().map(|(access, _)| *access).collect();
        let recorded = rows.iter().map(|(_, turn)| Recorded { turn: *turn, times: 1, most: 0 });
        let recorded: Vec<Recorded> = recorded.collect();
        let (bounds, basis) = (Bounds::none(), Basis::MissesRecorded);
        let mut seen = requests::of(
            accesses.clone(),
            SHAPE,
            &bounds,
            basis,
            false,
            &mut Head::new(false, &[]),
        );
        let parts = super::of(&accesses, &recorded, SHAPE, &bounds, basis);
        let unseen = take_unseen(&mut seen, &parts, |_| None);
        [seen, unseen]
            .map(|all| all.iter().map(|r| (r.range.start, r.range.len(), r.fetches)).collect())
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
        assert_eq!(apart(&[cached]), [vec![(0, 8, 0)], vec![]]);
        assert_eq!(apart(&[cached, once])[1], [(0, 8, 63)]);
    }

    #[test]
    fn what_is_judged_counts_as_it_was_judged() {
        let accesses = [read(0, 8, 64), read(0, 8, 4)];
        let recorded = [3, 9].map(|turn| Recorded { turn, times: 2, most: 0 });
        let (bounds, basis) = (Bounds::none(), Basis::MissesRecorded);
        let requests = requests::of(
            accesses.to_vec(),
            SHAPE,
            &bounds,
            basis,
            false,
            &mut Head::new(false, &[]),
        );
        let parts = super::of(&accesses, &recorded, SHAPE, &bounds, basis);
        let unseen = |shares: [f64; 2]| {
            let mut seen = requests.clone();
            let unseen = take_unseen(&mut seen, &parts, |part| Some(shares[part]));
            let [request] = seen[..] else { panic!("{seen:?}") };
            assert_eq!(
                u64::from(request.seen),
                request.fetches,
                "direct reads are what was asked for"
            );
            unseen.iter().map(|r| r.fetches).sum::<u64>()
        };
        assert_eq!([[1.0; 2], [0.0, 1.0], [1.0, 0.0], [0.5; 2]].map(unseen), [0, 62, 2, 32]);
    }

    proptest! {
        #[test]
        fn bytes_of_several_turns_are_found(
            ranges in prop::collection::vec((0u64..40, 1u64..12, 0u32..4), 0..12),
        ) {
            let range = |(start, length, turn): &(u64, u64, u32)| {
                let turn = if *turn == 3 { Recorded::MANY } else { *turn };
                (ByteRange { start: *start, end: start + length }, turn)
            };
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            let found = again(ranges.clone());
            prop_assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start), "{found:?}");
            let found = Covered::of(found);
            for at in 0..60 {
                let byte = ByteRange { start: at, end: at + 1 };
                let turns: Vec<u32> =
                    ranges.iter().filter(|(r, _)| r.overlaps(byte)).map(|(_, turn)| *turn).collect();
                let many = turns.contains(&Recorded::MANY);
                let several = many || turns.iter().any(|t| *t != turns[0]);
                prop_assert_eq!(found.bytes_of(byte) == 1, several, "{}", at);
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
                estimate += likely * seen.iter().map(|(.., count)| *count as f64).sum::<f64>();
                expected += likely * shifts.len() as f64;
            }
            prop_assert!((estimate - expected).abs() < 1e-9, "{} and {}", estimate, expected);
        }
    }
}
