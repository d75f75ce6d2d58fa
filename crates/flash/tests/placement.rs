//! Where appends are placed by hints: as in FAST'24, and by our placement, in which appends of less than a
//! flash page share one only with their own file.

mod support;

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Placement, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::ssd::Ssd;
use std::collections::BTreeSet;

const DIES: u32 = 4;
const PAGE: u32 = 8;

fn drive(placement: Placement, protected: bool) -> Drive {
    Drive {
        geometry: Geometry {
            blocks_per_plane: 64,
            pages_per_block: 32,
            over_provisioning_per_mille: 250,
            ..support::geometry(4096, PAGE)
        },
        timing: Timing::round(16 << 10),
        buffer: BufferSpec {
            bytes: 4 << 20,
            command_ns: 4_000,
            unit_ns: 460,
            protected,
            open_program_units: 32,
        },
        firmware: Firmware { placement, ..Firmware::default() },
    }
}

/// A file that was appended to, with writes to other files in between.
struct Appended {
    ssd: Ssd,
    /// Its units, in order.
    units: Vec<u32>,
}

fn appended(
    placement: Placement,
    by: u32,
    appends: u32,
    flushes: bool,
    between: fn(u32) -> u32,
) -> Appended {
    // A flush programs the buffer only if that is not protected.
    let mut ssd = Ssd::new(&drive(placement, !flushes)).unwrap();
    let (mut units, mut next, mut now) = (Vec::<u32>::new(), 0, 0);
    for n in 0..appends {
        let hint = units.last().map_or(Hint::None, |last| Hint::Append { predecessor: *last });
        let own = Units::new(next, by);
        let other = Units::new(next + by, between(n));
        next = other.end();
        units.extend(own.each());
        let write = |units, hint| Command::Write { units, hint, fua: false };
        now = ssd.submit(now, &write(own, hint)).unwrap().done_ns;
        if flushes {
            now = ssd.submit(now, &Command::Flush).unwrap().done_ns;
        }
        now = ssd.submit(now, &write(other, Hint::None)).unwrap().done_ns;
    }
    ssd.submit(now, &Command::Flush).unwrap();
    ssd.audit().unwrap();
    Appended { ssd, units }
}

impl Appended {
    /// The die and the number of each flash page that holds a part of the file, in the file's order.
    fn pages(&self) -> Vec<(u32, u32)> {
        let places = self.units.iter().filter_map(|unit| self.ssd.place_of(*unit));
        let mut pages: Vec<(u32, u32)> =
            places.map(|(die, physical)| (die, physical / PAGE)).collect();
        pages.dedup();
        pages
    }

    fn distinct(&self) -> usize {
        self.pages().into_iter().collect::<BTreeSet<_>>().len()
    }
}

/// How many units of other files are written after the `n`th append.
fn anything(n: u32) -> u32 {
    1 + n * 5 % 11
}

#[test]
fn whole_pages_go_to_the_dies_in_turn_with_either_hint() {
    for placement in [Placement::DieAffine, Placement::FileAffine] {
        let file = appended(placement, PAGE, 64, false, |n| PAGE * (1 + n * 5 % 11));
        let dies: Vec<u32> = file.pages().iter().map(|(die, _)| *die).collect();
        assert_eq!(dies.len(), 64);
        assert!(dies.windows(2).all(|pair| pair[1] == (pair[0] + 1) % DIES), "{dies:?}");
    }
    let file = appended(Placement::RoundRobin, PAGE, 64, false, |_| PAGE * (DIES - 1));
    let dies: BTreeSet<u32> = file.pages().iter().map(|(die, _)| *die).collect();
    assert_eq!(dies.len(), 1, "without, the worst case is one die");
}

#[test]
fn appends_of_half_a_page_share_one_only_with_their_own_file() {
    let appends = 128;
    let least = (appends * PAGE / 2 / PAGE) as usize;
    let ours = appended(Placement::FileAffine, PAGE / 2, appends, false, anything);
    assert!(ours.distinct() <= least + 1, "{} pages, {least} would do", ours.distinct());
    assert!(ours.ssd.counters().rejoined <= u64::from(PAGE), "nothing is written twice");
    let dies: Vec<u32> = ours.pages().iter().map(|(die, _)| *die).collect();
    assert!(dies[2..].windows(2).all(|pair| pair[1] == (pair[0] + 1) % DIES), "{dies:?}");
    let fast = appended(Placement::DieAffine, PAGE / 2, appends, false, anything);
    assert!(fast.distinct() > least * 3 / 2, "{} pages of {least}", fast.distinct());
}

#[test]
fn a_tail_that_was_flushed_is_brought_along() {
    let appends = 128;
    let least = (appends * PAGE / 4 / PAGE) as usize;
    let ours = appended(Placement::FileAffine, PAGE / 4, appends, true, anything);
    assert!(ours.distinct() <= least + 1, "{} pages, {least} would do", ours.distinct());
    // Of each page at most a quarter, a half and three quarters are programmed again.
    let rejoined = ours.ssd.counters().rejoined;
    let appended = u64::from(appends * PAGE / 4);
    assert!(rejoined > 0 && rejoined <= appended * 3 / 2 + u64::from(PAGE), "{rejoined}");
}

/// A flush programs a page that is not full with padding. What comes then begins the next one.
#[test]
fn what_is_written_after_a_flush_begins_a_page() {
    for odd in 1..PAGE {
        let mut ssd = Ssd::new(&drive(Placement::RoundRobin, false)).unwrap();
        let file = Units::new(PAGE, 8 * PAGE);
        for units in [Units::new(0, odd), file] {
            ssd.submit(0, &Command::Write { units, hint: Hint::None, fua: false }).unwrap();
            ssd.submit(0, &Command::Flush).unwrap();
        }
        let pages = Appended { ssd, units: file.each().collect() }.pages();
        assert_eq!(pages.len(), 8, "behind {odd} units: {pages:?}");
        assert!(pages.windows(2).all(|pair| pair[1].0 == (pair[0].0 + 1) % DIES), "{pages:?}");
    }
}
