//! FragPicker, figure 11: a recursive grep of a Filebench fileserver's files on F2FS, as direct writes of concurrent threads
//! have left them, after FragPicker has moved what the same grep read, and after every fragmented file was moved whole.
//!
//! F2FS of Linux 5.7, the paper's kernel, gives a direct write its blocks one by one, each under the log's lock
//! (`f2fs_map_blocks` in fs/f2fs/data.c), so that the blocks of threads that write at the same time alternate in the log,
//! whatever the length of their calls: here the threads write with calls of a block. The fileserver runs with its fifty threads until its
//! files have the fragments that the paper found, which are the paper's state, not a result of ours. There are ten files for each
//! thread, a sixth of the paper's on the flash SSD and a twelfth on Optane.

use crate::bed::{self, Moved};
use crate::experiment::{Experiment, Results};
use crate::loads::filebench::{FILESERVER, Personality};
use crate::loads::grep::Grep;
use crate::loads::schedule::Programs;
use crate::loads::watched::Watched;
use crate::loads::{Load, Scale};
use crate::plot::Plot;
use crate::presets;
use crate::row::{Band, Row};
use crate::setup::DriveKind;
use fragmend_plan::Policy;
use fragmend_simfs::file_system::{Access, FileSystem};
use fragmend_simfs::segments::{LogStructured, Settings};
use rayon::prelude::*;
use std::fmt::Write;
use std::rc::Rc;

pub static EXPERIMENT: Experiment = Experiment {
    name: "F-fig11",
    source: "FragPicker, figure 11",
    about: "grep of a fileserver's files on F2FS, before and after two policies",
    is_long: true,
    run,
};

/// The figures of a drive.
struct Drive {
    preset: &'static str,
    /// Fragments of a file, before and after FragPicker.
    fragments: [f64; 2],
    /// The cost of grep after FragPicker, against that before, in per cent.
    cost: f64,
    /// Bytes that FragPicker writes, against a defragmenter that moves every file, in per cent; the paper has it of Optane only.
    writes: Option<f64>,
    /// By how many per cent grep after FragPicker costs more than after the conventional defragmenter.
    difference: Option<f64>,
}

const DRIVES: [Drive; 2] = [
    Drive {
        preset: "optane",
        fragments: [1395.0, 1.77],
        cost: -37.0,
        writes: Some(-44.0),
        difference: None,
    },
    Drive {
        preset: "sata-850pro",
        fragments: [1068.0, 2.48],
        cost: -29.0,
        writes: None,
        difference: Some(2.0),
    },
];

/// Filebench's fileserver, with files of the paper's mean length (section 5.4).
const SERVER: Personality = Personality {
    files: 10 * FILESERVER.threads as u64,
    mean_bytes: 8_400_000,
    call_bytes: BLOCK,
    access: Access::Direct,
    ..FILESERVER
};
const SET: &str = "set";
const BLOCK: u64 = 4096;
/// Of Optane, what the files need several times; the rest is never used.
const BYTES: u64 = 16 << 30;
/// After how much virtual time the fragments are looked at again, at least.
const LOOK_NS: u64 = 50_000_000;

/// How long grep uses a page that it has read: GNU grep 3.8 needed 2.0 us of processor and kernel for each page of cached files of random
/// bytes, on an AMD EPYC. The paper's processor is older.
const GREP_PAGE_NS: u64 = 2_000;

/// Before and after one policy.
struct Measured {
    before: f64,
    after: f64,
    /// Fragments of a file, before and after.
    fragments: [f64; 2],
    moved: Moved,
    /// Files, and the bytes of all of them.
    files: u64,
    bytes: u64,
}

/// Seconds of a grep of each GB of the files, with cold caches; and their bytes.
fn grep(files: &dyn FileSystem) -> (f64, u64) {
    files.drop_caches();
    let machine = files.machine();
    machine.wait_until_idle();
    machine.set_use_page_ns(GREP_PAGE_NS);
    let began = machine.now_ns();
    let mut grep = Grep::of(files, SET, Access::Buffered).expect("all files");
    let done = grep.finish(files).expect("a grep");
    machine.set_use_page_ns(0);
    ((machine.now_ns() - began) as f64 / done.read_bytes as f64, done.read_bytes)
}

fn fragments(files: &dyn FileSystem) -> f64 {
    let (fragments, count) = bed::fragments(files, SET);
    fragments as f64 / count as f64
}

impl Drive {
    /// The files of the fileserver when they have the paper's fragments.
    fn aged(&self, seed: u64) -> Rc<dyn FileSystem> {
        let mut setup = presets::named(self.preset).expect("a preset");
        if let DriveKind::InPlace(drive) = &mut setup.drive {
            drive.bytes = BYTES;
        }
        let machine = bed::machine(&setup);
        let f2fs = LogStructured::format(&machine, &Settings::default()).expect("room");
        let files: Rc<dyn FileSystem> = Rc::new(f2fs);
        let mut programs = Programs::default();
        SERVER.start(&*files, &mut programs, SET, Scale::WHOLE, seed).expect("room");
        let mut wait = LOOK_NS;
        loop {
            let until = programs.tally().ended_ns + wait;
            programs.run_until(&*files, until).expect("room");
            let has = fragments(&*files);
            if has >= self.fragments[0] {
                break;
            }
            // They come at about the same rate.
            let rest = programs.tally().ns() as f64 * (self.fragments[0] / has - 1.0);
            wait = LOOK_NS.max((rest * 0.8) as u64);
        }
        machine.wait_until(programs.tally().ended_ns);
        files.sync().expect("room");
        files
    }

    fn measure(&self, policy: Policy, seed: u64) -> Measured {
        let files = self.aged(seed);
        let watched = Watched::new(&files);
        let ((before, bytes), had) = (grep(&watched), fragments(&*files));
        let moved = bed::defragment(&files, watched.take(), &bed::policy(policy));
        files.sync().expect("room");
        let (after, _) = grep(&*files);
        let (_, count) = bed::fragments(&*files, SET);
        Measured { before, after, fragments: [had, fragments(&*files)], moved, files: count, bytes }
    }

    fn rows(&self, picked: &Measured, whole: &Measured) -> Vec<Row> {
        let name = |what: &str| format!("{}: {what}", self.preset);
        let percent = |ours: f64, of: f64| (ours / of - 1.0) * 100.0;
        let [had, has] = picked.fragments;
        let files_in_gb = picked.files as f64 / (picked.bytes as f64 / 1e9);
        let fragment_us = |before: f64| (before - picked.after) * 1e6 / ((had - has) * files_in_gb);
        let mut cost = format!(
            "a fragment costs {:.1} us here; the paper's figure needs {:.1}",
            fragment_us(picked.before),
            fragment_us(picked.after / (1.0 + self.cost / 100.0))
        );
        let lost = picked.before - picked.after;
        let slower = (lost / (-self.cost / 100.0) - picked.before) * BLOCK as f64 / 1e3;
        if slower > 0.0 {
            let _ = write!(cost, ", or a grep that uses each page for {slower:.1} us more");
        }
        // A window that is left alone has one fragment, and one that is moved no more than it has blocks.
        let blocks = picked.bytes as f64 / picked.files as f64 / BLOCK as f64;
        let writes = format!(
            "{had:.0} fragments of a file of {blocks:.0} blocks are in windows with {:.0} % of its blocks at least, all of which are moved: \
             the paper's defragmenter must write more than the bytes of all files",
            had / blocks * 100.0
        );
        let points = |what: &str, paper: Option<f64>, ours: f64, because: &str| match paper {
            Some(paper) => {
                Row::new(name(what), "%", paper, ours, Band::Points(8.0)).because(because)
            }
            None => Row::ours(name(what), "%", ours),
        };
        let written = |measured: &Measured| measured.moved.written_bytes as f64;
        vec![
            points(
                "cost of grep after fragpicker, against before",
                Some(self.cost),
                percent(picked.after, picked.before),
                &cost,
            ),
            points(
                "writes, against all files whole",
                self.writes,
                percent(written(picked), picked.bytes as f64),
                &writes,
            ),
            Row::ours(
                name("writes, against fragmented files whole"),
                "%",
                percent(written(picked), written(whole)),
            ),
            points(
                "cost of grep, against conventional",
                self.difference,
                percent(picked.after, whole.after),
                &cost,
            ),
            Row::new(
                name("fragments of a file after fragpicker"),
                "",
                self.fragments[1],
                has,
                Band::AtMost,
            )
            .because(
                "a fragment for each window of 128 KiB that was moved, where others lie between",
            ),
            Row::ours(name("fragments of a file before"), "", had),
            Row::ours(name("cost of grep before"), "s/GB", picked.before),
            Row::ours(name("cost of grep after fragpicker"), "s/GB", picked.after),
        ]
    }
}

fn run(seed: u64) -> Results {
    let cases: Vec<(&Drive, Policy)> = DRIVES
        .iter()
        .flat_map(|drive| [(drive, Policy::Fragpicker), (drive, Policy::WholeFile)])
        .collect();
    let measured: Vec<Measured> =
        cases.par_iter().map(|(drive, policy)| drive.measure(*policy, seed)).collect();
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    for (drive, pair) in DRIVES.iter().zip(measured.chunks(2)) {
        let [picked, whole] = pair else { continue };
        rows.extend(drive.rows(picked, whole));
        groups.push((drive.preset.to_owned(), vec![picked.before, picked.after, whole.after]));
    }
    let plot = Plot::Bars {
        name: "F-fig11".into(),
        title: "Cost of grep".into(),
        axis: "s/GB".into(),
        series: ["before", "fragpicker", "conventional"].map(str::to_owned).to_vec(),
        groups,
    };
    Results { rows, plots: vec![plot] }
}
