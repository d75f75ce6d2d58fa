//! The plan as a file: JSON that a person can read, keep, edit and apply later.
//!
//! Nothing in it is believed when it is applied. Neighbours: [`crate::source`] reads it file by file, `check`
//! checks whether it makes sense.

use crate::cleaned::Cleaned;
use crate::input::{Basis, Settings};
use crate::select::iodp::Priorities;
use crate::source::Mark;
use crate::verdict::Why;
use crate::wear::Wear;
use fragmend_layout::{
    ByteRange, CostSource, DeviceProfile, FileId, FsKind, PathText, Skip, SkipReason, schema,
};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use std::io::{self, Write};
use std::path::Path;

/// Identifies the file as a plan of fragmend.
pub const FORMAT: &str = "fragmend-plan";

/// What to move, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Always "fragmend-plan".
    pub format: String,
    /// Version of this structure.
    pub schema_version: u32,
    /// How the ranges were chosen.
    pub settings: Settings,
    /// The devices that the files are on.
    pub devices: Vec<Device>,
    /// What it comes to. Predicted, not measured; informative only.
    pub summary: Summary,
    /// The files to mend, in the order in which to mend them.
    pub files: Vec<PlannedFile>,
    /// Files that were seen and could not be considered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
}

/// A file system and the device under it, as they were when the plan was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Device {
    /// Device number, as in the files' identities.
    pub device: u64,
    /// Where it was mounted.
    #[serde(flatten)]
    pub mount: PathText,
    /// Which file system.
    pub file_system: FsKind,
    /// Its size in bytes.
    pub total_bytes: u64,
    /// Its allocation block in bytes.
    pub block_bytes: u64,
    /// What the device costs.
    pub profile: DeviceProfile,
}

#[cfg(test)]
impl Device {
    /// An ext4 of 1 GiB on a device of which nothing is known, number 7.
    pub(crate) fn example() -> Self {
        Self {
            device: 7,
            mount: std::path::Path::new("/mnt").into(),
            file_system: FsKind::Ext4,
            total_bytes: 1 << 30,
            block_bytes: 4096,
            profile: DeviceProfile::unknown(),
        }
    }
}

/// A file that is not in the plan, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftAlone {
    /// Which file, as far as it is known.
    #[serde(flatten)]
    pub path: PathText,
    /// Why.
    pub reason: String,
    /// The same by its name in the set that receipts of `apply` use too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<SkipReason>,
}

impl LeftAlone {
    /// An entry for a file that is left alone for this reason.
    pub fn new(path: &Path, skip: &Skip) -> Self {
        Self { path: path.into(), reason: skip.to_string(), code: Some(skip.reason) }
    }
}

/// One file's ranges.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PlannedFile {
    /// Where it was; its identity counts, not its path.
    #[serde(flatten)]
    pub path: PathText,
    /// Device, inode and generation.
    #[serde(flatten)]
    pub file: FileId,
    /// Size in bytes when the plan was made.
    pub size: u64,
    /// What to move, in file order.
    pub ranges: Vec<PlannedRange>,
}

/// One range to be made contiguous. Offsets and lengths are bytes, in whole blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The number of fragments that it was in when the plan was made.
    pub extents: u64,
    /// Accesses seen that touch it.
    pub seen: u64,
    /// Device requests of one replay that touch it, as it is now (predicted).
    pub requests_before: u64,
    /// The same once it is contiguous (predicted).
    pub requests_after: u64,
    /// Seconds by which the requests that touch it last less in one replay (predicted).
    #[serde(default)]
    pub seconds_saved: f64,
    /// Bytes of space that it needs besides, because others keep what it shares with them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub space_cost_bytes: u64,
    /// If it is in one fragment and was measured to be slow: the byte of the device at which it begins, as the file system
    /// reports it. It is written anew as long as it is there, in as many fragments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_at: Option<u64>,
    /// Why it is here, for people.
    #[serde(deserialize_with = "for_people")]
    pub reason: String,
}

/// Left empty: a million reasons would need more memory than everything else that is read.
fn for_people<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    IgnoredAny::deserialize(from).map(|_| String::new())
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl PlannedRange {
    /// The range as a [`ByteRange`]; it ends at `u64::MAX` instead of wrapping around.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.offset, self.length)
    }
}

/// What a plan comes to. Times and requests are predictions for one replay of what was recorded, as far as it reached the
/// device by `basis`. Where a part of all places was recorded at a time, that is all accesses to ranges of which the recording
/// has one; `unseen_seconds_before` is for the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Seconds that one replay waits for the device as the files are now. On a disk, the way from the read before to the
    /// first byte of each is in it where the order of reads is known.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default)]
    pub seconds_before: f64,
    /// The same once the ranges are contiguous.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default)]
    pub seconds_after: f64,
    /// Seconds that are saved in one replay.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default)]
    pub seconds_saved: f64,
    /// Seconds that one replay waits besides, for accesses that a recording of a part of all places at a time stands for, and
    /// that were in ranges which it has not seen. They are in no other figure but `accesses`.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unseen_seconds_before: f64,
    /// Seconds of these that would be saved if ranges were contiguous that are like those of this plan: a plan from everything
    /// would save about as much more.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unseen_seconds_saved: f64,
    /// Bytes that would be moved (read once and written once).
    #[schemars(extend("x-unit" = "bytes"))]
    pub bytes_to_move: u64,
    /// Bytes of these that are in one fragment and were measured to be slow: they are written anew.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(default)]
    pub slow_bytes: u64,
    /// What share of its rated life the drive would spend on that, 0 to 1: by the rating that was given, or else the most
    /// that it may be by a drive's own account (`wear.source` says which). Absent without either.
    #[schemars(extend("x-unit" = "share"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rated_share: Option<f64>,
    /// What it means to the drives; `null` if no rating was given and no drive keeps an account of its wear.
    #[serde(default)]
    pub wear: Option<Wear>,
    /// Space that it occupies for good, because others keep what is shared with them.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(default)]
    pub space_cost_bytes: u64,
    /// Bytes of fragmented files that are left alone because they are shared.
    #[schemars(extend("x-unit" = "bytes"))]
    #[serde(default)]
    pub left_shared_bytes: u64,
    /// Ranges to be made contiguous.
    pub ranges: u64,
    /// Files that they are in.
    pub files: u64,
    /// Files that were considered.
    pub files_considered: u64,
    /// Accesses in the trace.
    pub accesses: u64,
    /// Device requests per replay as the files are now.
    pub requests_before: u64,
    /// Device requests per replay once the ranges are contiguous.
    pub requests_after: u64,
    /// Share of the requests that is saved, 0 to 1.
    #[schemars(extend("x-unit" = "share"))]
    pub saved_share: f64,
    /// Bytes that whole-file defragmentation of the same files would move.
    #[schemars(extend("x-unit" = "bytes"))]
    pub whole_file_bytes: u64,
    /// Bytes to move as a share of the file systems' size, 0 to 1.
    #[schemars(extend("x-unit" = "share"))]
    pub file_system_share: f64,
    /// Bytes of ranges that the policy wanted and the budget left out.
    #[schemars(extend("x-unit" = "bytes"))]
    pub over_budget_bytes: u64,
    /// What is taken to have reached the device.
    #[serde(default, deserialize_with = "if_known")]
    pub basis: Option<Basis>,
    /// Where the costs of reads come from; of several devices, the least certain source.
    #[serde(default, deserialize_with = "if_known")]
    pub cost_source: Option<CostSource>,
    /// Why it is no better one: a probe is kept that cannot be used, what was observed while recording does not determine
    /// the costs, or on a disk the order of reads is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_note: Option<String>,
    /// Nanoseconds of elapsed time that one more request of a read costs where the data is now, if recorded reads were timed;
    /// below zero where reads that are split are quicker.
    #[schemars(extend("x-unit" = "nanoseconds"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_more_request_ns: Option<f64>,
    /// Reads that were timed for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_reads: Option<u64>,
    /// Reads of programs in flight at a time; of several devices, the mean by time. 1 if that was not seen.
    #[serde(default)]
    pub depth: f64,
    /// Whether the depth was seen while recording.
    #[serde(default)]
    pub depth_seen: bool,
    /// Seconds that a range had to save per GiB in one replay; of several devices, the most.
    #[schemars(extend("x-unit" = "seconds"))]
    #[serde(default)]
    pub min_gain_s_per_gib: f64,
    /// What becomes of segments, by the policy for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Cleaned>,
    /// What priorities were made of, by the policy `iodp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priorities: Option<Priorities>,
    /// Whether mending is worth it.
    pub worth: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "if_known")]
    pub why: Option<Why>,
    /// The same in a sentence.
    pub verdict: String,
}

/// A value of a set of names; nothing if a newer fragmend has added it.
fn if_known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    use serde::de::value::{Error, StrDeserializer};
    Ok(match Mark::deserialize(from)? {
        Mark::Text(name) => T::deserialize(StrDeserializer::<Error>::new(&name)).ok(),
        Mark::Number(_) | Mark::Other => None,
    })
}

/// Why a plan file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It cannot be read or written.
    #[error("{path}")]
    Io {
        /// Which file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a plan, or a damaged one.
    #[error("{path} is not a fragmend plan ({why}); make one with `fragmend plan`")]
    Foreign {
        /// Which file.
        path: String,
        /// What is wrong, with line and column where they are known.
        why: String,
    },
    /// A newer fragmend wrote it.
    #[error(
        "{path} is a plan of version {found}, this fragmend reads version {}; make a new one with `fragmend plan`",
        schema::PLAN_FILE
    )]
    Version {
        /// Which file.
        path: String,
        /// Its version.
        found: u64,
    },
    /// It contradicts itself.
    #[error(
        "{path}: {what}; nothing was touched; correct it or make a new plan with `fragmend plan`"
    )]
    Contradictory {
        /// Which file.
        path: String,
        /// What contradicts what.
        what: String,
    },
}

impl Plan {
    /// Writes it as the text of a plan file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, self)?;
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{PlanFile, PlanSource};
    use std::fs::File;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn plan() -> Plan {
        let range = |offset| PlannedRange {
            offset,
            length: 8192,
            extents: 2,
            seen: 1,
            requests_before: 2,
            requests_after: 1,
            seconds_saved: 0.25,
            space_cost_bytes: 0,
            slow_at: None,
            reason: "seen".into(),
        };
        Plan {
            format: FORMAT.into(),
            schema_version: schema::PLAN_FILE,
            settings: Settings::default(),
            devices: vec![Device::example()],
            summary: Summary::default(),
            files: vec![PlannedFile {
                path: Path::new("/mnt/a").into(),
                file: FileId { device: 7, inode: 12, generation: 1 },
                size: 20_000,
                ranges: vec![range(0), range(8192)],
            }],
            left_alone: Vec::new(),
        }
    }

    fn written(plan: &Plan, dir: &TempDir) -> PathBuf {
        let path = dir.path().join("plan.json");
        plan.write_to(File::create(&path).unwrap()).unwrap();
        path
    }

    fn opened(path: &Path) -> Result<PlanFile, PlanError> {
        PlanFile::new(File::open(path).unwrap(), path)
    }

    fn spoiled(spoil: impl FnOnce(&mut Plan)) -> String {
        let mut p = plan();
        spoil(&mut p);
        let dir = tempfile::tempdir().unwrap();
        let path = written(&p, &dir);
        opened(&path).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(spoiled(|_| {}), "");
        let dir = tempfile::tempdir().unwrap();
        let mut wrote = plan();
        let path = written(&wrote, &dir);
        let read = opened(&path).unwrap();
        assert_eq!((read.devices(), read.totals()), (wrote.devices(), wrote.totals()));
        wrote.files[0].ranges.iter_mut().for_each(|r| r.reason.clear());
        let mut files = Vec::new();
        for _ in 0..2 {
            files.clear();
            read.each(&mut |f| files.push(f.clone())).unwrap();
            assert_eq!(files, wrote.files);
        }
        // What is read from it later is what was there when it was opened, or an error.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("\"offset\": 8192", "\"offset\": 8193")).unwrap();
        let changed = read.each(&mut |_| panic!("believed")).unwrap_err();
        assert!(matches!(changed, PlanError::Contradictory { .. }), "{changed}");
    }

    #[test]
    fn keys_may_come_in_any_order() {
        let value = serde_json::to_value(plan()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        let keys = ["left_alone", "files", "summary", "unknown", "devices", "settings"];
        let keys = keys.into_iter().chain(["schema_version", "format"]);
        let text = |leave_out: &str| {
            let pair = |key| match key {
                "left_alone" => "\"left_alone\": []".into(),
                key => format!("{key:?}: {}", value.get(key).unwrap_or(&"x".into())),
            };
            let pairs: Vec<String> =
                keys.clone().filter(|key| *key != leave_out).map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        std::fs::write(&path, text("")).unwrap();
        assert_eq!(opened(&path).unwrap().totals(), plan().totals());
        for needed in ["files", "summary", "devices", "settings", "schema_version", "format"] {
            std::fs::write(&path, text(needed)).unwrap();
            let error = opened(&path).unwrap_err().to_string();
            assert!(error.contains(needed) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn senseless_plans_are_refused() {
        let first = |p: &mut Plan| p.files[0].ranges[0].clone();
        assert!(spoiled(|p| p.files[0].ranges[0].offset = 5).contains("whole blocks"));
        assert!(spoiled(|p| p.files[0].ranges[1] = first(p)).contains("overlaps"));
        assert!(spoiled(|p| p.files[0].ranges[1].offset = u64::MAX - 4095).contains("no end"));
        assert!(spoiled(|p| p.files[0].ranges[1].offset = 40960).contains("beyond"));
        assert!(spoiled(|p| p.files[0].ranges[0].length = 0).contains("whole blocks"));
        assert!(spoiled(|p| p.devices[0].block_bytes = 0).contains("impossible"));
        assert!(spoiled(|p| p.devices.clear()).contains("not listed"));
        assert!(spoiled(|p| p.files[0].path.path = "a".into()).contains("absolute"));
        assert!(spoiled(|p| p.format = "x".into()).contains("not a fragmend plan"));
        assert!(spoiled(|p| p.schema_version = 9).contains("version 9"));
        assert!(!spoiled(|p| p.files[0].ranges.truncate(1)).contains("error"));
    }

    #[test]
    fn a_file_that_is_listed_again_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut twice = plan();
        let mut again = twice.files[0].clone();
        again.path = Path::new("/mnt/its new name").into();
        twice.files.push(again.clone());
        // An entry that continues behind what was listed.
        again.ranges[1].offset = 16384;
        again.size = 40_000;
        twice.files.push(again);
        let path = written(&twice, &dir);
        let read = opened(&path).unwrap();
        let (totals, mut got) = (read.totals(), Vec::new());
        read.each(&mut |f| got.push((f.path.path.clone(), f.ranges.len()))).unwrap();
        assert_eq!(got, [("/mnt/a".into(), 2), ("/mnt/its new name".into(), 1)]);
        assert_eq!((totals.files, totals.ranges, totals.listed_twice), (1, 3, 3));
        assert_eq!(totals.bytes, 3 * 8192);
    }

    #[test]
    fn damaged_files_are_refused_in_one_line() {
        let whole = serde_json::to_string_pretty(&plan()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json");
        for cut in [0, 1, whole.len() / 2, whole.len() - 2] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let message = opened(&path).unwrap_err().to_string();
            assert!(message.contains("fragmend plan") && !message.contains('\n'), "{message}");
        }
        std::fs::write(&path, b"PAR1\xff\xfe\0\0").unwrap();
        assert!(matches!(opened(&path), Err(PlanError::Foreign { .. })));
    }
}
