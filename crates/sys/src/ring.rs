//! Many reads of a file in flight, through io_uring(7), into buffers that are aligned and, where the limit of locked
//! memory permits, registered. What was read is forgotten but for the last read of [`ReadRing::read`].

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A file, and as many buffers as there can be reads in flight.
pub struct ReadRing {
    // Dropped before the buffers, which no read uses by then.
    ring: IoUring,
    file: File,
    buffers: Buffers,
    slots: u32,
    registered: bool,
}

/// Anonymous memory, on page boundaries.
struct Buffers {
    start: *mut u8,
    slot_bytes: usize,
    bytes: usize,
    /// Reads may be in flight for ever: the memory is never used for anything else.
    leaked: bool,
}

// SAFETY: the memory belongs to this value alone, and no thread has a reference into it.
unsafe impl Send for Buffers {}

impl Buffers {
    fn new(slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let bytes = slots * slot_bytes;
        let (none, access) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the place, so no memory of this process is touched.
        let mapped = unsafe { libc::mmap(none, bytes, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // In large pages a long read is few segments, and is not split for their number. The kernel may have none.
        // SAFETY: exactly what was mapped; its content does not change.
        let _ = unsafe { libc::madvise(mapped, bytes, libc::MADV_HUGEPAGE) };
        Ok(Self { start: mapped.cast(), slot_bytes, bytes, leaked: false })
    }

    /// The start of a buffer.
    fn slot(&self, slot: u32) -> *mut u8 {
        self.start.wrapping_add(slot as usize * self.slot_bytes)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: exactly what was mapped, and there is no reference into it.
            unsafe { libc::munmap(self.start.cast(), self.bytes) };
        }
    }
}

/// Reads that were issued, by [`ReadRing::elapsed`].
struct Flight {
    free: Vec<u32>,
    in_flight: u32,
    /// What each slot is to have read.
    asked: Vec<u32>,
    failed: Option<io::Error>,
}

/// The priority of a read: the class of all others, and one of two neighbouring levels in turn, so that the block layer
/// does not merge reads that are beside each other on the device (`blk_rq_merge_ok`, block/blk-merge.c).
fn priority(at: u64, bytes: u32) -> u16 {
    /// `IOPRIO_CLASS_BE`, and the level of a process that asks for none (ioprio_set(2)).
    const BEST_EFFORT: u16 = 2 << 13;
    const USUAL: u16 = 4;
    BEST_EFFORT | (USUAL + u16::from((at / u64::from(bytes.max(1))) % 2 == 1))
}

impl ReadRing {
    /// A ring for at most `slots` reads at a time of at most `slot_bytes` each, which is whole pages.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or forbids it (`kernel.io_uring_disabled`, a container's filter).
    ///
    /// # Panics
    /// When there are no slots.
    pub fn new(file: File, slots: u32, slot_bytes: usize) -> io::Result<Self> {
        assert!(slots > 0 && slot_bytes > 0, "a ring without buffers");
        let buffers = Buffers::new(slots as usize, slot_bytes)?;
        let ring = IoUring::new(slots.next_power_of_two())?;
        let all = libc::iovec { iov_base: buffers.start.cast(), iov_len: buffers.bytes };
        // SAFETY: the memory is unmapped only once the ring is dropped.
        let registered = match unsafe { ring.submitter().register_buffers(&[all]) } {
            Ok(()) => true,
            // RLIMIT_MEMLOCK: reads then map the buffers anew each time.
            Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => false,
            Err(e) => return Err(e),
        };
        Ok(Self { ring, file, buffers, slots, registered })
    }

    /// Whether the buffers are registered.
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Carries out reads (offset and bytes), at most `depth` of them in flight, the next whenever one is done, and
    /// returns the time until the last was done.
    ///
    /// # Errors
    /// That of the first read that failed, once no read is in flight any more; `UnexpectedEof` where a read was
    /// shorter than asked for.
    ///
    /// # Panics
    /// When a read is longer than a buffer.
    pub fn elapsed(&mut self, reads: &[(u64, u32)], depth: u32) -> io::Result<Duration> {
        if self.buffers.leaked {
            return Err(io::Error::other("the ring failed before"));
        }
        let depth = depth.clamp(1, self.slots);
        let mut flight = Flight {
            free: (0..depth).rev().collect(),
            in_flight: 0,
            asked: vec![0; depth as usize],
            failed: None,
        };
        let mut rest = reads.iter();
        let begun = Instant::now();
        loop {
            while flight.failed.is_none()
                && let Some(slot) = flight.free.last().copied()
                && let Some((at, bytes)) = rest.next()
            {
                flight.free.pop();
                self.push(slot, *at, *bytes);
                flight.asked[slot as usize] = *bytes;
                flight.in_flight += 1;
            }
            if flight.in_flight == 0 {
                break;
            }
            // With nothing left to issue, all of them are waited for at once.
            let wanted = if rest.len() == 0 { flight.in_flight } else { 1 };
            self.wait(wanted as usize)?;
            self.reap(&mut flight);
        }
        let elapsed = begun.elapsed();
        flight.failed.map_or(Ok(elapsed), Err)
    }

    /// Reads once, and returns what was read, until the next read.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    ///
    /// # Panics
    /// As [`Self::elapsed`].
    pub fn read(&mut self, at: u64, bytes: u32) -> io::Result<&[u8]> {
        self.elapsed(&[(at, bytes)], 1)?;
        // SAFETY: no read is in flight, `bytes` is no more than a buffer, and nothing writes to it while `self` is
        // borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.buffers.slot(0), bytes as usize) })
    }

    /// Puts a read into the queue.
    fn push(&mut self, slot: u32, at: u64, bytes: u32) {
        assert!(bytes as usize <= self.buffers.slot_bytes, "a read that is longer than its buffer");
        let (fd, to) = (types::Fd(self.file.as_raw_fd()), self.buffers.slot(slot));
        let priority = priority(at, bytes);
        let entry = if self.registered {
            opcode::ReadFixed::new(fd, to, bytes, 0).offset(at).ioprio(priority).build()
        } else {
            opcode::Read::new(fd, to, bytes).offset(at).ioprio(priority).build()
        };
        let entry = entry.user_data(slot.into());
        // SAFETY: the buffer is this slot's, which no other read uses, and lives until no read is in flight
        // (`elapsed` does not return before); the file is open as long.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The queue has as many entries as there are slots.
        assert!(pushed.is_ok(), "the queue is full");
    }

    /// Submits what is in the queue, and waits for so many completions. After an error the ring cannot be used.
    fn wait(&mut self, wanted: usize) -> io::Result<()> {
        loop {
            let busy = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error().is_some_and(|code| busy.contains(&code)) => {
                    std::thread::yield_now();
                }
                Err(e) => {
                    self.buffers.leaked = true;
                    return Err(e);
                }
            }
        }
    }

    /// Takes completions.
    fn reap(&mut self, flight: &mut Flight) {
        for done in self.ring.completion() {
            let slot = done.user_data() as u32;
            flight.free.push(slot);
            flight.in_flight -= 1;
            let wrong = match done.result() {
                error if error < 0 => io::Error::from_raw_os_error(-error),
                bytes if bytes.cast_unsigned() < flight.asked[slot as usize] => {
                    io::Error::new(io::ErrorKind::UnexpectedEof, "a read ended early")
                }
                _ => continue,
            };
            flight.failed.get_or_insert(wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn each_read_reads_its_place() {
        let mut file = tempfile();
        let pages: Vec<u8> = (0..64_u8).flat_map(|n| [n; 4096]).collect();
        file.write_all(&pages).unwrap();
        let mut ring = ReadRing::new(file, 4, 8192).unwrap();
        for page in [5_u8, 63, 0] {
            let read = ring.read(u64::from(page) * 4096, 4096).unwrap();
            assert!(read.iter().all(|byte| *byte == page));
        }
        let reads: Vec<(u64, u32)> = (0..63).map(|n| (n * 4096, 8192)).collect();
        assert!(ring.elapsed(&reads, 4).unwrap() > Duration::ZERO);
        assert!(ring.elapsed(&reads, 99).is_ok());
        assert!(ring.elapsed(&[], 4).is_ok());
    }

    #[test]
    fn a_read_behind_the_end_is_an_error_and_the_ring_goes_on() {
        let mut file = tempfile();
        file.write_all(&[1; 8192]).unwrap();
        let mut ring = ReadRing::new(file, 2, 8192).unwrap();
        let error = ring.elapsed(&[(0, 4096), (4096, 8192), (0, 4096), (0, 4096)], 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(ring.read(4096, 4096).unwrap().iter().all(|byte| *byte == 1));
    }

    fn tempfile() -> File {
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::open(std::env::temp_dir(), flags, mode).unwrap().into()
    }
}
