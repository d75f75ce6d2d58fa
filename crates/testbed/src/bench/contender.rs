//! The contenders: the file system's own tool, and fragmend with each of its policies.

use crate::image::Image;
use crate::measure::{Cost, drop_caches, measured_cold};
use crate::process::finish;
use crate::tools::{Recording, fragmend_event, fragmend_json};
use fragmend_sys::f2fs;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to mend a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Leave it as it is.
    None,
    /// `F2FS_IOC_DEFRAGMENT` over the whole file, as `f2fs_io defrag_file` calls it.
    F2fsWhole,
    /// The file system's own tool: program and arguments, then the file.
    Native(&'static [&'static str]),
    /// `fragmend plan --policy ...` and `fragmend apply`.
    Fragmend {
        /// The policy's name on the command line.
        policy: &'static str,
        /// Keep only this per cent of what was read, the hottest first.
        hot_percent: Option<u32>,
    },
}

/// ext4's own tool.
pub const E4DEFRAG: Contender = Contender::Native(&["e4defrag"]);
/// XFS's own tool.
pub const XFS_FSR: Contender = Contender::Native(&["xfs_fsr"]);
/// Btrfs's own tool.
pub const BTRFS_DEFRAGMENT: Contender = Contender::Native(&["btrfs", "filesystem", "defragment"]);
/// The same, with the option that leaves extents of 128 KiB and more alone, as FragPicker compares (SOSP'21,
/// 5.4).
pub const BTRFS_DEFRAGMENT_128K: Contender =
    Contender::Native(&["btrfs", "filesystem", "defragment", "-t", "128K"]);

/// F2FS's own ioctl.
pub const F2FS_WHOLE: Contender = Contender::F2fsWhole;

/// The bypass policy: no trace, the file in steps of a request.
pub const BYPASS: Contender = Contender::Fragmend { policy: "bypass", hot_percent: None };
/// The paper's policy, everything that was read.
pub const FRAGPICKER: Contender = Contender::Fragmend { policy: "fragpicker", hot_percent: None };
/// The paper's policy on the hotter half.
pub const FRAGPICKER_HALF: Contender =
    Contender::Fragmend { policy: "fragpicker", hot_percent: Some(50) };
/// fragmend's default policy.
pub const GAIN: Contender = Contender::Fragmend { policy: "gain", hot_percent: None };

impl Contender {
    /// Its name in the tables.
    pub fn name(self) -> String {
        match self {
            Self::None => "as it is".into(),
            Self::F2fsWhole => "F2FS_IOC_DEFRAGMENT".into(),
            Self::Native(tool) => tool.join(" "),
            Self::Fragmend { policy, hot_percent: None } => format!("fragmend {policy}"),
            Self::Fragmend { policy, hot_percent: Some(hot) } => {
                format!("fragmend {policy}, hot {hot} %")
            }
        }
    }

    /// Whether what it does depends on the load.
    pub fn needs_trace(self) -> bool {
        matches!(self, Self::Fragmend { policy, .. } if policy != "bypass" && policy != "whole-file")
    }

    /// Records `load` if the policy needs it, then defragments `file`. Returns the cost of the latter alone.
    ///
    /// # Panics
    /// When a tool fails.
    pub fn mend(self, image: &Image, file: &Path, load: impl FnOnce()) -> Cost {
        let trace = self.needs_trace().then(|| record(image, file, load));
        self.mend_as_noted(image, &[file], &trace.unwrap_or_default())
    }

    /// Defragments `files` for a load with an existing trace. Returns the cost of that alone.
    ///
    /// # Panics
    /// When a tool fails.
    pub fn mend_as_noted(self, image: &Image, files: &[impl AsRef<Path>], trace: &Path) -> Cost {
        match self {
            Self::None => Cost::default(),
            Self::F2fsWhole => measured_cold(image, || files.iter().for_each(f2fs_whole)).1,
            // Its exit code does not show whether a file failed; the counters do.
            Self::Native(tool) => {
                measured_cold(image, || files.iter().for_each(|f| native(tool, f.as_ref()))).1
            }
            Self::Fragmend { .. } => {
                let plan = self.plan_from(image, files, trace);
                measured_cold(image, || apply(&plan, &[])).1
            }
        }
    }

    /// Records `load` if the policy needs it and writes a plan beside the image.
    ///
    /// # Panics
    /// When fragmend fails, or this contender makes no plans.
    pub fn plan(self, image: &Image, file: &Path, load: impl FnOnce()) -> PathBuf {
        let trace = self.needs_trace().then(|| record(image, file, load));
        self.plan_from(image, &[file], &trace.unwrap_or_default())
    }

    fn plan_from(self, image: &Image, files: &[impl AsRef<Path>], trace: &Path) -> PathBuf {
        let Self::Fragmend { policy, hot_percent } = self else {
            panic!("{} makes no plan", self.name())
        };
        let plan = image.scratch().join("plan.json");
        let _ = std::fs::remove_file(&plan);
        let mut args: Vec<&OsStr> = ["plan", "--policy", policy, "-o"].map(OsStr::new).to_vec();
        args.push(plan.as_os_str());
        if self.needs_trace() {
            args.extend([OsStr::new("-t"), trace.as_os_str()]);
        }
        let hot = hot_percent.map(|h| format!("{}", f64::from(h) / 100.0));
        if let Some(hot) = &hot {
            args.extend(["--hot", hot].map(OsStr::new));
        }
        args.extend(files.iter().map(|file| file.as_ref().as_os_str()));
        fragmend_json(args);
        plan
    }
}

/// Records `load` into a trace beside the image.
fn record(image: &Image, file: &Path, load: impl FnOnce()) -> PathBuf {
    let trace = image.scratch().join("trace.parquet");
    let _ = std::fs::remove_file(&trace);
    let recording = Recording::start(&trace, &[file]);
    drop_caches(file);
    load();
    recording.finish();
    trace
}

fn f2fs_whole(file: &impl AsRef<Path>) {
    let file = File::options().read(true).write(true).open(file).expect("a file to mend");
    let bytes = file.metadata().expect("its size").len().next_multiple_of(4096);
    f2fs::defragment(&file, 0, bytes).expect("F2FS_IOC_DEFRAGMENT");
}

/// Runs a file system's own tool on a file.
///
/// # Panics
/// When it cannot be started, or fails.
pub fn native(tool: &[&str], file: &Path) {
    finish(Command::new(tool[0]).args(&tool[1..]).arg(file)).expect(&[0, 1]);
}

/// Applies a plan at the default pace, or as further options say, and returns the summary.
///
/// # Panics
/// When it fails.
pub fn apply(plan: &Path, options: &[&str]) -> Value {
    let mut args = vec![OsStr::new("apply"), plan.as_os_str()];
    args.extend(options.iter().map(OsStr::new));
    fragmend_event(args, "summary")
}
