//! Page cache control on a range of one file. An empty range does nothing, whereas for the kernel a
//! length of 0 means the rest of the file.

use crate::backoff::DoublingWait;
use crate::same::{Compare, Same, may_deceive};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes that [`mapped_pages`] maps at once, and up to which it includes holes.
const WINDOW: u64 = 16 << 20;

/// Starts writing the dirty pages of `range` (bytes) without waiting for them
/// (`sync_file_range(2)`, `SYNC_FILE_RANGE_WRITE`). No metadata, no journal commit.
pub fn start_writeback(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages of `range` (bytes) and waits for them. No journal commit.
pub fn write_and_wait(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, range, all)
}

/// Asks the kernel to drop the clean pages of `range` (bytes): `POSIX_FADV_DONTNEED`. Pages that the
/// device refused are clean, too, and the only copy of their data: for other programs' files, use
/// [`Compare::drop`].
pub fn drop_clean(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    match std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) {
        None => Ok(()),
        len => Ok(rustix::fs::fadvise(file, range.start, len, rustix::fs::Advice::DontNeed)?),
    }
}

/// Drops all pages of `range` (bytes) of a file that was just synced, so that reads come from the
/// device. Where a page or a folio extends beyond the range, its other pages are dropped as well, but
/// none that the device has refused ([`Compare`]).
///
/// # Errors
/// When pages stay, or when adjacent pages are not on the device.
pub fn forget(file: impl AsFd, range: Range<u64>, go_on: impl Fn() -> bool) -> io::Result<()> {
    const TRIES: u32 = 8;
    // For the kernel it would be the rest of the file.
    if range.is_empty() {
        return Ok(());
    }
    let busy = |why: &str| Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    let (page, folio) = (rustix::param::page_size() as u64, largest_folio());
    let size: u64 = rustix::fs::fstat(&file)?.st_size.try_into().unwrap_or(0);
    let mut compare = Compare::default();
    let mut wait = DoublingWait::new(Duration::from_millis(1), Duration::MAX);
    for attempt in 0..TRIES {
        // A folio is dropped as a whole or not at all.
        let whole = if attempt == 0 { page } else { folio };
        let wide = range.start / whole * whole..range.end.next_multiple_of(whole);
        let beside = [wide.start..range.start, range.end..wide.end.min(size)];
        for beside in beside.into_iter().filter(|part| !part.is_empty()) {
            match compare.surely(file.as_fd(), beside, &go_on)? {
                Same::Yes => {}
                Same::Unknown => return busy("the disk cannot be asked what it has beside it"),
                Same::ButRefused(e) => return Err(e),
                Same::No(..) => return busy("the disk has refused a write beside it"),
                Same::Changing(_) => {
                    return busy(&compare.changing("another program writes beside it"));
                }
                Same::Stopped => return busy("another program writes beside it"),
            }
        }
        drop_clean(&file, wide)?;
        if pages_there(&file, range.clone())? == 0 {
            return Ok(());
        }
        wait.sleep();
    }
    busy("its pages stay in memory, so the disk cannot be asked")
}

/// The largest folio of the page cache, in bytes: as much as one page of a page table maps (a PMD), and
/// at most 2,048 pages (`MAX_PAGECACHE_ORDER`, include/linux/pagemap.h).
pub fn largest_folio() -> u64 {
    let page = rustix::param::page_size() as u64;
    page * (page / 8).min(2048)
}

/// Ensures that no folio of the page cache crosses `at` (bytes). Where a hole is punched, or a range is
/// remapped, up to there, the kernel would split such a folio by writing zeroes into it, also while it is still
/// in use: by a pipe or a socket that it was spliced into.
///
/// # Errors
/// `ResourceBusy` where a folio may cross: it is held, dirty, or mapped; or once `go_on`, which is called
/// between two reads of the device, returns false.
pub fn part(file: impl AsFd, at: u64, go_on: impl Fn() -> bool) -> io::Result<()> {
    let page = rustix::param::page_size() as u64;
    let first = at / page * page;
    if first < at {
        return forget(file, first..first + page, go_on);
    }
    let around = |pages: u64| at.saturating_sub(pages * page)..at + pages * page;
    // If both pages are cached, they may be on one folio.
    let apart = || -> io::Result<bool> {
        let (before, after) = (around(1).start..at, at..around(1).end);
        Ok(at == 0 || pages_there(&file, before)? == 0 || pages_there(&file, after)? == 0)
    };
    if apart()? || begins_folio(&file, at) == Some(true) {
        return Ok(());
    }
    // Where it cannot be known what the device has: Btrfs has had no large folios before Linux 6.15.
    if may_deceive(file.as_fd())? && cached_pages(&file, at..at + page).is_err() {
        return Ok(());
    }
    let mut compare = Compare::default();
    // A folio is dropped as a whole or not at all, with as little else as possible.
    for pages in [1, 16, 64, largest_folio() / page] {
        let Range { start, end } = around(pages);
        let whole = pages * page;
        let wide = start / whole * whole..end.next_multiple_of(whole);
        // Pages that the device refused are the only copy, and stay.
        match compare.drop(&file, wide.clone(), &go_on)? {
            Same::Stopped => break,
            // Where one side cannot be compared with the disk, the other may go.
            Same::Unknown => {
                for side in [wide.start..at, at..wide.end] {
                    compare.drop(&file, side, &go_on)?;
                }
            }
            _ => {}
        }
        if apart()? {
            return Ok(());
        }
    }
    let why = "its pages are in use elsewhere, and would be cut";
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

/// Whether the page at `at` is the first of its folio; `None` where the kernel does not report that: only root
/// may read it.
fn begins_folio(file: impl AsFd, at: u64) -> Option<bool> {
    const PRESENT: u64 = 1 << 63;
    const NUMBER: u64 = (1 << 55) - 1;
    const COMPOUND_TAIL: u64 = 1 << 16; // include/uapi/linux/kernel-page-flags.h
    let page = rustix::param::page_size();
    let (fd, none) = (file.as_fd().as_raw_fd(), std::ptr::null_mut());
    // SAFETY: the kernel chooses the place, so no memory of this process is touched, and nothing accesses it.
    let mapped =
        unsafe { libc::mmap(none, page, libc::PROT_READ, libc::MAP_SHARED, fd, at as i64) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // Unlike an access, no signal where the file ends before it now.
    // SAFETY: what was just mapped; nothing is changed.
    let there = unsafe { libc::madvise(mapped, page, libc::MADV_POPULATE_READ) } == 0;
    let entry = |map: &str, index: u64| -> Option<u64> {
        let mut bytes = [0; 8];
        std::fs::File::open(map).ok()?.read_exact_at(&mut bytes, index * 8).ok()?;
        Some(u64::from_ne_bytes(bytes))
    };
    let frame = || entry("/proc/self/pagemap", mapped as u64 / page as u64);
    let number = frame().filter(|f| there && f & PRESENT != 0).map(|f| f & NUMBER);
    let flags = number.filter(|n| *n != 0).and_then(|n| entry("/proc/kpageflags", n));
    // SAFETY: exactly what was mapped, and there is no reference into it.
    unsafe { libc::munmap(mapped, page) };
    flags.map(|flags| flags & COMPOUND_TAIL == 0)
}

fn sync_range(file: impl AsFd, range: Range<u64>, flags: u32) -> io::Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: no pointers are passed.
    let rc = unsafe {
        libc::sync_file_range(
            file.as_fd().as_raw_fd(),
            range.start as i64,
            range.end.saturating_sub(range.start) as i64,
            flags,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Pages of `range` (bytes) that are in the page cache now (`cachestat(2)`, Linux 6.5).
///
/// # Errors
/// `ENOSYS` on older kernels.
pub fn cached_pages(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    cachestat(file, range).map(|[cached, ..]| cached)
}

/// Pages of `range` (bytes) that are not on the device yet.
///
/// # Errors
/// `ENOSYS` on kernels before 6.5.
pub fn dirty_pages(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    cachestat(file, range).map(|[_, dirty, written, ..]| dirty + written)
}

/// Pages of `range` (bytes) that are under writeback: in flight to the device.
///
/// # Errors
/// `ENOSYS` on kernels before 6.5.
pub fn written_pages(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    cachestat(file, range).map(|[_, _, written, ..]| written)
}

/// Pages cached, dirty, under writeback, evicted, evicted of late.
fn cachestat(file: impl AsFd, range: Range<u64>) -> io::Result<[u64; 5]> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same on every architecture
    let span = [range.start, range.end.saturating_sub(range.start)];
    let mut stat = [0u64; 5];
    if range.is_empty() {
        return Ok(stat);
    }
    // SAFETY: cachestat reads two u64 (offset, length) and writes five u64.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            span.as_ptr(),
            stat.as_mut_ptr(),
            0u32,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(stat) }
}

/// Whether all pages of `range` (bytes, none beyond the end of the file) are in the page cache now.
///
/// # Errors
/// An error of `mmap(2)`, on kernels before 6.5.
pub fn is_resident(file: impl AsFd, range: Range<u64>) -> io::Result<bool> {
    if range.is_empty() {
        return Ok(true);
    }
    let page = rustix::param::page_size() as u64;
    let pages = range.end.div_ceil(page) - range.start / page;
    pages_there(file, range).map(|there| there == pages)
}

/// Pages of `range` that are in the page cache, on any kernel.
pub(crate) fn pages_there(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    cached_pages(&file, range.clone()).or_else(|_| mapped_pages(&file, range))
}

/// How many bytes from the start of `range` on, in whole pages, are known not to be in the page cache. Ever
/// larger parts are checked at once, because a file may have any size.
pub fn cold_from(file: impl AsFd, range: Range<u64>) -> u64 {
    const FIRST: u64 = 256 << 10;
    let all = range.end.saturating_sub(range.start);
    let is_cold = |len: u64| {
        let part = range.start..range.start + len.min(all);
        pages_there(&file, part).is_ok_and(|pages| pages == 0)
    };
    if !is_cold(FIRST) {
        return 0;
    }
    let mut len = FIRST;
    while len < all && is_cold(len.saturating_mul(2)) {
        len = len.saturating_mul(2);
    }
    len.min(all)
}

/// The next data in a file at `at` (bytes) or behind it, in whole pages; `None` where only a hole follows. On a
/// file system without holes, a file is data everywhere.
pub fn next_data(file: impl AsFd, at: u64) -> Option<u64> {
    let page = rustix::param::page_size() as u64;
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Some(at.max(data / page * page)),
        Err(Errno::NXIO) => None,
        Err(_) => Some(at),
    }
}

/// Which parts of `range` (bytes, outwards to whole pages) are in the page cache now. What is cached of a page in
/// part, or is being read, is read as a whole first.
///
/// # Errors
/// An error of `mmap(2)`, or of such a read.
pub fn resident(file: impl AsFd, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let page = rustix::param::page_size() as u64;
    let mut runs: Vec<Range<u64>> = Vec::new();
    // On a kernel that cannot count pages, each of them is checked.
    if range.is_empty() || cached_pages(&file, range.clone()).is_ok_and(|pages| pages == 0) {
        return Ok(runs);
    }
    let start = range.start / page * page;
    let whole = start..range.end.next_multiple_of(page);
    let mut there = mincore(&file, whole.clone())?;
    if complete(&file, whole.clone(), &there)? {
        there = mincore(file, whole)?;
    }
    for (index, _) in there.iter().enumerate().filter(|(_, there)| *there & 1 != 0) {
        let at = start + index as u64 * page;
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += page,
            _ => runs.push(at..at + page),
        }
    }
    Ok(runs)
}

/// Reads the pages that are cached in part, of those that `mincore(2)` does not count in `there`: where blocks
/// are smaller than pages, only some blocks of a page may be up to date, and the others were never read. Before
/// Linux 6.5 such pages are not known. Returns whether there were any.
///
/// # Errors
/// Such a page cannot be read.
pub fn complete(file: impl AsFd, whole: Range<u64>, there: &[u8]) -> io::Result<bool> {
    let page = rustix::param::page_size();
    let mut buffer = vec![0; page];
    let (mut at, bytes, mut any) = (whole.start, page as u64, false);
    // How many pages are cached elsewhere may change meanwhile.
    for gap in there.chunk_by(|one, next| (*one ^ *next) & 1 == 0) {
        let end = at + gap.len() as u64 * bytes;
        let is_cached = |part: Range<u64>| cached_pages(&file, part).is_ok_and(|pages| pages > 0);
        if gap[0] & 1 == 0 && is_cached(at..end) {
            for at in (at..end).step_by(page).filter(|at| is_cached(*at..at + bytes)) {
                rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut buffer[..], at))?;
                any = true;
            }
        }
        at = end;
    }
    Ok(any)
}

/// Counts as [`cached_pages`] does, but by `mincore(2)`, which every kernel has. Of a long range only data is
/// checked, because a file may have any size; each window is mapped and unmapped again.
fn mapped_pages(file: impl AsFd, range: Range<u64>) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    let size = rustix::fs::fstat(&file)?.st_size.cast_unsigned().next_multiple_of(page);
    let (mut at, end) = (range.start / page * page, range.end.min(size).next_multiple_of(page));
    let over_holes = range.end.saturating_sub(range.start) > WINDOW;
    let mut pages = 0;
    while at < end {
        if over_holes {
            match next_data(&file, at) {
                Some(data) => at = data,
                None => break,
            }
        }
        let window = at..end.min(at.saturating_add(WINDOW));
        if !window.is_empty() {
            let there = mincore(&file, window.clone())?;
            pages += there.iter().filter(|page| *page & 1 != 0).count() as u64;
        }
        at = window.end.max(at);
    }
    Ok(pages)
}

/// The result of `mincore(2)` for each page of a range on page boundaries.
///
/// # Errors
/// Those of `mmap(2)`.
pub fn mincore(file: impl AsFd, range: Range<u64>) -> io::Result<Vec<u8>> {
    let len = (range.end - range.start) as usize;
    let mut there = vec![0u8; len / rustix::param::page_size()];
    let none = std::ptr::null_mut();
    let (fd, at) = (file.as_fd().as_raw_fd(), range.start as i64);
    // SAFETY: the kernel chooses the place, so no memory of this process is touched, and nothing accesses it.
    let mapped = unsafe { libc::mmap(none, len, libc::PROT_READ, libc::MAP_SHARED, fd, at) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: exactly what was mapped; mincore writes a byte for each page.
    let rc = unsafe { libc::mincore(mapped, len, there.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: exactly what was mapped, and there is no reference into it.
    unsafe { libc::munmap(mapped, len) };
    if rc == 0 { Ok(there) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn pages_are_there_until_they_are_dropped() {
        let path = std::env::temp_dir().join(format!("fragmend-cache-{}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[7; 20_000], 0).unwrap();
        file.sync_all().unwrap();
        assert!(is_resident(&file, 0..20_000).unwrap() && is_resident(&file, 4097..4098).unwrap());
        assert_eq!(mapped_pages(&file, 4097..20_000).unwrap(), 4);
        // A file system in memory keeps them.
        drop_clean(&file, 0..20_000).unwrap();
        let left = mapped_pages(&file, 0..20_000).unwrap();
        assert_eq!(is_resident(&file, 0..20_000).unwrap(), left == 5, "{left} pages");
        std::fs::remove_file(path).unwrap();
    }

    /// Where the kernel has no `cachestat`, a file of terabytes is checked only where it has data.
    #[test]
    fn without_cachestat_holes_are_passed_over() {
        const SIZE: u64 = 3 << 40;
        let path = std::env::temp_dir().join(format!("fragmend-holes-{}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(SIZE).unwrap();
        for at in [0, SIZE / 3 / 4096 * 4096, SIZE - 4096] {
            file.write_all_at(&[7; 4096], at).unwrap();
        }
        let started = Instant::now();
        assert_eq!(mapped_pages(&file, 0..SIZE).unwrap(), 3);
        assert_eq!(mapped_pages(&file, 4096..u64::MAX).unwrap(), 2);
        assert_eq!(mapped_pages(&file, 0..0).unwrap(), 0);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }

    /// From now on this thread's kernel is one from before Linux 6.5.
    fn deny_cachestat() {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
        let mut filter = [
            step(LOAD, 0, 0),
            step(EQUAL, 1, 451),
            step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
            step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        ];
        let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the kernel copies the filter, whose length is right; it applies to this thread alone.
        let rc = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
    }

    /// In the steps in which data is written out, 15 TiB would need seconds, and 8 EiB weeks.
    #[test]
    fn without_cachestat_nothing_is_written_out_in_holes() {
        const SIZE: u64 = 15 << 40;
        let path = std::env::temp_dir().join(format!("fragmend-quiet-{}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.set_len(SIZE).unwrap();
        let data = SIZE / 3 / 4096 * 4096;
        file.write_all_at(&[7; 4096], data).unwrap();
        std::thread::scope(|scope| {
            let file = &file;
            let old = scope.spawn(move || {
                deny_cachestat();
                assert_eq!(dirty_pages(file, 0..1).unwrap_err().raw_os_error(), Some(libc::ENOSYS));
                let started = Instant::now();
                let clean = crate::same::write_quietly(file, 0..SIZE, Duration::from_secs(20));
                assert!(clean.unwrap() && cold_from(file, 0..SIZE) <= data);
                started.elapsed()
            });
            let took = old.join().unwrap();
            assert!(took < Duration::from_secs(2), "{took:?}");
        });
        let cold = cold_from(&file, 0..SIZE);
        assert!((data / 2..=data).contains(&cold), "{cold} of {data}");
    }

    /// A length of 0 would be all the rest.
    #[test]
    fn an_empty_range_is_nothing() {
        let path = std::env::temp_dir().join(format!("fragmend-empty-{}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        let before = dirty_pages(&file, 0..8192).unwrap();
        for range in [0..0, 4096..4096] {
            assert_eq!(cachestat(&file, range.clone()).unwrap(), [0; 5]);
            start_writeback(&file, range.clone()).unwrap();
            write_and_wait(&file, range.clone()).unwrap();
            drop_clean(&file, range.clone()).unwrap();
            forget(&file, range, || true).unwrap();
        }
        assert_eq!(cached_pages(&file, 0..8192).unwrap(), 2);
        assert_eq!(dirty_pages(&file, 0..8192).unwrap(), before);
    }
}
