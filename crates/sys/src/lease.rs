//! Leases (fcntl(2), `F_SETLEASE`). While a write lease is held, no other program has the file open, and
//! opening or truncating it waits. A read lease does the same to writers.
//!
//! The kernel grants a write lease only while the holder's is the sole open file description: a
//! mapping, a swap file, a loop device and a running program each hold one of their own. It grants a
//! read lease while no description, including the holder's, is open for writing. A later opener waits
//! until the lease is released, but no longer than [`break_time`]; then the kernel breaks it.
//! `O_NONBLOCK` openers get `EWOULDBLOCK` at once. The holder must not open the file again: it would
//! wait for itself. For the same reason no lease is taken on a file for which the kernel asks another
//! program before it is opened or read ([`crate::listeners`]).

use crate::listeners;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const F_SETSIG: i32 = 10;

/// A lease; released when dropped, and by the kernel with the last descriptor.
#[derive(Debug)]
pub struct Lease<'a> {
    file: Held<'a>,
    kind: i32,
    /// When it was last seen that no program waits for it.
    unwanted: Cell<Instant>,
    break_time: Option<Duration>,
}

/// The descriptor of the leased open file description, borrowed or owned.
#[derive(Debug)]
enum Held<'a> {
    Borrowed(BorrowedFd<'a>),
    Owned(OwnedFd),
}

impl AsFd for Held<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Held::Borrowed(fd) => *fd,
            Held::Owned(fd) => fd.as_fd(),
        }
    }
}

impl Lease<'static> {
    /// Takes a write lease on an open file and keeps it by a duplicate of the descriptor, so that it may
    /// outlive the borrow.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_duplicate(file: &impl AsFd) -> io::Result<Self> {
        Self::of_kind(Held::Owned(file.as_fd().try_clone_to_owned()?), libc::F_WRLCK)
    }
}

impl<'a> Lease<'a> {
    /// Takes a write lease on an open file.
    ///
    /// # Errors
    /// `EAGAIN` while the file is open anywhere else, `EACCES` for a caller that neither owns the file
    /// nor has `CAP_LEASE`, `EINVAL` where the file system or the system has no leases. `ResourceBusy`,
    /// naming the process, where a [`listeners::Listener`] would wait for this process.
    pub fn take(file: &'a impl AsFd) -> io::Result<Self> {
        Self::of_kind(Held::Borrowed(file.as_fd()), libc::F_WRLCK)
    }

    /// Takes a read lease on a file that was opened for reading only.
    ///
    /// # Errors
    /// `EAGAIN` while the file is open for writing anywhere, and as [`take`](Self::take).
    pub fn take_read(file: &'a impl AsFd) -> io::Result<Self> {
        Self::of_kind(Held::Borrowed(file.as_fd()), libc::F_RDLCK)
    }

    /// Whether the file system has leases: takes a write lease, unless the file is open elsewhere, and releases
    /// it at once.
    ///
    /// # Errors
    /// Those of [`take`](Self::take), but for `EAGAIN`.
    pub fn try_out(file: &'a impl AsFd) -> io::Result<()> {
        match Self::unlooked(Held::Borrowed(file.as_fd()), libc::F_WRLCK) {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }

    fn of_kind(file: Held<'a>, kind: i32) -> io::Result<Self> {
        // Never while it is held: the look-up opens files, which other programs may have to permit.
        match listeners::on(file.as_fd())? {
            Some(listener) => Err(listener.into()),
            None => Self::unlooked(file, kind),
        }
    }

    fn unlooked(file: Held<'a>, kind: i32) -> io::Result<Self> {
        // A waiting opener is announced by a signal, by default one that ends the process. This one is
        // ignored by default; the lease is polled instead, see `is_wanted`.
        // SAFETY: no pointers are passed.
        let rc = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), F_SETSIG, libc::SIGURG) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let (unwanted, break_time) = (Cell::new(Instant::now()), break_time()?);
        set(file.as_fd(), kind)?;
        Ok(Self { file, kind, unwanted, break_time })
    }

    /// Whether a program waits for it, or it was broken.
    pub fn is_wanted(&self) -> bool {
        let asked = Instant::now();
        // SAFETY: no pointers are passed.
        let held = unsafe { libc::fcntl(self.file.as_fd().as_raw_fd(), libc::F_GETLEASE) };
        if held == self.kind {
            self.unwanted.set(asked);
        }
        held != self.kind
    }

    /// Whether the file is still the holder's alone: no program waits, or none can have waited long enough for
    /// the kernel to break the lease.
    pub fn is_held(&self) -> bool {
        let safe = |time: Duration| self.unwanted.get().elapsed() < time * 3 / 4;
        !self.is_wanted() || self.break_time.is_none_or(safe)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let _ = set(self.file.as_fd(), libc::F_UNLCK);
    }
}

/// How long others wait before the kernel breaks the lease; `None` if it never does.
pub fn break_time() -> io::Result<Option<Duration>> {
    let text = std::fs::read_to_string("/proc/sys/fs/lease-break-time")?;
    let seconds = text.trim().parse().map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "lease-break-time is not a number")
    })?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// Bytes of the list of all locks that are read: the kernel's time to produce it grows with the square
/// of its length, and any user can make it arbitrarily long.
const LOCKS: u64 = 1 << 20;

/// Whether there is a lease or a delegation on the inode with this number, as far as this process can see
/// (`/proc/locks`, its first 10,000 locks or so); with `of_readers`, a read lease counts, too, which only a
/// writer would break. `dev` is the number of the file system in the mount table.
pub fn is_leased(dev: u64, inode: u64, of_readers: bool) -> bool {
    let of_file = format!("{:02x}:{:02x}:{inode}", libc::major(dev), libc::minor(dev));
    let held = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "LEASE" | "DELEG", _, kind, _, file, ..] = words[..] else { return false };
        file == of_file && (of_readers || kind != "READ")
    };
    let mut locks = String::new();
    let read = File::open("/proc/locks").and_then(|all| all.take(LOCKS).read_to_string(&mut locks));
    // The last line may be cut off.
    read.is_ok() && locks.rsplit_once('\n').is_some_and(|(whole, _)| whole.lines().any(held))
}

fn set(file: BorrowedFd, kind: i32) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_wanted_once_a_program_opens() {
        let path = std::env::temp_dir().join(format!("fragmend-lease-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        let other = std::fs::File::open(&path).unwrap();
        let refused = Lease::take(&file).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN), "{refused}");
        drop(other);
        let lease = Lease::take(&file).unwrap();
        assert!(!lease.is_wanted() && lease.is_held());
        let stat = rustix::fs::fstat(&file).unwrap();
        assert!(is_leased(stat.st_dev, stat.st_ino, false));
        assert!(!is_leased(stat.st_dev, stat.st_ino + 1, true));
        let opener = std::thread::spawn({
            let path = path.clone();
            move || std::fs::File::open(path).map(drop)
        });
        while !lease.is_wanted() {
            std::thread::yield_now();
        }
        assert!(lease.is_held() && !opener.is_finished(), "it waits");
        drop(lease);
        opener.join().unwrap().unwrap();
        drop(file);
        let reader = std::fs::File::open(&path).unwrap();
        let writer = std::fs::File::options().write(true).open(&path).unwrap();
        let refused = Lease::take_read(&reader).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN), "{refused}");
        drop(writer);
        let lease = Lease::take_read(&reader).unwrap();
        drop(std::fs::File::open(&path).unwrap());
        assert!(!lease.is_wanted(), "readers are welcome");
        drop(lease);
        std::fs::remove_file(path).unwrap();
    }
}
