//! Reads at intervals (FAST'24, figure 8): stripe and die allocation granularity, or why they cannot be told.

use super::area::{Areas, Content};
use super::compare::{ERROR, Verdict, compare, middle_mean};
use super::granularity::{self, NoGranularity};
use super::meter::{Limits, Meter};
use super::reader::Failed;
use super::sets::{Field, MOST};
use super::stripe::{self, AtDistance, FEWER_DIES, NoStripe, Search};
use fastrand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why a geometry cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CannotTell {
    /// A layer is between the block device and the flash: a partition table aside, its blocks are elsewhere in
    /// another order, or on several drives.
    Layered,
    /// It is no flash: a disk.
    Seeks,
    /// It answers one request at a time.
    OneAtATime,
    /// It has too little space for reads at intervals.
    TooSmall,
    /// It takes too few requests at a time.
    TooShallow,
    /// No interval makes reads slower: no die has a turn, or what was read was not written in order.
    NoPattern,
    /// Some intervals make reads slower, but not as those of one die after the other do.
    OtherPattern,
    /// Another place of the device shows something else: the data at one of them, or at both, was not written in order.
    PlacesDiffer,
    /// The times vary too much, or differ too little.
    Unclear,
    /// The budget was spent before it was clear.
    Budget,
    /// It was not asked for.
    NotAsked,
}

impl CannotTell {
    /// The reason in words, after "cannot tell: ".
    pub fn words(self) -> &'static str {
        match self {
            Self::Layered => "what is below this device decides where its blocks are",
            Self::Seeks => "the device seeks, it has no dies",
            Self::OneAtATime => "the device answers one request at a time",
            Self::TooSmall => "there is too little to read at intervals",
            Self::TooShallow => "the device takes too few requests at a time",
            Self::NoPattern => {
                "no interval makes reads slower: the device does not take dies in turn, or what was read was not written in order"
            }
            Self::OtherPattern => {
                "reads at some intervals are slower, but not as those of one die after the other are"
            }
            Self::PlacesDiffer => {
                "another place of the device shows something else: not all of its data was written in order"
            }
            Self::Unclear => "the times vary too much, or differ too little, for an answer",
            Self::Budget => "the budget was spent before it was clear",
            Self::NotAsked => "it was not asked for",
        }
    }
}

/// A size, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sure {
    /// Bytes.
    pub bytes: u64,
    /// One minus the sum of the error probabilities of the comparisons that it rests on.
    pub confidence: f64,
}

/// What reads at intervals show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Geometry {
    /// Data written across all dies before the first die's next turn.
    pub stripe: Option<Sure>,
    /// Data written to a die before the next die's turn.
    pub granularity: Option<Sure>,
    /// Why they are missing.
    pub cannot_tell: Option<CannotTell>,
    /// The times at intervals, in the first area.
    pub seen: Vec<AtDistance>,
}

impl Geometry {
    /// Nothing, for a reason.
    pub fn unknown(why: CannotTell) -> Self {
        Self { cannot_tell: Some(why), ..Self::default() }
    }
}

/// The fewest bytes of an area.
const LEAST_AREA: u64 = 16 << 20;
/// Single reads, one after the other, last this many times longer than together, or the device does one at a time.
const PARALLEL: f64 = 1.5;
/// Areas that are tried until one shows a stripe.
const TRIED: usize = 3;
/// Further areas that must show the same, if there are any.
const CONFIRMED: usize = 2;

/// The most that [`measure`] reads, in units of this many bytes.
pub fn most(unit_bytes: u32) -> Limits {
    let requests = 300_000;
    Limits { bytes: requests * u64::from(unit_bytes), requests, time: Duration::MAX }
}

/// Looks for a geometry in the first areas.
///
/// # Errors
/// When a read fails.
pub fn measure(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    areas: &Areas,
    search: Search,
) -> Result<Geometry, Failed> {
    if meter.reader().max_depth() < MOST {
        return Ok(Geometry::unknown(CannotTell::TooShallow));
    }
    let unit = u64::from(meter.reader().unit_bytes());
    let mut fields: Vec<_> =
        areas.filled.iter().filter(|area| area.end - area.start >= LEAST_AREA).collect();
    fields.sort_by_key(|area| std::cmp::Reverse(area.end - area.start));
    let mut fields = fields.into_iter().map(|area| Field { area: area.clone(), unit });
    let mut best = Geometry::unknown(CannotTell::TooSmall);
    let mut seen = Vec::new();
    for field in fields.by_ref().take(TRIED) {
        match of_field(meter, rng, &field, search, &mut seen) {
            Ok(found) => best = found,
            Err(Failed::Spent) => best = Geometry::unknown(CannotTell::Budget),
            Err(why) => return Err(why),
        }
        // Another area is in other places of the same dies; a device without parallelism has none anywhere.
        let decided =
            matches!(best.cannot_tell, None | Some(CannotTell::OneAtATime | CannotTell::Budget));
        if decided || areas.content == Content::Zeroes {
            break;
        }
    }
    if let (Some(stripe), Some(granularity)) = (best.stripe, best.granularity)
        && differ(meter, rng, fields.take(CONFIRMED), (stripe.bytes, granularity.bytes))?
    {
        best = Geometry::unknown(CannotTell::PlacesDiffer);
    }
    best.seen = seen;
    Ok(best)
}

/// Whether one of these places contradicts what was found at another: reads at the stripe meet more dies there than
/// those at twice as much, or the granularity is another. One where nothing is clear does not, nor does one for which the
/// budget is too small.
fn differ(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    places: impl Iterator<Item = Field>,
    (stripe, granularity): (u64, u64),
) -> Result<bool, Failed> {
    for place in places {
        let count = place.reads(2 * stripe);
        let mut far = |rng: &mut Rng| place.at_multiples(rng, 2 * stripe, count, 1);
        let mut near = |rng: &mut Rng| place.at_multiples(rng, stripe, count, 2);
        match compare(meter, rng, &mut far, &mut near, FEWER_DIES) {
            Ok(Verdict::Longer) => return Ok(true),
            Ok(_) => {}
            Err(Failed::Spent) => break,
            Err(why) => return Err(why),
        }
        match granularity::find(meter, rng, &place, stripe) {
            Ok(Ok(found)) if found.bytes == granularity => {}
            Ok(Err(NoGranularity::Unclear)) => {}
            Ok(Ok(_) | Err(NoGranularity::Irregular)) => return Ok(true),
            Err(Failed::Spent) => break,
            Err(why) => return Err(why),
        }
    }
    Ok(false)
}

fn of_field(
    meter: &mut Meter<'_>,
    rng: &mut Rng,
    field: &Field,
    search: Search,
    seen: &mut Vec<AtDistance>,
) -> Result<Geometry, Failed> {
    if !is_parallel(meter, rng, field)? {
        return Ok(Geometry::unknown(CannotTell::OneAtATime));
    }
    let stripe = match stripe::find(meter, rng, field, search, seen)? {
        Ok(stripe) => stripe,
        Err(NoStripe::NoPattern) => return Ok(Geometry::unknown(CannotTell::NoPattern)),
        Err(NoStripe::OtherPattern) => return Ok(Geometry::unknown(CannotTell::OtherPattern)),
        Err(NoStripe::Unclear) => return Ok(Geometry::unknown(CannotTell::Unclear)),
    };
    // Neither is told without the other: each is what the other is confirmed by.
    let found = match granularity::find(meter, rng, field, stripe.bytes)? {
        Ok(found) => found,
        Err(NoGranularity::Unclear) => return Ok(Geometry::unknown(CannotTell::Unclear)),
        Err(NoGranularity::Irregular) => return Ok(Geometry::unknown(CannotTell::OtherPattern)),
    };
    let comparisons = stripe.comparisons + found.comparisons;
    let confidence = 1.0 - f64::from(comparisons) * ERROR;
    Ok(Geometry {
        stripe: Some(Sure { bytes: stripe.bytes, confidence }),
        granularity: Some(Sure { bytes: found.bytes, confidence }),
        ..Geometry::default()
    })
}

/// Whether reads that are issued together overlap.
fn is_parallel(meter: &mut Meter<'_>, rng: &mut Rng, field: &Field) -> Result<bool, Failed> {
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        alone.push(meter.elapsed(&field.anywhere(rng, MOST), 1)? as f64);
        together.push(meter.burst(&field.anywhere(rng, MOST))? as f64);
    }
    Ok(middle_mean(&alone) / middle_mean(&together) > PARALLEL)
}
