//! Prediction meets measurement: the recorded reads before and after, or the service watched again.

use super::{Args, watch};
use crate::commands::timed::{Timed, replay};
use crate::ui::Ui;
use fragmend_apply::measurement::{MeasuredBy, Method};
use fragmend_apply::{Measurement, Summary};
use fragmend_device::replay::Done;
use fragmend_pipeline::Recording;
use fragmend_pipeline::measure::{self, CouldNot, Rounds, Sample, Watched};
use fragmend_plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the disks did while the service was recorded, or why that is not known.
type Seen = Result<(Done, MeasuredBy), CouldNot>;

/// What there is to compare with, before anything has moved.
pub(super) enum Before {
    /// The recorded reads, or a sample of them, were replayed.
    Replayed(Box<Sample>, Result<Rounds, CouldNot>),
    /// The service was watched.
    Watched(Seen),
    /// There is nothing.
    Nothing(CouldNot),
}

impl Before {
    /// The reads that were timed before the plan was made.
    pub fn replayed(timed: Timed) -> Self {
        Self::Replayed(timed.sample, timed.rounds)
    }

    /// The measurement, once the plan was carried out.
    pub fn meets(
        self,
        summary: &Summary,
        planned: &Plan,
        args: &Args,
        stop: &AtomicBool,
        ui: &Ui,
    ) -> Measurement {
        let refused = if summary.interrupted || stop.load(Ordering::Relaxed) {
            Some(measure::interrupted())
        } else if summary.ranges_moved == 0 {
            Some(measure::nothing_moved())
        } else {
            None
        };
        match self {
            Self::Replayed(mut sample, before) => {
                let again = |_: &Rounds| match refused {
                    Some(why) => Err(why),
                    None => replay(&mut sample, false, stop, ui),
                };
                let after = before.clone().and_then(|before| again(&before));
                measure::replayed(&sample, before, after)
            }
            Self::Watched(before) => {
                let after = match refused {
                    Some(why) => Err(why),
                    None => watch_again(args, stop, ui),
                };
                measure::watched_again(planned, before, after)
            }
            Self::Nothing(why) => measure::not_measured(Method::Replayed, why),
        }
    }
}

/// Watches the service once more, for as long as it was recorded.
fn watch_again(args: &Args, stop: &AtomicBool, ui: &Ui) -> Seen {
    let again = Recording::new(args.paths.clone(), args.duration, None);
    let mut again = again.map_err(measure::failed)?;
    let watched = Watched::begin(&args.paths)?;
    watch(&mut again, args.duration, stop, ui).map_err(measure::failed)?;
    if stop.load(Ordering::Relaxed) {
        return Err(measure::interrupted());
    }
    watched.end()
}
