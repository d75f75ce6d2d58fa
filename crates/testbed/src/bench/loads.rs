//! Table 1: sequential, stride and zipfian reads of FragPicker's file (SOSP'21, sections 5.2 and 5.5), past
//! the page cache as there, and once more through it.
//!
//! The limits apply where the paper has figures: `O_DIRECT`, and the stride as [`replay::stride`] reads it.
//! Through the page cache a sequential reader requests the device's readahead window, which here is far
//! larger than the paper's 128 KiB: every break in the file then costs a request, and to reach e4defrag's
//! requests is to move what e4defrag moves. The rows show that.

use super::contender::{BYPASS, Contender, E4DEFRAG, FRAGPICKER, FRAGPICKER_HALF, GAIN};
use super::limits::Limits;
use super::{Sizes, markdown, note};
use crate::fragment;
use crate::image::Image;
use crate::measure::{Cost, measured_cold, measured_map_warm};
use crate::replay::{self, Mode, Request};
use std::path::PathBuf;

/// One of the paper's loads.
struct Load {
    name: &'static str,
    requests: Vec<Request>,
    mode: Mode,
    /// Limit of the bytes written, as a share of e4defrag's.
    write_share: Option<f64>,
}

/// The contenders whose work depends on the load.
const TRACED: [Contender; 3] = [FRAGPICKER, FRAGPICKER_HALF, GAIN];

/// The path of the fragmented file in an image.
pub(super) fn file_in(image: &Image) -> PathBuf {
    image.path().join("file")
}

/// An image with FragPicker's file in it, and enough contiguous free space to move all of it.
pub(super) fn fragmented(file_bytes: u64) -> Image {
    // The dummy has 4 KiB behind each of 33 extents per 256 KiB, half the file's size again.
    let image = Image::ext4(file_bytes * 4);
    fragment::interleaved(&file_in(&image), file_bytes, &fragment::FRAGPICKER_EXTENTS, true)
        .expect("the fragmented file can be written");
    image
}

/// Measures and prints the table.
pub fn run(sizes: Sizes, limits: &mut Limits) {
    note("making FragPicker's file");
    let master = fragmented(sizes.file_bytes);
    let loads = loads(sizes.file_bytes);
    // These do the same for every load, so one copy serves all.
    let fixed = [Contender::None, E4DEFRAG, BYPASS].map(|contender| {
        note(format_args!("{} mends", contender.name()));
        let image = master.copy();
        let mending = contender.mend(&image, &file_in(&image), || ());
        let after: Vec<Replayed> = loads.iter().map(|load| replayed(&image, load)).collect();
        check(&image, sizes.file_bytes);
        (contender, mending, after)
    });
    let mut rows = Vec::new();
    for (n, load) in loads.iter().enumerate() {
        let [none, e4defrag, bypass] = &fixed;
        let (reference, before) = (Row { cost: e4defrag.1, after: e4defrag.2[n] }, none.2[n]);
        rows.push(reference.cells(load, "as it is", &Row { cost: Cost::default(), after: before }));
        rows.push(reference.cells(load, "e4defrag", &reference));
        let bypassed = Row { cost: bypass.1, after: bypass.2[n] };
        rows.push(reference.cells(load, &BYPASS.name(), &bypassed));
        let mut fragpicker = None;
        for contender in TRACED {
            note(format_args!("{} mends for {}", contender.name(), load.title()));
            let image = master.copy();
            let cost = contender.mend(&image, &file_in(&image), || play(&image, load));
            let row = Row { cost, after: replayed(&image, load) };
            check(&image, sizes.file_bytes);
            rows.push(reference.cells(load, &contender.name(), &row));
            if contender == FRAGPICKER {
                fragpicker = Some(row);
            } else if contender == GAIN {
                row.hold_against(&reference, fragpicker.as_ref(), load, limits);
            }
        }
    }
    let columns = [
        "load",
        "contender",
        "written MiB",
        "of e4defrag's",
        "elapsed s",
        "requests after",
        "of e4defrag's",
        "map cold",
    ];
    println!("### Loads over FragPicker's file ({} MiB)\n", sizes.file_bytes >> 20);
    println!("{}\n", markdown::table(&columns, 2, rows));
}

fn loads(bytes: u64) -> Vec<Load> {
    let mut loads = Vec::new();
    for mode in [Mode::Direct, Mode::Buffered] {
        let share = |limit| (mode == Mode::Direct).then_some(limit);
        let mut add = |name, requests, write_share| {
            loads.push(Load { name, requests, mode, write_share });
        };
        add("sequential", replay::sequential(bytes), share(0.50));
        add("stride", replay::stride(bytes), share(0.27));
        add("stride, start to start", replay::stride_start_to_start(bytes), None);
        add("zipfian", replay::zipfian(bytes, 42), share(0.34));
    }
    loads
}

impl Load {
    fn title(&self) -> String {
        let mode = if self.mode == Mode::Direct { "direct" } else { "buffered" };
        format!("{}, {mode}", self.name)
    }
}

/// The figures of one contender.
struct Row {
    cost: Cost,
    after: Replayed,
}

impl Row {
    /// Its line in the table, relative to this row of e4defrag.
    fn cells(&self, load: &Load, name: &str, row: &Row) -> Vec<String> {
        let (written, reference) = (row.cost.device.written_bytes, self.cost.device.written_bytes);
        vec![
            load.title(),
            name.to_owned(),
            markdown::mib(written),
            markdown::percent(written, reference),
            format!("{:.2}", row.cost.elapsed.as_secs_f64()),
            row.after.warm.to_string(),
            markdown::percent(row.after.warm, self.after.warm),
            row.after.cold.to_string(),
        ]
    }

    /// Checks the default policy against its limits.
    fn hold_against(&self, e4: &Row, fragpicker: Option<&Row>, load: &Load, limits: &mut Limits) {
        let written = self.cost.device.written_bytes;
        let requests = markdown::ratio(self.after.warm, e4.after.warm);
        limits.at_most(format!("{}: requests against e4defrag", load.title()), requests, 1.02);
        if let Some(share) = load.write_share {
            let measured = whole_percent(markdown::ratio(written, e4.cost.device.written_bytes));
            limits.at_most(format!("{}: writes against e4defrag", load.title()), measured, share);
        }
        if let Some(fragpicker) = fragpicker {
            let measured = markdown::ratio(written, fragpicker.cost.device.written_bytes);
            // The data is the same or less; the journal's share depends on when it commits.
            limits.at_most(format!("{}: writes against fragpicker", load.title()), measured, 1.01);
        }
    }
}

/// Rounds to the precision of the paper, whose shares are in whole per cent: the table has the exact
/// figures. The excess is the journal and the extent tree, not data.
fn whole_percent(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

fn play(image: &Image, load: &Load) {
    replay::replay(&file_in(image), &load.requests, load.mode).expect("the load can be replayed");
}

/// Device read requests of the load, with none of its data cached.
///
/// With `warm` the file's extents are cached, as in any service after its first minutes; with
/// `cold` nothing is, and the blocks of the extent tree are read from the device as well. Moving a
/// file leaves its extent tree about as large as before.
#[derive(Clone, Copy, Debug, Default)]
struct Replayed {
    warm: u64,
    cold: u64,
}

/// How often a replay is repeated that needs more requests with the extents cached than without:
/// then the kernel has evicted cached data meanwhile. Some kernels do so without memory pressure,
/// where DAMON pages out what has not been used for a while.
const TRIES: u32 = 5;

fn replayed(image: &Image, load: &Load) -> Replayed {
    let play = || measured_cold(image, || play(image, load)).1.device.reads;
    image.remount();
    let cold = play();
    let warmed = || measured_map_warm(image, &[file_in(image)], || self::play(image, load));
    let mut warm = u64::MAX;
    for _ in 0..TRIES {
        warm = warm.min(warmed().1.device.reads);
        if warm <= cold {
            break;
        }
    }
    Replayed { warm, cold }
}

/// Checks the file's content: no figure means anything if it has changed.
fn check(image: &Image, bytes: u64) {
    let path = file_in(image);
    assert!(fragment::is_intact(&path, bytes).expect("it can be read"), "the file was damaged");
}
