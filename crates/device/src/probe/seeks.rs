//! What a distance costs on a device that seeks: how much longer a read lasts that begins so many bytes from the
//! end of the one before, in either direction, than one that continues it.

use super::area::Areas;
use super::compare::middle_mean;
use super::costs::GAP;
use super::meter::Meter;
use super::reader::{Failed, Read};
use fastrand::Rng;
use fragmend_layout::SeekCost;

/// Distances grow by this factor.
const STEP: u64 = 4;
/// The first distance.
const FIRST: u64 = 64 << 10;
/// How often each distance is measured in each direction: what varies is the angle of the disk.
const ROUNDS: u32 = 12;
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

/// Measures distances from [`FIRST`] to nearly all of the device.
///
/// # Errors
/// When a read fails. If the budget is spent, the distances that were measured until then are the result.
pub fn measure(meter: &mut Meter<'_>, rng: &mut Rng) -> Result<Vec<SeekCost>, Failed> {
    let unit = u64::from(meter.reader().unit_bytes());
    let end = meter.reader().capacity_bytes() / unit * unit;
    let mut seeks = Vec::new();
    let base = match times(meter, rng, GAP, end, unit) {
        Ok(base) => base,
        Err(Failed::Spent) => return Ok(seeks),
        Err(why) => return Err(why),
    };
    let longest = (end / 2).max(FIRST);
    let distances = std::iter::successors(Some(FIRST), |distance| distance.checked_mul(STEP));
    let distances = distances.take_while(|distance| *distance < longest).chain([longest]);
    for distance in distances {
        let distance_bytes = distance / unit * unit;
        match times(meter, rng, distance_bytes, end, unit) {
            Ok(ns) => {
                let ns = (ns - base).max(0.0) as u64;
                seeks.push(SeekCost { distance_bytes, ns });
            }
            Err(Failed::Spent) => break,
            Err(why) => return Err(why),
        }
    }
    Ok(seeks)
}

/// The mean time of a read at this distance from the one before.
fn times(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    distance: u64,
    end: u64,
    unit: u64,
) -> Result<f64, Failed> {
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    if distance + 2 * unit > end {
        return Err(Failed::Spent);
    }
    for _ in 0..ROUNDS {
        // Otherwise the disk would turn by the same angle each time.
        let less = (distance / 4).min(VARIED) / unit;
        let distance = distance - rng.u64(0..=less) * unit;
        let span = distance + 2 * unit;
        let low = rng.u64(0..=(end - span) / unit) * unit;
        let high = low + unit + distance;
        let one = |at: u64| [Read { at, bytes: unit as u32 }];
        meter.burst(&one(low))?;
        forward.push(meter.burst(&one(high))? as f64);
        if distance >= FIRST / 2 {
            // The end of the first is as far from the start of the second as in the other direction.
            let high = (high - 2 * unit).max(low);
            meter.burst(&one(high))?;
            backward.push(meter.burst(&one(low))? as f64);
        }
    }
    let forward = middle_mean(&forward);
    Ok(if backward.is_empty() { forward } else { (forward + middle_mean(&backward)) / 2.0 })
}
