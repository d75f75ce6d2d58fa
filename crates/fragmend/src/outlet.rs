//! Standard output and standard error, whose reader may be slow, or never read: nothing here waits for
//! longer than it was told to, and what could not be written stays for the next time.
//!
//! The kernel says whether a pipe takes `PIPE_BUF` bytes at once (`pipe_poll()`, fs/pipe.c), and so much
//! is written then. A terminal takes less than it says, so it is opened once more, for us alone, with
//! `O_NONBLOCK`: set on what we were given, that would hold for everybody who was given the same.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So many bytes a pipe or a socket takes at once where it takes any (`PIPE_BUF`, limits.h).
const CHUNK: usize = 4096;
/// So many a terminal that cannot be opened once more.
const TERMINAL_CHUNK: usize = 64;
/// How often it is looked whether the end was asked for.
const LOOK: Duration = Duration::from_millis(50);
/// Once it was, the reader gets so much more time in all.
const GRACE: Duration = Duration::from_millis(400);

/// Text on its way to a reader.
#[derive(Debug)]
pub struct Outlet {
    /// Opened for us alone, if not what we were given.
    own: Option<OwnedFd>,
    is_error: bool,
    chunk: usize,
    waiting: Vec<u8>,
    /// So many of those are written.
    written: usize,
    grace: Duration,
    /// Lines that nobody will get: the reader did not read, and we were told to end.
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

    /// What is written to.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or_else(|| Self::given(self.is_error), AsFd::as_fd)
    }

    /// Has whole lines written next.
    pub fn put(&mut self, text: &[u8]) {
        match &mut self.unwritten {
            Some(lines) => *lines += count_lines(text),
            None => self.waiting.extend_from_slice(text),
        }
    }

    /// Lines that were given up, because nobody read them before the end.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.unwrap_or(0)
    }

    /// Writes what waits: within so much time, or for as long as it takes. Once `stop` is set a reader
    /// has a moment more, and after that all is given up. Whether nothing waits any more.
    ///
    /// # Errors
    /// What keeps it from being written; nothing waits then.
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

    /// Writes what is taken at once of what waits, and forgets the rest.
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

    /// Writes a chunk, if it is taken within so much time; whether something was.
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
