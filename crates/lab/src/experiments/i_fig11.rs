//! InDeF, figure 11: two synthetic files, of which 60 per cent of the ranges are truncated. File A is a series of sixty-four blocks of 4 KiB,
//! two of 128 KiB and one of 256 KiB, so that its requests of 256 KiB have three degrees of logical fragmentation. File B is a series of
//! blocks of 16 KiB whose first third is on two chips, the second on eight, and the last on all sixteen: three degrees of physical
//! fragmentation. A dummy file keeps the blocks apart, and fills the turns of the other chips.
//!
//! The sizes of the files are not stated. What is moved of them, in per cent, does not depend on it.
//!
//! Rows beside the paper's say how fast each policy's ranges were moved: of file A 273 MB/s by the drive, which senses the sources of a command
//! before it programs (86 when it sensed and programmed page by page), and 250 by the host. What the drive copies of file B is on two and on
//! eight chips.

use super::indef::{CALL, CHIPS, Moved, PAGE, Reads, formatted, moved, planned, read};
use crate::experiment::{Experiment, Results};
use crate::plot::Plot;
use crate::row::{Band, Row, change};
use fragmend_layout::{ByteRange, FileId};
use fragmend_plan::{Policy, Settings};
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::segments::{LogStructured, Primitive};
use std::path::Path;

pub static EXPERIMENT: Experiment = Experiment {
    name: "I-fig11",
    source: "InDeF, figure 11",
    about: "three policies on files with three degrees of logical and of physical fragmentation",
    is_long: false,
    run,
};

/// The per cent of ranges that are truncated.
const TRUNCATED: f64 = 60.0;
/// The policies, as the figure names them, and what moves their data.
const POLICIES: [(&str, Policy, Primitive); 3] = [
    ("conventional", Policy::WholeFile, Primitive::ThroughHost),
    ("fragpicker", Policy::Fragpicker, Primitive::ThroughHost),
    ("InDeF", Policy::Iodp, Primitive::InDevice),
];
/// By how many per cent FragPicker and InDeF move less than the conventional defragmenter, of A and of B.
const LESS: [(&str, [f64; 2]); 2] = [("file A", [-33.3, -60.0]), ("file B", [0.0, -60.0])];
const KIB: u64 = 1 << 10;
/// How often the pattern of file A is repeated, and requests of each part of file B: 24 MiB each.
const TURNS: u64 = 32;
/// One part in so many of the drive is enough for them.
const PARTS: u32 = 8;
const NAME: &str = "file";
/// They write the files, of so many turns.
const FILES: [fn(u64) -> Written; 2] = [file_a, file_b];

/// A file on an otherwise unused drive.
struct Written {
    fs: LogStructured,
    file: FileId,
    dummy: FileId,
    bytes: u64,
    between: u64,
}

/// How fast the file is read before and after a policy, and what that has moved.
struct Measured {
    before: f64,
    after: f64,
    moved: Moved,
}

fn run(_seed: u64) -> Results {
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for ((file, less), write) in LESS.into_iter().zip(FILES) {
        let measured =
            POLICIES.map(|(_, policy, primitive)| measure(&write(TURNS), policy, primitive));
        let [conventional, others @ ..] = &measured;
        for ((measured, (name, ..)), paper) in others.iter().zip(&POLICIES[1..]).zip(less) {
            let ours = change(conventional.moved.bytes as f64, measured.moved.bytes as f64);
            let what = format!("{file}: {name}, moved, against conventional");
            rows.push(Row::new(what, "%", paper, ours, Band::Points(5.0)));
        }
        for (measured, (name, ..)) in measured.iter().zip(POLICIES) {
            let gain = change(measured.before, measured.after);
            rows.push(Row::ours(format!("{file}: {name}, gain of reads"), "%", gain));
            let Moved { bytes, ns, busy_percent } = measured.moved;
            let rate = bytes as f64 / ns as f64 * 1e3;
            rows.push(Row::ours(format!("{file}: {name}, rate of moving"), "MB/s", rate));
            rows.push(Row::ours(format!("{file}: {name}, chips busy"), "%", busy_percent));
        }
        let mut bars = vec![measured[0].before];
        bars.extend(measured.iter().map(|measured| measured.after));
        groups.push((file.to_owned(), bars));
    }
    let names = POLICIES.iter().map(|(name, ..)| (*name).to_owned());
    let plot = Plot::Bars {
        name: "I-fig11".into(),
        title: "Sequential reads of the synthetic files".into(),
        axis: "MB/s".into(),
        series: ["as it was written".to_owned()].into_iter().chain(names).collect(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}

fn measure(Written { fs, file, .. }: &Written, policy: Policy, primitive: Primitive) -> Measured {
    let Reads { mbs: before, seen } = read(fs, &[*file]);
    let truncate_percent = (policy == Policy::Iodp).then_some(TRUNCATED);
    let plan = planned(fs, seen, &Settings { policy, truncate_percent, ..Settings::default() });
    let moved = moved(fs, &plan, primitive);
    Measured { before, after: read(fs, &[*file]).mbs, moved }
}

impl Written {
    fn new() -> Self {
        let fs = formatted(PARTS);
        let [file, dummy] =
            [NAME, "dummy"].map(|name| fs.create(Path::new(name)).expect("a new file"));
        Self { fs, file, dummy, bytes: 0, between: 0 }
    }

    /// Appends to the file.
    fn append(&mut self, bytes: u64) {
        let range = ByteRange::at(self.bytes, bytes);
        self.fs.write(self.file, range, Access::Direct).expect("space");
        self.bytes += bytes;
    }

    /// Appends to the dummy file.
    fn skip(&mut self, bytes: u64) {
        let range = ByteRange::at(self.between, bytes);
        self.fs.write(self.dummy, range, Access::Direct).expect("space");
        self.between += bytes;
    }

    /// Appends pages to the file, none of which follows another one on the drive; the nth of them is on the chip `chip(n)`. The log
    /// began with a zone, and zones begin on the first chip.
    fn append_on(&mut self, bytes: u64, chip: impl Fn(u64) -> u64) {
        let chips = u64::from(CHIPS);
        for n in 0..bytes / PAGE {
            let next = (self.bytes + self.between) / PAGE % chips;
            self.skip(((chip(n) + chips - next - 1) % chips + 1) * PAGE);
            self.append(PAGE);
        }
    }
}

fn file_a(turns: u64) -> Written {
    let mut written = Written::new();
    for _ in 0..turns {
        let blocks = [4 * KIB; 64].into_iter().chain([128 * KIB, 128 * KIB, 256 * KIB]);
        for bytes in blocks {
            written.append(bytes);
            written.skip(4 * KIB);
        }
    }
    written
}

/// The chips of the nth page where two, eight and all of them have the file.
const ON_CHIPS: [fn(u64) -> u64; 3] = [|n| n % 2 * 8, |n| n % 8 * 2, |n| n % 8 * 2 + n / 8 % 2];

fn file_b(turns: u64) -> Written {
    let mut written = Written::new();
    ON_CHIPS.into_iter().for_each(|chip| written.append_on(turns * CALL, chip));
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use fragmend_flash::device::Device;
    use fragmend_layout::{Volume, dopf};
    use std::collections::BTreeSet;

    /// The degrees of the requests of a file, the physical one by the drive's own word.
    fn degrees(Written { fs, file, bytes, .. }: &Written) -> BTreeSet<(u64, u64)> {
        let layout = fs.layout(*file, Path::new(NAME)).unwrap();
        let block = fs.block_bytes();
        let request = |range: ByteRange| {
            let mut chips = [0; CHIPS as usize];
            for extent in layout.within(range) {
                for place in (extent.physical..extent.physical_end()).step_by(block as usize) {
                    let unit = (place / block) as u32;
                    let die = fs.machine().drive(|drive: &dyn Device| drive.die_of(unit));
                    chips[die.unwrap() as usize] += 1;
                }
            }
            (layout.fragments(range), dopf(&chips) as u64)
        };
        ByteRange::at(0, *bytes).steps(CALL).map(request).collect()
    }

    #[test]
    fn each_file_has_three_degrees() {
        let logical: BTreeSet<u64> =
            degrees(&file_a(4)).into_iter().map(|(dolf, _)| dolf).collect();
        assert_eq!(logical, BTreeSet::from([1, 2, 64]));
        // Equation 1 for 64 blocks on sixteen, eight and two chips.
        assert_eq!(degrees(&file_b(4)), BTreeSet::from([(16, 0), (16, 16), (16, 112)]));
    }

    #[test]
    fn what_is_moved_does_not_depend_on_the_scale() {
        for write in FILES {
            let share = |turns| {
                let bytes = |n: usize| {
                    let (_, policy, primitive) = POLICIES[n];
                    measure(&write(turns), policy, primitive).moved.bytes as f64
                };
                [1, 2].map(|n| bytes(n) / bytes(0) * 100.0)
            };
            let (small, large) = (share(TURNS / 2), share(TURNS));
            // A range more or less, of those that are truncated.
            small.iter().zip(large).for_each(|(small, large)| {
                assert!((small - large).abs() < 1.5, "{small} and {large}");
            });
        }
    }
}
