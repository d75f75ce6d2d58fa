//! A service that is watched twice: how long its disks were busy, as a whole, beside the prediction for all that was recorded.
//! Between the two the service may do something else, so the later time is scaled to the bytes that were read first.

use super::{CouldNot, empty, refuse};
use fragmend_apply::measurement::{MeasuredBy, Measurement, Method, NotMeasured, Times};
use fragmend_device::probe::clock::ClockKind;
use fragmend_device::replay::{Busy, Done};
use fragmend_plan::Plan;
use fragmend_sys::block::BlockDevice;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The disks of a service, while it is watched.
pub struct Watched {
    disks: Vec<Busy>,
    begun: Vec<Done>,
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
        let begun = disks.iter().map(Busy::done).collect::<io::Result<_>>();
        Ok(Self { begun: begun.map_err(|e| CouldNot::failed(&e))?, disks })
    }

    /// What they did since.
    ///
    /// # Errors
    /// See [`CouldNot`].
    pub fn end(&self) -> Result<(Done, MeasuredBy), CouldNot> {
        let mut sum = Done::default();
        for (disk, begun) in self.disks.iter().zip(&self.begun) {
            let done = disk.done().map_err(|e| CouldNot::failed(&e))? - *begun;
            (sum.busy, sum.read_bytes) = (sum.busy + done.busy, sum.read_bytes + done.read_bytes);
        }
        let served = self.disks.iter().all(|disk| disk.clock() == ClockKind::Served);
        Ok((sum, if served { MeasuredBy::Served } else { MeasuredBy::Wall }))
    }
}

/// A measurement of a service that was watched before and after: times of its disks, the later one scaled to the
/// bytes that were read before.
pub fn watched_again(
    plan: &Plan,
    before: Result<(Done, MeasuredBy), CouldNot>,
    after: Result<(Done, MeasuredBy), CouldNot>,
) -> Measurement {
    let summary = &plan.summary;
    let mut measurement = Measurement {
        predicted: Some(Times::new(summary.seconds_before, summary.seconds_after)),
        rounds: 1,
        in_flight: summary.depth,
        ..empty(Method::WatchedAgain)
    };
    match before.and_then(|before| Ok((before, after?))) {
        Ok(((before, clock), (after, _))) if before.read_bytes > 0 && after.read_bytes > 0 => {
            let scale = before.read_bytes as f64 / after.read_bytes as f64;
            let times = Times::new(before.busy.as_secs_f64(), after.busy.as_secs_f64() * scale);
            measurement.measured = Some(times);
            measurement.clock = Some(clock);
            measurement.read_bytes = before.read_bytes;
            measurement.read_bytes_again = Some(after.read_bytes);
        }
        Ok(_) => {
            let detail = "the service read nothing from its disk while it was watched again";
            refuse(&mut measurement, CouldNot::new(NotMeasured::NothingToRead, detail));
        }
        Err(why) => refuse(&mut measurement, why),
    }
    measurement
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_plan::{Settings, Survey};
    use std::time::Duration;

    #[test]
    fn times_are_for_the_same_bytes() {
        let plan = fragmend_plan::make(Survey::default(), &Settings::default());
        let seen = |ms, read_bytes| {
            Ok((Done { busy: Duration::from_millis(ms), read_bytes }, MeasuredBy::Wall))
        };
        let found = watched_again(&plan, seen(100, 1000), seen(50, 2000));
        assert_eq!(found.measured, Some(Times::new(0.1, 0.025)));
        assert_eq!((found.read_bytes, found.read_bytes_again), (1000, Some(2000)));
        let found = watched_again(&plan, seen(100, 1000), seen(0, 0));
        assert_eq!((found.measured, found.not_measured), (None, Some(NotMeasured::NothingToRead)));
        let found = watched_again(&plan, seen(100, 1000), Err(CouldNot::interrupted()));
        assert_eq!((found.measured, found.not_measured), (None, Some(NotMeasured::Interrupted)));
    }
}
