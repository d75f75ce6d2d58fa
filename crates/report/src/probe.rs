//! The document of `fragmend probe`.

use fragmend_device::probe::meter::Limits;
use fragmend_device::probe::ranges::{Parts, SLOW};
use fragmend_device::profile::Profile;
use fragmend_layout::{DriveHealth, FileId, PathText, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The document of `fragmend probe --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// Version of this document's format.
    pub schema_version: u32,
    /// Always `probe`.
    pub command: String,
    /// The path that was given.
    pub target: PathText,
    /// What was found out about the device, or the profile that was kept of it.
    #[serde(flatten)]
    pub profile: Profile,
    /// What was said before, and kept to; `null` where the device was not probed, because a profile was there.
    pub limits: Option<ProbeLimits>,
    /// Where the profile is kept; `null` if it is not.
    pub kept: Option<PathText>,
    /// What the drives below the device report of their wear now, those that keep an account of it: of a plain drive itself,
    /// none of a disk that rotates, a loop device or a virtual disk.
    #[serde(default)]
    pub drives: Vec<DriveReport>,
    /// The file that was given, range by range.
    pub file: Option<FileReport>,
    /// What was left out, or stands for something else, and why.
    pub notes: Vec<String>,
}

/// What a drive reports of its wear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriveReport {
    /// Its name in the kernel, for example `nvme0n1`.
    pub name: String,
    /// What it reports; `null` if that is not known.
    pub health: Option<DriveHealth>,
    /// Why that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// The most that a probe reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeLimits {
    /// Bytes.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
    /// From the beginning to the end.
    #[schemars(extend("x-unit" = "seconds"))]
    pub seconds: f64,
}

impl From<Limits> for ProbeLimits {
    fn from(limits: Limits) -> Self {
        let Limits { bytes, requests, time } = limits;
        Self { bytes, requests, seconds: time.as_secs_f64() }
    }
}

/// How fast a file reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileReport {
    /// Which file it was; absent in documents of older versions.
    #[serde(default)]
    pub probed: Option<ProbedFile>,
    /// Bytes of it that are data on the device as they are in the file.
    #[schemars(extend("x-unit" = "bytes"))]
    pub data_bytes: u64,
    /// Bytes of it that were timed.
    #[schemars(extend("x-unit" = "bytes"))]
    pub timed_bytes: u64,
    /// Bytes of it that are in one extent and yet slow.
    #[schemars(extend("x-unit" = "bytes"))]
    pub slow_bytes: u64,
    /// How many times longer it lasts than the drive needs.
    #[schemars(extend("x-unit" = "ratio"))]
    pub ratio: f64,
    /// What was read for this.
    pub limits: ProbeLimits,
    /// Whether every range was timed as often as it was to be.
    pub complete: bool,
    /// Ranges that are in one extent and yet slow: their data is on few dies.
    pub slow: Vec<FileRange>,
    /// All ranges that were timed.
    pub ranges: Vec<FileRange>,
}

/// Which file was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbedFile {
    /// Where it was; its identity counts, not its path.
    #[serde(flatten)]
    pub path: PathText,
    /// Device, inode and generation.
    #[serde(flatten)]
    pub file: FileId,
}

/// How fast a range of a file reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FileRange {
    /// Where it begins.
    #[schemars(extend("x-unit" = "bytes"))]
    pub offset: u64,
    /// Its length.
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes: u64,
    /// Extents that do not continue each other on the device.
    pub fragments: u64,
    /// Where it begins on the device, as the file system reports it; absent in documents of older versions.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(default)]
    pub physical: Option<u64>,
    /// How long reading it lasts.
    pub ns: u64,
    /// How long the drive needs for as many bytes in as many requests.
    pub expected_ns: u64,
}

impl FileReport {
    /// The ranges of a file; neighbours that are slow, and continue each other on the device, are one range in `slow`.
    pub fn new(probed: ProbedFile, parts: &Parts, limits: Limits) -> Self {
        let mut slow: Vec<FileRange> = Vec::new();
        let mut ranges = Vec::new();
        let (mut timed_bytes, mut ns, mut expected_ns) = (0, 0.0, 0.0);
        for part in &parts.parts {
            let range = FileRange {
                offset: part.range.start,
                bytes: part.range.end - part.range.start,
                fragments: part.fragments,
                physical: Some(part.physical),
                ns: part.ns as u64,
                expected_ns: part.expected_ns as u64,
            };
            timed_bytes += range.bytes;
            ns += part.ns;
            expected_ns += part.expected_ns;
            if part.is_slow_inside() {
                match slow.last_mut() {
                    Some(last) if last.continues_in(&range) => {
                        last.bytes += range.bytes;
                        last.ns += range.ns;
                        last.expected_ns += range.expected_ns;
                    }
                    _ => slow.push(range.clone()),
                }
            }
            ranges.push(range);
        }
        Self {
            probed: Some(probed),
            data_bytes: parts.data_bytes,
            timed_bytes,
            slow_bytes: slow.iter().map(|range| range.bytes).sum(),
            ratio: if expected_ns > 0.0 { ns / expected_ns } else { 1.0 },
            limits: limits.into(),
            complete: parts.complete,
            slow,
            ranges,
        }
    }
}

impl FileRange {
    /// Whether it lasts longer than its fragments explain.
    pub fn is_slow(&self) -> bool {
        self.ns as f64 > SLOW * self.expected_ns as f64
    }

    /// Whether `next` begins where this one ends, in the file and on the device.
    fn continues_in(&self, next: &Self) -> bool {
        let end = self.physical.map(|at| at + self.bytes);
        self.offset + self.bytes == next.offset && end == next.physical
    }
}

impl ProbeReport {
    /// The document of a probe.
    pub fn new(target: PathText, profile: Profile) -> Self {
        Self {
            schema_version: schema::DOCUMENT,
            command: "probe".into(),
            target,
            profile,
            limits: None,
            kept: None,
            drives: Vec::new(),
            file: None,
            notes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_device::probe::ranges::Part;
    use std::time::Duration;

    #[test]
    fn slow_neighbours_are_one_range() {
        let part = |n: u64, fragments, ns| Part {
            range: n << 20..(n + 1) << 20,
            fragments,
            physical: if n < 4 { 7 + (n << 20) } else { 0 },
            ns,
            expected_ns: 100.0,
        };
        let parts = [part(0, 1, 105.0), part(1, 1, 300.0), part(2, 1, 200.0), part(3, 1, 400.0)];
        // The last one is elsewhere on the device.
        let parts = [&parts[..], &[part(4, 1, 300.0)]].concat();
        let parts = Parts { parts, data_bytes: 5 << 20, complete: true };
        let limits = Limits { bytes: 1, requests: 1, time: Duration::from_secs(2) };
        let file = FileId { device: 7, inode: 12, generation: 1 };
        let probed = ProbedFile { path: std::path::Path::new("/srv/a").into(), file };
        let report = FileReport::new(probed, &parts, limits);
        let slow = |n: u64, mib: u64, at, ns, expected_ns| FileRange {
            offset: n << 20,
            bytes: mib << 20,
            fragments: 1,
            physical: Some(at),
            ns,
            expected_ns,
        };
        let expected = [slow(1, 3, 7 + (1 << 20), 900, 300), slow(4, 1, 0, 300, 100)];
        assert_eq!(report.slow, expected);
        assert_eq!(
            (report.ranges.len(), report.slow_bytes, report.timed_bytes),
            (5, 4 << 20, 5 << 20)
        );
        assert!((report.ratio - 1305.0 / 500.0).abs() < 1e-9);
    }
}
