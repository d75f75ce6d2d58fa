//! What each amount of writing saves: bytes against time, by the same choice at many prices.

use crate::between::Between;
use crate::choose::{or_whole, saved_ns};
use crate::select::Analysed;
use crate::select::gain::{self, bytes};
use crate::select::price::Price;
use crate::slow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Bytes that would be written.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Seconds that one replay would last less.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds_saved: f64,
}

/// The most points of a curve, its origin besides.
pub const MOST_POINTS: usize = 24;

/// The curve from nothing to all that saves any time, ascending in both figures, whatever the price of the plan.
pub fn curve(files: &[Analysed], between: &Between) -> Vec<CurvePoint> {
    let at = |price: Price| {
        let chosen = gain::at(files, price);
        let mut chosen = or_whole(files, &chosen, |_| price).unwrap_or(chosen);
        chosen.extend(slow::worth(files, &chosen, |_| price));
        let saved = saved_ns(files, &chosen) + between.saved_ns(files, &chosen);
        let seconds_saved = saved as f64 / 1e9;
        (price, CurvePoint { bytes: bytes(&chosen), seconds_saved })
    };
    // By price, from the least, which moves most.
    let mut points = vec![at(Price::LEAST), at(Price::MOST)];
    while points.len() < MOST_POINTS {
        // The widest gap is parted, if a price between its ends still differs from both.
        let gap = |i: &usize| points[*i].1.bytes.saturating_sub(points[*i + 1].1.bytes);
        let apart = |i: &usize| {
            let middle = points[*i].0.between(points[*i + 1].0);
            gap(i) > 0 && middle != points[*i].0 && middle != points[*i + 1].0
        };
        let widest = (0..points.len() - 1).filter(apart).max_by_key(gap);
        let Some(i) = widest else { break };
        let middle = points[i].0.between(points[i + 1].0);
        points.insert(i + 1, at(middle));
    }
    let mut curve = vec![CurvePoint { bytes: 0, seconds_saved: 0.0 }];
    for (_, point) in points.into_iter().rev() {
        let last = curve[curve.len() - 1];
        if point.bytes > last.bytes && point.seconds_saved > last.seconds_saved {
            curve.push(point);
        }
    }
    curve
}
