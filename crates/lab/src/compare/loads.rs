//! The loads of the comparison: how each ages an image, what it reads of it, and which programs of it run beside a mover. All of it is
//! made of the loads in [`crate::loads`]; sizes follow from one parameter, [`Parts`].

use super::image::Kind;
use crate::experiments::d_fig12::sqlite::SELECT_PAGE_NS;
use crate::loads::filebench::{APPENDS, Flow, Personality, VARMAIL};
use crate::loads::grep::{CALL, Grep};
use crate::loads::mobile::{DAYS, Habits, PARTITION, Phone};
use crate::loads::schedule::Programs;
use crate::loads::sqlite::{Inserts, Journal, Select};
use crate::loads::{Done, Load as _, Scale};
use fragmend_layout::{ByteRange, FileId, Skip};
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::path::Path;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Six months of a phone, and launches of its apps (janusd, section 5.1).
    Mobile,
    /// Filebench's file server whose files have grown by appends, and a grep (FAST'24, section 5.3). Each append is durable before the next
    /// one of its thread: otherwise delayed allocation puts those of half a minute together.
    Fileserver,
    /// Databases that grew row by row, and selects of three tenths (FragPicker, section 5.3.2).
    Sqlite,
}

/// The size of the comparison: its loads are one part in so many of their usual sizes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(u64);

impl Parts {
    /// One part in `parts`; at least one.
    pub fn new(parts: u64) -> Self {
        Self(parts.max(1))
    }

    /// How many parts.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The usual size: one part in so many of the phone's partition, and of its apps and sessions.
const PHONE: u64 = 25;
/// The apps that are launched, if there are as many.
const LAUNCHED: usize = 6;
/// Files of the file server, and by how many per cent they grow.
const SERVED: u64 = 1_000;
const GROWN_PERCENT: u64 = 100;
/// What each of the threads does that append.
const APPEND: &[Flow] = &[Flow::OpenAny, Flow::Append, Flow::Sync];
/// Threads at work beside a mover, which create, append to, sync, read and delete the files of another set.
const THREADS: u32 = 8;
/// Databases, rows of each, bytes of a value, and what is selected, in per cent (FragPicker, section 5.3.2).
const DATABASES: usize = 4;
const ROWS: u64 = 2_500;
const VALUE: u64 = 4096;
const SELECTED: std::ops::Range<u64> = 0..30;
/// For so long the file server's threads run before what they have written is counted.
const TURN_NS: u64 = 20_000_000;

impl Load {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mobile, Self::Fileserver, Self::Sqlite];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mobile => "mobile",
            Self::Fileserver => "fileserver",
            Self::Sqlite => "sqlite",
        }
    }

    /// What it is, and which reads are measured, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Mobile => "six months of a phone (janusd); cold launches of its apps",
            Self::Fileserver => {
                "files of a file server that ten threads appended to (FAST'24); grep"
            }
            Self::Sqlite => "four databases that grew row by row at the same time; select of 30 %",
        }
    }

    /// The file system that it is on in its paper.
    pub fn home(self) -> Kind {
        match self {
            Self::Mobile | Self::Fileserver => Kind::Ext4,
            Self::Sqlite => Kind::Btrfs,
        }
    }

    /// Bytes of a drive for it.
    pub fn drive_bytes(self, parts: Parts) -> u64 {
        match self {
            // A log-structured file system keeps a part of so small a drive for its cleaner.
            Self::Mobile => PARTITION * 4 / 3 / (PHONE * parts.0),
            Self::Fileserver | Self::Sqlite => (400 << 20) / parts.0,
        }
        .max(128 << 20)
    }

    /// Ages an empty file system; all is durable then.
    ///
    /// # Errors
    /// It is too small.
    pub fn age(self, files: &dyn FileSystem, parts: Parts, seed: u64) -> Result<(), Error> {
        match self {
            Self::Mobile => {
                let scale = Scale::one_in(PHONE * parts.0);
                let mut phone = Phone::new(files, Habits::default(), scale, seed)?;
                phone.live_for(files, DAYS)?;
            }
            Self::Fileserver => append(files, parts, seed)?,
            Self::Sqlite => {
                let mut programs = Programs::default();
                for number in 0..DATABASES {
                    let rows = (ROWS / parts.0).max(200);
                    let inserts = Inserts::new(database(number), rows, VALUE, Journal::Rollback);
                    programs.add(files.machine(), inserts);
                }
                programs.run(files)?;
            }
        }
        files.sync()
    }

    /// Makes the reads that are measured, with a cold page cache, on an idle drive; returns what they have read, and nanoseconds.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(self, files: &dyn FileSystem) -> Result<(Done, u64), Error> {
        files.drop_caches();
        let machine = files.machine();
        machine.wait_until_idle();
        let began = machine.now_ns();
        let mut all = Done::default();
        match self {
            Self::Mobile => {
                for prefix in launched() {
                    all = all + Grep::of(files, &prefix, Access::Buffered)?.finish(files)?;
                }
            }
            Self::Fileserver => all = Grep::of(files, SET, Access::Buffered)?.finish(files)?,
            Self::Sqlite => {
                machine.set_use_page_ns(SELECT_PAGE_NS);
                for number in 0..DATABASES {
                    all = all + Select::new(database(number), SELECTED).finish(files)?;
                }
                machine.set_use_page_ns(0);
            }
        }
        Ok((all, machine.now_ns() - began))
    }

    /// The load at work: programs without an end, which begin now.
    ///
    /// # Errors
    /// There is no space for their files.
    pub fn at_work(self, files: &dyn FileSystem, seed: u64) -> Result<Programs, Error> {
        let mut programs = Programs::default();
        let inserts = || Inserts::new("work.db", u64::MAX, VALUE, Journal::Rollback);
        match self {
            Self::Mobile => {
                programs.add(files.machine(), inserts());
                let prefixes: Vec<String> = launched().collect();
                programs.add(files.machine(), Reader::of(files, &prefixes)?);
            }
            Self::Fileserver => {
                let personality = Personality { threads: THREADS, ..VARMAIL };
                let scale = Scale::one_in(personality.files);
                personality.start(files, &mut programs, "work", scale, seed)?;
            }
            Self::Sqlite => {
                programs.add(files.machine(), inserts());
                let paths: Vec<String> = (0..DATABASES).map(database).collect();
                programs.add(files.machine(), Reader::of(files, &paths)?);
            }
        }
        Ok(programs)
    }
}

/// The file server's set.
const SET: &str = "set";

fn database(number: usize) -> String {
    format!("database-{number}")
}

/// What the launch of each app reads (janusd, section 2.4): executables and libraries, which are its packages, and data, which is the first
/// of its databases.
fn launched() -> impl Iterator<Item = String> {
    (0..LAUNCHED).flat_map(|app| ["base", "0.db"].map(|name| Phone::prefix(app) + name))
}

/// Lets ten threads append to the files of a set until these have grown.
fn append(files: &dyn FileSystem, parts: Parts, seed: u64) -> Result<(), Error> {
    let count = (SERVED / parts.0).max(1);
    let personality = Personality { files: count, flow: APPEND, ..APPENDS };
    let mut programs = Programs::default();
    personality.start(files, &mut programs, SET, Scale::WHOLE, seed)?;
    let machine = files.machine();
    let most = count * personality.mean_bytes * GROWN_PERCENT / 100;
    while programs.tally().done.written_bytes < most {
        machine.spend(TURN_NS);
        programs.run_until(files, machine.now_ns())?;
    }
    Ok(())
}

/// Reads files whole, again and again, past the page cache, in which they would cost nothing; a call with each operation.
struct Reader {
    files: Vec<FileId>,
    next: usize,
    left: ByteRange,
}

impl Reader {
    /// A reader of the files whose paths begin with one of these.
    fn of(files: &dyn FileSystem, prefixes: &[String]) -> Result<Self, Error> {
        let mut found = Vec::new();
        let mut visit = |path: &Path, file: Result<FileId, Skip>| {
            let path = path.to_string_lossy();
            if let Ok(file) = file
                && prefixes.iter().any(|prefix| path.starts_with(prefix))
            {
                found.push((path.into_owned(), file));
            }
        };
        files.files(&mut visit).map_err(|skip| Error::Damaged(skip.to_string()))?;
        found.sort();
        let files = found.into_iter().map(|(_, file)| file).collect();
        Ok(Self { files, next: 0, left: ByteRange { start: 0, end: 0 } })
    }
}

impl crate::loads::Load for Reader {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let block = files.block_bytes();
        let file = self.files[self.next % self.files.len()];
        let Some(part) = self.left.steps(CALL).next() else {
            self.next += 1;
            let file = self.files[self.next % self.files.len()];
            // Direct calls are of whole blocks.
            self.left = ByteRange::at(0, files.size(file)? / block * block);
            return Ok(Some(Done::default()));
        };
        files.read(file, part, Access::Direct)?;
        self.left.start = part.end;
        Ok(Some(Done { read_bytes: part.len(), ..Done::default() }))
    }
}
