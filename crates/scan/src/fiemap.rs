//! Layouts through FIEMAP: works on every file system that has it, without root for files that
//! can be opened for reading.
//!
//! What is seen is a snapshot that may be stale when it is returned: good for choosing work and
//! for reports, never for correctness. Neighbours: [`crate::ext4`] reads the same facts in bulk
//! and must agree extent by extent; `plan` and `apply` call [`layout_of`].

use fragmend_layout::{ByteRange, Extent, ExtentKind, FileId, Layout};
use fragmend_sys::fiemap::{Fiemap, Mapped, flags};
use std::io;
use std::os::fd::AsFd;

/// The layout of an open file, delayed allocation flushed first.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no FIEMAP (see [`is_unsupported`]); any
/// I/O error.
pub fn layout_of(file: impl AsFd) -> io::Result<Layout> {
    layout_with(&mut Fiemap::default(), file)
}

/// The same, in space that the caller keeps for many files.
///
/// # Errors
/// As [`layout_of`].
pub fn layout_with(space: &mut Fiemap, file: impl AsFd) -> io::Result<Layout> {
    // To the end of all offsets: space preallocated behind the end of the file counts too.
    let everything = ByteRange { start: 0, end: u64::MAX };
    layout_within(space, file, everything, true)
}

/// The extents that overlap `range`, whole; delayed allocation is flushed first if `sync`.
///
/// # Errors
/// As [`layout_of`].
pub fn layout_within(
    space: &mut Fiemap,
    file: impl AsFd,
    range: ByteRange,
    sync: bool,
) -> io::Result<Layout> {
    let file = file.as_fd();
    let stat = rustix::fs::fstat(file)?;
    let generation = fragmend_sys::inode::generation(file).unwrap_or(0);
    let id = FileId { device: stat.st_dev, inode: stat.st_ino, generation };
    let mut layout = Layout::new(id, stat.st_size.try_into().unwrap_or(0));
    space.for_each(file, range.start..range.end, sync, |mapped| layout.push(extent(&mapped)))?;
    Ok(layout)
}

/// Whether an error of [`layout_of`] means that this file system (or kind of file) has no FIEMAP.
pub fn is_unsupported(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOTTY))
}

fn extent(mapped: &Mapped) -> Extent {
    Extent {
        logical: mapped.logical,
        physical: mapped.physical,
        length: mapped.length.min(u64::MAX - mapped.logical),
        kind: kind(mapped.flags),
    }
}

/// What FIEMAP's flags say an extent holds. Several may be set: what keeps the extent from being
/// addressed at all decides first.
fn kind(set: u32) -> ExtentKind {
    const BY_WEIGHT: [(u32, ExtentKind); 5] = [
        (flags::DATA_INLINE | flags::DATA_TAIL, ExtentKind::Inline),
        (flags::UNKNOWN | flags::DELALLOC, ExtentKind::Delayed),
        (flags::UNWRITTEN, ExtentKind::Unwritten),
        (flags::ENCODED | flags::DATA_ENCRYPTED, ExtentKind::Encoded),
        (flags::SHARED, ExtentKind::Shared),
    ];
    BY_WEIGHT.iter().find(|(mask, _)| set & mask != 0).map_or(ExtentKind::Data, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weightiest_flag_decides() {
        assert_eq!(kind(flags::LAST | flags::MERGED), ExtentKind::Data);
        assert_eq!(kind(flags::DELALLOC | flags::UNKNOWN), ExtentKind::Delayed);
        assert_eq!(kind(flags::DATA_INLINE | flags::NOT_ALIGNED), ExtentKind::Inline);
        assert_eq!(kind(flags::SHARED | flags::ENCODED), ExtentKind::Encoded);
        assert_eq!(kind(flags::SHARED | flags::UNWRITTEN), ExtentKind::Unwritten);
    }

    #[test]
    fn an_extent_never_runs_past_the_last_offset() {
        let mapped = Mapped { logical: 4096, physical: 0, length: u64::MAX, flags: 0 };
        assert_eq!(extent(&mapped).range().end, u64::MAX);
    }

    #[test]
    fn a_file_system_without_it_says_so() {
        let error = layout_of(std::fs::File::open("/proc/version").unwrap()).unwrap_err();
        assert!(is_unsupported(&error), "{error}");
    }
}
