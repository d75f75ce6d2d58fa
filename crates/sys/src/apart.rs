//! An ioctl in a process of its own (`fork(2)`). Whoever asks a device that does not answer waits in the kernel, where no signal
//! arrives, and a process does not end before all of its threads have left the kernel. The process that asks may be left
//! behind instead: the kernel ends it once the device answers, or the driver gives up.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};

/// What the two processes share.
#[repr(C)]
struct Shared<T> {
    /// 1 once the ioctl has returned.
    done: u32,
    returned: libc::c_int,
    errno: libc::c_int,
    argument: T,
}

/// A mapping that a child shares.
struct Mapping<T>(*mut Shared<T>);

impl<T> Mapping<T> {
    /// A mapping that is all zero.
    fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let len = size_of::<Shared<T>>();
        // SAFETY: a new mapping, which replaces none.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self(start.cast()))
        }
    }

    fn argument(&self) -> *mut T {
        self.0.wrapping_byte_add(offset_of!(Shared<T>, argument)).cast()
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: it is this value's own mapping, of this length, to which no reference is left.
        unsafe { libc::munmap(self.0.cast(), size_of::<Shared<T>>()) };
    }
}

/// Carries out an ioctl on an open file in another process, and waits for its end, which a signal that ends this process does
/// not. Returns what the ioctl returned, if that is not negative, and its argument. `fill` makes the argument from zeroes, at
/// the place where the kernel will find it.
///
/// The other process has none of the open files of this one but `node`, so that nobody waits for them. Until it ends it has
/// the memory that this one had.
///
/// # Safety
/// All bytes zero must be a valid `T`, and so must what the kernel writes be. The ioctl must have a pointer to a `T`, and must
/// not access any memory but that.
///
/// # Errors
/// Those of the ioctl and of `mmap(2)`; an error without a number if the other process was killed, or `fork(2)` failed.
pub unsafe fn ioctl<T: Copy>(
    node: impl AsFd,
    request: libc::c_ulong,
    fill: impl FnOnce(&mut T),
) -> io::Result<(libc::c_int, T)> {
    let fd = node.as_fd().as_raw_fd();
    let shared = Mapping::<T>::new()?;
    // SAFETY: the mapping is large enough, aligned to a page, all zero, and not used by anybody else yet.
    fill(unsafe { &mut *shared.argument() });
    // SAFETY: no pointers are passed.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }.clamp(256, 1 << 16) as libc::c_int;
    // SAFETY: the child calls only functions that are safe after a fork of a process with threads (signal-safety(7)), and
    // never returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the caller vouches for the ioctl; the mapping lives as long as the child.
        unsafe { ask(shared.0, shared.argument(), fd, request, most) };
    }
    if child < 0 {
        // Without its number, so that nobody takes it for the device's answer.
        let why = io::Error::last_os_error();
        return Err(io::Error::other(format!("no process could be started to ask it: {why}")));
    }
    // Where the signal of an ended child is ignored, it cannot be waited for when it has ended.
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    // SAFETY: the mapping is live, and the child, which has ended, wrote a `Shared<T>` or left it as it was.
    let Shared { done, returned, errno, argument } = unsafe { shared.0.read_volatile() };
    match (done, returned) {
        (0, _) => Err(io::Error::other("the process that asked was killed")),
        (_, ..0) => Err(io::Error::from_raw_os_error(errno)),
        (_, _) => Ok((returned, argument)),
    }
}

/// The other process.
///
/// # Safety
/// As [`ioctl`]. It must be called after a fork, with the mapping that is shared.
unsafe fn ask<T>(
    shared: *mut Shared<T>,
    argument: *mut T,
    fd: libc::c_int,
    request: libc::c_ulong,
    most: libc::c_int,
) -> ! {
    // SAFETY: none of these calls allocates or locks. The fields are within the mapping, which nobody reads before this
    // process has ended.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::chdir(c"/".as_ptr());
        let close = |first: libc::c_int, last: libc::c_uint| {
            first as libc::c_uint > last
                || libc::syscall(libc::SYS_close_range, first, last, 0) == 0
        };
        let below = fd == 0 || close(0, fd as libc::c_uint - 1);
        if !(below && close(fd + 1, libc::c_uint::MAX)) {
            // Before Linux 5.9.
            (0..most).filter(|other| *other != fd).for_each(|other| {
                libc::close(other);
            });
        }
        let returned = libc::ioctl(fd, request as _, argument);
        (&raw mut (*shared).returned).write_volatile(returned);
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or_default();
        (&raw mut (*shared).errno).write_volatile(errno);
        (&raw mut (*shared).done).write_volatile(1);
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    const FIONREAD: libc::c_ulong = 0x541B;

    #[test]
    fn an_ioctl_returns_what_it_wrote_or_its_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"seven..").unwrap();
        // SAFETY: FIONREAD writes an int.
        let (returned, bytes) =
            unsafe { ioctl(&reader, FIONREAD, |n: &mut libc::c_int| *n = -1) }.unwrap();
        assert_eq!((returned, bytes), (0, 7));
        let file = File::open("/dev/null").unwrap();
        // SAFETY: as above.
        let refused = unsafe { ioctl(&file, FIONREAD, |_: &mut libc::c_int| {}) }.unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTTY));
    }
}
