//! A simulated drive measured by the production probe, in the drive's own virtual time: what a plan for files on it needs to
//! know of it.

use crate::raw;
use crate::setup::{DriveKind, Setup};
use fragmend_device::probe::intervals::CannotTell;
use fragmend_device::probe::reader::{Failed, Read, Reader};
use fragmend_device::probe::{self, Options};
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::Drive;
use fragmend_flash::inplace::Media;
use fragmend_flash::ssd::Ssd;
use fragmend_layout::DeviceProfile;
use std::ops::Range;
use std::time::Duration;

/// How much of a drive is written in order before it is measured, in bytes.
pub const WRITTEN: u64 = 320 << 20;
/// No clock on the wall ends a probe of a drive that answers in virtual time.
const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

/// A simulated drive, read in its own virtual time, which nobody waits for.
pub struct DriveReader {
    /// The drive.
    pub device: Box<dyn Device>,
    /// What it answers for from its media, in bytes.
    pub written: Range<u64>,
    now: u64,
    request_ns: u64,
    max_request_bytes: u32,
    max_depth: u32,
}

impl DriveReader {
    /// A drive of which so many bytes, from its start on, are written, behind a fast host.
    pub fn new(device: Box<dyn Device>, written: u64) -> Self {
        let now = device.idle_at();
        Self {
            device,
            written: 0..written,
            now,
            request_ns: 500,
            max_request_bytes: 1 << 20,
            max_depth: 32,
        }
    }

    /// A new drive behind the host of its file, of which the first [`WRITTEN`] bytes are written in order.
    pub fn of(setup: &Setup) -> Self {
        let bytes = WRITTEN.min(setup.capacity_bytes());
        let device: Box<dyn Device> = match &setup.drive {
            DriveKind::Flash(drive) => Box::new(written(drive, bytes)),
            DriveKind::Zoned { drive, .. } => {
                let geometry = &drive.geometry;
                let page = geometry.program_unit_bytes / geometry.mapping_unit_bytes;
                written_zones(setup, bytes, page)
            }
            DriveKind::InPlace(_) => setup.device(),
        };
        let mut reader = Self::new(device, bytes);
        reader.request_ns = setup.host.request_ns;
        reader.max_request_bytes = setup.host.request_bytes;
        reader.max_depth = setup.host.queue_depth;
        reader
    }
}

/// A new flash drive whose first bytes are written in order.
///
/// # Panics
/// The drive's description is inconsistent.
pub fn written(drive: &Drive, bytes: u64) -> Ssd {
    let shape = drive.shape().expect("a consistent drive");
    let units = (bytes / u64::from(shape.unit_bytes)).min(shape.logical_units.into());
    raw::written(drive, units as u32)
}

/// A new zoned drive whose first bytes are written in order, in runs of `page` units.
fn written_zones(setup: &Setup, bytes: u64, page: u32) -> Box<dyn Device> {
    let mut device = setup.device();
    let unit = u64::from(device.unit_bytes());
    for start in (0..(bytes / unit) as u32).step_by(page as usize) {
        let units = Units::new(start, page);
        let write = Command::Write { units, hint: Hint::None, fua: false };
        device.submit(device.idle_at(), &write).expect("a write at the write pointer");
    }
    device
}

impl Reader for DriveReader {
    fn capacity_bytes(&self) -> u64 {
        u64::from(self.device.units()) * u64::from(self.device.unit_bytes())
    }

    fn unit_bytes(&self) -> u32 {
        self.device.unit_bytes()
    }

    fn max_request_bytes(&self) -> u32 {
        self.max_request_bytes
    }

    fn max_depth(&self) -> u32 {
        32
    }

    fn elapsed(&mut self, reads: &[Read], depth: u32, _: &dyn Fn() -> bool) -> Result<u64, Failed> {
        let start = self.now.max(self.device.idle_at());
        let depth = depth.min(self.max_depth) as usize;
        let unit = self.device.unit_bytes();
        let units = |read: &Read| Units::new((read.at / u64::from(unit)) as u32, read.bytes / unit);
        let (reads, request_ns) = (reads.iter().map(units), self.request_ns);
        let last = raw::read_from(&mut *self.device, start, reads, depth, request_ns);
        self.now = last;
        Ok(last - start)
    }

    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed> {
        Ok(Some(self.written.contains(&at)))
    }
}

/// The profile of a drive and its host, of which the costs are measured by the production probe.
///
/// # Panics
/// The setup was made otherwise than by [`Setup::parse`], and is inconsistent.
pub fn profile(name: &str, setup: &Setup, seed: u64) -> DeviceProfile {
    let no_geometry = Some(CannotTell::NotAsked);
    let options = Options { time: NO_LIMIT, no_geometry, seed, ..Options::default() };
    let mut reader = DriveReader::of(setup);
    let measured = probe::probe(&mut reader, &options, &|| false, &mut |_| {});
    let unknown = DeviceProfile::unknown();
    let readahead = u64::from(setup.host.readahead_bytes);
    DeviceProfile {
        name: name.to_owned(),
        readahead_bytes: if readahead > 0 { readahead } else { unknown.readahead_bytes },
        max_request_bytes: setup.host.request_bytes.into(),
        rotational: matches!(&setup.drive, DriveKind::InPlace(drive) if matches!(drive.media, Media::Disk { .. })),
        cost: measured.expect("a drive that answers each read").costs,
        ..unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn a_drive_is_measured_the_same_each_time() {
        for name in ["nvme-a", "hdd", "microsd"] {
            let setup = presets::named(name).expect("a preset");
            let measured = profile(name, &setup, 1);
            assert_eq!(measured, profile(name, &setup, 1));
            assert_eq!(
                (measured.rotational, measured.cost.seeks().is_empty()),
                (name == "hdd", name != "hdd")
            );
        }
    }
}
