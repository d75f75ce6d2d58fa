//! Where a probe reads: areas that hold data, because a drive answers for what was never written, or was trimmed,
//! without touching its media.

use super::meter::Meter;
use super::reader::Failed;
use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What the areas that were read hold, by the content of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Data.
    Data,
    /// Data, between zeroes: some of the times may be those of a device that does not touch its media.
    Mixed,
    /// Only zeroes were found: the device may never have been written there, and times may be those of a device
    /// that does not touch its media.
    Zeroes,
    /// Their content was not looked at.
    Unknown,
}

/// Places to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Areas {
    /// Byte ranges, the most promising first.
    pub ranges: Vec<Range<u64>>,
    /// Parts of them that are full of data, as far as samples show: what is read.
    pub filled: Vec<Range<u64>>,
    /// What they hold.
    pub content: Content,
}

/// The size of an area: large enough for some dozens of stripes of every size that is looked for.
const AREA: u64 = 256 << 20;
/// How many areas are sampled, and places in each; of fewer areas as many places in all.
const SAMPLED: u64 = 64;
const SAMPLES: u64 = 8;
/// Areas that are used.
const USED: usize = 16;

/// Parts of areas that are filled or not, and samples of each.
const PART: u64 = 8 << 20;
const PART_SAMPLES: u64 = 2;

/// The most requests of [`find`] and [`fill`].
pub const MOST_REQUESTS: u64 = SAMPLED * SAMPLES + USED as u64 * (AREA / PART) * PART_SAMPLES;

/// Finds areas that hold data, of those within `within` (the whole device if it is empty).
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn find(meter: &mut Meter<'_>, rng: &mut Rng, within: &[Range<u64>]) -> Result<Areas, Failed> {
    let unit = u64::from(meter.reader().unit_bytes());
    let capacity = meter.reader().capacity_bytes() / unit * unit;
    let mut scored = Vec::new();
    let mut known = false;
    let all = candidates(within, capacity, unit);
    let samples = SAMPLED * SAMPLES / (all.len() as u64).max(1);
    for area in all {
        let mut data = 0;
        for _ in 0..samples {
            let at = area.start + rng.u64(0..(area.end - area.start) / unit) * unit;
            let held = meter.holds_data(at)?;
            known |= held.is_some();
            data += u64::from(held == Some(true));
        }
        scored.push((data, area));
    }
    scored.sort_by_key(|(data, _)| std::cmp::Reverse(*data));
    let most = scored.first().map_or(0, |(data, _)| *data);
    // A few zeroes are normal in data; an area that is half empty is not worth it beside a full one.
    scored.retain(|(data, _)| *data * 2 >= most);
    let content = match (known, most) {
        (false, _) => Content::Unknown,
        (true, 0) => Content::Zeroes,
        (true, _) => Content::Data,
    };
    let mut ranges: Vec<_> = scored.into_iter().map(|(_, area)| area).collect();
    if content != Content::Data {
        // None is better than another: spread over the device.
        rng.shuffle(&mut ranges);
    }
    ranges.truncate(USED);
    Ok(Areas { filled: ranges.clone(), ranges, content })
}

/// Finds the parts of areas that are full of data.
///
/// # Errors
/// When a read fails, or the budget is spent.
pub fn fill(meter: &mut Meter<'_>, rng: &mut Rng, areas: &mut Areas) -> Result<(), Failed> {
    if areas.content != Content::Data {
        return Ok(());
    }
    let unit = u64::from(meter.reader().unit_bytes());
    let mut filled: Vec<Range<u64>> = Vec::new();
    for area in &areas.ranges {
        for start in (area.start..area.end).step_by(PART as usize) {
            let part = start..(start + PART).min(area.end);
            let mut full = true;
            for _ in 0..PART_SAMPLES {
                let at = part.start + rng.u64(0..(part.end - part.start) / unit) * unit;
                full &= meter.holds_data(at)? == Some(true);
            }
            match filled.last_mut() {
                _ if !full => {}
                Some(last) if last.end == part.start => last.end = part.end,
                _ => filled.push(part),
            }
        }
    }
    if filled.is_empty() {
        areas.content = Content::Mixed;
    } else {
        areas.filled = filled;
    }
    Ok(())
}

/// Areas spread over the device, or the given ranges cut to the size of areas, the largest first.
fn candidates(within: &[Range<u64>], capacity: u64, unit: u64) -> Vec<Range<u64>> {
    let whole = |range: &Range<u64>| {
        let start = range.start.next_multiple_of(unit);
        let end = range.end.min(capacity) / unit * unit;
        (start < end).then_some(start..end)
    };
    if !within.is_empty() {
        let cut = |range: Range<u64>| {
            let starts = (range.start..range.end).step_by(AREA as usize);
            starts.map(move |start| start..(start + AREA).min(range.end))
        };
        let mut all: Vec<_> = within.iter().filter_map(whole).flat_map(cut).collect();
        all.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        all.truncate(SAMPLED as usize);
        return all;
    }
    let slot = (capacity / SAMPLED).max(AREA) / unit * unit;
    let starts = (0..capacity).step_by(slot as usize);
    starts.filter_map(|start| whole(&(start..start + AREA.min(slot)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_spread_over_a_device_and_within_it() {
        let all = candidates(&[], 1 << 40, 4096);
        assert_eq!(all.len(), 64);
        assert!(all.iter().all(|area| area.end - area.start == AREA && area.end <= 1 << 40));
        assert!(all[63].start > (1 << 40) / 64 * 62);
        // A small one is one area, up to its last whole unit.
        let small = candidates(&[], 10_000, 4096);
        assert!(small.len() == 1 && small[0] == (0..8192));
        assert_eq!(candidates(&[], 100, 4096), []);
        let given = [100..9000, 1 << 30..3 << 29];
        let areas = [1 << 30..(1 << 30) + AREA, (1 << 30) + AREA..3 << 29, 4096..8192];
        assert_eq!(candidates(&given, 1 << 40, 4096), areas);
    }
}
