//! Table 2: zipfian reads of a real SQLite database that fragmented as databases do, through the
//! page cache, as SQLite reads.

use super::contender::{Contender, E4DEFRAG, FRAGPICKER, FRAGPICKER_HALF, GAIN};
use super::limits::Limits;
use super::{Sizes, markdown, note};
use crate::database::{Database, Growth, Queries};
use crate::image::Image;
use crate::measure::{Cost, measured_map_warm};
use crate::tools;

const CONTENDERS: [Contender; 5] = [Contender::None, E4DEFRAG, FRAGPICKER, FRAGPICKER_HALF, GAIN];

/// Readahead windows that the table is made for. FragPicker's figures, and so the limit on
/// writes, are for Linux's default of 128 KiB. A loop device has its own, of megabytes: there a
/// query reads far more than its rows, and nearly all of the file is worth moving.
pub(super) const READAHEADS: [Option<u32>; 2] = [Some(128), None];

/// Measures and prints the table.
pub fn run(sizes: Sizes, limits: &mut Limits) {
    note("growing a database on an aged file system");
    // About 67 KB a commit; as much again in holes, and a contiguous free range for the whole file.
    let database_bytes = sizes.commits * 70_000;
    let archive_bytes = (database_bytes * 3 / 2).next_multiple_of(1 << 20);
    let image_bytes = archive_bytes + database_bytes * 4 + (96 << 20);
    let inodes = (image_bytes >> 13).to_string();
    let master = Image::ext4_with(image_bytes, &["-m", "0", "-N", &inodes], "");
    let growth = Growth {
        commits: sizes.commits,
        evictions: 12,
        entry_bytes: 32 << 10,
        archive_bytes,
        seed: 3,
    };
    let grown = Database::grow(master.path(), growth);
    let queries = grown.queries(sizes.queries, 17);
    let mut rows = Vec::new();
    for readahead in READAHEADS {
        compare(&master, &grown, &queries, readahead, &mut rows, limits);
    }
    let columns = [
        "readahead",
        "contender",
        "extents",
        "written MiB",
        "of e4defrag's",
        "elapsed s",
        "requests after",
        "of e4defrag's",
    ];
    println!(
        "### {} zipfian queries on a SQLite database ({} MiB)\n",
        queries.count(),
        grown.bytes() >> 20
    );
    println!("{}\n", markdown::table(&columns, 2, rows));
}

/// Its name in the table.
pub(super) fn title(readahead: Option<u32>) -> String {
    readahead.map_or_else(|| "own".into(), |kib| format!("{kib} KiB"))
}

/// Measures every contender at one readahead, in KiB; `None` is the device's own.
fn compare(
    master: &Image,
    grown: &Database,
    queries: &Queries,
    readahead: Option<u32>,
    rows: &mut Vec<Vec<String>>,
    limits: &mut Limits,
) {
    let title = title(readahead);
    let answers = grown.run(queries);
    let mut reference = (Cost::default(), 0);
    for contender in CONTENDERS {
        note(format_args!("{} mends the database, readahead {title}", contender.name()));
        let image = master.copy();
        if let Some(kib) = readahead {
            image.set_readahead(kib);
        }
        let database = grown.at(&image);
        let cost = contender.mend(&image, database.path(), || drop(database.run(queries)));
        let after = requests(&image, &database, queries, &answers);
        assert_eq!(database.integrity(), "ok", "the database was damaged");
        let extents = tools::extents(database.path());
        if contender == E4DEFRAG {
            reference = (cost, after);
        }
        let (written, e4written) = (cost.device.written_bytes, reference.0.device.written_bytes);
        rows.push(vec![
            title.clone(),
            contender.name(),
            extents.to_string(),
            markdown::mib(written),
            markdown::percent(written, e4written),
            format!("{:.2}", cost.elapsed.as_secs_f64()),
            after.to_string(),
            markdown::percent(after, reference.1),
        ]);
        if contender == GAIN {
            let measured = markdown::ratio(after, reference.1);
            let what = format!("database, readahead {title}: requests against e4defrag");
            limits.at_most(what, measured, 1.02);
            if readahead.is_some() {
                let measured = markdown::ratio(written, e4written);
                let what = format!("database, readahead {title}: writes against e4defrag");
                limits.at_most(what, measured, 0.34);
            }
        }
    }
}

/// Device read requests of the queries, with the file's extents cached and its data not, as in
/// [`super::loads`]; the answers must be the same as before.
fn requests(image: &Image, database: &Database, queries: &Queries, answers: &str) -> u64 {
    let (got, cost) = measured_map_warm(image, &[database.path()], || database.ask(queries));
    assert_eq!(got, answers, "the database answers otherwise");
    cost.device.reads
}
