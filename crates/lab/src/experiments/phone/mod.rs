//! A phone of janusd's user study (sections 2 and 5): an aged partition with the simulated ext4, its defragmentation by the production
//! planner and mover, and what can be measured of it. The figures that use it are modules here.
//!
//! A phone has been in use for six months, without a defragmenter, before anything is measured (section 2.1). It is one part in [`PARTS`]
//! of the paper's partition of 25 GB, with as many parts of its apps, which differ in nothing but chance, and of the sessions with them:
//! each app does what it does on the whole partition. J-fig2-5 has figures of the whole partition, and J-fig15-17 of half this
//! scale, beside these.

pub(super) mod fig15_17;
pub(super) mod fig2_5;
pub(super) mod fig6;
mod life;
pub(super) mod table4;

use crate::bed::{carry_out, plan};
use crate::loads::grep::Grep;
use crate::loads::mobile::{DAYS, Habits, Phone};
use crate::loads::{Load, Scale};
use crate::presets;
use crate::setup::DriveKind;
use fragmend_apply::Summary;
use fragmend_flash::command::Units;
use fragmend_layout::{DeviceLimits, Extent, FileId, FsKind, Layout, Measures, Volume};
use fragmend_plan::{Policy, Settings, Survey};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::inplace::{self, InPlace};
use fragmend_simfs::janusd::{self, Reads, Spread};
use fragmend_simfs::machine::Machine;
use fragmend_simfs::mounted::Primitive;
use std::path::{Path, PathBuf};

/// One part in so many of the partition.
pub const PARTS: u32 = 3;
/// Days.
pub const WEEK: u32 = 7;

/// Which phone, and how much of it is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its drive.
    pub preset: &'static str,
    /// How moves bring data to its new place.
    pub primitive: Primitive,
    /// What its apps do, and how full it is.
    pub habits: Habits,
    /// One part in so many of the partition.
    pub parts: u32,
    /// What the drive maps, and a block of the file system, in bytes; that of the drive's file if there is none.
    pub unit_bytes: Option<u32>,
}

impl Kind {
    /// A phone with this drive, as full as that in per cent.
    pub fn new(preset: &'static str, full: u64, primitive: Primitive) -> Self {
        let habits = Habits { full, ..Habits::default() };
        Self { preset, primitive, habits, parts: PARTS, unit_bytes: None }
    }

    /// It, after `days` of use.
    pub fn used(&self, days: u32, seed: u64) -> Bed {
        let mut setup = presets::named(self.preset).expect("a preset");
        if let DriveKind::Flash(drive) = &mut setup.drive {
            let geometry = &mut drive.geometry;
            geometry.blocks_per_plane /= self.parts;
            geometry.mapping_unit_bytes = self.unit_bytes.unwrap_or(geometry.mapping_unit_bytes);
        }
        let flash_page_bytes = setup.flash().geometry.flash_page_bytes;
        let machine = Machine::new(setup.device(), false, setup.host);
        let mut options = inplace::Options::of(&machine);
        options.primitive = self.primitive;
        let files = InPlace::format(&machine, &options).expect("space for its tables");
        let scale = Scale::one_in(self.parts.into());
        let phone = Phone::new(&files, self.habits, scale, seed).expect("space for its apps");
        let (reads, parts) = (Reads::default(), self.parts);
        let mut bed = Bed { files, phone, reads, flash_page_bytes, parts };
        bed.live(days);
        bed
    }

    /// It, after six months.
    pub fn aged(&self, seed: u64) -> Bed {
        self.used(DAYS, seed)
    }
}

/// A phone in use.
pub struct Bed {
    files: InPlace,
    phone: Phone,
    /// What the daemon of section 4.2 has counted.
    reads: Reads,
    flash_page_bytes: u32,
    parts: u32,
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
    /// It is used for so many days.
    pub fn live(&mut self, days: u32) {
        self.phone.live_for(&self.files, days).expect("space for what it writes");
        self.files.sync().expect("a drive");
    }

    /// The production planner and mover, with the policy of `e4defrag`.
    pub fn defragment(&self) -> Summary {
        let survey = Survey::of(&self.files, None).expect("all files");
        let plan = plan(survey, &Settings { policy: Policy::WholeFile, ..Settings::default() });
        // Nothing else runs meanwhile.
        carry_out(&plan, self.machine(), || Box::new(self.files.clone()))
    }

    /// A figure for the whole partition from one for the part that is simulated, in GB.
    pub fn whole_gb(&self, bytes: u64) -> f64 {
        bytes as f64 * f64::from(self.parts) / 1e9
    }

    /// How many apps are used.
    pub fn apps(&self) -> usize {
        self.phone.used()
    }

    /// The mean degree of logical fragmentation of the files of each app that is used.
    pub fn degrees(&self) -> Vec<f64> {
        (0..self.apps()).map(|app| self.fragmentation(&Phone::prefix(app)).mean_dof).collect()
    }

    pub fn machine(&self) -> &Machine {
        self.files.machine()
    }

    /// janusdP, by the reads so far.
    pub fn spread(&self) -> Spread {
        let blocks = u64::from(self.flash_page_bytes) / self.files.block_bytes();
        janusd::spread_files(&self.files, &self.reads, blocks as u32).expect("a drive")
    }

    /// Every file whose path begins so, by its path.
    fn found(&self, prefix: &str) -> Vec<(PathBuf, FileId)> {
        let mut found = Vec::new();
        let mut visit = |path: &Path, file: Result<_, _>| {
            if path.to_string_lossy().starts_with(prefix) {
                found.push((path.to_owned(), file.expect("a file")));
            }
        };
        self.files.files(&mut visit).expect("all files");
        found.sort();
        found
    }

    /// Their layouts.
    pub fn layouts(&self, prefix: &str) -> Vec<(PathBuf, Layout)> {
        let layout = |(path, file): (PathBuf, _)| {
            let layout = self.files.layout(file, &path).expect("a file");
            (path, layout)
        };
        self.found(prefix).into_iter().map(layout).collect()
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
    pub fn throughput(&mut self, app: usize) -> f64 {
        let (bytes, ns) = self.read(&[Phone::prefix(app)]);
        bytes / ns * 1e3
    }

    /// The time of reading what the launch of an app reads, in milliseconds.
    pub fn launch_ms(&mut self, app: usize) -> f64 {
        self.launch(app).1 / 1e6
    }

    /// Nanoseconds of all launches for each byte that they read: an update makes packages longer or shorter.
    pub fn launch_ns_per_byte(&mut self) -> f64 {
        let (mut bytes, mut ns) = (0.0, 0.0);
        for app in 0..self.apps() {
            let read = self.launch(app);
            (bytes, ns) = (bytes + read.0, ns + read.1);
        }
        ns / bytes
    }

    /// Reads what the launch of an app reads (section 2.4): executables and libraries, which are its packages, and data, which is the
    /// first of its databases; returns bytes and nanoseconds.
    fn launch(&mut self, app: usize) -> (f64, f64) {
        self.read(&["base", "0.db"].map(|name| Phone::prefix(app) + name))
    }

    /// Reads the files whose paths begin so, cold, and counts these reads; returns bytes and nanoseconds.
    fn read(&mut self, prefixes: &[String]) -> (f64, f64) {
        self.files.drop_caches();
        self.machine().wait_until_idle();
        let start = self.machine().now_ns();
        let mut bytes = 0;
        for prefix in prefixes {
            let grep = Grep::of(&self.files, prefix, Access::Buffered);
            bytes += grep.expect("all files").finish(&self.files).expect("a drive").read_bytes;
            let found = self.found(prefix);
            found.into_iter().for_each(|(_, file)| self.reads.count(file));
        }
        (bytes as f64, (self.machine().now_ns() - start) as f64)
    }
}

/// The addresses of extents.
pub fn units(extents: impl IntoIterator<Item = Extent>, block: u64) -> Vec<Units> {
    let unit = |bytes: u64| (bytes / block) as u32;
    let placed = extents.into_iter().filter(|extent| extent.kind.is_addressed());
    placed.map(|extent| Units::new(unit(extent.physical), unit(extent.length))).collect()
}

/// The mean of some figures.
pub fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::run::run_all;
    use fragmend_simfs::mounted::Remap;

    /// Both primitives move the same; remaps write no data but the drive's log.
    #[test]
    fn a_phone_is_defragmented_by_copies_and_by_remaps() {
        let remap = Primitive::Remap(Remap::EXCLUSIVE);
        for primitive in [Primitive::Copy, remap] {
            let mut bed = Kind::new("simmmc", 83, primitive).used(WEEK, 7);
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
            assert!(bed.throughput(0) > 0.0 && bed.launch_ms(0) > 0.0);
        }
    }

    /// The latency of janusd's drives (`simmmc.toml`) is what gives simMMC the throughput of the paper's clean file systems.
    #[test]
    fn simmmc_reads_clean_files_as_fast_as_the_paper_says() {
        /// MB/s with Chrome and with Game (section 5.2).
        const CLEAN: [f64; 2] = [58.0, 66.0];
        let mut bed = Kind::new("simmmc", 83, Primitive::Copy).aged(42);
        bed.defragment();
        let degrees = mean(&bed.degrees());
        assert!(degrees < 1.15, "{degrees}: what is left is fragmented for lack of space");
        let all: Vec<f64> = (0..bed.apps()).map(|app| bed.throughput(app)).collect();
        assert!((mean(&all) / mean(&CLEAN) - 1.0).abs() < 0.03, "{all:?} MB/s");
        assert!(all.iter().all(|mbs| (CLEAN[0]..CLEAN[1]).contains(mbs)), "{all:?} MB/s");
    }

    /// In a pool of its own, as [`run_all`] makes one: a plan is made with the threads of the global one.
    fn all_that_is_out_of_its_band_has_a_reason(experiment: &'static Experiment) {
        let reports = run_all(&[experiment], None, |experiment| experiment.report(42).0);
        let [report] = &reports[..] else { panic!("one report") };
        assert!(!report.rows.is_empty());
        for row in &report.rows {
            println!("{}: {:?} {:.3} {}", row.name, row.paper, row.ours, row.unit);
            assert!(row.within || row.reason.is_some(), "{}", row.name);
        }
    }

    #[test]
    #[ignore = "needs a minute: cargo test --release -p fragmend-lab phone -- --ignored --nocapture"]
    fn figures_2_to_6_have_reasons() {
        all_that_is_out_of_its_band_has_a_reason(&fig2_5::EXPERIMENT);
        all_that_is_out_of_its_band_has_a_reason(&fig6::EXPERIMENT);
    }

    #[test]
    #[ignore = "needs a minute: cargo test --release -p fragmend-lab phone -- --ignored --nocapture"]
    fn figures_15_to_17_have_reasons() {
        all_that_is_out_of_its_band_has_a_reason(&fig15_17::EXPERIMENT);
    }

    #[test]
    #[ignore = "needs half a minute: cargo test --release -p fragmend-lab phone -- --ignored --nocapture"]
    fn table_4_has_reasons() {
        all_that_is_out_of_its_band_has_a_reason(&table4::EXPERIMENT);
    }
}
