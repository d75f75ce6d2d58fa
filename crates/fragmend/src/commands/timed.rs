//! Times the recorded reads where the data is now, so that a plan knows what their fragments cost there: no extent map shows
//! how a drive has placed them.

use crate::ui::Ui;
use fragmend_device::replay::Replayer;
use fragmend_pipeline::measure::{self, CouldNot, Rounds, Sample};
use fragmend_pipeline::{Event, LeftOut, Replayed};
use fragmend_plan::{OneMore, Plan, Survey};
use fragmend_report::{Unit, human};
use std::collections::BTreeMap;
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
    /// Draws a sample of the surveyed reads, which `plan` was made from, and replays it.
    pub fn of(survey: Survey, plan: &Plan, stop: &AtomicBool, ui: &Ui) -> Self {
        let mut sample = Box::new(Sample::draw(survey, plan, Replayer::MOST_IN_FLIGHT));
        let rounds = replay(&mut sample, true, stop, ui);
        let one_more = measure::one_more(&sample, &rounds, stop);
        Self { sample, rounds, one_more }
    }

    /// Predicts for a plan that was made with it.
    pub fn predict_for(&mut self, plan: &Plan) {
        self.sample.predict_for(plan, self.one_more.clone().unwrap_or_default());
    }
}

/// Enters into a survey what one more request costs, or why that is not known.
pub fn enter(survey: &mut Survey, timed: &Timed) {
    match &timed.one_more {
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
        Event::ToReplay(Replayed { reads, bytes, rounds, recorded_reads, left_out }) => {
            bar.set_length(reads * u64::from(rounds));
            if first {
                bar.suspend(|| {
                    if left_out != LeftOut::default() {
                        let LeftOut { files, reads } = left_out;
                        ui.announce(format_args!(
                            "left out of the timing: {reads} reads of {files} files that have vanished or changed meanwhile"
                        ));
                    }
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
