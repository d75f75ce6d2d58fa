//! Six months of a phone with one of the policies of section 5.2, for J-fig15-17 and J-table4.

use super::{Bed, Kind, WEEK, mean};
use fragmend_simfs::mounted::{Primitive, Remap};

/// As full as the phone of section 5.1, in per cent.
pub const FULL: u64 = 83;
/// Bytes of a program of the drives' logs (`simmmc.toml`, `simufs.toml`).
const LOG_PROGRAM: u64 = 8192;
/// Weeks of six months.
pub const WEEKS: u32 = 26;

/// A policy of section 5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    Baseline,
    /// `e4defrag` every so many weeks.
    Copies(u32),
    /// janusdL every week.
    JanusdL,
    /// janusdL and janusdP every week.
    Janusd,
}

impl Remedy {
    /// How the paper calls it.
    pub fn name(self) -> String {
        match self {
            Self::Baseline => "baseline".into(),
            Self::Copies(weeks) => format!("e4defrag_{weeks}w"),
            Self::JanusdL => "janusdL".into(),
            Self::Janusd => "janusd".into(),
        }
    }

    /// This phone, whose moves are those of the policy.
    pub fn on(self, preset: &'static str) -> Kind {
        let primitive = match self {
            Self::Baseline | Self::Copies(_) => Primitive::Copy,
            Self::JanusdL | Self::Janusd => Primitive::Remap(Remap::EXCLUSIVE),
        };
        Kind::new(preset, FULL, primitive)
    }

    fn every(self) -> Option<u32> {
        match self {
            Self::Baseline => None,
            Self::Copies(weeks) => Some(weeks),
            Self::JanusdL | Self::Janusd => Some(1),
        }
    }
}

/// What came of it; figures are for the whole partition.
#[derive(Clone, Debug, Default)]
pub struct Lived {
    /// MB/s of reading each app at the end of each week, before it is defragmented, averaged over the apps.
    pub mbs: Vec<f64>,
    /// The time of a launch of each app then, averaged over the weeks, in milliseconds.
    pub launch_ms: Vec<f64>,
    /// The mean degree of each app's files before the first week.
    pub degrees: Vec<f64>,
    /// Requests, and flash pages that are sensed, for a MiB of these reads.
    pub requests: f64,
    pub pages: f64,
    /// Requests for a MiB of the launches.
    pub launch_requests: f64,
    /// Flash pages on the busiest channel of these reads, of an even share, in per cent.
    pub busiest_percent: f64,
    /// What janusdL or `e4defrag` has moved, in GB.
    pub moved_gb: f64,
    /// What was copied by the host for that.
    pub copied_gb: f64,
    /// Programs of the drive's log, and those of them that compaction has made.
    pub log_gb: f64,
    pub compacted_gb: f64,
    /// What janusdP has had written anew.
    pub spread_gb: f64,
}

impl Lived {
    pub fn mean_mbs(&self) -> f64 {
        mean(&self.mbs)
    }

    pub fn written_gb(&self) -> f64 {
        self.copied_gb + self.log_gb + self.spread_gb
    }
}

/// Lives on with a policy after the first six months, which have none.
pub fn live(kind: &Kind, remedy: Remedy, seed: u64) -> Lived {
    let mut bed = kind.aged(seed);
    let apps = bed.apps();
    let (degrees, launch_ms) = (bed.degrees(), vec![0.0; apps]);
    let mut lived = Lived { degrees, launch_ms, ..Lived::default() };
    let before = bed.machine().counters();
    let (mut requests, mut pages, mut units, mut busiest, mut even) = (0, 0, 0, 0, 0);
    let (mut launch_requests, mut launch_units) = (0, 0);
    for week in 0..WEEKS {
        if remedy.every().is_some_and(|every| week.is_multiple_of(every)) {
            defragment(&bed, remedy, &mut lived);
        }
        bed.live(WEEK);
        let idle = bed.machine().counters();
        lived.mbs.push(mean(&(0..apps).map(|app| bed.throughput(app)).collect::<Vec<_>>()));
        let read = bed.machine().counters().since(&idle);
        requests += read.commands;
        pages += read.pages_read;
        units += read.host_read;
        busiest += read.busiest_pages;
        even += read.even_pages;
        let idle = bed.machine().counters();
        for app in 0..apps {
            lived.launch_ms[app] += bed.launch_ms(app) / f64::from(WEEKS);
        }
        let read = bed.machine().counters().since(&idle);
        launch_requests += read.commands;
        launch_units += read.host_read;
    }
    let mib = |units: u64| (units * bed.machine().block_bytes()) as f64 / f64::from(1 << 20);
    (lived.requests, lived.pages) = (requests as f64 / mib(units), pages as f64 / mib(units));
    lived.launch_requests = launch_requests as f64 / mib(launch_units);
    lived.busiest_percent = busiest as f64 * 100.0 / even as f64;
    let done = bed.machine().counters().since(&before);
    lived.log_gb = bed.whole_gb(done.log_programs * LOG_PROGRAM);
    lived.compacted_gb = bed.whole_gb(done.log_compacted * LOG_PROGRAM);
    lived
}

fn defragment(bed: &Bed, remedy: Remedy, lived: &mut Lived) {
    let summary = bed.defragment();
    lived.moved_gb += bed.whole_gb(summary.moved_bytes);
    // Of remaps, only what was copied because the drive had refused one.
    let copied = summary.moved_by_primitive.get(Primitive::Copy.name()).copied();
    lived.copied_gb += bed.whole_gb(copied.unwrap_or(0));
    if remedy == Remedy::Janusd {
        let blocks = bed.spread().blocks;
        lived.spread_gb += bed.whole_gb(blocks * bed.machine().block_bytes());
    }
}
