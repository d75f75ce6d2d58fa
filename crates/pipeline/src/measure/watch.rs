//! A service that is watched twice: how long its disks were busy, as a whole, beside the prediction for all that was recorded.
//! Between the two the service may do something else, so the later time is scaled to the bytes that were read first; where
//! that would be no time of the same load, there is none.

use super::own::Own;
use super::verdict::{count_ranges, judge};
use super::{CouldNot, Moved, empty, failed, refuse};
use crate::Recording;
use fragmend_apply::measurement::{MeasuredBy, Measurement, Method, NotMeasured, Times};
use fragmend_device::probe::clock::ClockKind;
use fragmend_device::replay::{Busy, Done};
use fragmend_plan::Plan;
use fragmend_sys::block::BlockDevice;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The service may read so many times as much as before, or the so many-th part. What the time has besides, of writes and of
/// other programs, is scaled with it, and what was read may no longer be of the same mix. A service that waits for its disk reads
/// as much more as that is quicker: so much more is no other load.
const SCALE: f64 = 2.0;
/// So much of what the disks read and wrote may be others': they are busy with that too, and what it costs is not known.
const OTHERS: f64 = 0.25;
/// What was not read by the service, for each byte that was read, may be more or less by so much: predictions are about as exact.
const DIFFERENCE: f64 = 0.1;

/// The disks of a service, while it is watched.
pub struct Watched {
    disks: Vec<Busy>,
    begun: Vec<Done>,
    seen: Result<Vec<Done>, CouldNot>,
}

/// What they did meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    done: Done,
    clock: MeasuredBy,
    /// Of the service.
    own: Own,
}

impl Watched {
    /// Begins: from now on counts what the disks below `paths` do.
    ///
    /// # Errors
    /// See [`CouldNot`].
    pub fn begin(paths: &[PathBuf]) -> Result<Self, CouldNot> {
        let mut devices: Vec<BlockDevice> = Vec::new();
        for path in paths {
            let found = path.metadata().and_then(|found| BlockDevice::under(path, found.dev()));
            let device = found.map_err(|e| CouldNot::failed(&e))?;
            if !devices.iter().any(|known| known.disk() == device.disk()) {
                devices.push(device);
            }
        }
        let disks = devices.iter().map(Busy::of).collect::<io::Result<Vec<_>>>();
        let disks = disks.map_err(|e| CouldNot::failed(&e))?;
        let begun = done(&disks)?;
        Ok(Self { seen: Ok(begun.clone()), begun, disks })
    }

    /// The recording begins now: what the disks did before counts for nothing.
    pub fn begin_anew(&mut self) {
        self.look();
        if let Ok(seen) = &self.seen {
            self.begun.clone_from(seen);
        }
    }

    /// Counts what the disks have done so far: what they do after the last look counts for nothing, as it is not recorded.
    pub fn look(&mut self) {
        if self.seen.is_ok() {
            self.seen = done(&self.disks);
        }
    }

    /// What they did between, of a service that was recorded meanwhile.
    ///
    /// # Errors
    /// See [`CouldNot`].
    pub fn end(self, recording: &Recording) -> Result<Seen, CouldNot> {
        let seen = self.seen?;
        let each = seen.into_iter().zip(self.begun).map(|(done, begun)| done - begun);
        let done = each.fold(Done::default(), |sum, done| sum + done);
        let served = self.disks.iter().all(|disk| disk.clock() == ClockKind::Served);
        let clock = if served { MeasuredBy::Served } else { MeasuredBy::Wall };
        Ok(Seen { done, clock, own: Own::of(&recording.counts().map_err(failed)?) })
    }
}

fn done(disks: &[Busy]) -> Result<Vec<Done>, CouldNot> {
    let done = disks.iter().map(Busy::done).collect::<io::Result<_>>();
    done.map_err(|e| CouldNot::failed(&e))
}

impl Seen {
    /// Bytes that the disks have read for others; none where it is not known.
    fn others_read(&self) -> u64 {
        self.done.read_bytes.saturating_sub(self.own.read_bytes.unwrap_or(u64::MAX))
    }

    /// Bytes that the disks have read or written for others, as a share of all.
    fn others(&self) -> f64 {
        let written = self.done.written_bytes.saturating_sub(self.own.written_bytes);
        let all = self.done.read_bytes as f64 + self.done.written_bytes as f64;
        (self.others_read() as f64 + written as f64) / all.max(1.0)
    }

    /// Bytes of writes, and of others' reads, for each byte that was read.
    fn besides(&self) -> f64 {
        let besides = self.others_read() as f64 + self.done.written_bytes as f64;
        besides / (self.done.read_bytes as f64).max(1.0)
    }
}

/// By how much the time of the second watch is to be multiplied, of a service that is predicted to be so many times as quick.
///
/// # Errors
/// If it would not be that of the same load.
fn scale(before: &Seen, after: &Seen, quicker: f64) -> Result<f64, CouldNot> {
    if before.done.read_bytes == 0 || after.done.read_bytes == 0 {
        let when = if before.done.read_bytes == 0 { "recorded" } else { "watched again" };
        let detail = format!("the service read nothing from its disk while it was {when}");
        return Err(CouldNot::new(NotMeasured::NothingToRead, detail));
    }
    same_clock(before.clock, after.clock)?;
    let more = after.done.read_bytes as f64 / before.done.read_bytes as f64;
    if !(1.0 / SCALE..=SCALE * quicker.max(1.0)).contains(&more) {
        let detail = format!(
            "{} bytes were read while the service was recorded, and {} while it was watched again: that is another load",
            before.done.read_bytes, after.done.read_bytes
        );
        return Err(CouldNot::new(NotMeasured::LoadDiffers, detail));
    }
    for (seen, when) in [(before, "recorded"), (after, "watched again")] {
        if seen.others() > OTHERS {
            let detail = format!(
                "{:.0} % of what the disk read and wrote while the service was {when} was not the service's",
                seen.others() * 100.0
            );
            return Err(CouldNot::new(NotMeasured::OtherPrograms, detail));
        }
    }
    let (first, second) = (before.besides(), after.besides());
    if (first - second).abs() > DIFFERENCE {
        let detail = format!(
            "for each byte read, {first:.2} were written or read by others while the service was recorded, and {second:.2} while it \
             was watched again: that is another load"
        );
        return Err(CouldNot::new(NotMeasured::LoadDiffers, detail));
    }
    Ok(1.0 / more)
}

/// Refuses times of different clocks.
pub(super) fn same_clock(before: MeasuredBy, after: MeasuredBy) -> Result<(), CouldNot> {
    if before == after {
        return Ok(());
    }
    let detail = "one time is by the drive's own clock, and the other one by that on the wall";
    Err(CouldNot::new(NotMeasured::ClocksDiffer, detail))
}

/// What was predicted for all that was recorded, and for what the recording stands for besides, which no range of the plan
/// makes quicker; with the ranges that were moved.
fn predicted(plan: &Plan, moved: &Moved) -> Times {
    let summary = &plan.summary;
    let share = if moved.ranges(plan) > 0 { moved.share(plan) } else { 1.0 };
    let before = summary.seconds_before + summary.unseen_seconds_before;
    Times::new(before, before - (summary.seconds_before - summary.seconds_after) * share)
}

/// A measurement of a service that was watched before and after: times of its disks, the later one scaled to the
/// bytes that were read before.
pub fn watched_again(
    plan: &Plan,
    moved: &Moved,
    before: Result<Seen, CouldNot>,
    after: Result<Seen, CouldNot>,
) -> Measurement {
    let predicted = predicted(plan, moved);
    let quicker = predicted.seconds_before / predicted.seconds_after.max(f64::MIN_POSITIVE);
    let mut measurement = Measurement {
        predicted: Some(predicted),
        rounds: 1,
        in_flight: plan.summary.depth,
        ..empty(Method::WatchedAgain)
    };
    count_ranges(&mut measurement, plan, moved);
    if let Ok(before) = &before {
        measurement.read_bytes = before.done.read_bytes;
    }
    measurement.read_bytes_again = after.as_ref().ok().map(|after| after.done.read_bytes);
    let both = before.and_then(|before| Ok((before, after?)));
    match both.and_then(|(before, after)| Ok((scale(&before, &after, quicker)?, before, after))) {
        Ok((scale, before, after)) => {
            let [now, then] = [before, after].map(|seen| seen.done.busy.as_secs_f64());
            measurement.measured = Some(Times::new(now, then * scale));
            measurement.clock = Some(before.clock);
            judge(&mut measurement, 0.0, 0.0);
        }
        Err(why) => refuse(&mut measurement, why),
    }
    measurement
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
