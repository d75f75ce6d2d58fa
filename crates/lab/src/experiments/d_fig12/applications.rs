//! The bars of applications. Besides the paper's percentages, each has rows beside the throughputs that the
//! artefact reports.
//!
//! The file-affine drive also keeps the page that it sensed last in a register: an append of half a page is
//! in one page with the file's other half, but the file system reads the halves with two requests.

use super::ext4::WRITTEN_BEFORE;
use super::fileserver::Load;
use super::{PLACEMENTS, sqlite};
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::drive::Placement;
use rayon::prelude::*;

/// The throughputs of one application, in MiB/s: of contiguous files, and by placement.
struct Measured {
    contiguous: Throughput,
    fragmented: [Throughput; 3],
}

/// What one measurement finds.
#[derive(Clone, Copy)]
pub struct Throughput {
    /// MiB/s.
    pub mib_per_second: f64,
    /// Extents of a file, on average.
    pub extents: f64,
}

/// The figures of the paper and of its artefact.
struct Bar {
    name: &'static str,
    /// MiB/s of the artefact: contiguous, without and with hints.
    artefact: [f64; 3],
    /// Whether the program's time for a page was chosen by the first of them.
    is_fitted: bool,
    /// Per cent of contiguous files, without and with hints; the paper has none for the small appends.
    paper: Option<[f64; 2]>,
    /// Extents of a fragmented file, on average (section 5.2; SQLite's: abstract).
    extents: Option<f64>,
    /// Why figures may be out of their bands.
    because: &'static str,
}

const SQLITE: Bar = Bar {
    name: "SQLite",
    artefact: [870.0, 531.1, 849.6],
    is_fitted: true,
    paper: Some([60.0, 96.5]),
    extents: Some(10_011.0),
    because: "a record of 16 KiB is on two dies of one channel, which sense and transfer it in 27.7 us: at \
              most 563 MiB/s. The artefact needs 1.7 us more for each, and why is not known. It is not \
              NVMeVirt's channels, which grant bandwidth for 4 us at a time: computed as there, 559; nor \
              interrupts: 2.5 us more for each completion make 553, but 719 with hints instead of 850; nor \
              its dispatcher: 3 us for each request make 0.4 per cent",
};
const FILESERVER: Bar = Bar {
    name: "fileserver",
    artefact: [2739.8, 2149.4, 2611.8],
    is_fitted: false,
    paper: Some([80.0, 93.0]),
    extents: Some(15.7),
    because: "",
};
const SMALL: Bar = Bar {
    name: "fileserver small",
    artefact: [2776.3, 1721.0, 2099.3],
    is_fitted: false,
    paper: None,
    extents: None,
    because: "",
};
/// The gain of hints for small appends, in per cent.
const SMALL_GAIN: f64 = 8.2;
const SMALL_CONTRADICTION: &str = "the paper's gain and its artefact's throughputs disagree: 2099.3 \
    are 22 per cent more than 1721.0";

/// The rows, and the bars by placement.
pub fn bars(setup: &Setup, seed: u64) -> (Vec<Row>, Vec<(String, Vec<f64>)>) {
    let (flash, path) = (setup.flash(), &setup.host);
    let select = measured(
        || sqlite::contiguous(flash, path),
        |placement| sqlite::fragmented(flash, path, placement),
    );
    let load = |append, written_before| Load { flash, path, append, written_before, seed };
    let served = |append| {
        let load = load(append, WRITTEN_BEFORE);
        measured(|| load.contiguous(), |placement| load.fragmented(placement))
    };
    let small = served(4);
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for (bar, measured) in [(&SQLITE, &select), (&FILESERVER, &served(8)), (&SMALL, &small)] {
        let heights = measured.of_ideal();
        rows.extend(bar.rows(measured, heights));
        groups.push((bar.name.to_owned(), heights.to_vec()));
    }
    let small = small.of_ideal();
    let gain = |which: usize| (small[which] / small[0] - 1.0) * 100.0;
    let name = format!("{}, gain of hints", SMALL.name);
    let hints = Row::new(name, "%", SMALL_GAIN, gain(1), Band::Points(8.0));
    rows.push(hints.because(SMALL_CONTRADICTION));
    rows.push(Row::ours(format!("{}, gain of file-affine", SMALL.name), "%", gain(2)));
    let name = format!("{}, from half pages on, without hints: throughput", SMALL.name);
    let halves = load(4, 0).fragmented(Placement::RoundRobin);
    rows.push(Row::ours(name, "MiB/s", halves.mib_per_second));
    (rows, groups)
}

/// Measures side by side.
fn measured(
    contiguous: impl Fn() -> Throughput + Sync,
    fragmented: impl Fn(Placement) -> Throughput + Sync,
) -> Measured {
    let placed = || PLACEMENTS.par_iter().map(|(placement, _)| fragmented(*placement)).collect();
    let (contiguous, placed): (Throughput, Vec<Throughput>) = rayon::join(&contiguous, placed);
    Measured { contiguous, fragmented: [placed[0], placed[1], placed[2]] }
}

impl Measured {
    /// Fragmented files in per cent of contiguous ones.
    fn of_ideal(&self) -> [f64; 3] {
        let ideal = self.contiguous.mib_per_second;
        self.fragmented.map(|ours| ours.mib_per_second / ideal * 100.0)
    }
}

impl Bar {
    fn rows(&self, measured: &Measured, heights: [f64; 3]) -> Vec<Row> {
        let throughput = |what: &str, artefact: f64, ours: Throughput| {
            let (name, ours) = (format!("{}, {what}: throughput", self.name), ours.mib_per_second);
            Row::new(name, "MiB/s", artefact, ours, Band::Percent(5.0)).because(self.because)
        };
        let contiguous = throughput("contiguous", self.artefact[0], measured.contiguous);
        let mut rows = vec![if self.is_fitted { contiguous.fitted() } else { contiguous }];
        let (name, extents) = (format!("{}: extents", self.name), measured.fragmented[0].extents);
        rows.push(match self.extents {
            Some(paper) => Row::new(name, "", paper, extents, Band::Percent(1.0)),
            None => Row::ours(name, "", extents),
        });
        for (n, (_, with)) in PLACEMENTS.iter().enumerate() {
            let name = format!("{}, {with}: of ideal", self.name);
            rows.push(match self.paper.as_ref().and_then(|paper| paper.get(n)) {
                Some(paper) => Row::new(name, "%", *paper, heights[n], Band::Points(8.0)),
                None => Row::ours(name, "%", heights[n]),
            });
            if let Some(artefact) = self.artefact.get(n + 1) {
                rows.push(throughput(with, *artefact, measured.fragmented[n]));
            }
        }
        rows
    }
}
