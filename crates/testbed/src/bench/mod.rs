//! The comparison: contenders side by side on copies of one image, in one run, with the device's
//! counters. Prints Markdown, so that the tables can go into the README as they are.
//!
//! An absolute figure means nothing on another machine; only the ratios count. So every contender
//! starts from the same layout, replays the same list of requests before and after, and is charged
//! for every byte that the device wrote on its behalf, the journal and a final sync included.
//!
//! | module | its job |
//! |---|---|
//! | [`contender`] | the tools that are compared, and how each is run |
//! | [`loads`] | table 1: three loads over FragPicker's file, direct and buffered |
//! | [`database`] | table 2: zipfian reads of a real database |
//! | [`beside`] | table 3: how long a reader waits during defragmentation |
//! | [`elsewhere`] | table 4: the loads on XFS and Btrfs, against their own tools |
//! | [`insertions`] | table 5: a database on Btrfs that grew by synchronous insertions |
//! | [`f2fs`] | table 6: the loads and a file server on F2FS, in a guest |
//! | [`against`] | a contender's figures relative to another's |
//! | [`limits`] | limits, and whether they were kept |
//! | [`markdown`] | tables as text |

pub mod against;
pub mod beside;
pub mod contender;
pub mod database;
pub mod elsewhere;
pub mod f2fs;
pub mod insertions;
pub mod limits;
pub mod loads;
pub mod markdown;

use limits::Limits;

/// Sizes of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// FragPicker's file, in bytes.
    pub file_bytes: u64,
    /// Commits that the database grows by.
    pub commits: u64,
    /// Queries on the database.
    pub queries: usize,
    /// Entries of the database that grows by synchronous insertions.
    pub entries: u64,
}

impl Sizes {
    /// FragPicker's own size.
    pub const FULL: Self =
        Self { file_bytes: 1 << 30, commits: 3000, queries: 1000, entries: 25_000 };
    /// Small sizes for a quick run; the ratios are about the same.
    pub const QUICK: Self =
        Self { file_bytes: 128 << 20, commits: 600, queries: 200, entries: 5_000 };
}

/// The tables by name, in the order in which they are printed.
pub const TABLES: [&str; 6] = ["loads", "database", "beside", "elsewhere", "insertions", "f2fs"];

/// Measures and prints the tables with these names; returns the limits with their values.
///
/// # Panics
/// When a tool fails or a file has changed: then no figure means anything.
pub fn run(sizes: Sizes, tables: &[&str]) -> Limits {
    let mut limits = Limits::default();
    for table in tables {
        match *table {
            "loads" => loads::run(sizes, &mut limits),
            "database" => database::run(sizes, &mut limits),
            "beside" => beside::run(&mut limits),
            "elsewhere" => elsewhere::run(sizes, &mut limits),
            "insertions" => insertions::run(sizes, &mut limits),
            "f2fs" => f2fs::run(sizes, &mut limits),
            other => panic!("there is no table {other}"),
        }
    }
    println!("{}", limits.table());
    limits
}

/// Prints progress on standard error; the tables go to standard output.
pub(crate) fn note(line: impl std::fmt::Display) {
    eprintln!("bench: {line}");
}
