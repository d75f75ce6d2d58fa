//! The stripe of a drive: the smallest distance at all multiples of which reads are on one die (FAST'24, figure 8).
//!
//! A burst of reads at multiples of `d` lasts the longer the fewer dies it meets, and these are as many as the stripe
//! has at the greatest common divisor of `d` and the stripe. So the search goes:
//!
//! 1. Powers of two are measured, in random order, the slower half again, and so on, until one is left. If nothing
//!    comes of it, all distances of whole units up to [`Search::most`] are searched in the same way.
//! 2. From there up: as long as multiples of a prime times `d` last longer, that is `d`.
//! 3. And down: as long as multiples of `d` over a prime last no less, that is `d`.
//! 4. What is left must pass three tests: it lasts longer than reads anywhere, than at its neighbours, and nearly in
//!    proportion to the number of reads, as those of a single die do and those of several do not.
//!
//! Every step is a comparison with a bounded error, at places that are drawn anew. If one is unclear, so is the stripe.

use super::compare::{Found, Verdict, compare};
use super::meter::Meter;
use super::reader::Failed;
use super::sets::{FEWEST, Field, MOST};
use fastrand::Rng;

/// Primes by which a stripe may be larger than what was found: its number of dies, or of units of a die, has them.
const PRIMES: [u64; 18] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61];
/// Twice as many dies halve the time of a burst that one die answers; this is well between that and no difference.
pub(super) const FEWER_DIES: f64 = 1.22;
/// Reads of one die against reads anywhere.
const COLLIDING: f64 = 1.45;
/// Four times as many reads of one die last nearly four times as long, less the time of the host; of 67 dies, the
/// fewest that the primes do not exclude, at random, 1.9 times at most.
const IN_PROPORTION: f64 = 2.0;
/// Larger distances, and those of which an area has too few rows, are tried only at twice and three times what was
/// found.
const REACH: u64 = 16 << 20;
/// No stripe is larger.
const LARGEST: u64 = 64 << 20;

/// How far distances are searched.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The largest distance of the first step, in bytes.
    pub most: u64,
}

impl Default for Search {
    fn default() -> Self {
        Self { most: 2 << 20 }
    }
}

/// A measured distance, for the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtDistance {
    /// From the start of a read to the start of the next, in bytes.
    pub distance: u64,
    /// Nanoseconds of a burst, and its reads.
    pub ns: f64,
    /// Reads of the burst.
    pub reads: u32,
    /// Bytes of each.
    pub unit_bytes: u64,
}

/// Why there is no stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStripe {
    /// No distance lasts clearly longer than others.
    NoPattern,
    /// A pattern is there, but not that of one die after the other.
    OtherPattern,
    /// Noise.
    Unclear,
}

/// Finds the stripe. `seen` gets the distances of the first step.
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn find(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    field: &Field,
    search: Search,
    seen: &mut Vec<AtDistance>,
) -> Result<Result<Found, NoStripe>, Failed> {
    let most = search.most.min((field.area.end - field.area.start) / u64::from(MOST));
    let powers: Vec<u64> = std::iter::successors(Some(field.unit), |at| at.checked_mul(2))
        .take_while(|at| *at <= most)
        .collect();
    if powers.len() < 2 {
        return Ok(Err(NoStripe::NoPattern));
    }
    if let Ok(found) = from(meter, rng, field, powers, seen)? {
        return Ok(Ok(found));
    }
    seen.clear();
    let all = (1..=most / field.unit).map(|units| units * field.unit).collect();
    from(meter, rng, field, all, seen)
}

/// Looks for the stripe from the slowest of these distances on.
fn from(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    field: &Field,
    distances: Vec<u64>,
    seen: &mut Vec<AtDistance>,
) -> Result<Result<Found, NoStripe>, Failed> {
    let slowest = slowest(meter, rng, field, distances, seen)?;
    let mut climb = Climb { meter, rng, field, comparisons: 0 };
    // Most devices have no stripe: that is found first.
    match climb.collides(slowest)? {
        Verdict::Longer => {}
        Verdict::NotLonger => return Ok(Err(NoStripe::NoPattern)),
        Verdict::Unclear => return Ok(Err(NoStripe::Unclear)),
    }
    let Some(top) = climb.up(slowest)? else { return Ok(Err(NoStripe::Unclear)) };
    let Some(bytes) = climb.down(top)? else { return Ok(Err(NoStripe::Unclear)) };
    for passed in [climb.collides(bytes)?, climb.in_proportion(bytes)?, climb.beside(bytes)?] {
        match passed {
            Verdict::Longer => {}
            Verdict::NotLonger => return Ok(Err(NoStripe::OtherPattern)),
            Verdict::Unclear => return Ok(Err(NoStripe::Unclear)),
        }
    }
    // What would be worst is half of a stripe: once more.
    let again = climb.fewer_dies(bytes, 2)?;
    let comparisons = climb.comparisons;
    Ok(match again {
        Verdict::NotLonger => Ok(Found { bytes, comparisons }),
        Verdict::Longer => Err(NoStripe::OtherPattern),
        Verdict::Unclear => Err(NoStripe::Unclear),
    })
}

/// The distance, of two at least, whose bursts last longest.
fn slowest(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    field: &Field,
    distances: Vec<u64>,
    seen: &mut Vec<AtDistance>,
) -> Result<u64, Failed> {
    let mut left: Vec<(u64, Vec<f64>)> =
        distances.into_iter().map(|distance| (distance, Vec::new())).collect();
    let mut more = if left.len() > 64 { 1 } else { 3 };
    while left.len() > 1 {
        for _ in 0..more {
            rng.shuffle(&mut left);
            for (distance, times) in &mut left {
                let reads = field.at_multiples(rng, *distance, MOST, 1);
                times.push((meter.burst(&reads)? as f64).ln());
            }
        }
        if seen.is_empty() {
            seen.extend(left.iter().map(|(distance, times)| AtDistance {
                distance: *distance,
                ns: median(times).exp(),
                reads: MOST,
                unit_bytes: field.unit,
            }));
            seen.sort_by_key(|at| at.distance);
        }
        // Half of them stay. The fewer they are, the more often they are measured.
        left.sort_by(|a, b| median(&b.1).total_cmp(&median(&a.1)));
        left.truncate(left.len().div_ceil(2));
        more = if left.len() > 64 { 1 } else { 3 };
    }
    Ok(left[0].0)
}

/// The lower median.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

/// Comparisons of distances.
struct Climb<'a, 'b> {
    meter: &'a mut Meter<'b>,
    rng: &'a mut Rng,
    field: &'a Field,
    comparisons: u32,
}

impl Climb<'_, '_> {
    /// Multiplies by primes as long as that makes reads collide more; `None` if that is unclear.
    fn up(&mut self, mut distance: u64) -> Result<Option<u64>, Failed> {
        loop {
            let mut higher = None;
            let reach =
                REACH.min((self.field.area.end - self.field.area.start) / u64::from(FEWEST));
            let near = |prime: &u64| *prime <= 3 || distance * prime <= reach;
            for prime in PRIMES.into_iter().filter(near) {
                match self.fewer_dies(distance, prime)? {
                    Verdict::Longer => {
                        higher = Some(distance * prime);
                        break;
                    }
                    Verdict::NotLonger => {}
                    Verdict::Unclear => return Ok(None),
                }
            }
            match higher {
                Some(higher) if higher > LARGEST => return Ok(None),
                Some(higher) => distance = higher,
                None => return Ok(Some(distance)),
            }
        }
    }

    /// Divides by primes as long as reads collide no less; `None` if that is unclear.
    fn down(&mut self, mut distance: u64) -> Result<Option<u64>, Failed> {
        for prime in prime_factors(distance / self.field.unit) {
            while (distance / self.field.unit).is_multiple_of(prime) {
                match self.fewer_dies(distance / prime, prime)? {
                    Verdict::Longer => break,
                    Verdict::NotLonger => distance /= prime,
                    Verdict::Unclear => return Ok(None),
                }
            }
        }
        Ok(Some(distance))
    }

    /// Whether multiples of `distance * prime` meet fewer dies than those of `distance`.
    fn fewer_dies(&mut self, distance: u64, prime: u64) -> Result<Verdict, Failed> {
        let Self { meter, rng, field, comparisons } = self;
        let (count, far) = (field.reads(distance * prime), distance * prime);
        if count < FEWEST {
            // The area has too few of them.
            return Ok(Verdict::Unclear);
        }
        *comparisons += 1;
        let mut of_fewer = |rng: &mut Rng| field.at_multiples(rng, far, count, 1);
        let mut of_more = |rng: &mut Rng| field.at_multiples(rng, distance, count, prime);
        compare(meter, rng, &mut of_fewer, &mut of_more, FEWER_DIES)
    }

    /// Whether reads at this distance collide more than reads anywhere.
    fn collides(&mut self, distance: u64) -> Result<Verdict, Failed> {
        let Self { meter, rng, field, comparisons } = self;
        let count = field.reads(distance);
        *comparisons += 1;
        let mut here = |rng: &mut Rng| field.at_multiples(rng, distance, count, 1);
        let mut anywhere = |rng: &mut Rng| field.anywhere(rng, count);
        compare(meter, rng, &mut here, &mut anywhere, COLLIDING)
    }

    /// Whether reads at this distance last in proportion to their number.
    fn in_proportion(&mut self, distance: u64) -> Result<Verdict, Failed> {
        let Self { meter, rng, field, comparisons } = self;
        let count = field.reads(distance);
        *comparisons += 1;
        let mut many = |rng: &mut Rng| field.at_multiples(rng, distance, count, 1);
        let mut few = |rng: &mut Rng| field.at_multiples(rng, distance, count / 4, 1);
        compare(meter, rng, &mut many, &mut few, IN_PROPORTION)
    }

    /// Whether reads at this distance collide more than those at a distance that is a unit longer or shorter.
    fn beside(&mut self, distance: u64) -> Result<Verdict, Failed> {
        let Self { meter, rng, field, comparisons } = self;
        let unit = field.unit;
        let count = field.reads(distance + unit);
        *comparisons += 1;
        let mut here = |rng: &mut Rng| field.at_multiples(rng, distance, count, 1);
        let mut beside = |rng: &mut Rng| {
            let beside = if rng.bool() { distance + unit } else { distance - unit };
            field.at_multiples(rng, beside, count, 1)
        };
        compare(meter, rng, &mut here, &mut beside, FEWER_DIES)
    }
}

/// The primes that divide a number, ascending.
fn prime_factors(mut number: u64) -> Vec<u64> {
    let mut primes = Vec::new();
    let mut prime = 2;
    while number > 1 {
        if prime * prime > number {
            prime = number;
        }
        if number.is_multiple_of(prime) {
            primes.push(prime);
            while number.is_multiple_of(prime) {
                number /= prime;
            }
        }
        prime += 1;
    }
    primes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_primes() {
        assert!(prime_factors(1).is_empty());
        assert_eq!(prime_factors(146), [2, 73]);
        assert_eq!(prime_factors(512), [2]);
        assert_eq!(prime_factors(151), [151]);
        assert_eq!(prime_factors(3 * 3 * 5 * 7), [3, 5, 7]);
    }
}
