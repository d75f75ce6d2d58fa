//! What a plan is made from: files with their layouts, and the accesses that were seen on them.
//!
//! [`Survey::of`] makes a survey of any volume, real or simulated. `fragmend-pipeline` makes one of the file
//! systems that are mounted here: it finds the file systems of a trace, and files that were renamed since.

use crate::costs::Timed;
use crate::file::{Device, LeftAlone};
use crate::readahead::Window;
use crate::recorded::RecordedReads;
use crate::slow::SlowRange;
use crate::wear::Drive;
use fragmend_layout::{Access, FileAccesses, ObservedLoad, Recorded};
use fragmend_layout::{DeviceLimits, DeviceProfile, Extent, Layout, SegmentTable, Skip, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The present state of files. Planning consumes it: a layout is freed as soon as it has been analysed.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Files that may be moved.
    pub files: Vec<SurveyedFile>,
    /// Every device that they are on.
    pub devices: Vec<Device>,
    /// Files that could not be considered.
    pub left_alone: Vec<LeftAlone>,
    /// Whether the trace has what missed the page cache, besides or instead of what programs asked for.
    pub misses: bool,
    /// Accesses in the trace that cannot be true, or are of a later version, and were left out.
    pub unread: u64,
    /// Whether accesses that reached a device are in their order, and have their [ranks](SurveyedFile::ranks) in it.
    pub ordered: bool,
    /// What the devices answered while the trace was recorded, by the device number of the file system.
    pub loads: BTreeMap<u64, ObservedLoad>,
    /// Of the reads in `loads`, those of the trace, also of files that are not planned for; by the same number.
    pub recorded: BTreeMap<u64, RecordedReads>,
    /// What fragments cost where they are, if recorded reads were timed.
    pub timed: Timed,
    /// If what reached a device was recorded in a part of all places at a time.
    pub part: Option<Part>,
    /// The drives below the devices that keep an account of their wear, with what they have reported.
    pub drives: Vec<Drive>,
    /// The segments of log-structured file systems by device number, where a policy needs them.
    pub segments: BTreeMap<u64, SegmentTable>,
}

/// The part of all places in which a recording has what reached a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its share, in millionths.
    pub places_ppm: u32,
    /// Bytes of a place, an aligned region of a file.
    pub place_bytes: u64,
    /// Reads that all disks below the recorded file systems have completed meanwhile, whoever issued them; `None` if one
    /// of them does not count its reads.
    pub device_reads: Option<u64>,
}

/// One file: its layout and, if there is a trace, the accesses that were seen on it.
#[derive(Clone, Debug)]
pub struct SurveyedFile {
    /// Its path, or one of them.
    pub path: PathBuf,
    /// Whether it has other names (hard links), which may be anywhere on its file system.
    pub has_other_names: bool,
    /// Identity, size and extents.
    pub layout: Layout,
    /// Accesses in the order in which they were seen; empty without a trace.
    pub accesses: Vec<Access>,
    /// The rank of each of them in the order in which they reached its disk ([`FileAccesses::ranks`]); empty where that order is
    /// not known.
    pub ranks: Vec<u32>,
    /// How each of them was recorded, if a part of all places was at a time; otherwise empty.
    pub recorded: Vec<Recorded>,
    /// Ranges that are slower than their fragments explain, as far as that was measured; in file order, without overlap, and
    /// where the layout has them.
    pub slow: Vec<SlowRange>,
    /// Allocation block of its file system, in bytes.
    pub block_bytes: u64,
    /// What its device and file system allow.
    pub limits: DeviceLimits,
    /// How the kernel reads ahead on its device.
    pub window: Window,
}

impl Survey {
    /// About the bytes of memory that its accesses and layouts need.
    pub fn memory_bytes(&self) -> usize {
        let of = |file: &SurveyedFile| {
            let (accesses, extents) = (file.accesses.len(), file.layout.extents().len());
            let own = size_of::<SurveyedFile>() + file.path.as_os_str().len();
            let beside = size_of_val(&*file.ranks) + size_of_val(&*file.recorded);
            own + accesses * size_of::<Access>() + beside + extents * size_of::<Extent>()
        };
        self.files.iter().map(of).sum()
    }

    /// Surveys the files of a trace that are on a volume, or without a trace its fragmented files. A file that
    /// has no path in the trace is shown by its inode number.
    ///
    /// # Errors
    /// Not all files of the volume could be shown.
    pub fn of(volume: &dyn Volume, trace: Option<Vec<FileAccesses>>) -> Result<Self, Skip> {
        let device = Device {
            device: 0,
            mount: Path::new(&volume.label()).into(),
            file_system: volume.kind(),
            total_bytes: volume.total_bytes(),
            block_bytes: volume.block_bytes(),
            profile: volume.profile().unwrap_or_else(DeviceProfile::unknown),
        };
        let mut found =
            Collected { volume, survey: Self::default(), device, devices: BTreeSet::new() };
        match trace {
            Some(files) => files.into_iter().for_each(|file| {
                let number = || PathBuf::from(format!("inode {}", file.file.inode));
                let path = file.path.clone().unwrap_or_else(number);
                found.take(&path, file, |_| true);
            }),
            None => volume.files(&mut |path, file| match file {
                Ok(file) => {
                    let file = FileAccesses::of(file);
                    found.take(path, file, |layout| layout.breaks().next().is_some());
                }
                Err(skip) => found.survey.left_alone.push(LeftAlone::new(path, &skip)),
            })?,
        }
        Ok(found.survey())
    }
}

impl SurveyedFile {
    /// A file on `device`.
    pub fn new(path: PathBuf, layout: Layout, accesses: Vec<Access>, device: &Device) -> Self {
        let Device { file_system, block_bytes, profile, .. } = device;
        Self {
            path,
            has_other_names: false,
            layout,
            accesses,
            ranks: Vec::new(),
            recorded: Vec::new(),
            slow: Vec::new(),
            block_bytes: *block_bytes,
            limits: DeviceLimits::new(*file_system, *block_bytes, profile),
            window: Window::of(profile),
        }
    }

    /// Takes ranges that a probe has found slow, where they are still where it measured them; returns how many are not.
    pub fn put_slow(&mut self, ranges: &[SlowRange]) -> usize {
        self.slow = ranges.iter().filter(|range| range.is_in(&self.layout)).copied().collect();
        ranges.len() - self.slow.len()
    }
}

/// What was found on a volume so far.
struct Collected<'a> {
    volume: &'a dyn Volume,
    survey: Survey,
    /// The device of the files, but for its number.
    device: Device,
    /// Device numbers of the files: a Btrfs has one for each subvolume.
    devices: BTreeSet<u64>,
}

impl Collected<'_> {
    fn take(&mut self, path: &Path, seen: FileAccesses, concerns: impl Fn(&Layout) -> bool) {
        let FileAccesses { file, accesses, ranks, recorded, .. } = seen;
        let layout = match self.volume.layout(file, path) {
            Ok(layout) if concerns(&layout) => layout,
            Ok(_) => return,
            Err(skip) => return self.survey.left_alone.push(LeftAlone::new(path, &skip)),
        };
        self.devices.insert(file.device);
        let file = SurveyedFile::new(path.to_owned(), layout, accesses, &self.device);
        self.survey.files.push(SurveyedFile { ranks, recorded, ..file });
    }

    fn survey(mut self) -> Survey {
        let numbered = |device: &u64| Device { device: *device, ..self.device.clone() };
        self.survey.devices = self.devices.iter().map(numbered).collect();
        self.survey
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Settings, make};
    use fragmend_layout::{CostModel, DeviceKind, ExtentKind, FsKind, Movable, SkipReason};
    use fragmend_layout::{FileId, Op};

    const BLOCK: u64 = 4096;

    /// Three files: one fragmented, one contiguous, one that cannot be read.
    struct Fixed;

    impl Fixed {
        fn id(inode: u64) -> FileId {
            FileId { device: 7, inode, generation: 1 }
        }
    }

    impl Volume for Fixed {
        fn label(&self) -> String {
            "/fixed".into()
        }
        fn kind(&self) -> FsKind {
            FsKind::Xfs
        }
        fn free_bytes(&self) -> Result<u64, Skip> {
            Ok(1 << 20)
        }
        fn total_bytes(&self) -> u64 {
            1 << 30
        }
        fn block_bytes(&self) -> u64 {
            BLOCK
        }
        fn profile(&self) -> Option<DeviceProfile> {
            let cost = CostModel::guessed(DeviceKind::Card);
            Some(DeviceProfile { cost, ..DeviceProfile::unknown() })
        }
        fn files(&self, visit: &mut dyn FnMut(&Path, Result<FileId, Skip>)) -> Result<(), Skip> {
            visit(Path::new("/fixed/fragments"), Ok(Self::id(1)));
            visit(Path::new("/fixed/whole"), Ok(Self::id(2)));
            let closed = Skip::new(SkipReason::PermissionDenied, "");
            visit(Path::new("/fixed/closed"), Err(closed));
            Ok(())
        }
        fn layout(&self, file: FileId, _: &Path) -> Result<Layout, Skip> {
            let apart = match file.inode {
                1 => 2,
                2 => 1,
                _ => return Err(Skip::new(SkipReason::Vanished, "")),
            };
            let mut layout = Layout::new(file, 8 * BLOCK);
            for n in 0..8 {
                let (logical, physical) = (n * BLOCK, n * apart * BLOCK);
                layout.push(Extent { logical, physical, length: BLOCK, kind: ExtentKind::Data });
            }
            Ok(layout)
        }
        fn open(&self, _: FileId, _: &Path) -> Result<Box<dyn Movable + '_>, Skip> {
            Err(Skip::new(SkipReason::ReadOnly, "nothing moves here"))
        }
    }

    #[test]
    fn any_volume_is_planned_for() {
        let survey = Survey::of(&Fixed, None).unwrap();
        assert_eq!(survey.left_alone[0].code, Some(SkipReason::PermissionDenied));
        let settings = Settings { policy: Policy::WholeFile, ..Settings::default() };
        let plan = make(survey, &settings);
        assert_eq!((plan.files.len(), plan.left_alone.len()), (1, 1));
        assert_eq!((plan.files[0].file, plan.summary.bytes_to_move), (Fixed::id(1), 8 * BLOCK));
        assert_eq!((plan.devices[0].device, &*plan.devices[0].mount.path), (7, "/fixed"));
    }

    #[test]
    fn of_a_trace_only_its_files_are_surveyed() {
        let access = Access {
            offset: 0,
            length: 8 * BLOCK as u32,
            count: 1,
            thread: 1,
            op: Op::Read,
            direct: true,
            windowed: false,
        };
        let seen =
            |inode| FileAccesses { accesses: vec![access], ..FileAccesses::of(Fixed::id(inode)) };
        let survey = Survey::of(&Fixed, Some(vec![seen(1), seen(9)])).unwrap();
        let gone = &survey.left_alone[0];
        assert_eq!((&*gone.path.path, gone.code), ("inode 9", Some(SkipReason::Vanished)));
        let summary = make(survey, &Settings::default()).summary;
        let requests = (summary.requests_before, summary.requests_after);
        assert_eq!((summary.files_considered, summary.ranges, requests), (1, 1, (8, 1)));
    }

    /// By the same costs: what a plan saves of one file that is read whole is what that file loses.
    #[test]
    fn a_file_loses_what_a_plan_saves_and_a_contiguous_one_nothing() {
        let access = Access {
            offset: 0,
            length: 8 * BLOCK as u32,
            count: 3,
            thread: 1,
            op: Op::Read,
            direct: true,
            windowed: false,
        };
        let seen =
            |inode| FileAccesses { accesses: vec![access], ..FileAccesses::of(Fixed::id(inode)) };
        let survey = Survey::of(&Fixed, Some(vec![seen(1), seen(2)])).unwrap();
        let (plan, losses) = crate::with_losses(survey.clone(), &Settings::default());
        assert_eq!(plan, make(survey, &Settings::default()));
        let [apart, whole] = &losses[..] else { panic!("{losses:?}") };
        assert_eq!((apart.file, apart.fragments, apart.requests), (Fixed::id(1), 8, 24));
        assert_eq!((whole.fragments, whole.requests, whole.seconds_lost), (1, 3, 0.0));
        assert!(apart.seconds_lost > 0.0 && whole.seconds > 0.0, "{losses:?}");
        assert!((apart.seconds_lost - plan.summary.seconds_saved).abs() < 1e-9, "{losses:?}");
        assert!((apart.seconds - apart.seconds_lost - whole.seconds).abs() < 1e-9, "{losses:?}");
    }
}
