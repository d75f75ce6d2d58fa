//! A file that is appended to, as services write their logs, and a reader at its end: every record
//! that was written can be read, at once and later.
//!
//! Every byte is a function of the file's number and its offset, so that the reader can verify it.
//! When a file is full, the next one is begun.

use super::load::{Difference, Failure, Load, Step};
use crate::fragment::reserve_scattered;
use crate::random::Random;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The size at which a file is full, in bytes.
const FULL: u64 = 4 << 20;

/// Bytes that are preallocated at a time, in scattered blocks.
const RESERVED_BYTES: u64 = 256 << 10;

/// The longest record, in bytes.
const LONGEST: u64 = 8 << 10;

/// The most that the reader reads at once, in bytes.
const READ_BYTES: u64 = 64 << 10;

/// Where the files are, and which of them is being written.
struct Place {
    dir: PathBuf,
    name: String,
    number: AtomicU64,
}

impl Place {
    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{}.{number}", self.name))
    }

    /// What file `number` holds at `at`.
    fn content(number: u64, at: u64, bytes: &mut [u8]) {
        let (mut place, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let word = (place / 8 + (number << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let of_word = &word.rotate_left(31).to_le_bytes()[(place % 8) as usize..];
            let (head, tail) = rest.split_at_mut(rest.len().min(of_word.len()));
            head.copy_from_slice(&of_word[..head.len()]);
            (place, rest) = (place + head.len() as u64, tail);
        }
    }

    /// Compares what was read at `at`.
    fn compare(&self, number: u64, at: u64, found: &[u8]) -> Result<(), Failure> {
        let mut expected = vec![0; found.len()];
        Self::content(number, at, &mut expected);
        match Difference::between(at, &expected, found) {
            None => Ok(()),
            Some(difference) => {
                let what = self.path(number).display().to_string();
                Err(Failure::Differs { what, difference })
            }
        }
    }
}

/// Writes the files.
pub struct Log {
    place: Arc<Place>,
    syncs: bool,
    random: Random,
    file: Option<File>,
    size: u64,
    reserved: u64,
}

impl Log {
    /// Begins `name`.0 in `dir`; it syncs after some of its records, or never.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn new(dir: &Path, name: &str, syncs: bool, seed: u64) -> io::Result<Self> {
        let (dir, name, number) = (dir.to_owned(), name.to_owned(), AtomicU64::new(0));
        let place = Arc::new(Place { dir, name, number });
        File::create(place.path(0))?;
        let random = Random::new(seed);
        Ok(Self { place, syncs, random, file: None, size: 0, reserved: 0 })
    }

    /// A reader of what it writes.
    pub fn reader(&self, seed: u64) -> Tail {
        let (place, random) = (Arc::clone(&self.place), Random::new(seed));
        Tail { place, random, file: None, number: 0, at: 0 }
    }

    /// The file that is being written.
    pub fn path(&self) -> PathBuf {
        self.place.path(self.number())
    }

    fn number(&self) -> u64 {
        self.place.number.load(Ordering::Relaxed)
    }

    fn prepare(&mut self) -> io::Result<()> {
        let path = self.path();
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let start = self.size.next_multiple_of(4096);
        self.reserved = start + RESERVED_BYTES;
        reserve_scattered(file, &path, start..self.reserved)
    }

    fn append(&mut self) -> io::Result<()> {
        let mut record = vec![0; 1 + self.random.below(LONGEST) as usize];
        Place::content(self.number(), self.size, &mut record);
        let mut file = self.file.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        file.write_all(&record)?;
        self.size += record.len() as u64;
        match self.random.below(8) {
            0 if self.syncs => file.sync_all(),
            1 if self.syncs => file.sync_data(),
            _ => Ok(()),
        }
    }
}

impl Load for Log {
    fn kind(&self) -> &'static str {
        if self.syncs { "appended, synced" } else { "appended" }
    }

    /// About a megabyte a second, so that a file exists for a while before the next is begun.
    fn pause(&self) -> Duration {
        Duration::from_millis(4)
    }

    fn open(&mut self) -> Result<(), Failure> {
        let path = self.path();
        let file = File::options().append(true).create(true).open(&path);
        self.file = Some(file.map_err(Failure::refused(path.display()))?);
        Ok(())
    }

    fn step(&mut self) -> Result<Step, Failure> {
        let what = self.path().display().to_string();
        if self.size >= FULL {
            self.close()?;
            let compared = self.verify()?;
            let full = self.place.number.fetch_add(1, Ordering::Relaxed);
            (self.size, self.reserved) = (0, 0);
            std::fs::remove_file(self.place.path(full)).map_err(Failure::refused(what))?;
            self.open()?;
            return Ok(Step { waited: None, compared });
        }
        if self.size + LONGEST > self.reserved {
            self.prepare().map_err(Failure::refused(what))?;
            return Ok(Step::default());
        }
        let started = Instant::now();
        self.append().map_err(Failure::refused(what))?;
        Ok(Step { waited: Some(started.elapsed()), compared: 0 })
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.file = None;
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Failure> {
        let path = self.path();
        let found = std::fs::read(&path).map_err(Failure::refused(path.display()))?;
        if found.len() as u64 != self.size {
            let what = format!("{}: size", path.display());
            let (expected, found) = (self.size.to_string(), found.len().to_string());
            return Err(Failure::Unexpected { what, expected, found });
        }
        self.place.compare(self.number(), 0, &found)?;
        Ok(self.size)
    }
}

/// Reads appended records as they arrive, and older parts again.
pub struct Tail {
    place: Arc<Place>,
    random: Random,
    file: Option<File>,
    number: u64,
    at: u64,
}

impl Load for Tail {
    fn kind(&self) -> &'static str {
        "reader of what is appended"
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn open(&mut self) -> Result<(), Failure> {
        let number = self.place.number.load(Ordering::Relaxed);
        match File::open(self.place.path(number)) {
            Ok(file) => (self.file, self.number, self.at) = (Some(file), number, 0),
            // It has just become full, or the next one does not exist yet.
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.file = None,
            Err(error) => {
                let what = self.place.path(number).display().to_string();
                return Err(Failure::Refused { what, error });
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step, Failure> {
        let started = Instant::now();
        if self.number != self.place.number.load(Ordering::Relaxed) || self.file.is_none() {
            self.open()?;
        }
        let Some(file) = &self.file else { return Ok(Step::default()) };
        let mut found = vec![0; READ_BYTES as usize];
        let n = file.read_at(&mut found, self.at);
        let n = n.map_err(Failure::refused(self.place.path(self.number).display()))?;
        let waited = Some(started.elapsed());
        self.place.compare(self.number, self.at, &found[..n])?;
        self.at += n as u64;
        if n == 0 && self.random.below(8) == 0 {
            self.at = self.random.below(self.at + 1);
        }
        Ok(Step { waited, compared: n as u64 })
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.file = None;
        Ok(())
    }

    fn verify(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }
}
