//! FragPicker, section 5.3.2: a database that grew by synchronous inserts on Btrfs, on a microSD card, and a select of
//! three tenths of it: as it grew, after FragPicker has moved what the same select read, and after all of it was moved.
//!
//! Of SQLite 3.40.1 on Btrfs of Linux 6.18, which inserted 3,000 such rows on a loop device, 3,377 pages were in 3,201 extents: a new page
//! lies between those of the journal and the other pages of its transaction, and what those leave is not allocated again before the
//! file system's own commit. It is so here, which a test holds.
//!
//! The load is a tenth of the paper's 100,000 rows. What a row costs does not depend on their number, which a test holds at
//! two smaller ones.

use super::d_fig12::sqlite::SELECT_PAGE_NS;
use crate::bed::{self, Moved};
use crate::experiment::{Experiment, Results};
use crate::loads::sqlite::{Inserts, Journal, Select};
use crate::loads::watched::Watched;
use crate::loads::{Load, Scale};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use fragmend_plan::Policy;
use fragmend_simfs::cow::{Cow, Options};
use fragmend_simfs::file_system::FileSystem;
use rayon::prelude::*;
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-sqlite",
    source: "FragPicker, section 5.3.2",
    about: "a select from a database that grew synchronously on Btrfs, before and after two policies",
    is_long: true,
    run,
};

/// The card with its reader, and the card alone.
const PRESET: &str = "microsd-usb2";
const ALONE: &str = "microsd";
/// The paper's rows, the bytes of a value, and the share that is selected, in per cent.
const ROWS: u64 = 100_000;
const VALUE: u64 = 4096;
const SELECTED: std::ops::Range<u64> = 0..30;
const SCALE: Scale = Scale::one_in(10);
const DATABASE: &str = "db";
/// Seconds of the select, before and after FragPicker; MB that FragPicker and Btrfs's defragmenter wrote; by how many per
/// cent the selects after both differ; and of the time of the latter, what FragPicker needed, beside writes of fio that are left out here.
const SECONDS: [f64; 2] = [29.472, 4.427];
const WRITTEN_MB: [f64; 2] = [137.0, 426.0];
const DIFFERENCE: f64 = 3.5;
const TIME: f64 = 30.08;

/// Before and after one policy.
struct Measured {
    before_ns: u64,
    after_ns: u64,
    /// Fragments of the database before.
    fragments: u64,
    /// Its pages.
    pages: u64,
    moved: Moved,
}

impl Measured {
    /// By how many times the select was longer before.
    fn gain(&self) -> f64 {
        self.before_ns as f64 / self.after_ns as f64
    }

    /// Microseconds for each page that it reads.
    fn page_us(&self, ns: u64) -> f64 {
        let selected = self.pages * (SELECTED.end - SELECTED.start) / 100;
        ns as f64 / 1e3 / selected as f64
    }
}

/// Nanoseconds of the select with cold caches.
fn select(files: &dyn FileSystem) -> u64 {
    files.drop_caches();
    let machine = files.machine();
    machine.wait_until_idle();
    machine.set_use_page_ns(SELECT_PAGE_NS);
    let began = machine.now_ns();
    Select::new(DATABASE, SELECTED).finish(files).expect("a select");
    machine.set_use_page_ns(0);
    machine.now_ns() - began
}

fn measure(preset: &str, policy: Policy, scale: Scale) -> Measured {
    let machine = bed::machine(&presets::named(preset).expect("a preset"));
    let btrfs = Cow::format(&machine, &Options::of(&machine)).expect("room");
    let files: Rc<dyn FileSystem> = Rc::new(btrfs);
    let mut inserts = Inserts::new(DATABASE, scale.of(ROWS), VALUE, Journal::Rollback);
    inserts.finish(&*files).expect("room");
    files.sync().expect("room");
    let (fragments, _) = bed::fragments(&*files, DATABASE);
    let pages = inserts.bytes() / files.block_bytes();
    let watched = Watched::new(&files);
    let before_ns = select(&watched);
    let moved = bed::defragment(&files, watched.take(), &bed::policy(policy));
    files.sync().expect("room");
    Measured { before_ns, after_ns: select(&*files), fragments, pages, moved }
}

fn run(_seed: u64) -> Results {
    let cases =
        [(PRESET, Policy::Fragpicker), (PRESET, Policy::WholeFile), (ALONE, Policy::Fragpicker)];
    let measured: Vec<Measured> =
        cases.par_iter().map(|(preset, policy)| measure(preset, *policy, SCALE)).collect();
    let [picked, whole, alone] = &measured[..] else { unreachable!("three cases") };
    let all = |ns: u64| ns as f64 / 1e9 * ROWS as f64 / SCALE.of(ROWS) as f64;
    let share = |of: fn(&Moved) -> u64| of(&picked.moved) as f64 / of(&whole.moved) as f64 * 100.0;
    let name = |what: &str| format!("{PRESET}: {what}");
    let paper = SECONDS.map(|seconds| {
        let scale = SCALE.of(ROWS) as f64 / ROWS as f64;
        picked.page_us((seconds * scale * 1e9) as u64)
    });
    let because = format!(
        "a page needs {:.0} us here before, and {:.0} after; the paper's select needs {:.0} and {:.0} for each of as many",
        picked.page_us(picked.before_ns),
        picked.page_us(picked.after_ns),
        paper[0],
        paper[1],
    );
    let difference = (picked.after_ns as f64 / whole.after_ns as f64 - 1.0) * 100.0;
    let points = |what: &str, paper: f64, ours: f64, points: f64| {
        Row::new(name(what), "%", paper, ours, Band::Points(points))
    };
    let gain = SECONDS[0] / SECONDS[1];
    let rows = vec![
        Row::new(name("select, before of after"), "x", gain, picked.gain(), Band::Percent(25.0))
            .because(because),
        points(
            "writes, of conventional",
            WRITTEN_MB[0] / WRITTEN_MB[1] * 100.0,
            share(|moved| moved.written_bytes),
            10.0,
        ),
        points("select after fragpicker, above conventional", DIFFERENCE, difference, 5.0),
        points("time of the run, of conventional", TIME, share(|moved| moved.ns), 10.0),
        Row::ours(name("moved, of conventional"), "%", share(|moved| moved.bytes)),
        Row::ours(name("select before, of 100,000 rows"), "s", all(picked.before_ns)),
        Row::ours(name("select after, of 100,000 rows"), "s", all(picked.after_ns)),
        Row::ours(name("pages in a fragment"), "", picked.pages as f64 / picked.fragments as f64),
        Row::ours(format!("{ALONE}: select, before of after"), "x", alone.gain()),
    ];
    let bars = |measured: &Measured| [all(measured.before_ns), all(measured.after_ns)];
    let (ours, alone) = (bars(picked), bars(alone));
    let plot = Plot::Bars {
        name: "F-sqlite".into(),
        title: "A select of three tenths of a database".into(),
        axis: "s".into(),
        series: vec!["paper".into(), "ours".into(), "ours, without the reader".into()],
        groups: vec![
            ("as it grew".into(), vec![SECONDS[0], ours[0], alone[0]]),
            ("after fragpicker".into(), vec![SECONDS[1], ours[1], alone[1]]),
        ],
    };
    Results { rows, plots: vec![plot] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_every_page_is_a_fragment_as_on_btrfs() {
        let Measured { pages, fragments, .. } =
            measure(PRESET, Policy::Fragpicker, Scale::one_in(33));
        let ours = pages as f64 / fragments as f64;
        assert!((ours / (3377.0 / 3201.0) - 1.0).abs() < 0.1, "{ours} pages");
    }

    #[test]
    fn the_figures_do_not_depend_on_the_number_of_rows() {
        let figures = |parts| {
            let measured = measure(PRESET, Policy::Fragpicker, Scale::one_in(parts));
            let rows = Scale::one_in(parts).of(ROWS) as f64;
            (measured.gain(), measured.moved.bytes as f64 / rows)
        };
        let (small, smaller) = (figures(20), figures(40));
        assert!(small.0 > 2.0, "{small:?}");
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.06;
        // Of the 26 windows that the smaller select reads, one is at the end.
        assert!(near(small.0, smaller.0) && near(small.1, smaller.1), "{small:?} {smaller:?}");
    }
}
