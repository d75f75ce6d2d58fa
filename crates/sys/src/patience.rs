//! Writes to a pipe or a socket, whose reader may never read: the caller can limit, at any time and from any thread,
//! how long a reader may take nothing.
//!
//! The kernel reports whether a pipe accepts `PIPE_BUF` bytes at once (`pipe_poll()`, fs/pipe.c), and that many are
//! written then. Another program may fill the pipe in between, so it is opened once more with `O_NONBLOCK`: on the
//! inherited descriptor, the flag would affect every process that shares it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a reader may take nothing once that is limited.
pub const MOST_IDLE: Duration = Duration::from_secs(2);
/// The bytes that a pipe or a socket accepts at once if it accepts any (`PIPE_BUF`, limits.h).
const CHUNK: usize = 4096;
/// How often it is checked whether the wait is limited, in nanoseconds.
const LOOK_NS: i64 = 50_000_000;

/// How long writes wait for a reader: without limit, until [`Patience::limit`].
#[derive(Clone, Debug, Default)]
pub struct Patience(Arc<OnceLock<Instant>>);

impl Patience {
    /// From now on, a reader that takes nothing is waited for [`MOST_IDLE`] at most.
    pub fn limit(&self) {
        self.0.get_or_init(Instant::now);
    }

    /// Whether a reader that has taken nothing since then is given up.
    fn ends(&self, since: Instant) -> bool {
        self.0.get().is_some_and(|limited| since.max(*limited).elapsed() >= MOST_IDLE)
    }
}

/// The error of a write whose reader was given up, inside an [`io::Error`] of the kind `TimedOut`.
#[derive(Debug)]
pub struct NotRead;

impl NotRead {
    /// Whether this is the error.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing was read for {} s", MOST_IDLE.as_secs())
    }
}

impl std::error::Error for NotRead {}

/// A file, of which writes wait for a reader if it is a pipe or a socket.
#[derive(Debug)]
pub struct PatientWriter {
    file: File,
    /// Whether it has a reader.
    waits: bool,
    /// The most bytes of one write to a reader.
    chunk: usize,
    patience: Patience,
    gave_up: bool,
}

impl PatientWriter {
    /// Writes to this file.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub fn new(file: File, patience: Patience) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
        let waits = matches!(kind, FileType::Fifo | FileType::Socket);
        let mut new = Self { file, waits, chunk: CHUNK, patience, gave_up: false };
        if kind == FileType::Fifo {
            let path = format!("/proc/self/fd/{}", new.file.as_raw_fd());
            let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            // Another user's pipe may not be opened, nor one without a reader.
            if let Ok(own) = rustix::fs::open(path, how, Mode::empty()) {
                (new.file, new.chunk) = (own.into(), usize::MAX);
            }
        }
        Ok(new)
    }

    /// Whether writes wait for a reader.
    pub fn has_reader(&self) -> bool {
        self.waits
    }

    /// Writes what the reader accepts, if it accepts anything within a moment.
    fn accepted(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&time)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        match (&self.file).write(&bytes[..bytes.len().min(self.chunk)]) {
            Ok(written) => Ok(Some(written)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                std::thread::sleep(Duration::from_millis(1));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl Write for PatientWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.waits {
            return self.file.write(bytes);
        }
        let since = Instant::now();
        while !self.gave_up {
            if let Some(written) = self.accepted(bytes)? {
                return Ok(written);
            }
            self.gave_up = self.patience.ends(since);
        }
        Err(io::Error::new(ErrorKind::TimedOut, NotRead))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn pipe() -> (File, File) {
        let (read, write) = io::pipe().unwrap();
        (OwnedFd::from(read).into(), OwnedFd::from(write).into())
    }

    fn is_blocking(file: &File) -> bool {
        !rustix::fs::fcntl_getfl(file).unwrap().contains(OFlags::NONBLOCK)
    }

    #[test]
    fn a_reader_that_never_reads_is_given_up_once_that_is_limited() {
        let (_reader, file) = pipe();
        let (_other, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        for file in [file, OwnedFd::from(socket).into()] {
            let given = file.try_clone().unwrap();
            let patience = Patience::default();
            let mut writer = PatientWriter::new(file, patience.clone()).unwrap();
            let limited = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(500));
                patience.limit();
            });
            let started = Instant::now();
            assert!(NotRead::is(&writer.write_all(&[0; 8 << 20]).unwrap_err()));
            let lasted = started.elapsed();
            assert!(lasted >= MOST_IDLE && lasted < MOST_IDLE * 2, "{lasted:?}");
            // It is not waited for again.
            assert!(NotRead::is(&writer.write_all(b"more").unwrap_err()));
            assert!(started.elapsed() < MOST_IDLE * 2);
            limited.join().unwrap();
            assert!(is_blocking(&given));
        }
    }

    #[test]
    fn a_slow_reader_gets_everything() {
        let (mut reader, file) = pipe();
        let patience = Patience::default();
        patience.limit();
        let bytes: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
        let expected = bytes.clone();
        let written = std::thread::spawn(move || {
            PatientWriter::new(file, patience).unwrap().write_all(&bytes).unwrap();
        });
        let (mut got, mut buffer) = (Vec::new(), [0; 1 << 17]);
        loop {
            std::thread::sleep(Duration::from_millis(400));
            match reader.read(&mut buffer).unwrap() {
                0 => break,
                n => got.extend_from_slice(&buffer[..n]),
            }
        }
        written.join().unwrap();
        assert_eq!(got, expected);
    }
}
