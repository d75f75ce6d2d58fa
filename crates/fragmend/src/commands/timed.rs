//! Times the recorded reads where the data is now, so that a plan knows what their fragments cost there: no extent map shows
//! how a drive has placed them.

use crate::ui::Ui;
use fragmend_device::replay::Replayer;
use fragmend_pipeline::measure::{self, CouldNot, Rounds, Sample};
use fragmend_pipeline::{Event, Replayed, unobserved};
use fragmend_plan::{OneMore, Plan, Survey};
use fragmend_report::{Unit, human};
use fragmend_sys::signals::Waiting;
use fragmend_trace::Trace;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Recorded reads, and the rounds in which they were replayed on the layout as it is.
pub struct Timed {
    /// The reads.
    pub sample: Box<Sample>,
    /// How long they lasted.
    pub rounds: Result<Rounds, CouldNot>,
    /// What one more request costs by that.
    one_more: Result<BTreeMap<u64, OneMore>, CouldNot>,
}

impl Timed {
    /// Draws a sample of the reads of `trace`, which `plan` was made from, and replays it.
    ///
    /// # Errors
    /// Why no sample can be drawn.
    pub fn of(
        trace: Trace,
        paths: &[PathBuf],
        plan: &Plan,
        stop: &AtomicBool,
        ui: &Ui,
    ) -> Result<Self, CouldNot> {
        let sample = {
            // Nothing has moved yet: a signal may end the process in the middle of a long walk.
            let _waits = Waiting::begin();
            Sample::draw(trace, paths, plan, Replayer::MOST_IN_FLIGHT, &unobserved)
        };
        let mut sample = Box::new(sample.map_err(measure::failed)?);
        let rounds = replay(&mut sample, true, stop, ui);
        let one_more = measure::one_more(&sample, &rounds, stop);
        Ok(Self { sample, rounds, one_more })
    }

    /// Predicts for a plan that was made with it.
    pub fn predict_for(&mut self, plan: &Plan) {
        self.sample.predict_for(plan, self.one_more.clone().unwrap_or_default());
    }
}

/// Enters into a survey what one more request costs, or why that is not known.
pub fn enter(survey: &mut Survey, timed: &Result<Timed, CouldNot>) {
    match timed.as_ref().and_then(|timed| timed.one_more.as_ref()) {
        Ok(one_more) => survey.timed.one_more = one_more.clone(),
        Err(why) => survey.timed.why_not = Some(why.detail.clone()),
    }
}

/// Replays a sample with progress.
///
/// # Errors
/// As [`measure::replay`].
pub fn replay(
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
                        "replaying {reads} of {recorded_reads} recorded reads past the page cache, {rounds} times: at most {} \
                         each time",
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
