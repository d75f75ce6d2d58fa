//! Who mends: the file system's own tool, or fragmend with one of its policies.

use crate::image::Image;
use crate::measure::{Cost, measured_cold};
use crate::process::finish;
use crate::tools::{Recording, fragmend_event, fragmend_json};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to mend a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Leave it as it is.
    None,
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
/// The same, told to leave extents of 128 KiB and more alone, as FragPicker compares (SOSP'21, 5.4).
pub const BTRFS_DEFRAGMENT_128K: Contender =
    Contender::Native(&["btrfs", "filesystem", "defragment", "-t", "128K"]);

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
    /// As in the tables.
    pub fn name(self) -> String {
        match self {
            Self::None => "as it is".into(),
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

    /// Watches `load` if need be, then mends `file`. What is charged is the mending alone.
    ///
    /// # Panics
    /// When a tool fails.
    pub fn mend(self, image: &Image, file: &Path, load: impl FnOnce()) -> Cost {
        match self {
            Self::None => Cost::default(),
            // Exit codes say little of a file that failed; the counters tell.
            Self::Native(tool) => measured_cold(image, || native(tool, file)).1,
            Self::Fragmend { .. } => {
                let plan = self.plan(image, file, load);
                measured_cold(image, || apply(&plan, &[])).1
            }
        }
    }

    /// Records `load` if the policy needs it and writes a plan beside the image.
    ///
    /// # Panics
    /// When fragmend fails, or this contender makes no plans.
    pub fn plan(self, image: &Image, file: &Path, load: impl FnOnce()) -> PathBuf {
        let Self::Fragmend { policy, hot_percent } = self else {
            panic!("{} makes no plan", self.name())
        };
        let plan = image.scratch().join("plan.json");
        let _ = std::fs::remove_file(&plan);
        let mut args: Vec<&OsStr> = ["plan", "--policy", policy, "-o"].map(OsStr::new).to_vec();
        args.push(plan.as_os_str());
        let trace = image.scratch().join("trace.parquet");
        if self.needs_trace() {
            let _ = std::fs::remove_file(&trace);
            let recording = Recording::start(&trace, &[file]);
            crate::measure::drop_caches();
            load();
            recording.finish();
            args.extend([OsStr::new("-t"), trace.as_os_str()]);
        }
        let hot = hot_percent.map(|h| format!("{}", f64::from(h) / 100.0));
        if let Some(hot) = &hot {
            args.extend(["--hot", hot].map(OsStr::new));
        }
        args.push(file.as_os_str());
        fragmend_json(args);
        plan
    }
}

/// Runs a file system's own tool on a file.
///
/// # Panics
/// When it cannot be started, or fails.
pub fn native(tool: &[&str], file: &Path) {
    finish(Command::new(tool[0]).args(&tool[1..]).arg(file)).expect(&[0, 1]);
}

/// Applies a plan as fast as the disk goes, or as further options say, and gives the summary.
///
/// # Panics
/// When it fails.
pub fn apply(plan: &Path, options: &[&str]) -> Value {
    let mut args = vec![OsStr::new("apply"), plan.as_os_str()];
    args.extend(options.iter().map(OsStr::new));
    fragmend_event(args, "summary")
}
