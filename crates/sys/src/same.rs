//! Whether the page cache and the device have the same bytes of a file, and dropping only what they do.
//!
//! Where a device refuses a write-back (`EIO`, a thin disk without space), the kernel marks the pages clean
//! all the same: what was written is in the page cache and nowhere else, and `POSIX_FADV_DONTNEED`
//! throws it away. The kernel tells of that once to each descriptor that was open, once to the next
//! one that is opened, and once to whoever waits for the file in another way; who comes later hears nothing. So the
//! device is asked for the bytes themselves (`O_DIRECT`), however often somebody has asked before.
//!
//! Nothing here takes an error away from a descriptor, of whoever has it or will have it (`errseq_t`
//! in lib/errseq.c): neither `fsync(2)` nor the waiting flags of `sync_file_range(2)` are used.

use crate::cache;
use crate::fiemap::{Fiemap, flags};
use crate::priority::Prompt;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Bytes of the first direct read, and how few and how many they become: such a read holds a lock of the
/// file, which its writers wait for.
const FIRST: u64 = 64 << 10;
const FEWEST: u64 = 16 << 10;
const MOST: u64 = 256 << 10;
/// A read that takes longer is followed by a shorter one, a quicker one by a longer.
const LONG: Duration = Duration::from_millis(15);
const QUICK: Duration = Duration::from_millis(2);
/// Bytes that are written out between two looks at the clock.
const WINDOW: u64 = 1 << 20;
/// No device has smaller blocks.
const SECTOR: usize = 512;
/// How often what differs is looked at, and how long between two looks.
const LOOKS: u32 = 4;
const BETWEEN: Duration = Duration::from_millis(1);

/// What came of a comparison.
#[derive(Debug)]
pub enum Same {
    /// The device has whatever the page cache had of the range; all of it was written out before.
    Yes,
    /// So it is, but the kernel told meanwhile that the device has refused something that was written to
    /// the file: there or elsewhere, now or since somebody last asked.
    ButRefused(io::Error),
    /// From about this offset (bytes) on the page cache has other bytes than the device: what was written
    /// there was refused, and is nowhere else. With the kernel's words, if it told.
    No(u64, Option<io::Error>),
    /// Somebody is writing to some of it; what nobody wrote to is the same. With the kernel's words, if it told of
    /// something that was refused.
    Changing(Option<io::Error>),
    /// The device cannot be asked: the file system has no direct reads of this file, or of what it stores
    /// in another form (compressed, encrypted, inline, not allocated yet).
    Unknown,
    /// The caller did not want to go on.
    Stopped,
}

/// Compares, with room for what it reads; one for many files.
pub struct Compare {
    unit: u64,
    /// The unit stays as it is.
    steady: bool,
    cached: Vec<u8>,
    direct: Vec<u8>,
    map: Fiemap,
    /// Whether the kernel has failed a read because somebody was writing, and may have told of something else besides.
    collided: bool,
}

impl Default for Compare {
    fn default() -> Self {
        let (cached, direct) = Default::default();
        let map = Fiemap::default();
        Self { unit: FIRST, steady: false, cached, direct, map, collided: false }
    }
}

impl Compare {
    /// One that reads as much at once as it may, however long that takes: where no writer waits for the file's lock.
    pub fn in_one_go() -> Self {
        Self { unit: MOST, steady: true, ..Self::default() }
    }

    /// Writes out what is dirty of `range` (bytes) of `file`, waits for it, and compares what the page
    /// cache has of it with the device. Between two reads of at most 256 KiB `go_on` is asked whether
    /// to. `file` may be leased: it is not opened again, `O_DIRECT` is set on its open file description
    /// for the moment of each read, so nobody else may use that meanwhile.
    ///
    /// # Errors
    /// What cannot be read from the device; then the page cache may have the only copy.
    pub fn range(
        &mut self,
        file: impl AsFd,
        range: Range<u64>,
        mut go_on: impl FnMut() -> bool,
    ) -> io::Result<Same> {
        let file = file.as_fd();
        let page = rustix::param::page_size() as u64;
        let end = range.end.min(size(file)?).next_multiple_of(page);
        let mut at = range.start / page * page;
        let (mut refused, mut changing) = (None, false);
        while at < end {
            // A file may be of any size.
            let empty = empty_from(file, at..end);
            if empty > 0 {
                at += empty;
                continue;
            }
            if !go_on() {
                return Ok(Same::Stopped);
            }
            let piece = at..end.min(at + self.unit);
            for run in cache::resident(file, piece.clone())? {
                if !go_on() {
                    return Ok(Same::Stopped);
                }
                match self.run(file, run)? {
                    Same::Yes => {}
                    Same::ButRefused(e) => drop(refused.get_or_insert(e)),
                    // What was refused elsewhere counts for more.
                    Same::Changing(told) => {
                        changing = true;
                        refused = refused.or(told);
                    }
                    other => return Ok(other),
                }
            }
            at = piece.end;
        }
        if changing {
            return Ok(Same::Changing(refused));
        }
        Ok(refused.map_or(Same::Yes, Same::ButRefused))
    }

    /// Drops what the page cache has of `range` (bytes), if the device has all of it. Pages that are
    /// mapped, or that were dirtied since, stay; anything but [`Same::Yes`] leaves everything there.
    ///
    /// What is written after it was compared, and refused before the pages go, is told by the kernel
    /// once, to the last direct read; only in the instant between that and the dropping can it be lost,
    /// and not at all to who holds a lease.
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
        self.collided = false;
        let found = self.range(file, range.clone(), go_on)?;
        if !matches!(found, Same::Yes) {
            return Ok(found);
        }
        let page = rustix::param::page_size() as u64;
        let start = range.start / page * page;
        match ask(file, start..start + page, &mut self.direct)? {
            (None, _) => return Ok(Same::Changing(None)),
            (_, Some(told)) if told.raw_os_error() != Some(libc::EINVAL) => {
                return Ok(Same::ButRefused(told));
            }
            _ if self.collided => return Ok(Same::Changing(None)),
            _ => {}
        }
        cache::drop_clean(file, range)?;
        Ok(Same::Yes)
    }

    /// Compares pages that are in the page cache.
    fn run(&mut self, file: BorrowedFd, run: Range<u64>) -> io::Result<Same> {
        let len = (run.end - run.start) as usize;
        let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
        let mut refused = None;
        for _ in 0..LOOKS {
            let started = Instant::now();
            // First the device: this writes out what is dirty.
            let (read, told) = ask(file, run.clone(), &mut self.direct)?;
            let Some(read) = read else {
                self.collided = true;
                refused = refused.or(told);
                std::thread::sleep(BETWEEN);
                continue;
            };
            if told.as_ref().is_some_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
                return Ok(Same::Unknown);
            }
            refused = refused.or(told);
            self.took(started.elapsed());
            // Where it was, now that nothing of it waits for being allocated.
            if before.is_none() && !self.is_plain(file, run.clone())? {
                return Ok(Same::Unknown);
            }
            self.cached.resize(len, 0);
            let kept = read_full(file, run.start, &mut self.cached)?;
            let (there, here) = (&self.direct[read], &self.cached[..kept]);
            if there == here {
                return Ok(refused.map_or(Same::Yes, Same::ButRefused));
            }
            // Page by page: somebody may be writing to another one.
            if let Some((was, had)) = &before
                && let Some(first) = first_that_stays_apart(was, had, there, here)
            {
                return Ok(Same::No(run.start + first as u64, refused));
            }
            before = Some((there.to_vec(), here.to_vec()));
            std::thread::sleep(BETWEEN);
        }
        Ok(Same::Changing(refused))
    }

    /// Whether a direct read of it comes from the device: file systems read what they store in another form
    /// through the page cache, and do not say so.
    fn is_plain(&mut self, file: BorrowedFd, range: Range<u64>) -> io::Result<bool> {
        const OTHER: u32 = flags::UNKNOWN
            | flags::DELALLOC
            | flags::ENCODED
            | flags::DATA_ENCRYPTED
            | flags::NOT_ALIGNED
            | flags::DATA_INLINE
            | flags::DATA_TAIL;
        // STATX_DIOALIGN, Linux 6.1: an alignment of 0 is no direct reads.
        let wanted = StatxFlags::DIOALIGN;
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
        if stat.stx_mask & wanted.bits() != 0 && stat.stx_dio_offset_align == 0 {
            return Ok(false);
        }
        let mut plain = true;
        self.map.for_each(file, range, false, |e| plain &= e.flags & OTHER == 0)?;
        Ok(plain)
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

/// How many bytes from the start of `range` on, in whole pages, are surely not in the page cache.
fn empty_from(file: BorrowedFd, range: Range<u64>) -> u64 {
    let none = |len: u64| {
        let part = range.start..range.end.min(range.start.saturating_add(len));
        cache::cached_pages(file, part).is_ok_and(|pages| pages == 0)
    };
    if !none(MOST) {
        return 0;
    }
    let mut len = MOST;
    while len < range.end - range.start && none(len.saturating_mul(2)) {
        len = len.saturating_mul(2);
    }
    len.min(range.end - range.start)
}

/// The first byte at which a page differs from the device, the same way at two looks.
fn first_that_stays_apart(was: &[u8], had: &[u8], there: &[u8], here: &[u8]) -> Option<usize> {
    let page = rustix::param::page_size();
    // Where the file ended meanwhile, somebody is writing.
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

/// Writes out all of `file` and waits for it, also for delayed allocation (`FIEMAP_FLAG_SYNC`).
/// Nothing is taken from anybody's descriptor.
///
/// # Errors
/// What the kernel tells of write-backs that were refused, by now or since somebody last asked in such a way.
pub fn settled(file: impl AsFd) -> io::Result<()> {
    // Some kernels hold a lock of the file meanwhile.
    let _prompt = Prompt::begin();
    Fiemap::default().for_each(file, 0..1, true, |_| ())
}

/// Writes out what is dirty of `range` (bytes) and waits for it, for at most so long; whether nothing is dirty
/// then. Errors are left to whoever they are for. Kernels before 6.5 do not tell what is dirty: there all of the range
/// is written out and waited for, window by window.
///
/// # Errors
/// Whatever the system says.
pub fn write_quietly(file: impl AsFd, range: Range<u64>, most: Duration) -> io::Result<bool> {
    let until = Instant::now() + most;
    let end =
        range.end.min(size(file.as_fd())?.next_multiple_of(rustix::param::page_size() as u64));
    let mut at = range.start;
    while at < end {
        let dirty = |len: u64| cache::dirty_pages(&file, at..end.min(at.saturating_add(len)));
        // Most of a file is clean, and of any length.
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
                let started = Instant::now();
                cache::write_and_wait(&file, window.clone())?;
                // What was clean took no time.
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

/// Writes out a window until nothing of it is dirty, or until that moment; whether it is.
fn written(file: impl AsFd, window: Range<u64>, until: Instant) -> io::Result<bool> {
    let mut wait = Duration::from_micros(100);
    while cache::dirty_pages(&file, window.clone())? > 0 {
        if Instant::now() > until {
            return Ok(false);
        }
        // What was dirtied again meanwhile, too.
        cache::start_writeback(&file, window.clone())?;
        std::thread::sleep(wait);
        wait = (wait * 2).min(Duration::from_millis(4));
    }
    Ok(true)
}

/// Reads a run from the device; gives where in `buffer` it is, and what the kernel told of writes that were
/// refused: it does once, and who asks again is given the bytes. `EINVAL` stands for no direct reads at all.
/// No place where somebody is writing: the kernel fails a direct read (`EIO`) where a page was dirtied
/// through a mapping before it was allocated space (`IOMAP_DELALLOC` in fs/iomap/direct-io.c).
fn ask(
    file: BorrowedFd,
    run: Range<u64>,
    buffer: &mut Vec<u8>,
) -> io::Result<(Option<Range<usize>>, Option<io::Error>)> {
    let len = (run.end - run.start) as usize;
    let collides = || cache::dirty_pages(file, run.clone()).is_ok_and(|pages| pages > 0);
    match direct(file, run.start, len, buffer) {
        Ok(read) => Ok((Some(read), None)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok((Some(0..0), Some(e))),
        Err(_) if collides() => Ok((None, None)),
        Err(told) => match direct(file, run.start, len, buffer) {
            Ok(read) => Ok((Some(read), Some(told))),
            Err(_) if collides() => Ok((None, Some(told))),
            Err(e) => Err(e),
        },
    }
}

/// Reads `len` bytes from the device; gives where in `buffer` they are.
fn direct(file: BorrowedFd, at: u64, len: usize, buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
    let page = rustix::param::page_size();
    buffer.resize(len + page, 0);
    let start = buffer.as_ptr().align_offset(page).min(page);
    // It holds a lock of the file while it waits for the disk.
    let _prompt = Prompt::begin();
    let _direct = Direct::begin(file)?;
    let got = read_full(file, at, &mut buffer[start..start + len])?;
    Ok(start..start + got)
}

/// While it lives, reads of an open file description are direct.
struct Direct<'a> {
    file: BorrowedFd<'a>,
    before: OFlags,
}

impl<'a> Direct<'a> {
    fn begin(file: BorrowedFd<'a>) -> io::Result<Self> {
        let before = rustix::fs::fcntl_getfl(file)?;
        rustix::fs::fcntl_setfl(file, before | OFlags::DIRECT)?;
        Ok(Self { file, before })
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::fcntl_setfl(self.file, self.before);
    }
}

/// Reads until the buffer is full or the file ends. A direct read that ends there is at no multiple of a
/// block, and cannot go on.
fn read_full(file: BorrowedFd, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() && done % SECTOR == 0 {
        match rustix::io::pread(file, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
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
                // The kernel itself may have a page in hand for a moment.
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
