//! Prediction meets measurement: the recorded reads before and after, or the service watched again.

use super::{Args, watch};
use crate::ui::Ui;
use fragmend_apply::measurement::{MeasuredBy, Method};
use fragmend_apply::{Measurement, Summary};
use fragmend_device::replay::{Done, Replayer};
use fragmend_pipeline::measure::{self, CouldNot, Rounds, Sample, Watched};
use fragmend_pipeline::{Event, Recording, Replayed, unobserved};
use fragmend_plan::Plan;
use fragmend_report::{Unit, human};
use fragmend_sys::signals::Waiting;
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
    /// Replays the reads of a recording, on the layout as it is.
    pub fn replay(
        recording: &Recording,
        args: &Args,
        planned: &Plan,
        stop: &AtomicBool,
        ui: &Ui,
    ) -> Self {
        let most = Replayer::MOST_IN_FLIGHT;
        let draw = |trace| Sample::draw(trace, &args.paths, planned, most, &unobserved);
        let sample = {
            // Nothing has moved yet: a signal may end the process in the middle of a long walk.
            let _waits = Waiting::begin();
            recording.trace(planned.settings.assume_cold).and_then(draw)
        };
        match sample {
            Ok(mut sample) => {
                let rounds = replay(&mut sample, true, stop, ui);
                Self::Replayed(Box::new(sample), rounds)
            }
            Err(why) => Self::Nothing(measure::failed(why)),
        }
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

/// Replays a sample with progress.
fn replay(
    sample: &mut Sample,
    first: bool,
    stop: &AtomicBool,
    ui: &Ui,
) -> Result<Rounds, CouldNot> {
    let bar = ui.progress(None, "{wide_bar} {human_pos} of {human_len} reads replayed");
    let rounds = measure::replay(sample, first, stop, &|event| match event {
        Event::ToReplay(Replayed { reads, bytes, rounds, recorded_reads }) => {
            bar.set_length(reads * u64::from(rounds));
            if first {
                bar.suspend(|| {
                    ui.announce(format_args!(
                        "replaying {reads} of {recorded_reads} recorded reads past the page cache, {rounds} times before \
                         and after: at most {} each time",
                        human(bytes as f64, Unit::Bytes),
                    ));
                });
            }
        }
        Event::Replayed(reads) => bar.inc(reads),
        _ => {}
    });
    bar.finish_and_clear();
    rounds
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
