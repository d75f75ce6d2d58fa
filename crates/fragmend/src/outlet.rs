//! Standard output and standard error, whose reader may be slow, or never read. No function waits for longer
//! than its caller permits, and what could not be written is kept for the next call.
//!
//! The kernel reports whether a pipe accepts `PIPE_BUF` bytes at once (`pipe_poll()`, fs/pipe.c), and that
//! many are written then. A terminal accepts fewer than it reports, so it is opened once more with
//! `O_NONBLOCK`: on the inherited descriptor, the flag would affect every process that shares it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The bytes that a pipe or a socket accepts at once if it accepts any (`PIPE_BUF`, limits.h).
const CHUNK: usize = 4096;
/// The same for a terminal that cannot be opened once more.
const TERMINAL_CHUNK: usize = 64;
/// How often `stop` is checked.
const LOOK: Duration = Duration::from_millis(50);
/// The time that the reader has in all once `stop` is set.
const GRACE: Duration = Duration::from_millis(400);

/// Text that is being written to a reader.
#[derive(Debug)]
pub struct Outlet {
    /// The terminal that was opened once more; without it, the inherited descriptor is used.
    own: Option<OwnedFd>,
    is_error: bool,
    chunk: usize,
    waiting: Vec<u8>,
    /// How many of those bytes are written.
    written: usize,
    grace: Duration,
    /// Lines that were given up: the reader did not read them, and `stop` was set.
    unwritten: Option<u64>,
}

impl Outlet {
    /// Standard output.
    pub fn output() -> Self {
        Self::new(false, io::stdout().is_terminal())
    }

    /// Standard error.
    pub fn error() -> Self {
        Self::new(true, io::stderr().is_terminal())
    }

    fn new(is_error: bool, is_terminal: bool) -> Self {
        let mut new = Self {
            own: None,
            is_error,
            chunk: CHUNK,
            waiting: Vec::new(),
            written: 0,
            grace: GRACE,
            unwritten: None,
        };
        if is_terminal {
            let path = format!("/proc/self/fd/{}", new.fd().as_raw_fd());
            let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            new.own = rustix::fs::open(path, how, Mode::empty()).ok();
            new.chunk = if new.own.is_some() { CHUNK } else { TERMINAL_CHUNK };
        }
        new
    }

    fn given(is_error: bool) -> BorrowedFd<'static> {
        if is_error { rustix::stdio::stderr() } else { rustix::stdio::stdout() }
    }

    /// The descriptor that is written to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or_else(|| Self::given(self.is_error), AsFd::as_fd)
    }

    /// Appends whole lines to what is to be written.
    pub fn put(&mut self, text: &[u8]) {
        match &mut self.unwritten {
            Some(lines) => *lines += count_lines(text),
            None => self.waiting.extend_from_slice(text),
        }
    }

    /// Lines that were given up, because they were not read before the end.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.unwrap_or(0)
    }

    /// Writes what is kept, for at most `within`, or until all is written. Once `stop` is set, the reader
    /// has a moment more, and after that the rest is given up. Returns whether nothing is kept any more.
    ///
    /// # Errors
    /// An error of the write; what was kept is discarded.
    pub fn flush(&mut self, within: Option<Duration>, stop: &AtomicBool) -> io::Result<bool> {
        let begun = Instant::now();
        while self.written < self.waiting.len() {
            let left = within.map_or(LOOK, |within| within.saturating_sub(begun.elapsed()));
            let since = Instant::now();
            match self.write_some(left.min(LOOK)) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(e) => {
                    self.forget();
                    return Err(e);
                }
            }
            if within.is_some_and(|within| begun.elapsed() >= within) {
                return Ok(false);
            }
            if stop.load(Ordering::Relaxed) {
                self.grace = self.grace.saturating_sub(since.elapsed());
                if self.grace.is_zero() {
                    self.unwritten = Some(count_lines(&self.waiting[self.written..]));
                    break;
                }
            }
        }
        self.forget();
        Ok(true)
    }

    /// Writes what the reader accepts at once, and discards the rest.
    pub fn flush_or_forget(&mut self) {
        while self.written < self.waiting.len()
            && matches!(self.write_some(Duration::ZERO), Ok(true))
        {}
        self.forget();
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.written = 0;
    }

    /// Writes a chunk, if it is accepted within this time; returns whether anything was written.
    fn write_some(&mut self, within: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(within).unwrap_or_default();
        let ready =
            match poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::OUT)], Some(&time)) {
                Ok(ready) => ready > 0,
                Err(Errno::INTR) => false,
                Err(e) => return Err(e.into()),
            };
        if !ready {
            return Ok(false);
        }
        let end = self.waiting.len().min(self.written + self.chunk);
        match rustix::io::write(self.fd(), &self.waiting[self.written..end]) {
            Ok(bytes) => {
                self.written += bytes;
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                std::thread::sleep(within.min(Duration::from_millis(1)));
                Ok(false)
            }
            Err(e) => Err(e.into()),
        }
    }
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}
