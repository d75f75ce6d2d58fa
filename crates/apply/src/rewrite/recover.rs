//! From records back to whole files.
//!
//! For each record: is it sound, which file is it of, and what does the file lack? Only holes and
//! unwritten blocks are written to, and only in a file of the recorded size that nobody modified
//! later than a rewrite takes. A record goes once its file has every byte for good, or is gone.
//!
//! Ending at any instant is safe: as long as the record is there, the same questions are asked
//! again, and putting back is the engine's own way of writing (`place`). Before it writes, the
//! record is touched, so that what it does to the file's time of modification is not mistaken for
//! somebody else's doing next time.

use super::journal::{DIRECTORY, Journal, JournalError, read_data};
use super::place::{Holder, Verdict, judge, lease, mtime, put, set_mtime};
use super::record::{BadRecord, Record};
use fragmend_layout::{ByteRange, PathText};
use fragmend_sys::fs_id::FsId;
use fragmend_sys::handle;
use fragmend_sys::inode;
use fragmend_sys::lease::Lease;
use fragmend_sys::mounts::Mount;
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A rewrite is over within so many seconds after its record was made or touched: the kernel
/// takes the lease away long before. A file modified later was modified by somebody else.
const WINDOW_SECONDS: i64 = 120;

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The file has every byte: the record was removed.
    Whole,
    /// Bytes were put back, and the record was removed.
    Restored,
    /// The same, if it were not for `--dry-run`.
    WouldRestore,
    /// A copy that was not finished, of a file that nobody had touched: removed.
    NeverBegun,
    /// The file is deleted: the record was removed.
    FileGone,
    /// The record was removed and the file left as it is, as asked for.
    Discarded,
    /// The file was changed by somebody else: nothing was done.
    Changed,
    /// The record is damaged: nothing was done.
    Damaged,
    /// A record of another version, or of a file system that is not mounted: nothing was done.
    Foreign,
    /// The file cannot be found or is in use: nothing was done.
    Unreachable,
    /// Putting back failed: the record stays.
    Failed,
}

impl Outcome {
    /// Whether bytes of a file may still be missing.
    pub fn at_risk(self) -> bool {
        use Outcome::{Changed, Damaged, Failed, Foreign, Unreachable, WouldRestore};
        matches!(self, Changed | Damaged | Failed | Foreign | Unreachable | WouldRestore)
    }
}

/// One record, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// The file, or as much as is known of it.
    #[serde(flatten)]
    pub path: PathText,
    /// The record's own file.
    pub record: String,
    /// First byte of the range.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Bytes that were put back, or would be.
    pub restored_bytes: u64,
    /// What to know, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What to do with a file that was changed after its record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// Leave the file as it is and remove the record.
    File,
    /// Put the recorded bytes back over whatever is there.
    Record,
}

/// How to recover.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Look and tell, change nothing.
    pub dry_run: bool,
    /// Decides where a file at or below one of these paths was changed.
    pub prefer: Option<(Prefer, Vec<PathBuf>)>,
}

impl Options {
    fn prefer(&self, file: &PathText) -> Option<Prefer> {
        let path = file.to_path()?;
        let (prefer, below) = self.prefer.as_ref()?;
        below.iter().any(|dir| path.starts_with(dir)).then_some(*prefer)
    }
}

/// Recovers everything in one journal. Its records are of files on one of `mounts`.
///
/// # Errors
/// When the journal cannot be used. What goes wrong with a record is in its outcome.
pub fn recover(
    journal: &Path,
    mounts: &[Mount],
    options: &Options,
    tell: &mut dyn FnMut(Recovered),
) -> Result<(), JournalError> {
    let Some(journal) = Journal::open(journal)? else { return Ok(()) };
    let io = |source| JournalError::Io { path: journal.path().to_owned(), source };
    for name in journal.drafts().map_err(io)? {
        let unknown = blank(&journal, &name, None, Path::new(""));
        let removed = if options.dry_run { Ok(()) } else { journal.remove(&name) };
        tell(match removed {
            Ok(()) => unknown.ended(Outcome::NeverBegun, "its file was not touched"),
            Err(e) => unknown.ended(Outcome::Failed, e.to_string()),
        });
    }
    for name in journal.records().map_err(io)? {
        tell(one(&journal, &name, mounts, options));
    }
    Ok(())
}

impl Recovered {
    fn ended(self, outcome: Outcome, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { outcome, detail: (!detail.is_empty()).then_some(detail), ..self }
    }
}

fn blank(journal: &Journal, name: &OsStr, record: Option<&Record>, path: &Path) -> Recovered {
    let range = record.map_or(ByteRange { start: 0, end: 0 }, |r| r.range);
    Recovered {
        path: path.into(),
        record: journal.path().join(name).display().to_string(),
        offset: range.start,
        length: range.len(),
        outcome: Outcome::Failed,
        restored_bytes: 0,
        detail: None,
    }
}

fn one(journal: &Journal, name: &OsStr, mounts: &[Mount], options: &Options) -> Recovered {
    let nobody = blank(journal, name, None, Path::new(""));
    let (file, record) = match journal.load(name) {
        Ok(loaded) => loaded,
        Err(e) => return nobody.ended(Outcome::Failed, e.to_string()),
    };
    let record = match record {
        Ok(record) => record,
        Err(bad @ BadRecord::Damaged) => {
            let what = format!("{bad}; check the file that it is of, then remove the record");
            return nobody.ended(Outcome::Damaged, what);
        }
        Err(bad) => return nobody.ended(Outcome::Foreign, bad.to_string()),
    };
    let Some(mount) = mounts.iter().find(|m| is_of(&record, m, journal)) else {
        let what = "its file system is not mounted here; mount it, then recover again";
        return blank(journal, name, Some(&record), &record.path).ended(Outcome::Foreign, what);
    };
    let told = blank(journal, name, Some(&record), &mount.point.join(&record.path));
    let named = match find(&record, mount) {
        Ok(Some(named)) => named,
        Ok(None) => return remove(journal, name, options, told, Outcome::FileGone),
        Err(why) => return told.ended(Outcome::Unreachable, why),
    };
    let told = match handle::path_of(&named) {
        Some(path) => Recovered { path: path.as_path().into(), ..told },
        None => told,
    };
    let data = match read_data(&file, &record) {
        Ok(Some(data)) => data,
        Ok(None) => {
            let what = "its copy is damaged; check the file, then remove the record";
            return told.ended(Outcome::Damaged, what);
        }
        Err(e) => return told.ended(Outcome::Failed, format!("the record: {e}")),
    };
    let how = if options.dry_run { OFlags::RDONLY } else { OFlags::RDWR };
    let target = match handle::reopen(&named, how | OFlags::NONBLOCK) {
        Ok(target) => target,
        Err(e) => return told.ended(Outcome::Unreachable, format!("cannot be opened: {e}")),
    };
    let mending = Mending { journal, name, record: &record, data: &data, target: &target };
    mending.mend(&file, options, told)
}

/// Whether the record's file is on this file system. Where the kernel cannot tell one from another,
/// a journal at the top of a file system is that file system's.
fn is_of(record: &Record, mount: &Mount, journal: &Journal) -> bool {
    let id = std::fs::File::open(&mount.point).and_then(FsId::of);
    let home = || journal.path() == mount.point.join(DIRECTORY);
    id.is_ok_and(|id| record.fs.is(&id).unwrap_or_else(home))
}

/// The file; `None` when it is deleted for certain.
fn find(record: &Record, mount: &Mount) -> Result<Option<OwnedFd>, String> {
    let by_handle = (!record.handle.bytes.is_empty())
        .then(|| std::fs::File::open(&mount.point).and_then(|root| record.handle.open(root)));
    match by_handle {
        Some(Ok(file)) => {
            // Deleted, but not yet forgotten.
            let linked = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink > 0);
            return Ok(linked.then_some(file));
        }
        Some(Err(e)) if e.raw_os_error() == Some(rustix::io::Errno::STALE.raw_os_error()) => {
            return Ok(None);
        }
        _ => {}
    }
    // No handles, or no right to use them: the path must do.
    let identity =
        handle::Identity { device: mount.dev, inode: record.inode, generation: record.generation };
    let found = handle::find(&mount.point, &mount.point.join(&record.path), identity);
    let found = found.map_err(|_| "its file is not where it was; recover as root")?;
    let reader = handle::reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK);
    let generation = reader.and_then(inode::generation).unwrap_or(0);
    match generation == record.generation {
        true => Ok(Some(found)),
        false => Ok(None),
    }
}

fn remove(
    journal: &Journal,
    name: &OsStr,
    options: &Options,
    told: Recovered,
    outcome: Outcome,
) -> Recovered {
    match if options.dry_run { Ok(()) } else { journal.remove(name) } {
        Ok(()) => told.ended(outcome, ""),
        Err(e) => told.ended(Outcome::Failed, format!("its record stays: {e}")),
    }
}

/// A record with its file.
struct Mending<'a> {
    journal: &'a Journal,
    name: &'a OsStr,
    record: &'a Record,
    data: &'a [u8],
    target: &'a OwnedFd,
}

impl Mending<'_> {
    fn mend(&self, file: &OwnedFd, options: &Options, told: Recovered) -> Recovered {
        // Others are kept out from the first look to the last.
        let leased = if options.dry_run { None } else { Some(lease(self.target)) };
        let verdict = judge(self.target, self.record, self.data);
        let (missing, changed) = match verdict {
            Ok(Verdict::Whole) => {
                return remove(self.journal, self.name, options, told, Outcome::Whole);
            }
            Ok(Verdict::Missing(parts)) => match self.modified_later(file) {
                Ok(false) => (parts, None),
                Ok(true) => (parts, Some("it was modified after the rewrite".to_owned())),
                Err(e) => return told.ended(Outcome::Failed, e.to_string()),
            },
            Ok(Verdict::Differs(at)) => {
                (vec![self.record.range], Some(format!("it holds other data at {at}")))
            }
            Ok(Verdict::Resized(size)) => {
                let was = self.record.size;
                (vec![self.record.range], Some(format!("it has {size} bytes now and had {was}")))
            }
            Err(e) => return told.ended(Outcome::Failed, e.to_string()),
        };
        match (changed, options.prefer(&told.path)) {
            (Some(_), Some(Prefer::File)) => {
                return remove(self.journal, self.name, options, told, Outcome::Discarded);
            }
            (Some(what), None) => {
                let what = format!(
                    "{what}; keep it as it is with --prefer file, or put the recorded bytes back with --prefer record"
                );
                return told.ended(Outcome::Changed, what);
            }
            _ => {}
        }
        let missing: Vec<ByteRange> =
            missing.iter().map(|part| part.intersect(self.with_data())).collect();
        let bytes = missing.iter().map(|part| part.len()).sum();
        let told = Recovered { restored_bytes: bytes, ..told };
        let lease = match leased {
            None => return told.ended(Outcome::WouldRestore, ""),
            Some(Ok(lease)) => lease,
            Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => {
                let what = "another program has it open; end that program, then recover again";
                return Recovered { restored_bytes: 0, ..told }.ended(Outcome::Unreachable, what);
            }
            Some(Err(e)) => {
                return Recovered { restored_bytes: 0, ..told }
                    .ended(Outcome::Unreachable, format!("cannot be leased: {e}"));
            }
        };
        match self.put_back(file, &missing, lease) {
            Ok(()) => remove(self.journal, self.name, options, told, Outcome::Restored),
            Err(e) => {
                let what = format!("{e}; the record stays, recover again");
                Recovered { restored_bytes: 0, ..told }.ended(Outcome::Failed, what)
            }
        }
    }

    /// The part of the range in which the record has bytes.
    fn with_data(&self) -> ByteRange {
        ByteRange::at(self.record.range.start, self.data.len() as u64)
    }

    fn modified_later(&self, file: &OwnedFd) -> io::Result<bool> {
        let modified = mtime(self.target)?;
        let touched = mtime(file)?;
        Ok(modified != self.record.mtime && modified > (touched.0 + WINDOW_SECONDS, touched.1))
    }

    fn put_back(&self, file: &OwnedFd, parts: &[ByteRange], lease: Lease) -> io::Result<()> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?;
        rustix::fs::fsync(file)?;
        // As it is found: who moved it last cannot be known.
        let mut holder = Found { file: self.target, mtime: mtime(self.target)?, lease };
        for part in parts {
            let from = (part.start - self.record.range.start) as usize;
            let data = &self.data[from..from + part.len() as usize];
            let block = u64::from(self.record.block.max(1));
            let whole = part.align_outward(block);
            put(self.target, whole, data, &mut holder)?;
        }
        Ok(())
    }
}

/// Leaves the time of modification as it was found.
struct Found<'a> {
    file: &'a OwnedFd,
    mtime: (i64, u32),
    lease: Lease<'a>,
}

impl Holder for Found<'_> {
    fn lease(&self) -> &Lease<'_> {
        &self.lease
    }

    fn settle_mtime(&self) -> io::Result<()> {
        set_mtime(self.file, self.mtime)
    }
}
