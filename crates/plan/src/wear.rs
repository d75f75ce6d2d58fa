//! What a plan's writing means to the drives: in their own terms where they report their health, and by the rating that
//! the user knows.
//!
//! Each drive is charged with all that the plan writes to the file systems on it. Where a file system is on several drives,
//! how they divide it is not known: so this is the most that each of them may be written.

use crate::file::PlannedFile;
use crate::source::at_most;
use fragmend_layout::{DriveHealth, RatedBytes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most drives that a plan names; those of which it uses most are kept.
pub(crate) const MOST_DRIVES: usize = 64;

/// A drive below file systems of a survey, and what it has reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    /// Its name in the kernel, for example `nvme0n1`.
    pub name: String,
    /// Device numbers of the file systems on it.
    pub devices: Vec<u64>,
    /// What it reports of its wear, or why that is not known.
    pub health: Result<DriveHealth, String>,
}

/// Where a rating comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RatingSource {
    /// The user gave it (`--rated-writes`).
    User,
    /// It is derived from what the drives report of their wear.
    Drive,
    /// There is none.
    None,
}

/// What the plan means to the drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wear {
    /// Where the rating comes from by which `rated_share` is computed.
    pub source: RatingSource,
    /// The drives that keep an account of their wear, at most 64: the one first of whose life the plan uses most. Disks that
    /// rotate, loop devices and virtual disks are not among them.
    #[serde(deserialize_with = "at_most::<_, DriveWear, MOST_DRIVES>")]
    pub drives: Vec<DriveWear>,
}

/// What the plan means to one drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveWear {
    /// Its name in the kernel, for example `nvme0n1`.
    pub name: String,
    /// The most bytes that the plan writes to it: all that it moves on file systems on it.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes_to_write: u64,
    /// What it reports; `null` if that is not known.
    pub health: Option<DriveHealth>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// What share of its rated life the plan uses at least, if it goes on to wear by the byte as it did so far; `null` if no
    /// rating can be derived from what it reports.
    #[schemars(extend("x-unit" = "share"))]
    pub share_low: Option<f64>,
    /// The same at most.
    #[schemars(extend("x-unit" = "share"))]
    pub share_high: Option<f64>,
}

impl DriveWear {
    fn of(drive: &Drive, planned: &BTreeMap<u64, u64>) -> Self {
        let of_device = drive.devices.iter().filter_map(|device| planned.get(device));
        let bytes = of_device.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let health = drive.health.as_ref().ok();
        let rated = health.and_then(|health| health.rated_bytes);
        let share = |rated: u64| bytes as f64 / rated.max(1) as f64;
        Self {
            name: drive.name.clone(),
            bytes_to_write: bytes,
            health: health.cloned(),
            unknown: drive.health.as_ref().err().cloned(),
            share_low: rated.map(|RatedBytes { high, .. }| share(high)),
            share_high: rated.map(|RatedBytes { low, .. }| share(low)),
        }
    }
}

/// What moving the ranges of `files` means to `drives`, and the share of their rated life that this is: by the user's rating,
/// if there is one, or else the most that it may be by the account of a drive.
pub(crate) fn wear(
    drives: &[Drive],
    files: &[PlannedFile],
    rated_by_user: Option<u64>,
) -> (Option<f64>, Option<Wear>) {
    let mut planned: BTreeMap<u64, u64> = BTreeMap::new();
    for file in files {
        let bytes = file.ranges.iter().map(|range| range.length).sum::<u64>();
        *planned.entry(file.file.device).or_default() += bytes;
    }
    let mut drives: Vec<DriveWear> = drives.iter().map(|d| DriveWear::of(d, &planned)).collect();
    let most = |drive: &DriveWear| (drive.share_high.unwrap_or(0.0), drive.bytes_to_write);
    drives.sort_by(|a, b| {
        let ((a_share, a_bytes), (b_share, b_bytes)) = (most(a), most(b));
        b_share.total_cmp(&a_share).then(b_bytes.cmp(&a_bytes)).then(a.name.cmp(&b.name))
    });
    drives.truncate(MOST_DRIVES);
    let all: u64 = planned.values().sum();
    let by_user = rated_by_user.map(|rated| all as f64 / rated.max(1) as f64);
    let by_drive = drives.iter().filter_map(|drive| drive.share_high).reduce(f64::max);
    let source = match (by_user, by_drive) {
        (Some(_), _) => RatingSource::User,
        (None, Some(_)) => RatingSource::Drive,
        (None, None) => RatingSource::None,
    };
    let tells = source != RatingSource::None || !drives.is_empty();
    (by_user.or(by_drive), tells.then_some(Wear { source, drives }))
}
