//! Table 2: zipfian reads of a real SQLite database that fragmented as databases do, through the
//! page cache, as SQLite reads.

use super::contender::{Contender, FRAGPICKER, FRAGPICKER_HALF, GAIN};
use super::limits::Limits;
use super::{Sizes, markdown, note};
use crate::database::{Database, Growth, Queries};
use crate::image::Image;
use crate::measure::{Cost, measured};
use crate::tools;

const CONTENDERS: [Contender; 5] =
    [Contender::None, Contender::E4defrag, FRAGPICKER, FRAGPICKER_HALF, GAIN];

/// Measures and prints the table.
pub fn run(sizes: Sizes, limits: &mut Limits) {
    note("growing a database on an aged file system");
    // About 67 KB a commit; as much again in holes, and a free piece for the whole file.
    let database_bytes = sizes.commits * 70_000;
    let archive_bytes = (database_bytes * 3 / 2).next_multiple_of(1 << 20);
    let image_bytes = archive_bytes + database_bytes * 4 + (96 << 20);
    let inodes = (image_bytes >> 13).to_string();
    let master = Image::ext4_with(image_bytes, &["-m", "0", "-N", &inodes], "");
    let growth = Growth { commits: sizes.commits, evictions: 12, archive_bytes, seed: 3 };
    let grown = Database::grow(&master, growth);
    let queries = grown.queries(sizes.queries, 17);
    let answers = grown.run(&queries);
    let mut rows = Vec::new();
    let mut reference = None;
    for contender in CONTENDERS {
        note(format_args!("{} mends the database", contender.name()));
        let image = master.copy();
        let database = grown.at(&image);
        let cost = contender.mend(&image, database.path(), || drop(database.run(&queries)));
        let after = requests(&image, &database, &queries, &answers);
        assert_eq!(database.integrity(), "ok", "the database was damaged");
        let extents = tools::extents(database.path());
        if contender == Contender::E4defrag {
            reference = Some((cost, after));
        }
        let (e4cost, e4after) = reference.unwrap_or((Cost::default(), 0));
        let (written, e4written) = (cost.device.written_bytes, e4cost.device.written_bytes);
        rows.push(vec![
            contender.name(),
            extents.to_string(),
            markdown::mib(written),
            markdown::percent(written, e4written),
            format!("{:.2}", cost.elapsed.as_secs_f64()),
            after.to_string(),
            markdown::percent(after, e4after),
        ]);
        if contender == GAIN {
            let requests = markdown::ratio(after, e4after);
            limits.at_most("database: requests against e4defrag", requests, 1.02);
            let writes = markdown::ratio(written, e4written);
            limits.at_most("database: writes against e4defrag", writes, 0.34);
        }
    }
    let columns = [
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
    println!("{}\n", markdown::table(&columns, 1, rows));
}

/// Device read requests of the queries; their answers must be the same as ever.
fn requests(image: &Image, database: &Database, queries: &Queries, answers: &str) -> u64 {
    image.remount();
    let (got, cost) = measured(image, || database.run(queries));
    assert_eq!(got, answers, "the database answers otherwise");
    cost.device.reads
}
