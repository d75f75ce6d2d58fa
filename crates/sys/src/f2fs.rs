//! F2FS: writing a range out of place (`F2FS_IOC_DEFRAGMENT`, uapi/linux/f2fs.h and
//! `f2fs_defragment_range()` in fs/f2fs/file.c), and its segments (/sys/fs/f2fs/DEVICE).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// A segment in bytes: the log fills one after another.
pub const SEGMENT: u64 = 2 << 20;

const F2FS_IOC_DEFRAGMENT: libc::c_ulong = 0xC010_F508;

/// `struct f2fs_defragment`.
#[repr(C)]
struct Defragment {
    start: u64,
    len: u64,
}

const _: () = assert!(size_of::<Defragment>() == 16);

/// Writes `length` bytes at `start`, multiples of 4 KiB, to the end of a log, unless they are
/// contiguous. Returns how many bytes were written; they are in flight when this returns, and durable
/// after an `fsync`. The file's lock is held meanwhile. Holes and unwritten space stay.
///
/// With a length of 0 it only checks whether the file can be moved.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for a file that is written in place (pinned, in an
/// atomic write, or by the file system's policy), `EAGAIN` when free sections are few, `EROFS`.
pub fn defragment(file: impl AsFd, start: u64, length: u64) -> io::Result<u64> {
    let mut range = Defragment { start, len: length };
    // SAFETY: F2FS_IOC_DEFRAGMENT reads and writes this 16-byte structure.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), F2FS_IOC_DEFRAGMENT, &raw mut range) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(range.len) }
}

/// The segments that can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Without a single valid block.
    pub free: u64,
    /// With fewer free segments, the log may continue in holes of used ones (slack space recycling),
    /// which fragments new data.
    pub scattering_below: u64,
}

/// The free segments of the F2FS on the device of this name, `sda1` for example.
///
/// # Errors
/// When sysfs does not report them.
pub fn segments(device: &str) -> io::Result<Segments> {
    let directory = Path::new("/sys/fs/f2fs").join(device);
    let number = |name: &str| -> io::Result<u64> {
        let text = std::fs::read_to_string(directory.join(name))?;
        text.trim().parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    };
    // f2fs_need_SSR() in fs/f2fs/segment.c: reserved sections, as many again, and what dirty nodes and
    // directories will need. A section is one segment unless the device has zones.
    let per_section = number("migration_granularity")?.max(1);
    let reserved = number("min_ssr_sections")? * per_section;
    Ok(Segments {
        free: number("free_segments")?,
        scattering_below: 2 * reserved + 8 * per_section,
    })
}
