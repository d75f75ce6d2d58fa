//! What reads cost on a device, measured by reading it: the costs of a [`CostModel`], and the geometry of its flash.
//! Nothing is ever written.
//!
//! | module | its job |
//! |---|---|
//! | [`reader`] | the interface to a device: carry out reads, say how long they lasted |
//! | [`ring`] | the real one, through io_uring |
//! | [`clock`] | the clock that times it |
//! | [`pace`] | waiting for other programs |
//! | [`meter`] | a reader within limits that are said before |
//! | [`area`] | where to read: what holds data |
//! | [`costs`] | bursts and intervals by length and number in flight (FAST'24, figure 7) |
//! | [`seeks`] | what a distance costs on a disk |
//! | [`intervals`] | reads at intervals: stripe and die allocation granularity (FAST'24, figure 8) |
//! | [`stripe`], [`granularity`] | the two searches |
//! | [`compare`] | the statistical test that every decision of theirs rests on |
//! | [`sets`] | the reads of a burst |
//! | [`ranges`] | how fast each range of a file reads |

pub mod area;
pub mod clock;
pub mod compare;
pub mod costs;
pub mod granularity;
pub mod intervals;
pub mod meter;
pub mod pace;
pub mod ranges;
pub mod reader;
pub mod ring;
pub mod seeks;
pub mod sets;
pub mod stripe;

use area::Content;
use costs::Grid;
use fastrand::Rng;
use fragmend_layout::{CostModel, CostSource, Senseless};
use intervals::{CannotTell, Geometry};
use meter::{Limits, Meter, Spent};
use reader::{Failed, Reader};
use seeks::Seeks;
use std::ops::Range;
use std::time::Duration;
use stripe::Search;

/// What to measure, and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// From the beginning to the end.
    pub time: Duration,
    /// Where to read, in bytes of the device; everywhere if it is empty.
    pub within: Vec<Range<u64>>,
    /// Why the geometry is not looked for; `None` if it is.
    pub no_geometry: Option<CannotTell>,
    /// How far intervals are searched.
    pub search: Search,
    /// The seed of all random places.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        let (time, search) = (Duration::from_secs(60), Search::default());
        Self { time, within: Vec::new(), no_geometry: None, search, seed: 0 }
    }
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What reads cost.
    pub costs: CostModel,
    /// Whether every figure was measured that was to be.
    pub complete: bool,
    /// The geometry.
    pub geometry: Geometry,
    /// What was read held.
    pub content: Content,
    /// What was read.
    pub spent: Spent,
    /// How long it lasted, by the clock on the wall.
    pub lasted: Duration,
}

/// A stage of a probe, for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Looking for areas that hold data.
    Areas,
    /// Costs of requests.
    Costs,
    /// Distances.
    Seeks,
    /// Reads at intervals.
    Intervals,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is nothing to read.
    #[error("it has less than {0} bytes that can be read: nothing can be measured")]
    TooSmall(u64),
    /// Not even single requests could be measured.
    #[error("there was no time for anything but {0} requests; give more (--seconds)")]
    NoTime(u64),
    /// The figures are no model.
    #[error("the times make no sense: {0}")]
    Senseless(#[from] Senseless),
    /// See [`Failed`].
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// The most that a probe with these options reads; it keeps to that.
pub fn most(reader: &dyn Reader, options: &Options) -> Limits {
    let costs = Grid::of(reader).most();
    let unit = u64::from(reader.unit_bytes());
    let small = area::MOST_REQUESTS + seeks::MOST_REQUESTS;
    let intervals = if options.no_geometry.is_none() {
        intervals::most(reader.unit_bytes())
    } else {
        Limits { bytes: 0, requests: 0, time: Duration::ZERO }
    };
    Limits {
        bytes: costs.bytes + small * unit + intervals.bytes,
        requests: costs.requests + small + intervals.requests,
        time: options.time,
    }
}

/// Measures a device. `stop` is asked before each burst; `stage` is told what begins.
///
/// # Errors
/// See [`ProbeError`].
pub fn probe(
    reader: &mut dyn Reader,
    options: &Options,
    stop: &dyn Fn() -> bool,
    stage: &mut dyn FnMut(Stage),
) -> Result<Measured, ProbeError> {
    let limits = most(reader, options);
    let grid = Grid::of(reader);
    let unit = reader.unit_bytes();
    let mut meter = Meter::new(reader, limits, stop);
    let mut rng = Rng::with_seed(options.seed);
    stage(Stage::Areas);
    let mut areas = area::find(&mut meter, &mut rng, &options.within)?;
    let grid = grid.within(&areas);
    if grid.lengths.is_empty() {
        return Err(ProbeError::TooSmall(unit.into()));
    }
    let seeking = seeks::is_seeking(&mut meter, &mut rng, &areas)?;
    if !seeking {
        area::fill(&mut meter, &mut rng, &mut areas)?;
    }
    let grid = grid.within(&areas);
    stage(Stage::Costs);
    // A half of the time is for the rest.
    meter.stage(Limits { time: limits.time / 2, ..grid.most() });
    let costs = match costs::measure(&mut meter, &mut rng, &areas, &grid, seeking) {
        Err(Failed::Spent) => return Err(ProbeError::NoTime(meter.spent().requests)),
        other => other?,
    };
    meter.stage(limits);
    let seeks = if seeking {
        stage(Stage::Seeks);
        seeks::measure(&mut meter, &mut rng)?
    } else {
        Seeks { costs: Vec::new(), complete: true }
    };
    let geometry = match options.no_geometry {
        Some(why) => Geometry::unknown(why),
        None if seeking => Geometry::unknown(CannotTell::Seeks),
        None => {
            stage(Stage::Intervals);
            intervals::measure(&mut meter, &mut rng, &areas, options.search)?
        }
    };
    Ok(Measured {
        costs: CostModel::new(CostSource::Probed, costs.reads, seeks.costs)?,
        complete: costs.complete
            && seeks.complete
            && geometry.cannot_tell != Some(CannotTell::Budget),
        geometry,
        content: areas.content,
        spent: meter.spent(),
        lasted: meter.lasted(),
    })
}
