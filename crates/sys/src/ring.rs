//! Many reads of a file in flight, through io_uring(7), into buffers that are aligned and, where the limit of locked
//! memory permits, registered. What was read is forgotten but for the last read of [`ReadRing::read`].

use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
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

impl Flight {
    /// No read yet, of at most so many at a time.
    fn new(slots: u32) -> Self {
        let asked = vec![0; slots as usize];
        Self { free: (0..slots).rev().collect(), in_flight: 0, asked, failed: None }
    }
}

/// A read to be issued.
#[derive(Clone, Copy)]
struct Queued {
    fd: RawFd,
    at: u64,
    bytes: u32,
    /// As of ioprio_set(2); 0 is that of the process.
    priority: u16,
}

/// The priority of a read, of which this is the turn: the class of all others, and one of two neighbouring levels, so that
/// the block layer does not merge reads that are beside each other on the device (`blk_rq_merge_ok`, block/blk-merge.c).
fn unmerged(turn: u64) -> u16 {
    /// `IOPRIO_CLASS_BE`, and the level of a process that asks for none (ioprio_set(2)).
    const BEST_EFFORT: u16 = 2 << 13;
    const USUAL: u16 = 4;
    BEST_EFFORT | (USUAL + u16::from(turn % 2 == 1))
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
    /// returns the time until the last was done. Those beside each other are not merged.
    ///
    /// # Errors
    /// That of the first read that failed, once no read is in flight any more; `UnexpectedEof` where a read was
    /// shorter than asked for.
    ///
    /// # Panics
    /// When a read is longer than a buffer.
    pub fn elapsed(&mut self, reads: &[(u64, u32)], depth: u32) -> io::Result<Duration> {
        let all = self.elapsed_until(reads, depth, &|| false)?;
        all.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }

    /// The same, but once `ended` returns true, no read is issued any more, and `None` returned as soon as no read is
    /// in flight: the kernel cancels none that a device has.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    ///
    /// # Panics
    /// As [`Self::elapsed`].
    pub fn elapsed_until(
        &mut self,
        reads: &[(u64, u32)],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        let own = self.file.as_raw_fd();
        // Reads at multiples of one length are in turn by their place, in whatever order they are; others as they follow
        // each other.
        let length = reads.first().map_or(1, |(_, bytes)| u64::from(*bytes).max(1));
        let is_even =
            |(at, bytes): &(u64, u32)| u64::from(*bytes) == length && at.is_multiple_of(length);
        let by_place = reads.iter().all(is_even);
        let reads = reads.iter().enumerate().map(|(n, (at, bytes))| {
            let turn = if by_place { at / length } else { n as u64 };
            Queued { fd: own, at: *at, bytes: *bytes, priority: unmerged(turn) }
        });
        self.carry_out(reads, depth, ended)
    }

    /// [`Self::elapsed_until`] for reads of several files: index in `files`, offset and bytes. The ring's own file is not
    /// read. The kernel may merge them, as it does with any program's.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    ///
    /// # Panics
    /// As [`Self::elapsed`], and for an index behind the last file.
    pub fn elapsed_across(
        &mut self,
        files: &[File],
        reads: &[(usize, u64, u32)],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        let reads = reads.iter().map(|(file, at, bytes)| {
            let fd = files[*file].as_raw_fd();
            Queued { fd, at: *at, bytes: *bytes, priority: 0 }
        });
        // The files are borrowed until none of the reads is in flight.
        self.carry_out(reads, depth, ended)
    }

    /// The same, but each read is issued as soon as those before it are issued and those that it `needs`, a range of their
    /// indices, are done.
    ///
    /// # Errors
    /// As [`Self::elapsed`].
    ///
    /// # Panics
    /// As [`Self::elapsed_across`], and where there are fewer `needs` than reads, or a read needs a later one.
    pub fn elapsed_in_order(
        &mut self,
        files: &[File],
        reads: &[(usize, u64, u32)],
        needs: &[Range<usize>],
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        if self.buffers.leaked {
            return Err(io::Error::other("the ring failed before"));
        }
        let mut flight = Flight::new(self.slots);
        // The slot of each read, and the last read of each slot.
        let (mut slots, mut last) = (Vec::new(), vec![0; self.slots as usize]);
        let mut cut = false;
        let begun = Instant::now();
        for (n, (file, at, bytes)) in reads.iter().enumerate() {
            cut |= ended();
            if cut || flight.failed.is_some() {
                break;
            }
            let is_done = |read: usize, free: &[u32], slots: &[u32], last: &[usize]| {
                last[slots[read] as usize] != read || free.contains(&slots[read])
            };
            while flight.free.is_empty()
                || !needs[n].clone().all(|read| is_done(read, &flight.free, &slots, &last))
            {
                self.wait(1)?;
                self.reap(&mut flight);
            }
            let Some(slot) = flight.free.pop() else { break };
            let fd = files[*file].as_raw_fd();
            self.push(slot, Queued { fd, at: *at, bytes: *bytes, priority: 0 });
            slots.push(slot);
            (flight.asked[slot as usize], last[slot as usize]) = (*bytes, n);
            flight.in_flight += 1;
        }
        while flight.in_flight > 0 {
            self.wait(flight.in_flight as usize)?;
            self.reap(&mut flight);
        }
        let elapsed = begun.elapsed();
        flight.failed.map_or(Ok((!cut).then_some(elapsed)), Err)
    }

    fn carry_out(
        &mut self,
        mut rest: impl ExactSizeIterator<Item = Queued>,
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> io::Result<Option<Duration>> {
        if self.buffers.leaked {
            return Err(io::Error::other("the ring failed before"));
        }
        let depth = depth.clamp(1, self.slots);
        let mut flight = Flight::new(depth);
        let mut cut = false;
        let begun = Instant::now();
        loop {
            cut |= rest.len() > 0 && ended();
            while flight.failed.is_none()
                && !cut
                && let Some(slot) = flight.free.last().copied()
                && let Some(read) = rest.next()
            {
                flight.free.pop();
                self.push(slot, read);
                flight.asked[slot as usize] = read.bytes;
                flight.in_flight += 1;
            }
            if flight.in_flight == 0 {
                break;
            }
            // With nothing left to issue, all of them are waited for at once.
            let wanted = if rest.len() == 0 || cut { flight.in_flight } else { 1 };
            self.wait(wanted as usize)?;
            self.reap(&mut flight);
        }
        let elapsed = begun.elapsed();
        flight.failed.map_or(Ok((!cut).then_some(elapsed)), Err)
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
    fn push(&mut self, slot: u32, read: Queued) {
        let Queued { fd, at, bytes, priority } = read;
        let fd = types::Fd(fd);
        assert!(bytes as usize <= self.buffers.slot_bytes, "a read that is longer than its buffer");
        let to = self.buffers.slot(slot);
        let entry = if self.registered {
            opcode::ReadFixed::new(fd, to, bytes, 0).offset(at).ioprio(priority).build()
        } else {
            opcode::Read::new(fd, to, bytes).offset(at).ioprio(priority).build()
        };
        let entry = entry.user_data(slot.into());
        // SAFETY: the buffer is this slot's, which no other read uses, and lives until no read is in flight
        // (`carry_out` does not return before); the file is open as long.
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
    fn reads_of_several_files_are_carried_out_together() {
        let file = |pages: usize| {
            let mut file = tempfile();
            file.write_all(&vec![1; pages * 4096]).unwrap();
            file
        };
        let files = [file(1), file(8)];
        let mut ring = ReadRing::new(tempfile(), 4, 4096).unwrap();
        let reads: Vec<_> = (0..8).flat_map(|n| [(0, 0, 4096), (1, n * 4096, 4096)]).collect();
        let lasted = ring.elapsed_across(&files, &reads, 4, &|| false).unwrap();
        assert!(lasted.is_some_and(|lasted| lasted > Duration::ZERO));
        assert_eq!(ring.elapsed_across(&files, &reads, 4, &|| true).unwrap(), None);
        // The first file has one page.
        let error = ring.elapsed_across(&files, &[(0, 4096, 4096)], 4, &|| false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn reads_in_order_are_all_done_more_of_them_than_slots() {
        let mut file = tempfile();
        file.write_all(&[1; 1 << 16]).unwrap();
        let mut ring = ReadRing::new(tempfile(), 2, 4096).unwrap();
        let files = [file];
        let reads: Vec<_> = (0..16).map(|n| (0, n * 4096, 4096)).collect();
        let needs: [fn(usize) -> Range<usize>; 3] =
            [|n| n.saturating_sub(1)..n, |n| n.saturating_sub(3)..n.saturating_sub(2), |_| 0..0];
        for needs in needs {
            let needs: Vec<_> = (0..16).map(needs).collect();
            let lasted = ring.elapsed_in_order(&files, &reads, &needs, &|| false).unwrap();
            assert!(lasted.is_some_and(|lasted| lasted > Duration::ZERO));
            let ended = ring.elapsed_in_order(&files, &reads, &needs, &|| true).unwrap();
            assert_eq!(ended, None);
            let behind = [reads[0], (0, 1 << 16, 4096), reads[1]];
            let error = ring.elapsed_in_order(&files, &behind, &needs, &|| false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
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

    #[test]
    fn no_read_is_issued_once_it_has_ended() {
        let mut file = tempfile();
        file.write_all(&[1; 8192]).unwrap();
        let mut ring = ReadRing::new(file, 2, 4096).unwrap();
        let asked = std::cell::Cell::new(0);
        let after = |times| {
            asked.set(0);
            move |asked: &std::cell::Cell<u32>| {
                asked.set(asked.get() + 1);
                asked.get() > times
            }
        };
        // Behind the end of the file a read is an error: the third one is not issued.
        let reads = [(0, 4096), (4096, 4096), (8192, 4096), (8192, 4096)];
        let ended = after(1);
        assert!(ring.elapsed_until(&reads, 2, &|| ended(&asked)).unwrap().is_none());
        let ended = after(0);
        assert!(ring.elapsed_until(&reads, 2, &|| ended(&asked)).unwrap().is_none());
        let ended = after(9);
        assert!(ring.elapsed_until(&reads[..2], 2, &|| ended(&asked)).unwrap().is_some());
        let ended = after(9);
        assert!(ring.elapsed_until(&reads, 2, &|| ended(&asked)).is_err());
    }

    fn tempfile() -> File {
        let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::open(std::env::temp_dir(), flags, mode).unwrap().into()
    }
}
