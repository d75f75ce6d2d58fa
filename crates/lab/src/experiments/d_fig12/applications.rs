//! The bars of applications, which are modelled as interleaved appends:
//!
//! - SQLite: a database of 162 MiB that grew in 5,005 steps, each followed by 100 KiB of a dummy
//!   file; a select reads it from its start to its end through the page cache.
//! - fileserver: files of 128 KiB, to random ones of which 32 KiB at a time are appended until they have some
//!   600 KiB; ten threads read whole files with direct calls of 1 MiB.
//! - fileserver small: the same with appends of 16 KiB, half a flash page.
//!
//! The file-affine drive also keeps the page that it sensed last in a register: an append of half a page is
//! in one page with the file's other half, but the file system reads the halves with two requests.

use super::PLACEMENTS;
use crate::file::{Allocator, FileOnDrive};
use crate::random::Random;
use crate::row::{Band, Row};
use crate::setup::Setup;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::{Host, HostPath, Shared, windows};
use fragmend_flash::ssd::Ssd;
use std::cell::RefCell;

/// The window of the kernel's readahead.
const READAHEAD: u32 = 128 << 10;
/// The time that SQLite needs for a page of 4 KiB: a system call, a copy, and the evaluation of its content.
/// Fitted to the 870 MB/s that the artefact reports for a contiguous database.
const SELECT_PAGE_NS: u64 = 4_220;
/// Units of the database, and appends that it grows by.
const DATABASE: u32 = (162 << 20) / 4096;
const INSERTS: u32 = 5_005;
/// Units of the dummy file between two of them: 100 KiB.
const DUMMY: u32 = 25;

/// Files of the file server, and their units before and after the appends. The paper has 10,000 files; the
/// load of a die does not depend on their number.
const FILES: usize = 2_000;
const PREALLOCATED: u32 = (128 << 10) / 4096;
const GROWN: u32 = (600 << 10) / 4096;
/// Time from the end of a thread's call to its next one. Fitted to the 2,739.8 MB/s that the artefact reports
/// for ten threads and contiguous files; what Filebench does in that time is not known.
const BETWEEN_FILES_NS: u64 = 1_700_000;
/// Units of a call that reads them, and the number of threads.
const CALL: u32 = 256;
const THREADS: usize = 10;

/// Why the random distribution of the file server's data over dies costs less here.
const HIDDEN: &str = "ten threads have enough in flight to hide most of what random dies cost; the \
    artefact's emulator hides less (2149.4 of 2739.8 MB/s), although its drive is the same";

/// The rows, and the bars by placement.
pub fn bars(setup: &Setup, seed: u64) -> (Vec<Row>, Vec<(String, Vec<f64>)>) {
    let mut host = setup.host.clone();
    host.readahead_bytes = READAHEAD;
    let flash = setup.flash();
    let (mut rows, mut groups) = (Vec::new(), Vec::new());
    let baseline = |what: &str, artefact: f64, ours: f64| {
        let name = format!("{what}, contiguous: throughput");
        Row::new(name, "MiB/s", artefact, ours, Band::Percent(4.0))
    };
    let judged = |what: &str, papers: [f64; 2], heights: [f64; 3]| {
        let row = |n: usize| {
            let name = format!("{what}, {}: of ideal", PLACEMENTS[n].1);
            match papers.get(n) {
                Some(paper) => Row::new(name, "%", *paper, heights[n], Band::Points(8.0)),
                None => Row::ours(name, "%", heights[n]),
            }
        };
        [0, 1, 2].map(row)
    };

    let ideal = select(flash, &host, Placement::RoundRobin, false);
    let of_ideal = |placement| select(flash, &host, placement, true) / ideal * 100.0;
    let heights = PLACEMENTS.map(|(placement, _)| of_ideal(placement));
    rows.push(baseline("SQLite", 870.0, ideal));
    rows.extend(judged("SQLite", [60.0, 96.5], heights));
    groups.push(("SQLite".to_owned(), heights.to_vec()));

    let served = |append: u32| {
        let ideal = serve(flash, &host, Placement::RoundRobin, append, false, seed);
        let of_ideal =
            |placement| serve(flash, &host, placement, append, true, seed) / ideal * 100.0;
        (ideal, PLACEMENTS.map(|(placement, _)| of_ideal(placement)))
    };
    let (ideal, heights) = served(8);
    rows.push(baseline("fileserver", 2739.8, ideal));
    rows.extend(judged("fileserver", [80.0, 93.0], heights).map(|row| row.because(HIDDEN)));
    groups.push(("fileserver".to_owned(), heights.to_vec()));

    let name = "fileserver small";
    let (ideal, heights) = served(4);
    rows.push(baseline(name, 2776.3, ideal));
    let gain = |with: usize| (heights[with] / heights[0] - 1.0) * 100.0;
    let hints = Row::new(format!("{name}, gain of hints"), "%", 8.2, gain(1), Band::Points(8.0));
    let own = Row::ours(format!("{name}, gain of file-affine"), "%", gain(2));
    rows.extend([hints, own]);
    for ((_, with), ours) in PLACEMENTS.into_iter().zip(heights) {
        rows.push(Row::ours(format!("{name}, {with}: of ideal"), "%", ours));
    }
    groups.push((name.to_owned(), heights.to_vec()));
    (rows, groups)
}

fn drive(flash: &Drive, placement: Placement) -> Ssd {
    let mut drive = flash.clone();
    drive.firmware.placement = placement;
    drive.timing.page_stays = placement == Placement::FileAffine;
    Ssd::new(&drive).expect("a parsed drive")
}

/// MiB/s of a select.
fn select(flash: &Drive, path: &HostPath, placement: Placement, disturbed: bool) -> f64 {
    let mut ssd = drive(flash, placement);
    let mut host = Host::new(path, &mut ssd, 0);
    let (mut space, mut database, mut dummy) =
        (Allocator::from(0), FileOnDrive::default(), FileOnDrive::default());
    for n in 0..INSERTS {
        let upto = u64::from(DATABASE) * u64::from(n + 1) / u64::from(INSERTS);
        let by = upto as u32 - database.units();
        database.append(&mut host, &mut space, by).expect("room");
        host.flush().expect("a flush");
        if disturbed {
            dummy.append(&mut host, &mut space, DUMMY).expect("room");
        }
    }
    host.use_page_ns = SELECT_PAGE_NS;
    let start = host.wait_until_idle();
    host.read_buffered(&database.within(0, DATABASE)).expect("a read");
    f64::from(DATABASE) * 4096.0 / f64::from(1 << 20) / ((host.now - start) as f64 / 1e9)
}

/// MiB/s of ten threads that read all files of a file server.
fn serve(
    flash: &Drive,
    path: &HostPath,
    placement: Placement,
    by: u32,
    fragmented: bool,
    seed: u64,
) -> f64 {
    let mut random = Random::new(seed, "fileserver");
    let mut grown = vec![PREALLOCATED; FILES];
    let appends = FILES as u32 * (GROWN - PREALLOCATED) / by;
    let order: Vec<usize> = (0..appends).map(|_| random.below(FILES as u32) as usize).collect();
    order.iter().for_each(|file| grown[*file] += by);
    let mut ssd = drive(flash, placement);
    let mut host = Host::new(path, &mut ssd, 0);
    let mut space = Allocator::from(0);
    let mut files = vec![FileOnDrive::default(); FILES];
    for (file, grown) in files.iter_mut().zip(&grown) {
        let units = if fragmented { PREALLOCATED } else { *grown };
        file.append(&mut host, &mut space, units).expect("room");
    }
    if fragmented {
        for file in order {
            files[file].append(&mut host, &mut space, by).expect("room");
        }
    }
    let start = host.wait_until_idle();
    // Each thread has every tenth file, in a random order of its own.
    let queue = |thread: usize| {
        let mut own: Vec<usize> = (thread..FILES).step_by(THREADS).collect();
        for left in (1..own.len()).rev() {
            own.swap(left, random.below(left as u32 + 1) as usize);
        }
        own
    };
    let queues: Vec<Vec<usize>> = (0..THREADS).map(queue).collect();
    let end = read_side_by_side(path, ssd, &files, queues, start);
    let bytes = grown.iter().map(|units| f64::from(*units) * 4096.0).sum::<f64>();
    bytes / f64::from(1 << 20) / ((end - start) as f64 / 1e9)
}

/// Each thread reads its files, call by call; returns when the last thread is done.
fn read_side_by_side(
    path: &HostPath,
    ssd: Ssd,
    files: &[FileOnDrive],
    queues: Vec<Vec<usize>>,
    start: u64,
) -> u64 {
    let ssd = RefCell::new(ssd);
    let mut drives: Vec<Shared<Ssd>> = queues.iter().map(|_| Shared(&ssd)).collect();
    let of_queue = |queue: &Vec<usize>| {
        let file = |file: &usize| {
            let file = &files[*file];
            windows(&file.within(0, file.units()), CALL)
        };
        queue.iter().flat_map(file).collect::<Vec<_>>().into_iter()
    };
    let mut threads: Vec<_> = drives
        .iter_mut()
        .zip(&queues)
        .map(|(drive, queue)| (Host::new(path, drive, start), of_queue(queue)))
        .collect();
    // The thread that is ready first makes the next call.
    while let Some((host, rest)) = threads
        .iter_mut()
        .filter(|(_, rest)| rest.len() > 0)
        .min_by_key(|(host, _)| host.ready_at())
    {
        if let Some(window) = rest.next() {
            host.next_window(&window).expect("a read");
            host.last_window();
            host.now += BETWEEN_FILES_NS;
        }
    }
    threads.iter_mut().for_each(|(host, _)| host.last_window());
    threads.iter().map(|(host, _)| host.now).max().unwrap_or(start)
}
