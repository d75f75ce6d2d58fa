//! The die allocation granularity of a drive whose stripe is known: how many bytes go to a die before the next die's
//! turn.
//!
//! Reads at multiples of the stripe are on one die. Half of them are moved by `x`: as long as these stay on the same
//! die, a burst lasts as long as before; on another die, about half as long. So the ends of the unit that a place is
//! in are found, forward and backward. Then other places must have the ends that follow from it, and reads anywhere
//! else in the stripe must be on other dies.
//!
//! A "die" is here whatever answers one read at a time: a plane, where planes read alone, and where transfers last
//! longer than reads all dies of a channel.

use super::compare::{Found, Verdict, compare, middle_mean};
use super::meter::Meter;
use super::reader::Failed;
use super::sets::{FEWEST, Field, MOST};
use fastrand::Rng;

/// Between the time of reads of one die and of the same number on two, which is about half of that.
const TWO_DIES: f64 = 1.3;
/// Other places that must agree.
const PLACES: u32 = 3;
/// Places elsewhere in the stripe that must be on other dies, and pairs of bursts for the first look at each. A
/// device that spreads its data pseudo-randomly over a few units may seem to have a stripe, but not this.
const ELSEWHERE: u32 = 24;
const GLANCES: u32 = 3;

/// Why there is no granularity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoGranularity {
    /// What one place shows is not so at others.
    Irregular,
    /// Noise.
    Unclear,
}

/// Finds the granularity.
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn find(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    field: &Field,
    stripe: u64,
) -> Result<Result<Found, NoGranularity>, Failed> {
    let rows = field.rows(stripe).saturating_sub(2).min(u64::from(MOST / 2)) as u32;
    let count = rows / 2 * 2;
    if count < 2 * FEWEST || stripe < 2 * field.unit {
        return Ok(Err(NoGranularity::Unclear));
    }
    let mut columns = Columns { meter, rng, field, stripe, count, comparisons: 0 };
    let base = columns.base();
    let ends = (columns.end(base, 1)?, columns.end(base, -1)?);
    let (Some(forward), Some(backward)) = ends else { return Ok(Err(NoGranularity::Unclear)) };
    let bytes = forward + backward - field.unit;
    // A stripe has at least two dies, and as much of each.
    if !stripe.is_multiple_of(bytes) || stripe / bytes < 2 {
        return Ok(Err(NoGranularity::Irregular));
    }
    let phase = (base + forward) % bytes;
    let verdict = columns.confirm(bytes, phase)?;
    let comparisons = columns.comparisons;
    Ok(match verdict {
        Confirmed::Yes => Ok(Found { bytes, comparisons }),
        Confirmed::No => Err(NoGranularity::Irregular),
        Confirmed::Unclear => Err(NoGranularity::Unclear),
    })
}

/// What other places say.
enum Confirmed {
    Yes,
    No,
    Unclear,
}

/// Pairs of columns of a stripe.
struct Columns<'a, 'b> {
    meter: &'a mut Meter<'b>,
    rng: &'a mut Rng,
    field: &'a Field,
    stripe: u64,
    count: u32,
    comparisons: u32,
}

impl Columns<'_, '_> {
    /// A random place in the stripe.
    fn base(&mut self) -> u64 {
        self.rng.u64(0..self.stripe / self.field.unit) * self.field.unit
    }

    /// Whether the column at `base` and the one so many bytes beside it are on one die; `None` if that is unclear.
    fn together(&mut self, base: u64, beside: i64) -> Result<Option<bool>, Failed> {
        let Self { meter, rng, field, stripe, count, comparisons } = self;
        *comparisons += 1;
        let mut one = |rng: &mut Rng| field.two_columns(rng, *stripe, base, 0, *count);
        let mut two = |rng: &mut Rng| field.two_columns(rng, *stripe, base, beside, *count);
        Ok(match compare(meter, rng, &mut one, &mut two, TWO_DIES)? {
            Verdict::Longer => Some(false),
            Verdict::NotLonger => Some(true),
            Verdict::Unclear => None,
        })
    }

    /// The distance of the first unit in this direction that is on another die. The distance is doubled until one
    /// is; what is passed over by that is no more than the stripe, of which at most half is on the same die.
    fn end(&mut self, base: u64, direction: i64) -> Result<Option<u64>, Failed> {
        let unit = self.field.unit;
        let (mut same, mut other) = (0, None);
        let mut next = unit;
        while other.is_none() {
            if next >= self.stripe {
                return Ok(None);
            }
            match self.together(base, direction * next.cast_signed())? {
                None => return Ok(None),
                Some(true) => (same, next) = (next, next * 2),
                Some(false) => other = Some(next),
            }
        }
        let mut other = other.unwrap_or(next);
        while other - same > unit {
            let middle = same + (other - same) / 2 / unit * unit;
            match self.together(base, direction * middle.cast_signed())? {
                None => return Ok(None),
                Some(true) => same = middle,
                Some(false) => other = middle,
            }
        }
        Ok(Some(other))
    }

    /// Looks at the ends of the units that other places are in, and at what is elsewhere in the stripe.
    fn confirm(&mut self, bytes: u64, phase: u64) -> Result<Confirmed, Failed> {
        let unit = self.field.unit;
        for _ in 0..PLACES {
            let base = self.base();
            let forward = bytes - (base + bytes - phase) % bytes;
            let backward = bytes + unit - forward;
            let expected = [
                (forward.cast_signed(), false),
                ((forward - unit).cast_signed(), true),
                (-backward.cast_signed(), false),
                (-(backward - unit).cast_signed(), true),
            ];
            for (beside, same) in expected.into_iter().filter(|(beside, _)| *beside != 0) {
                match self.together(base, beside)? {
                    None => return Ok(Confirmed::Unclear),
                    Some(found) if found != same => return Ok(Confirmed::No),
                    Some(_) => {}
                }
            }
        }
        // Those a part of the stripe away are the likeliest to be on the same die again, and others are drawn.
        let units = self.stripe / bytes;
        let divisors = (1..units).filter(|n| units.is_multiple_of(*n)).map(|n| n * bytes);
        let random: Vec<u64> = (0..ELSEWHERE)
            .map(|_| self.rng.u64(bytes / unit..=(self.stripe - bytes) / unit) * unit)
            .collect();
        for beside in divisors.chain(random) {
            let (base, beside) = (self.base(), beside.cast_signed());
            // Most places are clearly on another die; only the others are looked at closely.
            if self.seems_together(base, beside)? {
                match self.together(base, beside)? {
                    None => return Ok(Confirmed::Unclear),
                    Some(true) => return Ok(Confirmed::No),
                    Some(false) => {}
                }
            }
        }
        Ok(Confirmed::Yes)
    }

    /// Whether a few bursts look as if both columns were on one die.
    fn seems_together(&mut self, base: u64, beside: i64) -> Result<bool, Failed> {
        let Self { meter, rng, field, stripe, count, .. } = self;
        let mut ratios = Vec::new();
        for _ in 0..GLANCES {
            let one = meter.burst(&field.two_columns(rng, *stripe, base, 0, *count))?;
            let two = meter.burst(&field.two_columns(rng, *stripe, base, beside, *count))?;
            ratios.push(one as f64 / two as f64);
        }
        Ok(middle_mean(&ratios) < TWO_DIES)
    }
}
