//! Reads and writes a file through a shared mapping, without system calls. For tests.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

/// A shared mapping of a file from its beginning on; unmapped when dropped.
///
/// Loading or storing beyond the end of the file ends the process (SIGBUS).
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<libc::c_void>,
    len: usize,
    is_writable: bool,
}

// SAFETY: the mapping is memory that any thread may use; nothing in it belongs to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file that is open for reading and writing.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::with(file, len, true)
    }

    /// The same of a file that is open for reading; nothing can be stored.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn to_read(file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::with(file, len, false)
    }

    fn with(file: impl AsFd, len: usize, is_writable: bool) -> io::Result<Self> {
        let access = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the kernel chooses the address, so no memory of this process is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, len, is_writable })
    }

    /// Stores words from byte `offset` on, each in one store.
    ///
    /// # Panics
    /// When `offset` is not a multiple of 8, or the words extend beyond the mapping, or it is one to read.
    pub fn store(&mut self, offset: usize, words: &[u64]) {
        assert!(self.is_writable);
        let end = words.len().checked_mul(8).and_then(|len| offset.checked_add(len));
        assert!(offset.is_multiple_of(8) && end.is_some_and(|end| end <= self.len));
        // SAFETY: within the mapping, and aligned, because the mapping starts on a page; volatile because the
        // kernel and other processes access this memory too.
        let mut at = unsafe { self.start.as_ptr().cast::<u8>().add(offset).cast::<u64>() };
        for word in words {
            // SAFETY: as above; checked to end within the mapping.
            unsafe {
                at.write_volatile(*word);
                at = at.add(1);
            }
        }
    }

    /// Stores bytes from byte `offset` on, one by one.
    ///
    /// # Panics
    /// When they extend beyond the mapping, or it is one to read.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(self.is_writable);
        let start = self.within(offset, bytes.len());
        for (n, byte) in bytes.iter().enumerate() {
            // SAFETY: checked to be within the mapping; volatile as in `store`.
            unsafe { start.add(n).write_volatile(*byte) };
        }
    }

    /// Makes `len` bytes from byte `offset` on the same as those of another file from byte `from` on. Pieces of
    /// `piece` bytes that are the same already are not stored to. Nothing else may change either file meanwhile.
    ///
    /// # Panics
    /// When they extend beyond a mapping, or this is one to read.
    pub fn make_equal(
        &mut self,
        offset: usize,
        other: &Self,
        from: usize,
        len: usize,
        piece: usize,
    ) {
        assert!(self.is_writable);
        let (to, from) = (self.within(offset, len), other.within(from, len));
        for at in (0..len).step_by(piece) {
            let len = piece.min(len - at);
            // SAFETY: checked to be within the mappings, which do not overlap: `other` is not `self`.
            unsafe {
                let (to, from) = (to.add(at), from.add(at));
                if libc::memcmp(to.cast(), from.cast(), len) != 0 {
                    ptr::copy_nonoverlapping(from, to, len);
                }
            }
        }
    }

    /// Loads bytes from byte `offset` on, one by one.
    ///
    /// # Panics
    /// When they extend beyond the mapping.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let start = self.within(offset, bytes.len());
        for (n, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: checked to be within the mapping; volatile as in `store`.
            *byte = unsafe { start.add(n).read_volatile() };
        }
    }

    /// Writes back stored data and waits for it (`msync(2)`, `MS_SYNC`).
    ///
    /// # Errors
    /// `EIO` when a page cannot be written.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly what was mapped.
        let rc = unsafe { libc::msync(self.start.as_ptr(), self.len, libc::MS_SYNC) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The address of byte `offset`, from which `len` bytes are within the mapping.
    fn within(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: `offset` is within the mapping, or at its end.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and there is no reference into it.
        unsafe { libc::munmap(self.start.as_ptr(), self.len) };
    }
}
