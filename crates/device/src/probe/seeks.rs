//! What a distance costs on a device that seeks: how much longer a read lasts that begins so many bytes behind the end of
//! the one before, or before it, than one that continues it.
//!
//! The two directions are two figures: a short way forward passes under the head while it reads on, the same way back is
//! most of a rotation.

use super::area::Areas;
use super::compare::{inner_mean, middle_mean};
use super::costs::GAP;
use super::meter::Meter;
use super::reader::{Failed, Read};
use fastrand::Rng;
use fragmend_layout::SeekCost;

/// Distances grow by this factor, up to [`NEAR`]; beyond, by its square: there the arm's time grows slowly.
const STEP: u64 = 2;
/// Fragments of one read are seldom farther from each other, and what a disk reads ahead ends before.
const NEAR: u64 = 16 << 20;
/// The first distance behind the gap that all requests have.
const FIRST: u64 = 16 << 10;
/// How often each distance is measured in each direction: what varies is the angle of the disk.
const ROUNDS: u32 = 32;
/// This part of the times is left out at each end.
const OUTER: usize = 16;
/// A read at a random place of a device that seeks lasts longer than this, in nanoseconds, and this many times
/// longer than one that continues another.
const LEAST_NS: f64 = 2e6;
const LEAST_RATIO: f64 = 4.0;
const PAIRS: u32 = 12;
/// By how much distances vary, in bytes: some tracks.
const VARIED: u64 = 8 << 20;

/// The most requests of [`is_seeking`] and [`measure`] together.
pub const MOST_REQUESTS: u64 = 4 * PAIRS as u64 + 40 * 4 * ROUNDS as u64;

/// Whether the device seeks, by its times alone.
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn is_seeking(meter: &mut Meter<'_>, rng: &mut Rng, areas: &Areas) -> Result<bool, Failed> {
    let unit = meter.reader().unit_bytes();
    let (mut far, mut near) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let area = &areas.ranges[rng.usize(0..areas.ranges.len())];
        let last = (area.end - area.start).saturating_sub(u64::from(unit) + GAP) / u64::from(unit);
        let at = area.start + rng.u64(0..=last) * u64::from(unit);
        far.push(meter.burst(&[Read { at, bytes: unit }])? as f64);
        let next = at + u64::from(unit) + GAP;
        if next + u64::from(unit) <= area.end {
            near.push(meter.burst(&[Read { at: next, bytes: unit }])? as f64);
        }
    }
    if near.is_empty() {
        return Ok(false);
    }
    let (far, near) = (middle_mean(&far), middle_mean(&near));
    Ok(far > LEAST_NS && far > near * LEAST_RATIO)
}

/// The distances that were measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeks {
    /// Ascending.
    pub costs: Vec<SeekCost>,
    /// Whether these are all that were to be.
    pub complete: bool,
}

/// Measures distances from [`FIRST`] to nearly all of the device.
///
/// # Errors
/// When a read fails. If the budget is spent, the distances that were measured until then are the result.
pub fn measure(meter: &mut Meter<'_>, rng: &mut Rng) -> Result<Seeks, Failed> {
    let unit = u64::from(meter.reader().unit_bytes());
    let end = meter.reader().capacity_bytes() / unit * unit;
    let (mut costs, mut complete) = (Vec::new(), true);
    let longest = (end / 2).max(FIRST);
    let next =
        |distance: &u64| distance.checked_mul(if *distance < NEAR { STEP } else { STEP * STEP });
    let distances = std::iter::successors(Some(FIRST), next);
    let distances = distances.take_while(|distance| *distance < longest).chain([longest]);
    // What all requests of `costs` are apart is no seek forward.
    let mut base = None;
    for distance in std::iter::once(GAP).chain(distances) {
        let distance_bytes = distance.next_multiple_of(unit);
        if distance_bytes + (varied(distance_bytes) / unit + 3) * unit > end {
            break;
        }
        let [forward, backward] = match times(meter, rng, distance_bytes, end, unit) {
            Ok(times) => times,
            Err(Failed::Spent) => {
                complete = false;
                break;
            }
            Err(why) => return Err(why),
        };
        let base = *base.get_or_insert(forward);
        let [ns, back] = [forward, backward].map(|ns| (ns - base).max(0.0) as u64);
        if costs.last().is_none_or(|last: &SeekCost| last.distance_bytes < distance_bytes) {
            costs.push(SeekCost { distance_bytes, ns, back_ns: Some(back) });
        }
    }
    Ok(Seeks { costs, complete })
}

/// By how much a distance varies, in bytes.
fn varied(distance: u64) -> u64 {
    (distance / 4).min(VARIED)
}

/// The mean time of a read so far behind the end of the one before, and of one so far before it.
fn times(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    distance: u64,
    end: u64,
    unit: u64,
) -> Result<[f64; 2], Failed> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    let varied = varied(distance) / unit;
    for _ in 0..ROUNDS {
        // Otherwise the disk would turn by the same angle each time.
        let distance = distance + rng.u64(0..=varied) * unit - varied / 2 * unit;
        let span = distance + 3 * unit;
        let low = rng.u64(0..=(end - span) / unit) * unit;
        let high = low + unit + distance;
        let one = |at: u64| [Read { at, bytes: unit as u32 }];
        meter.burst(&one(low))?;
        forward.push(meter.burst(&one(high))? as f64);
        // The end of the first is as far from the start of the second as in the other direction, but for two reads that
        // would be one: the second is the one before the first then.
        let high = (high - 2 * unit).max(low + unit);
        meter.burst(&one(high))?;
        backward.push(meter.burst(&one(low))? as f64);
    }
    // The middle half would not do: where some ways are a rotation longer than others, it is no mean of both.
    Ok([&forward, &backward].map(|times| inner_mean(times, times.len() / OUTER)))
}
