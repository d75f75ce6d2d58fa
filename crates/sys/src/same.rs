//! Compares the page cache with the device, and drops only pages that are the same on both.
//!
//! When a device refuses a writeback (`EIO`, a thin disk without space), the kernel marks the pages
//! clean all the same: the data is in the page cache and nowhere else, and `POSIX_FADV_DONTNEED`
//! would discard it. The kernel reports that error once to each open descriptor, once to the next one
//! that is opened, and once to a caller that waits for the file by other means; later callers learn
//! nothing. So the bytes themselves are read from the device (`O_DIRECT`) and compared.
//!
//! Nothing here consumes an error that another program's descriptor would report (`errseq_t` in lib/errseq.c):
//! neither `fsync(2)` nor the waiting flags of `sync_file_range(2)` are used.

mod device;
mod vacate;

use crate::backoff::DoublingWait;
use crate::cache;
use crate::fiemap::{Fiemap, flags};
use crate::priority::Prompt;
pub(crate) use device::may_deceive;
use device::{Asked, ask, read_full, read_surely};
use rustix::fs::{AtFlags, StatxFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
pub use vacate::Vacated;

/// Bytes of the first direct read, and the bounds that later ones adapt within: such a read holds a
/// lock of the file, which its writers wait for.
const FIRST: u64 = 64 << 10;
const FEWEST: u64 = 16 << 10;
const MOST: u64 = 256 << 10;
/// A read that lasts longer is followed by a shorter one, a quicker one by a longer.
const LONG: Duration = Duration::from_millis(15);
const QUICK: Duration = Duration::from_millis(2);
/// Bytes that are written back between two looks at the clock.
const WINDOW: u64 = 1 << 20;
/// How often a difference is checked again, and the time between two checks.
const LOOKS: u32 = 4;
const BETWEEN: Duration = Duration::from_millis(1);

/// The result of a comparison.
#[derive(Debug)]
pub enum Same {
    /// The device has all that the page cache has of the range, which was written back before.
    Yes,
    /// The same, but the kernel reported that the device has refused a write to the file: in the range
    /// or elsewhere, now or since the error was last reported.
    ButRefused(io::Error),
    /// From about this offset (bytes) on the page cache differs from the device: a write there was
    /// refused, and its data is nowhere else. With the kernel's error, if it reported one.
    No(u64, Option<io::Error>),
    /// Parts of it are being written to, so that they cannot be compared; all others that can be are the same.
    /// With the kernel's error, if it reported a refused write.
    Changing(Option<io::Error>),
    /// Some of it cannot be read directly: the file system has no direct reads of this file, or of data
    /// that is stored encoded (compressed, encrypted, inline). All other parts are the same.
    Unknown,
    /// The caller has stopped the comparison.
    Stopped,
}

/// Where the bytes of a run are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    /// On the device as they are: a direct read comes from there.
    Plain,
    /// Encoded or elsewhere: file systems silently read them through the page cache.
    Encoded,
    /// Nowhere yet.
    Delayed,
}

/// Compares files, with a buffer that is reused.
pub struct Compare {
    unit: u64,
    /// The unit stays as it is.
    steady: bool,
    cached: Vec<u8>,
    direct: Vec<u8>,
    map: Fiemap,
    /// Whether the kernel has failed a read because of a write at the same time; it may have reported another
    /// error with it.
    collided: bool,
    /// The error with which it failed the last one.
    cause: Option<io::Error>,
}

impl Default for Compare {
    fn default() -> Self {
        let (cached, direct) = Default::default();
        let map = Fiemap::default();
        Self { unit: FIRST, steady: false, cached, direct, map, collided: false, cause: None }
    }
}

impl Compare {
    /// Reads as much at once as possible, for files whose lock no writer waits for.
    pub fn in_one_go() -> Self {
        Self { unit: MOST, steady: true, ..Self::default() }
    }

    /// The message of the last comparison, which was [`Same::Changing`]: `what`, and the error with which the kernel
    /// failed a direct read, if that was why. A write at the same time causes it, or a device that fails.
    pub fn changing(&self, what: &str) -> String {
        let failed = |e| format!("{what}: a direct read failed beside dirty pages ({e})");
        self.cause.as_ref().map_or_else(|| what.to_owned(), failed)
    }

    /// Writes back the dirty pages of `range` (bytes) of `file`, and compares the cached pages with the device.
    /// Between two reads of at most 256 KiB `go_on` is called, which returns whether to continue. `file` may be
    /// leased: it is not opened again; `O_DIRECT` is set on its open file description during each read, so that
    /// must not be used otherwise meanwhile.
    ///
    /// # Errors
    /// When the device cannot be read; then the page cache may have the only copy.
    pub fn range(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        go_on: impl FnMut() -> bool,
    ) -> io::Result<Same> {
        self.each_run(file.as_fd(), range, go_on, Self::run)
    }

    /// The same, but bytes that may have come from the page cache do not count as the device's. So what is
    /// [`Same::Yes`] may be dropped.
    ///
    /// A write after the comparison that is refused before the pages are dropped is reported by the
    /// kernel once, to the last direct read; data can be lost only in the instant between that and the
    /// drop, and never while a lease is held.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub(crate) fn surely(
        &mut self,
        file: BorrowedFd,
        range: Range<u64>,
        go_on: impl FnMut() -> bool,
    ) -> io::Result<Same> {
        self.collided = false;
        let run = if may_deceive(file)? { Self::run_surely } else { Self::run };
        let found = self.each_run(file, range.clone(), go_on, run)?;
        if !matches!(found, Same::Yes | Same::Unknown) {
            return Ok(found);
        }
        let page = rustix::param::page_size() as u64;
        let start = range.start / page * page;
        match ask(file, start..start + page, &mut self.direct)? {
            Asked::Beside { cause, .. } => {
                self.cause = Some(cause);
                Ok(Same::Changing(None))
            }
            Asked::Read(_, Some(told)) if told.raw_os_error() != Some(libc::EINVAL) => {
                Ok(Same::ButRefused(told))
            }
            _ if self.collided => Ok(Same::Changing(None)),
            _ => Ok(found),
        }
    }

    /// Compares run by run, and returns the worst result.
    fn each_run(
        &mut self,
        file: BorrowedFd,
        range: Range<u64>,
        mut go_on: impl FnMut() -> bool,
        compare: fn(&mut Self, BorrowedFd, Range<u64>) -> io::Result<Same>,
    ) -> io::Result<Same> {
        self.cause = None;
        let page = rustix::param::page_size() as u64;
        let end = range.end.min(size(file)?).next_multiple_of(page);
        let mut at = range.start / page * page;
        let (mut refused, mut changing, mut unknown) = (None, false, false);
        while at < end {
            // A file may have any size.
            let empty = cache::cold_from(file, at..end);
            if empty > 0 {
                at += empty;
                continue;
            }
            if !go_on() {
                return Ok(Same::Stopped);
            }
            let part = at..end.min(at + self.unit);
            for run in cache::resident(file, part.clone())? {
                if !go_on() {
                    return Ok(Same::Stopped);
                }
                match compare(self, file, run)? {
                    Same::Yes => {}
                    Same::Unknown => unknown = true,
                    Same::ButRefused(e) => drop(refused.get_or_insert(e)),
                    // A refused write elsewhere takes precedence.
                    Same::Changing(told) => {
                        changing = true;
                        refused = refused.or(told);
                    }
                    other => return Ok(other),
                }
            }
            at = part.end;
        }
        Ok(match refused {
            refused if changing => Same::Changing(refused),
            Some(told) => Same::ButRefused(told),
            None if unknown => Same::Unknown,
            None => Same::Yes,
        })
    }

    /// Drops the cached pages of `range` (bytes), if the device has all of them. Pages that are mapped,
    /// or that were dirtied since, stay; nothing is dropped unless the result is [`Same::Yes`].
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn drop(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        go_on: impl FnMut() -> bool,
    ) -> io::Result<Same> {
        let file = file.as_fd();
        let found = self.surely(file, range.clone(), go_on)?;
        if matches!(found, Same::Yes) {
            cache::drop_clean(file, range)?;
        }
        Ok(found)
    }

    /// Compares pages that are in the page cache.
    fn run(&mut self, file: BorrowedFd, run: Range<u64>) -> io::Result<Same> {
        let len = (run.end - run.start) as usize;
        let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
        let (mut refused, mut failed) = (None, None);
        for _ in 0..LOOKS {
            let started = Instant::now();
            // The device first: this writes back dirty pages.
            let (read, told) = match ask(file, run.clone(), &mut self.direct)? {
                Asked::Read(read, told) => (read, told),
                Asked::Beside { cause, told } => {
                    self.collided = true;
                    failed = Some(cause);
                    refused = refused.or(told);
                    std::thread::sleep(BETWEEN);
                    continue;
                }
            };
            if told.as_ref().is_some_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
                return Ok(Same::Unknown);
            }
            (refused, failed) = (refused.or(told), None);
            self.took(started.elapsed());
            // Where it is on the device, now that its dirty pages have been written.
            let stored =
                if before.is_none() { self.storage(file, run.clone())? } else { Storage::Plain };
            match stored {
                Storage::Plain => {}
                Storage::Encoded => return Ok(refused.map_or(Same::Unknown, Same::ButRefused)),
                // Another program has written to it since.
                Storage::Delayed => {
                    self.collided = true;
                    std::thread::sleep(BETWEEN);
                    continue;
                }
            }
            self.cached.resize(len, 0);
            let kept = read_full(file, run.start, &mut self.cached)?;
            let (there, here) = (&self.direct[read], &self.cached[..kept]);
            if there == here {
                return Ok(refused.map_or(Same::Yes, Same::ButRefused));
            }
            // Page by page: another program may be writing to another one.
            if let Some((was, had)) = &before
                && let Some(first) = first_that_stays_apart(was, had, there, here)
            {
                return Ok(Same::No(run.start + first as u64, refused));
            }
            before = Some((there.to_vec(), here.to_vec()));
            std::thread::sleep(BETWEEN);
        }
        self.cause = failed.or(self.cause.take());
        Ok(Same::Changing(refused))
    }

    /// The same where a direct read may come from the page cache, unless it surely does not.
    fn run_surely(&mut self, file: BorrowedFd, run: Range<u64>) -> io::Result<Same> {
        for _ in 0..LOOKS {
            let stored = self.storage(file, run.clone())?;
            if stored == Storage::Encoded {
                return Ok(Same::Unknown);
            }
            let started = Instant::now();
            if stored == Storage::Plain
                && let Some(read) = read_surely(file, run.clone(), &mut self.direct)?
            {
                self.took(started.elapsed());
                self.cached.resize((run.end - run.start) as usize, 0);
                let kept = read_full(file, run.start, &mut self.cached)?;
                return if self.direct[read] == self.cached[..kept] {
                    Ok(Same::Yes)
                } else {
                    // Written meanwhile, or refused before.
                    match self.run(file, run)? {
                        Same::Yes | Same::Unknown => Ok(Same::Changing(None)),
                        Same::ButRefused(told) => Ok(Same::Changing(Some(told))),
                        other => Ok(other),
                    }
                };
            }
            cache::start_writeback(file, run.clone())?;
            std::thread::sleep(BETWEEN);
        }
        Ok(Same::Changing(None))
    }

    /// Where the range is now; blocks that move elsewhere later show by themselves.
    fn storage(&mut self, file: BorrowedFd, range: Range<u64>) -> io::Result<Storage> {
        const DELAYED: u32 = flags::UNKNOWN | flags::DELALLOC;
        const ENCODED: u32 = flags::ENCODED
            | flags::DATA_ENCRYPTED
            | flags::NOT_ALIGNED
            | flags::DATA_INLINE
            | flags::DATA_TAIL;
        // STATX_DIOALIGN, Linux 6.1: an alignment of 0 means no direct reads.
        let wanted = StatxFlags::DIOALIGN;
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        if stat.stx_mask & wanted.bits() != 0 && stat.stx_dio_offset_align == 0 {
            return Ok(Storage::Encoded);
        }
        let mut all = 0;
        // Space that is reserved behind the end of the file holds no data.
        let end = range.end.min(size(file)?);
        self.map.for_each(file, range.start..end, false, |e| all |= e.flags)?;
        Ok(match all {
            all if all & ENCODED != 0 => Storage::Encoded,
            all if all & DELAYED != 0 => Storage::Delayed,
            _ => Storage::Plain,
        })
    }

    fn took(&mut self, time: Duration) {
        if self.steady {
            return;
        }
        if time > LONG {
            self.unit = (self.unit / 2).max(FEWEST);
        } else if time < QUICK {
            self.unit = (self.unit * 2).min(MOST);
        }
    }
}

/// The first byte at which a page differs from the device, in the same way in two checks.
fn first_that_stays_apart(was: &[u8], had: &[u8], there: &[u8], here: &[u8]) -> Option<usize> {
    let page = rustix::param::page_size();
    // If the file ends there by now, it is being written to.
    let looks = [was, had, there, here];
    let all = looks.iter().all(|look| look.len() == here.len());
    let whole = looks.iter().map(|look| look.len()).min().unwrap_or(0);
    let len = if all { whole } else { whole / page * page };
    let pages = || (0..len).step_by(page).map(|at| at..len.min(at + page));
    let apart = pages().find(|p| {
        let p = p.clone();
        there[p.clone()] != here[p.clone()]
            && was[p.clone()] == there[p.clone()]
            && had[p.clone()] == here[p]
    })?;
    let same = there[apart.clone()].iter().zip(&here[apart.clone()]).take_while(|(a, b)| a == b);
    Some(apart.start + same.count())
}

/// Writes back all of `file` and waits for it, including delayed allocation (`FIEMAP_FLAG_SYNC`).
/// No descriptor's error is consumed.
///
/// # Errors
/// The kernel's error of a refused writeback, now or since such a call last reported one.
pub fn settled(file: impl AsFd) -> io::Result<()> {
    // Some kernels hold a lock of the file meanwhile.
    let _prompt = Prompt::begin();
    Fiemap::default().for_each(file, 0..1, true, |_| ())
}

/// Writes back the dirty pages of `range` (bytes) and waits for them, at most for a given time; returns whether
/// nothing is dirty then. Errors are left for the descriptors that they belong to. Kernels before 6.5 do not
/// report which pages are dirty: there all data of the range is written back and waited for, window by window.
///
/// # Errors
/// Those of the system calls.
pub fn write_quietly(file: impl AsFd, range: Range<u64>, most: Duration) -> io::Result<bool> {
    let until = Instant::now() + most;
    let end =
        range.end.min(size(file.as_fd())?.next_multiple_of(rustix::param::page_size() as u64));
    let mut at = range.start;
    while at < end {
        let dirty = |len: u64| cache::dirty_pages(&file, at..end.min(at.saturating_add(len)));
        // Most of a file is clean, and may have any length.
        let mut len = WINDOW;
        while at.saturating_add(len) < end && matches!(dirty(len.saturating_mul(2)), Ok(0)) {
            len = len.saturating_mul(2);
        }
        let window = at..end.min(at.saturating_add(len));
        match dirty(len) {
            Ok(0) => {}
            Ok(_) if !written(&file, window.clone(), until)? => return Ok(false),
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => {
                // Dirty pages are data, and holes may have any length.
                match cache::next_data(&file, at) {
                    Some(data) if data >= window.end => {
                        at = data;
                        continue;
                    }
                    Some(_) => {}
                    None => return Ok(true),
                }
                let started = Instant::now();
                cache::write_and_wait(&file, window.clone())?;
                // Clean pages cost no time.
                let was_dirty = started.elapsed() > Duration::from_millis(1);
                if was_dirty && window.end < end && Instant::now() > until {
                    return Ok(false);
                }
            }
            Err(e) => return Err(e),
        }
        at = window.end;
    }
    Ok(true)
}

/// Writes back a window until nothing of it is dirty, or until a deadline; returns whether it is clean.
fn written(file: impl AsFd, window: Range<u64>, until: Instant) -> io::Result<bool> {
    let mut wait = DoublingWait::new(Duration::from_micros(100), Duration::from_millis(4));
    while cache::dirty_pages(&file, window.clone())? > 0 {
        if Instant::now() > until {
            return Ok(false);
        }
        // Also what was dirtied again meanwhile.
        cache::start_writeback(&file, window.clone())?;
        wait.sleep();
    }
    Ok(true)
}

fn size(file: BorrowedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_size.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_the_device_has_may_go_and_the_descriptor_stays_as_it_was() {
        let path = std::env::temp_dir().join(format!("fragmend-same-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.unwrap();
        // Dirty, and its end in the middle of a page.
        file.write_all_at(&[7; 300_001], 0).unwrap();
        let before = rustix::fs::fcntl_getfl(&file).unwrap();
        let mut compare = Compare::default();
        loop {
            match compare.drop(&file, 0..300_001, || true).unwrap() {
                // The kernel itself may hold a page for a moment.
                Same::Yes if cache::resident(&file, 0..300_001).unwrap().is_empty() => break,
                Same::Yes => std::thread::sleep(BETWEEN),
                // A file system in memory.
                Same::Unknown => break assert!(cache::is_resident(&file, 0..300_001).unwrap()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(rustix::fs::fcntl_getfl(&file).unwrap(), before);
        assert!(matches!(compare.range(&file, 300_001..400_000, || true), Ok(Same::Yes)));
        file.write_all_at(&[8; 8192], 4096).unwrap();
        assert!(matches!(compare.range(&file, 0..8192, || false), Ok(Same::Stopped)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_what_is_in_the_page_cache_is_looked_at() {
        let path = std::env::temp_dir().join(format!("fragmend-there-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[7; 4096], 8192).unwrap();
        file.write_all_at(&[7; 4096], 32768).unwrap();
        assert_eq!(cache::resident(&file, 0..1 << 20).unwrap(), [8192..12288, 32768..36864]);
        assert_eq!(cache::resident(&file, 10_000..33_000).unwrap(), [8192..12288, 32768..36864]);
        std::fs::remove_file(path).unwrap();
    }
}
