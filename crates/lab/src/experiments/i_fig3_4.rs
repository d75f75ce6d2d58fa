//! InDeF, figures 3 and 4: the throughput of sequential reads by the degree of logical fragmentation of a request
//! (DoLF, its fragments), for requests of 32 to 256 KiB, and by the degree of physical fragmentation of one of 256 KiB
//! (DoPF, by the number of chips that it is on).
//!
//! The text has no throughputs: at 256 KiB a DoLF below 8 costs next to nothing, and so does a DoPF below 40, which
//! is that of eight of the 16 chips, but not of four. The positions of fragments keep each on the chips that it would
//! be on in one piece, so that only their number changes; where only the chips change, there are 16 fragments.

use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::command::{Hint, Units};
use fragmend_flash::host::Host;
use fragmend_layout::dopf;

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-fig3-4",
    source: "InDeF, figures 3 and 4",
    about: "reads by logical and by physical fragmentation of a request, on a zoned drive",
    is_long: false,
    run,
};

/// Why fragments may cost less here.
const GUEST: &str = "this host's costs are FAST'24's, 0.5 us of them to submit a request; the paper's \
    is a virtual machine whose costs are not stated: with 5 us the first drop is at 8, with 10 or 20 at 4";

/// Units of 4 KiB of the requests, of a flash page, and of all that is read.
const REQUESTS: [u32; 4] = [8, 16, 32, 64];
const PAGE: u32 = 4;
const READ: u32 = 2048;
const CHIPS: u32 = 16;
/// Units from one page of a zone to the next one on the same chip.
const STRIPE: u32 = CHIPS * PAGE;
/// Units of a write; zones are written in order, and are whole numbers of it.
const WRITE: u32 = 256;
/// Throughput has dropped where it is less than this share of the highest.
const DROP: f64 = 0.9;
/// The first drop by the text: at a DoLF of 8, and at four chips.
const DROP_DOLF: f64 = 8.0;
const DROP_CHIPS: f64 = 4.0;

fn run(_seed: u64) -> Results {
    let setup = presets::named("femu-indef").expect("a preset");
    let mut rows = Vec::new();
    let mut logical = Vec::new();
    for request in REQUESTS {
        let degrees = (0..=request.ilog2()).map(|n| 1 << n);
        let points: Vec<(f64, f64)> = degrees
            .map(|dolf| (f64::from(dolf), mbs(&setup, &in_fragments(request, dolf))))
            .collect();
        let name = format!("{} KiB", request * 4);
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            rows.push(Row::ours(format!("{name}: DoLF 1"), "MB/s", first.1));
            rows.push(Row::ours(format!("{name}: DoLF {}", last.0), "MB/s", last.1));
        }
        if request == REQUESTS[3] {
            let what = format!("{name}: DoLF of the first drop, as a power of two");
            rows.push(step(what, DROP_DOLF, &points).because(GUEST));
        }
        logical.push((name, points));
    }
    let chips: Vec<u32> = (0..=CHIPS.ilog2()).rev().map(|n| 1 << n).collect();
    let points: Vec<(f64, f64)> =
        chips.iter().map(|chips| (f64::from(*chips), mbs(&setup, &on_chips(*chips)))).collect();
    for (chips, mbs) in &points {
        let what = format!("{chips} chips, DoPF {}", dopf(&blocks_on(*chips as u32)));
        rows.push(Row::ours(what, "MB/s", *mbs));
    }
    rows.push(step("chips of the first drop, as a power of two".into(), DROP_CHIPS, &points));
    let plot = |name: &str, title: &str, axis: &str, lines| Plot::Lines {
        name: name.into(),
        title: title.into(),
        axes: [axis.into(), "MB/s".into()],
        logarithmic: true,
        lines,
    };
    let physical = vec![("256 KiB, DoLF 16".to_owned(), points)];
    let plots = vec![
        plot("I-fig3", "Sequential reads by fragments of a request", "DoLF", logical),
        plot("I-fig4", "Sequential reads by chips of a request", "chips", physical),
    ];
    Results { rows, plots }
}

/// The row of the first drop, in steps of figures whose values double.
fn step(name: String, paper: f64, points: &[(f64, f64)]) -> Row {
    let highest = points.iter().map(|(_, mbs)| *mbs).fold(0.0, f64::max);
    let first = points.iter().find(|(_, mbs)| *mbs < highest * DROP).map_or(0.0, |(at, _)| *at);
    Row::new(name, "", paper.log2(), first.log2(), Band::Points(1.0))
}

/// Requests in `dolf` fragments each. Each fragment is in a later stripe, on the chips that it would be on in one
/// piece.
fn in_fragments(request: u32, dolf: u32) -> Vec<Vec<Units>> {
    let fragment = request / dolf;
    let place = |number: u32| Units::new(number * (fragment + STRIPE), fragment);
    let of_request = |n: u32| (n * dolf..(n + 1) * dolf).map(place).collect();
    (0..READ / request).map(of_request).collect()
}

/// Requests of 16 pages, each page in another stripe, on the first chips in turn.
fn on_chips(chips: u32) -> Vec<Vec<Units>> {
    let place = |number: u32| Units::new(2 * number * STRIPE + number % chips * PAGE, PAGE);
    let pages = REQUESTS[3] / PAGE;
    let of_request = |n: u32| (n * pages..(n + 1) * pages).map(place).collect();
    (0..READ / REQUESTS[3]).map(of_request).collect()
}

/// How many blocks of such a request each chip has.
fn blocks_on(chips: u32) -> [u64; CHIPS as usize] {
    let mut blocks = [0; CHIPS as usize];
    for units in on_chips(chips).iter().take(1).flatten() {
        blocks[(units.start % STRIPE / PAGE) as usize] += u64::from(units.count);
    }
    blocks
}

/// MB/s of these requests, one after the other.
fn mbs(setup: &Setup, requests: &[Vec<Units>]) -> f64 {
    let mut drive = setup.device();
    let end = requests.iter().flatten().map(|units| units.end()).max().unwrap_or(0);
    let mut host = Host::new(&setup.host, &mut *drive, 0);
    for at in (0..end).step_by(WRITE as usize) {
        host.write(&[Units::new(at, WRITE)], Hint::None).expect("open zones");
    }
    let start = host.wait_until_idle();
    requests.iter().for_each(|request| host.read(request).expect("a read"));
    f64::from(READ) * 4096.0 / (host.now - start) as f64 * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_stay_on_the_chips_of_one_piece() {
        let chips = |requests: &[Vec<Units>]| -> Vec<u32> {
            let units = requests.iter().flatten().flat_map(|units| units.each());
            units.map(|unit| unit % STRIPE / PAGE).collect()
        };
        let whole: Vec<u32> = (0..READ).map(|unit| unit % STRIPE / PAGE).collect();
        for dolf in [2, 16, 64] {
            let requests = in_fragments(64, dolf);
            assert_eq!(chips(&requests), whole);
            let ends = requests[0].windows(2).filter(|two| two[0].end() != two[1].start).count();
            assert_eq!(ends as u32 + 1, dolf);
        }
    }

    #[test]
    fn as_many_chips_have_a_request() {
        for chips in [1, 4, 16] {
            let blocks = blocks_on(chips);
            let used = blocks.iter().filter(|blocks| **blocks > 0).count();
            assert_eq!((used as u32, blocks.iter().sum::<u64>()), (chips, 64));
        }
    }
}
