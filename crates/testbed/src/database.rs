//! A real SQLite database, driven through the sqlite3 command-line program: it grows in small
//! commits on a full, aged file system, and is then queried from a cold cache.
//!
//! The tables have rows of about a kilobyte. `events` is what the queries read; `archive` grows between its
//! batches and is not read, so that only a part of the file matters. Every value is a function of its row
//! number: the same seed makes the same database.

use crate::aging::{self, Cache};
use crate::image::Image;
use crate::measure::drop_pages;
use crate::process::finish;
use crate::random::{Random, Zipf};
use crate::sqlite::Shell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rows written by one commit.
const ROWS_PER_COMMIT: u64 = 64;

/// Commits to one table before the other's: about a megabyte.
const COMMITS_PER_TURN: u64 = 16;

/// Bytes of one row's payload.
const PAYLOAD_BYTES: u64 = 1000;

/// How the database grows.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Commits, each of [`ROWS_PER_COMMIT`] rows into one table.
    pub commits: u64,
    /// Cache entries that are removed per commit, which leaves the holes that the database fills.
    pub evictions: usize,
    /// The largest entry of the cache in bytes, the smallest being a block: the holes are as long.
    pub entry_bytes: u64,
    /// Bytes reserved in one extent meanwhile and free afterwards: the space that moving needs.
    pub archive_bytes: u64,
    /// Decides sizes and order of everything.
    pub seed: u64,
}

/// A database file.
pub struct Database {
    path: PathBuf,
    commits: u64,
}

impl Database {
    /// Fills a file system, whose root is `root`, with a cache, lets the database grow in it beside the cache's
    /// evictions, then retires the cache.
    ///
    /// # Panics
    /// When sqlite3 or the disk refuses.
    pub fn grow(root: &Path, growth: Growth) -> Self {
        let sync = || {
            let root = std::fs::File::open(root).expect("the root of the file system");
            rustix::fs::syncfs(root).expect("the file system can be synced");
        };
        let path = root.join("service.db");
        let archive = root.join("archive.tar");
        aging::reserve(&archive, growth.archive_bytes);
        let mut cache = Cache::fill(&root.join("cache"), growth.entry_bytes, growth.seed);
        // Space for the first commits and their journal.
        cache.evict(growth.evictions * 16);
        sync();
        let mut shell = Shell::open(&path, &[]);
        let mut run = |sql: &str| shell.run(sql).expect("sqlite3 takes its statements");
        run(SCHEMA);
        for commit in 0..growth.commits {
            run(&insert(commit));
            cache.evict(growth.evictions);
        }
        shell.close();
        cache.retire();
        std::fs::remove_file(archive).expect("the archive can be removed");
        sync();
        Self { path, commits: growth.commits }
    }

    /// A database with the same history on a copied image.
    pub fn at(&self, image: &Image) -> Self {
        let name = self.path.file_name().expect("a database has a name");
        Self { path: image.path().join(name), commits: self.commits }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |m| m.len())
    }

    /// A fixed load over the newest 60 % of `events`: sums over windows of consecutive rows, the windows
    /// chosen by Zipf's law, then one scan of the newest tenth.
    pub fn queries(&self, count: usize, seed: u64) -> Queries {
        let both = 2 * COMMITS_PER_TURN;
        let rest = (self.commits % both).min(COMMITS_PER_TURN);
        let rows = (self.commits / both * COMMITS_PER_TURN + rest) * ROWS_PER_COMMIT;
        let first = rows * 2 / 5;
        let windows = (rows - first) / WINDOW_ROWS;
        let mut random = Random::new(seed);
        let mut order: Vec<u64> = (0..windows).collect();
        random.shuffle(&mut order);
        let zipf = Zipf::new(order.len(), Zipf::YCSB);
        let mut sql = String::new();
        for _ in 0..count {
            let from = first + order[zipf.draw(&mut random)] * WINDOW_ROWS;
            let to = from + WINDOW_ROWS - 1;
            // The payload itself is read, not just its row.
            let _ = writeln!(
                sql,
                "SELECT count(*), sum(unicode(substr(payload, 990))) FROM events \
                 WHERE id BETWEEN {from} AND {to};"
            );
        }
        let tenth = rows - rows / 10;
        let _ = writeln!(
            sql,
            "SELECT count(*), sum(length(hex(payload))) FROM events WHERE id > {tenth};"
        );
        Queries { sql }
    }

    /// Runs the queries in one session, with none of its file cached, and returns their results.
    ///
    /// # Panics
    /// When sqlite3 fails.
    pub fn run(&self, queries: &Queries) -> String {
        drop_pages(&self.path);
        self.ask(queries)
    }

    /// Runs the queries in one session, with whatever is cached, and returns their results.
    ///
    /// # Panics
    /// When sqlite3 fails.
    pub fn ask(&self, queries: &Queries) -> String {
        // With a cache of 16 pages, SQLite requests nearly every page from the kernel.
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-readonly"]).arg(&self.path);
        command.arg(format!("PRAGMA cache_size=16;\n{}", queries.sql));
        finish(&mut command).expect(&[0])
    }

    /// The result of SQLite's integrity check: `ok`, or what is wrong.
    pub fn integrity(&self) -> String {
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-readonly"]).arg(&self.path).arg("PRAGMA integrity_check;");
        finish(&mut command).expect(&[0]).trim().to_owned()
    }
}

/// Rows that one window query reads: about 300 KB.
const WINDOW_ROWS: u64 = 256;

/// A list of queries.
#[derive(Clone, Debug)]
pub struct Queries {
    sql: String,
}

impl Queries {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.sql.lines().count()
    }
}

const SCHEMA: &str = "\
PRAGMA page_size=4096; PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=FULL;
CREATE TABLE events(id INTEGER PRIMARY KEY, kind INTEGER, payload TEXT);
CREATE TABLE archive(id INTEGER PRIMARY KEY, kind INTEGER, payload TEXT);";

/// One commit: rows whose every value follows from the row's number.
fn insert(commit: u64) -> String {
    let (turn, in_turn) = (commit / COMMITS_PER_TURN, commit % COMMITS_PER_TURN);
    let table = if turn.is_multiple_of(2) { "events" } else { "archive" };
    let from = (turn / 2 * COMMITS_PER_TURN + in_turn) * ROWS_PER_COMMIT;
    let to = from + ROWS_PER_COMMIT - 1;
    let copies = PAYLOAD_BYTES / 10 + 1;
    format!(
        "BEGIN; INSERT INTO {table}(id, kind, payload) SELECT value, value * 40503 % 1009, \
         substr(replace(hex(zeroblob({copies})), '00', printf('%010d', value * 2654435761 % \
         9999999967)), 1, {PAYLOAD_BYTES}) FROM generate_series({from}, {to}); COMMIT;"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_take_turns_and_leave_no_gap_in_their_row_numbers() {
        let numbers = |table: &str| -> Vec<u64> {
            let into = format!("INTO {table}(");
            let inserts = (0..100).map(insert).filter(|sql| sql.contains(&into));
            let starts = inserts.filter_map(|sql| {
                let (from, _) = sql.split_once("generate_series(")?.1.split_once(',')?;
                from.parse().ok()
            });
            starts.collect()
        };
        let (events, archive) = (numbers("events"), numbers("archive"));
        assert_eq!(events.len() + archive.len(), 100);
        for table in [events, archive] {
            assert!(table.iter().zip(0..).all(|(from, n)| *from == n * ROWS_PER_COMMIT));
        }
    }

    #[test]
    fn queries_ask_for_rows_that_are_there() {
        let database = Database { path: "db".into(), commits: 100 };
        let queries = database.queries(40, 1);
        // 52 commits into `events`: turns of 16, 16, 16 and 4.
        let rows = 52 * ROWS_PER_COMMIT;
        let last = queries.sql.lines().filter_map(|q| q.rsplit_once("AND ")?.1.strip_suffix(';'));
        let last: Vec<u64> = last.filter_map(|n| n.parse().ok()).collect();
        assert_eq!(last.len(), 40);
        assert!(last.iter().all(|n| *n < rows), "{last:?}");
    }
}
