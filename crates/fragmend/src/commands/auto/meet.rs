//! Prediction meets measurement: the recorded reads before and after, or the service watched again.

use super::{Args, watch};
use crate::commands::timed::{Timed, replay};
use crate::ui::Ui;
use fragmend_apply::measurement::Method;
use fragmend_apply::{Measurement, Summary};
use fragmend_pipeline::Recording;
use fragmend_pipeline::measure::{self, CouldNot, Moved, Rounds, Sample, Seen, Watched};
use fragmend_plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};

/// What there is to compare with, before anything has moved.
pub(super) enum Before {
    /// The recorded reads, or a sample of them, were replayed.
    Replayed(Box<Sample>, Result<Rounds, CouldNot>),
    /// The service was watched.
    Watched(Result<Seen, CouldNot>),
    /// There is nothing.
    Nothing(CouldNot),
}

impl Before {
    /// The reads that were timed before the plan was made.
    pub fn replayed(timed: Timed) -> Self {
        Self::Replayed(timed.sample, timed.rounds)
    }

    /// The measurement, once the plan was carried out and these ranges of it were moved.
    pub fn meets(
        self,
        summary: &Summary,
        (planned, moved): (&Plan, &Moved),
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
                measure::replayed(&mut sample, planned, moved, before, after)
            }
            Self::Watched(before) => {
                let after = match refused {
                    Some(why) => Err(why),
                    None => watch_again(args, stop, ui),
                };
                measure::watched_again(planned, moved, before, after)
            }
            Self::Nothing(why) => measure::not_measured(Method::Replayed, why),
        }
    }
}

/// Watches the service once more, for as long as it was recorded.
fn watch_again(args: &Args, stop: &AtomicBool, ui: &Ui) -> Result<Seen, CouldNot> {
    let again = Recording::new(args.paths.clone(), args.duration, None);
    let mut again = again.map_err(measure::failed)?;
    let mut watched = Watched::begin(&args.paths)?;
    watch(&mut again, Some(&mut watched), args.duration, stop, ui).map_err(measure::failed)?;
    if stop.load(Ordering::Relaxed) {
        return Err(measure::interrupted());
    }
    watched.end(&again)
}
