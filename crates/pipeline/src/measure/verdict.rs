//! How much of what was predicted was saved. Where that cannot be told, the times are reported and no verdict.

use super::watch::same_clock;
use super::{CouldNot, Moved, ROUNDS, Rounds, Sample, empty, refuse};
use fragmend_apply::measurement::{Measurement, Method, NoVerdict, Times};
use fragmend_plan::Plan;

/// Others may use the device by so much of what the rounds read: where they do so all the time, no round differs from another.
const OTHERS: f64 = 0.25;
/// And by so many bytes however little is read, by which a journal commits.
const COMMITS: f64 = 262_144.0;
/// Rounds may differ by so much of what was predicted to be saved, however little was: predictions are about as exact.
const EXACT: f64 = 0.1;

/// A measurement of a sample that was replayed, before a plan was carried out and after these ranges of it were moved.
pub fn replayed(
    sample: &mut Sample,
    plan: &Plan,
    moved: &Moved,
    before: Result<Rounds, CouldNot>,
    after: Result<Rounds, CouldNot>,
) -> Measurement {
    sample.predict_for_moved(plan, moved);
    let (reads, read_bytes) = sample.size();
    let (now, then) = sample.predicted();
    let predicted = (reads > 0).then(|| Times::new(now, then));
    let mut measurement = Measurement {
        reads,
        read_bytes,
        predicted,
        fitted: sample.is_fitted(),
        rounds: ROUNDS,
        recorded_reads: sample.recorded,
        in_flight: sample.in_flight(),
        ..empty(Method::Replayed)
    };
    count_ranges(&mut measurement, plan, moved);
    let both = before.and_then(|before| Ok((before, after?)));
    let compared = both.and_then(|(before, after)| {
        same_clock(before.clock, after.clock)?;
        Ok((before, after))
    });
    match compared {
        Ok((before, after)) => {
            measurement.measured = Some(Times::new(before.median(), after.median()));
            measurement.noise = Some(before.noise().max(after.noise()));
            measurement.clock = Some(before.clock);
            let others = before.others_bytes.max(after.others_bytes) as f64;
            let own = sample.data_bytes.saturating_mul(ROUNDS.into()) as f64;
            let others = if others > COMMITS { others / own.max(1.0) } else { 0.0 };
            judge(&mut measurement, before.spread() + after.spread(), others);
        }
        Err(why) => refuse(&mut measurement, why),
    }
    measurement
}

/// Enters for how many ranges is predicted, of how many.
pub(super) fn count_ranges(measurement: &mut Measurement, plan: &Plan, moved: &Moved) {
    measurement.planned_ranges = plan.files.iter().map(|file| file.ranges.len() as u64).sum();
    let moved = moved.ranges(plan);
    measurement.predicted_ranges = if moved > 0 { moved } else { measurement.planned_ranges };
}

/// Enters what share of the prediction was saved, or why that cannot be told, where rounds differ by so many seconds on both
/// layouts together, and the device did so much for others as a share of what the rounds read.
pub(super) fn judge(measurement: &mut Measurement, open_s: f64, others: f64) {
    let (Some(predicted), Some(measured)) = (measurement.predicted, measurement.measured) else {
        return;
    };
    if predicted.seconds_saved <= 0.0 {
        return;
    }
    let (no_verdict, detail) = if others > OTHERS {
        let detail = format!(
            "other programs had the device read or write {:.0} % of what the rounds read",
            others * 100.0
        );
        (NoVerdict::OtherPrograms, detail)
    } else if open_s > measured.seconds_saved.abs() && open_s > predicted.seconds_saved * EXACT {
        let detail = "the rounds differ by more than what was measured as saved";
        (NoVerdict::Noise, detail.to_owned())
    } else {
        measurement.saved_of_predicted = Some(measured.seconds_saved / predicted.seconds_saved);
        return;
    };
    (measurement.no_verdict, measurement.detail) = (Some(no_verdict), detail);
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(super) mod tests;
