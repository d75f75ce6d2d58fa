//! A phone of janusd's user study (sections 2 and 5): an aged partition with the simulated ext4, its defragmentation by the production
//! planner and mover, and what can be measured of it. The figures that use it are modules here.
//!
//! A phone has been in use for six months, without a defragmenter, before anything is measured (section 2.1). It is one part in [`PARTS`]
//! of the paper's partition of 25 GB, with as many parts of the apps and sessions.

pub(super) mod fig15_table4;
pub(super) mod fig2_5;
pub(super) mod fig6;

use crate::bed::carry_out;
use crate::loads::grep::Grep;
use crate::loads::mobile::{DAYS, Habits, Phone};
use crate::loads::{Load, Scale};
use crate::presets;
use crate::setup::DriveKind;
use fragmend_apply::Summary;
use fragmend_flash::command::Units;
use fragmend_layout::{ByteRange, DeviceLimits, Extent, FsKind, Layout, Measures, Volume};
use fragmend_plan::{Policy, Settings, Survey, make};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Primitive;
use std::path::{Path, PathBuf};

/// One part in so many of the partition.
pub const PARTS: u32 = 5;
/// Apps that are used. They differ in nothing but chance: what each of the paper's writes is not in its text.
pub const APPS: usize = 6;
/// Days.
pub const WEEK: u32 = 7;

/// A phone in use.
pub struct Bed {
    files: InPlace,
    phone: Phone,
}

/// How fragmented some files are, in numbers of files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragmentation {
    pub files: u64,
    /// Those with a degree above 1.
    pub fragmented: u64,
    /// The mean degree.
    pub mean_dof: f64,
}

impl Fragmentation {
    /// Fragmented files, in per cent.
    pub fn percent(&self) -> f64 {
        self.fragmented as f64 * 100.0 / self.files.max(1) as f64
    }
}

impl Bed {
    /// A phone with this drive, as full as that in per cent, after `days` of use; moves bring data to its new place so.
    pub fn new(preset: &str, full: u64, days: u32, primitive: Primitive, seed: u64) -> Self {
        let mut setup = presets::named(preset).expect("a preset");
        if let DriveKind::Flash(drive) = &mut setup.drive {
            drive.geometry.blocks_per_plane /= PARTS;
        }
        let machine = Machine::new(setup.device(), false, setup.host);
        let mut options = inplace::Options::of(&machine);
        options.primitive = primitive;
        let files = InPlace::format(&machine, &options).expect("space for its tables");
        let (habits, scale) = (Habits { full, ..Habits::default() }, Scale::one_in(PARTS.into()));
        let phone = Phone::new(&files, habits, scale, seed).expect("space for its apps");
        let mut bed = Self { files, phone };
        bed.live(days);
        bed
    }

    /// The same after six months.
    pub fn aged(preset: &str, full: u64, primitive: Primitive, seed: u64) -> Self {
        Self::new(preset, full, DAYS, primitive, seed)
    }

    /// It is used for so many days.
    pub fn live(&mut self, days: u32) {
        self.phone.live_for(&self.files, days).expect("space for what it writes");
        self.files.sync().expect("a drive");
    }

    /// The production planner and mover, with the policy of `e4defrag`.
    pub fn defragment(&self) -> Summary {
        let survey = Survey::of(&self.files, None).expect("all files");
        let plan = make(survey, &Settings { policy: Policy::WholeFile, ..Settings::default() });
        // Nothing else runs meanwhile.
        carry_out(&plan, self.machine(), || Box::new(self.files.clone()))
    }

    pub fn machine(&self) -> &Machine {
        self.files.machine()
    }

    /// Every file whose path begins so.
    pub fn layouts(&self, prefix: &str) -> Vec<(PathBuf, Layout)> {
        let mut found = Vec::new();
        let mut visit = |path: &Path, file: Result<_, _>| {
            if path.to_string_lossy().starts_with(prefix) {
                found.push((path.to_owned(), file.expect("a file")));
            }
        };
        self.files.files(&mut visit).expect("all files");
        found.sort();
        let layout = |(path, file): (PathBuf, _)| {
            let layout = self.files.layout(file, &path).expect("a file");
            (path, layout)
        };
        found.into_iter().map(layout).collect()
    }

    /// The degree of logical fragmentation of a file.
    pub fn dof(&self, layout: &Layout) -> f64 {
        let path = self.machine().path();
        let limits = DeviceLimits {
            largest_extent: FsKind::Ext4.largest_extent(self.files.block_bytes()),
            readahead: path.readahead_bytes.into(),
            max_request: path.request_bytes.into(),
        };
        Measures::of(layout, &limits, |_, _| {}).dof()
    }

    /// The mean degree of physical fragmentation of the windows of the kernel's readahead in the files of an app: what a sequential
    /// reader has in flight at a time.
    pub fn dof_p_of_windows(&self, app: usize) -> f64 {
        let window = u64::from(self.machine().path().readahead_bytes);
        let (mut sum, mut count) = (0.0, 0);
        for (_, layout) in self.layouts(&prefix(app)) {
            for range in ByteRange::at(0, layout.size).steps(window) {
                let units = units(layout.within(range), self.files.block_bytes());
                sum += self.dof_p(&units);
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    /// The degree of physical fragmentation of these addresses.
    pub fn dof_p(&self, units: &[Units]) -> f64 {
        f64::from(self.machine().drive(|drive| drive.dof_p_per_mille(units))) / 1e3
    }

    /// How fragmented the files are whose paths begin so.
    pub fn fragmentation(&self, prefix: &str) -> Fragmentation {
        let all = self.layouts(prefix);
        let dofs = all.iter().map(|(_, layout)| self.dof(layout));
        let (mut fragmented, mut sum) = (0, 0.0);
        for dof in dofs {
            fragmented += u64::from(dof > 1.0);
            sum += dof;
        }
        let files = all.len() as u64;
        Fragmentation { files, fragmented, mean_dof: sum / files.max(1) as f64 }
    }

    /// MB/s of reading all files of an app, cold, as its use does.
    pub fn throughput(&self, app: usize) -> f64 {
        let (bytes, ns) = self.read(&[prefix(app)]);
        bytes / ns * 1e3
    }

    /// The mean of [`Self::throughput`] of all apps.
    pub fn mean_throughput(&self) -> f64 {
        (0..APPS).map(|app| self.throughput(app)).sum::<f64>() / APPS as f64
    }

    /// The mean time of reading what the launch of an app reads (section 2.4): executables and libraries, which are its packages, and
    /// data, which is the first of its databases; in milliseconds.
    pub fn mean_launch_ms(&self) -> f64 {
        let launch = |app| self.read(&["base", "0.db"].map(|name| prefix(app) + name)).1 / 1e6;
        (0..APPS).map(launch).sum::<f64>() / APPS as f64
    }

    /// Reads the files whose paths begin so, cold; returns bytes and nanoseconds.
    fn read(&self, prefixes: &[String]) -> (f64, f64) {
        self.files.drop_caches();
        let machine = self.machine();
        machine.wait_until_idle();
        let start = machine.now_ns();
        let mut bytes = 0;
        for prefix in prefixes {
            let grep = Grep::of(&self.files, prefix, Access::Buffered);
            bytes += grep.expect("all files").finish(&self.files).expect("a drive").read_bytes;
        }
        (bytes as f64, (machine.now_ns() - start) as f64)
    }
}

/// The paths of an app begin so.
pub fn prefix(app: usize) -> String {
    Phone::prefixes().nth(app).expect("an app that is used")
}

/// The addresses of extents.
pub fn units(extents: impl IntoIterator<Item = Extent>, block: u64) -> Vec<Units> {
    let unit = |bytes: u64| (bytes / block) as u32;
    let placed = extents.into_iter().filter(|extent| extent.kind.is_addressed());
    placed.map(|extent| Units::new(unit(extent.physical), unit(extent.length))).collect()
}

/// A figure for the whole partition from one for a part of it, in GB.
pub fn whole_gb(bytes: u64) -> f64 {
    bytes as f64 * f64::from(PARTS) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_simfs::mounted::Remap;

    /// Both primitives move the same; remaps write no data but the drive's log.
    #[test]
    fn a_phone_is_defragmented_by_copies_and_by_remaps() {
        let remap = Primitive::Remap(Remap::EXCLUSIVE);
        for primitive in [Primitive::Copy, remap] {
            let bed = Bed::new("simmmc", 83, WEEK, primitive, 7);
            let (before, collected) = (bed.fragmentation(""), bed.machine().counters());
            let summary = bed.defragment();
            let after = bed.fragmentation("");
            assert!(
                before.fragmented > 0 && after.mean_dof < before.mean_dof,
                "{before:?} {after:?}"
            );
            let moved = summary.moved_by_primitive.get(primitive.name()).copied();
            assert!(summary.moved_bytes > 0 && moved == Some(summary.moved_bytes), "{summary:?}");
            let counters = bed.machine().counters();
            let remapped = counters.remapped - collected.remapped;
            assert_eq!(remapped > 0, primitive == remap);
            assert_eq!(bed.files.check(), Ok(()));
            assert!(bed.mean_throughput() > 0.0 && bed.mean_launch_ms() > 0.0);
        }
    }

    #[test]
    #[ignore = "needs minutes: cargo test --release -p fragmend-lab phone -- --ignored --nocapture"]
    fn figures_out_of_their_bands_have_reasons() {
        for experiment in [&fig2_5::EXPERIMENT, &fig6::EXPERIMENT, &fig15_table4::EXPERIMENT] {
            let (report, plots) = experiment.report(42);
            assert!(!plots.is_empty());
            for row in &report.rows {
                println!("{}: {:?} {:.3} {}", row.name, row.paper, row.ours, row.unit);
                assert!(row.within || row.reason.is_some(), "{}", row.name);
            }
        }
    }
}
