//! Pages of a file that stay in the page cache.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

/// Pages of a file that the kernel does not evict: they are mapped, and locked in memory (`mlock(2)`). A direct
/// write of another program to one of them drops it all the same. Unlocked when dropped.
#[derive(Debug)]
pub struct Locked {
    start: NonNull<libc::c_void>,
    len: usize,
    /// Bytes of the first page before the range.
    before: u64,
}

// SAFETY: nothing accesses the mapping, and it belongs to no thread.
unsafe impl Send for Locked {}

impl Locked {
    /// Reads what is not cached of `range` (bytes, outwards to whole pages), without readahead, and keeps its
    /// pages.
    ///
    /// # Errors
    /// Those of `mmap(2)` and `mlock(2)`: the range is empty, or extends beyond the end of the file; the kernel has
    /// no memory; or the limit of this process (`RLIMIT_MEMLOCK`) is reached, and it lacks `CAP_IPC_LOCK`.
    pub fn new(file: impl AsFd, range: Range<u64>) -> io::Result<Self> {
        let page = rustix::param::page_size() as u64;
        let first = range.start / page * page;
        let len = range.end.next_multiple_of(page).saturating_sub(first) as usize;
        let (access, fd) = (libc::PROT_READ, file.as_fd().as_raw_fd());
        // SAFETY: the kernel chooses the address, so no memory of this process is touched.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd, first as i64) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let locked = Self { start: place, len, before: range.start - first };
        // SAFETY: what was just mapped; nothing is changed, and no signal is sent where the file ends before it.
        let kept = unsafe {
            libc::madvise(start, len, libc::MADV_RANDOM);
            libc::mlock(start, len)
        };
        if kept == 0 { Ok(locked) } else { Err(io::Error::last_os_error()) }
    }

    /// Keeps the pages of the first `bytes` of the range only, at least one page.
    pub fn shorten(&mut self, bytes: u64) {
        let page = rustix::param::page_size() as u64;
        let kept = (self.before + bytes.max(1)).next_multiple_of(page);
        let kept = self.len.min(kept as usize);
        if kept < self.len {
            // SAFETY: the end of what was mapped, and there is no reference into it.
            unsafe { libc::munmap(self.start.as_ptr().byte_add(kept), self.len - kept) };
            self.len = kept;
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: exactly what is mapped, and there is no reference into it.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{cached_pages, drop_clean};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_locked_stays_in_the_page_cache() {
        let page = rustix::param::page_size() as u64;
        let path = std::env::temp_dir().join(format!("fragmend-locked-{}", std::process::id()));
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all_at(&vec![7; 8 * page as usize], 0).unwrap();
        file.sync_all().unwrap();
        // In a folio of more pages all would stay.
        drop_clean(&file, 0..8 * page).unwrap();
        let mut locked = Locked::new(&file, page + 1..5 * page).unwrap();
        drop_clean(&file, 0..8 * page).unwrap();
        assert_eq!(cached_pages(&file, 0..8 * page).unwrap(), 4);
        locked.shorten(page + 1);
        drop_clean(&file, 0..8 * page).unwrap();
        assert_eq!(cached_pages(&file, 0..8 * page).unwrap(), 2);
        drop(locked);
        drop_clean(&file, 0..8 * page).unwrap();
        assert_eq!(cached_pages(&file, 0..8 * page).unwrap(), 0);
    }
}
