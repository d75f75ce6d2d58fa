//! Random operations on a pair of files, and on a model of each in memory, after `fsx` (Avadis Tevanian,
//! 1991, and its descendants in xfstests): every way to change a file, in any order, at any offset, through
//! the page cache, past it and mapped, with copies and clones from one file to the other. Every read is
//! compared at once, and whole files from time to time and at the end.
//!
//! The seed decides everything: a failure prints it, and the same seed repeats the run.

pub mod files;
pub mod model;
pub mod operation;

use super::load::{Difference, Failure, Load, Step};
use crate::fragment::scatter;
use crate::random::Random;
use files::Opened;
use model::Model;
use operation::{Kind, Operation};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The largest size of a file, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// Operations that are shown with a failure.
const SHOWN: usize = 24;

/// Two files, and what they must hold.
pub struct Exerciser {
    name: String,
    paths: [PathBuf; 2],
    opened: Option<[Opened; 2]>,
    models: [Model; 2],
    seed: u64,
    random: Random,
    block: u64,
    kinds: Vec<(Kind, u64)>,
    /// Each kind is drawn once before the rest are drawn at random.
    first: Vec<Kind>,
    number: u64,
    recent: VecDeque<Operation>,
}

impl Exerciser {
    /// Works on `name`.a and `name`.b in `dir`, with all operations that its file system supports.
    ///
    /// # Errors
    /// When these cannot be tried.
    pub fn new(dir: &Path, name: &str, seed: u64) -> io::Result<Self> {
        let block = rustix::fs::statvfs(dir)?.f_bsize;
        let kinds = files::kinds_at(dir, block)?;
        let mut random = Random::new(seed);
        let mut first: Vec<Kind> = kinds.iter().map(|(kind, _)| *kind).collect();
        random.shuffle(&mut first);
        // Content that the other operations can work on.
        first.push(Kind::Scatter);
        Ok(Self {
            name: name.to_owned(),
            paths: ["a", "b"].map(|side| dir.join(format!("{name}.{side}"))),
            opened: None,
            models: Default::default(),
            seed,
            random,
            block,
            kinds,
            first,
            number: 0,
            recent: VecDeque::new(),
        })
    }

    /// The kinds of operations that the file system supports, with their weights.
    pub fn kinds(&self) -> &[(Kind, u64)] {
        &self.kinds
    }

    /// The two files.
    pub fn paths(&self) -> &[PathBuf; 2] {
        &self.paths
    }

    fn draw(&mut self) -> Operation {
        let kind = self.first.pop().unwrap_or_else(|| {
            let sum = self.kinds.iter().map(|(_, weight)| weight).sum();
            let mut rest = self.random.below(sum);
            let drawn = self.kinds.iter().find(|(_, weight)| {
                let found = rest < *weight;
                rest = rest.saturating_sub(*weight);
                found
            });
            drawn.map_or(Kind::Write, |(kind, _)| *kind)
        });
        let sizes = [self.models[0].size(), self.models[1].size()];
        Operation::draw(kind, &mut self.random, sizes, self.block)
    }

    /// The data of the next write: random, or one repeated byte, which compresses.
    fn content(&self, len: u64) -> Vec<u8> {
        let mut random = Random::new(self.seed.rotate_left(32) ^ self.number);
        if random.below(4) == 0 {
            return vec![random.bits() as u8; len as usize];
        }
        let mut bytes = Vec::with_capacity(len as usize + 8);
        while bytes.len() < len as usize {
            bytes.extend(random.bits().to_le_bytes());
        }
        bytes.truncate(len as usize);
        bytes
    }

    /// Applies it to the file and to its model.
    fn perform(&mut self, op: Operation) -> Result<Step, Trouble> {
        let Operation { kind, file, at, len, .. } = op;
        if matches!(kind, Kind::Write | Kind::WriteDirect | Kind::Store | Kind::Scatter) {
            return self.write(op);
        }
        if matches!(kind, Kind::Copy | Kind::Clone) {
            return self.copy(op);
        }
        let opened = self.opened.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let (opened, model) = (&mut opened[file], &mut self.models[file]);
        let started = Instant::now();
        let done =
            |compared: usize| Step { waited: Some(started.elapsed()), compared: compared as u64 };
        match kind {
            Kind::Read | Kind::ReadDirect | Kind::Load => {
                let found = opened.read(kind, at, len)?;
                let done = done(found.len());
                compare(model, at, len, found)?;
                return Ok(done);
            }
            Kind::Compare | Kind::CompareCold => {
                if kind == Kind::CompareCold {
                    opened.forget(model.size())?;
                }
                let size = opened.file.metadata()?.len();
                let found = opened.read(kind, 0, size.min(LARGEST))?;
                let done = done(found.len());
                compare(model, 0, LARGEST, found)?;
                return Ok(done);
            }
            Kind::Truncate => opened.file.set_len(at)?,
            Kind::Sync | Kind::SyncData | Kind::SyncMapping => opened.sync(kind)?,
            _ => opened.allocate(kind, at, len)?,
        }
        let done = done(0);
        match kind {
            Kind::Truncate => model.truncate(at),
            Kind::Allocate => model.grow(at + len),
            Kind::Zero => {
                model.grow(at + len);
                model.clear(at..at + len);
            }
            Kind::ZeroKeepSize | Kind::Punch => model.clear(at..at + len),
            Kind::Collapse => model.collapse(at..at + len),
            Kind::Insert => model.insert(at, len),
            _ => {}
        }
        Ok(done)
    }

    /// Operations that write new content.
    fn write(&mut self, op: Operation) -> Result<Step, Trouble> {
        let Operation { kind, file, at, len, .. } = op;
        let content = self.content(len);
        let opened = &mut self.opened.as_mut().ok_or(io::ErrorKind::NotConnected)?[file];
        let started = Instant::now();
        let mut waited = None;
        if kind == Kind::Scatter {
            scatter(&opened.file, &self.paths[file], at..at + len, |place, bytes| {
                bytes.copy_from_slice(&content[(place - at) as usize..][..bytes.len()]);
            })?;
        } else {
            opened.write(kind, at, &content)?;
            waited = Some(started.elapsed());
        }
        self.models[file].write(at, &content);
        Ok(Step { waited, compared: 0 })
    }

    /// Operations that copy content from one file to the other.
    fn copy(&mut self, op: Operation) -> Result<Step, Trouble> {
        let Operation { kind, file, at, len, to } = op;
        let [a, b] = self.opened.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let (from, into) = if file == 0 { (a, b) } else { (b, a) };
        let started = Instant::now();
        from.copy(kind, at, len, into, to)?;
        let waited = Some(started.elapsed());
        let content = self.models[file].expected(at, len).to_vec();
        self.models[1 - file].write(to, &content);
        Ok(Step { waited, compared: 0 })
    }

    /// Seed, operation and what came before it, for the message of a failure.
    fn story(&self) -> String {
        let recent: Vec<String> = self.recent.iter().map(|op| format!("\n  {op}")).collect();
        format!(
            "{}: seed {:#x}, operation {}, the last ones:{}\n",
            self.name,
            self.seed,
            self.number,
            recent.concat()
        )
    }

    fn failed(&self, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Refused(error) => Failure::Refused { what: self.story(), error },
            Trouble::Differs(difference) => Failure::Differs { what: self.story(), difference },
        }
    }
}

/// `XFS_SUPER_MAGIC` (linux/magic.h).
const XFS: u64 = 0x5846_5342;

/// Whether XFS refused a direct read because of a bug of its own: on Linux 6.18 it can be left with
/// a delayed allocation without a dirty page, by a single program that does one operation at a time
/// (seed 0xf27ab3, operation 17,134). From then on direct reads there fail with EIO ("Direct I/O
/// collision with buffered writes" in the kernel's log), while the page cache has the right content.
fn is_collision(op: Operation, error: &io::Error, file: &Path) -> bool {
    op.kind == Kind::ReadDirect
        && error.raw_os_error() == Some(Errno::IO.raw_os_error())
        && rustix::fs::statfs(file).is_ok_and(|stat| stat.f_type as u64 == XFS)
}

/// Why an operation failed.
enum Trouble {
    Refused(io::Error),
    Differs(Difference),
}

impl<E: Into<io::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

fn compare(model: &Model, at: u64, len: u64, found: &[u8]) -> Result<(), Trouble> {
    match Difference::between(at, model.expected(at, len), found) {
        None => Ok(()),
        Some(difference) => Err(Trouble::Differs(difference)),
    }
}

impl Load for Exerciser {
    fn kind(&self) -> &'static str {
        "random operations"
    }

    fn open(&mut self) -> Result<(), Failure> {
        let open = |path: &PathBuf| Opened::new(path).map_err(Failure::refused(path.display()));
        self.opened = Some([open(&self.paths[0])?, open(&self.paths[1])?]);
        Ok(())
    }

    fn step(&mut self) -> Result<Step, Failure> {
        let op = self.draw();
        self.number += 1;
        self.recent.push_back(op);
        if self.recent.len() > SHOWN {
            self.recent.pop_front();
        }
        let done = match self.perform(op) {
            Err(Trouble::Refused(error)) if is_collision(op, &error, &self.paths[op.file]) => {
                eprintln!("{}: operation {}, {op}: {error}; cached", self.name, self.number);
                self.perform(Operation { kind: Kind::Read, ..op })
            }
            done => done,
        };
        done.map_err(|trouble| self.failed(trouble))
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.opened = None;
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Failure> {
        for (path, model) in self.paths.iter().zip(&self.models) {
            let found = std::fs::read(path).map_err(Failure::refused(path.display()))?;
            compare(model, 0, LARGEST, &found).map_err(|trouble| self.failed(trouble))?;
        }
        Ok(self.models.iter().map(Model::size).sum())
    }
}
