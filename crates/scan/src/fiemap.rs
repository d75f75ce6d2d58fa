//! Layouts through FIEMAP: works on every file system that has it, without root for files that can be opened
//! for reading.
//!
//! A layout is a snapshot that may be stale when it is returned: it is good for choosing work and for reports,
//! never for correctness. Neighbours: [`crate::ext4`] reads the same facts in bulk and must agree extent by
//! extent; `plan` and `apply` call [`layout_of`].

use fragmend_layout::{ByteRange, Extent, ExtentKind, FileId, LONGEST_ENCODED, Layout};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::btrfs;
use fragmend_sys::fiemap::{Fiemap, Mapped, flags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The layout of an open file; delayed allocation is flushed first.
///
/// # Errors
/// `EOPNOTSUPP` or `ENOTTY` where the file system has no FIEMAP (see [`is_unsupported`]); `EUCLEAN` where
/// the file has more extents, or more data that is not shared, than its file system has space; any I/O error.
pub fn layout_of(file: impl AsFd) -> io::Result<Layout> {
    layout_with(&mut Fiemap::default(), file)
}

/// The same, with a buffer that the caller uses for many files.
///
/// # Errors
/// As [`layout_of`].
pub fn layout_with(space: &mut Fiemap, file: impl AsFd) -> io::Result<Layout> {
    // To the largest offset: space preallocated behind the end of the file counts too.
    let everything = ByteRange { start: 0, end: u64::MAX };
    layout_within(space, file, everything, true)
}

/// The extents that overlap `range`, each one whole; delayed allocation is flushed first if `sync`.
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
    let mut bounds = Bounds { device: stat.st_dev, ..Bounds::default() };
    space.try_for_each(file, range.start..range.end, sync, |mapped| {
        let extent = extent(&mapped);
        bounds.hold(file, &extent)?;
        layout.push(extent);
        Ok(())
    })?;
    if layout.extents().iter().any(|e| e.kind.is_encoded()) {
        measure_encoded(&mut layout, file, range);
    }
    Ok(layout)
}

/// What was returned of a file so far. Where metadata is forged, a few blocks make extents without end.
#[derive(Default)]
struct Bounds {
    extents: u64,
    /// Bytes of data that is the file's alone.
    own: u64,
    /// Blocks and bytes of the file system; read once there are [`MANY`] extents.
    most: Option<(u64, u64)>,
    /// Device number of the file.
    device: u64,
    /// Whether one block may be at several places of files: then extents and bytes have no such limit.
    shares: bool,
}

/// So many extents are no reason to look how large the file system is.
const MANY: u64 = 4096;

impl Bounds {
    /// Counts one more extent.
    fn hold(&mut self, file: BorrowedFd, extent: &Extent) -> io::Result<()> {
        self.extents += 1;
        self.shares |= extent.kind.is_shared();
        if matches!(extent.kind, ExtentKind::Data | ExtentKind::Unwritten) {
            self.own = self.own.saturating_add(extent.length);
        }
        if self.extents < MANY || self.shares {
            return Ok(());
        }
        let most = match self.most {
            Some(most) => most,
            // Btrfs and overlays: a block may be at several places of one file, which Btrfs does not report.
            None if BlockDevice::from_dev(self.device).is_err() => {
                *self.most.insert((u64::MAX, u64::MAX))
            }
            None => {
                let (blocks, size) = crate::filesystem::size(file, self.device)?;
                *self.most.insert((blocks, blocks.saturating_mul(size)))
            }
        };
        let holds = self.extents <= most.0 && self.own <= most.1;
        if holds { Ok(()) } else { Err(Errno::UCLEAN.into()) }
    }
}

/// Sets how many bytes encoded extents occupy on the device, which FIEMAP does not return: Btrfs returns it to
/// root. Otherwise, an extent of the largest length is assumed to end on the device where the next extent
/// begins, if that is before its end would be without compression.
fn measure_encoded(layout: &mut Layout, file: BorrowedFd, range: ByteRange) {
    let told = btrfs::compressed(file, layout.file.inode, range.start..range.end);
    let told: HashMap<u64, btrfs::Compressed> =
        told.unwrap_or_default().into_iter().map(|e| (e.logical, e)).collect();
    layout.set_stored(|e, next| {
        let same = |t: &&btrfs::Compressed| t.physical == e.physical;
        if let Some(told) = told.get(&e.logical).filter(same) {
            return told.stored;
        }
        let behind = next.and_then(|n| n.physical.checked_sub(e.physical));
        behind
            .filter(|d| e.length >= LONGEST_ENCODED && (1..e.length).contains(d))
            .unwrap_or(e.length)
    });
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
        kind: kind(mapped.flags, mapped.length),
    }
}

/// What an extent of `length` bytes holds by FIEMAP's flags. Several may be set: those of extents that have no
/// address decide first.
fn kind(set: u32, length: u64) -> ExtentKind {
    let any = |mask: u32| set & mask != 0;
    let shared = any(flags::SHARED);
    match () {
        () if any(flags::DATA_INLINE | flags::DATA_TAIL) => ExtentKind::Inline,
        () if any(flags::UNKNOWN | flags::DELALLOC) => ExtentKind::Delayed,
        () if any(flags::UNWRITTEN) => ExtentKind::Unwritten,
        () if any(flags::ENCODED | flags::DATA_ENCRYPTED) => {
            ExtentKind::Encoded { stored: length, shared }
        }
        () if shared => ExtentKind::Shared,
        () => ExtentKind::Data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weightiest_flag_decides() {
        let kind = |set| kind(set, 4096);
        assert_eq!(kind(flags::LAST | flags::MERGED), ExtentKind::Data);
        assert_eq!(kind(flags::DELALLOC | flags::UNKNOWN), ExtentKind::Delayed);
        assert_eq!(kind(flags::DATA_INLINE | flags::NOT_ALIGNED), ExtentKind::Inline);
        let encoded = ExtentKind::Encoded { stored: 4096, shared: true };
        assert_eq!(kind(flags::SHARED | flags::ENCODED), encoded);
        assert_eq!(kind(flags::SHARED | flags::UNWRITTEN), ExtentKind::Unwritten);
    }

    #[test]
    fn extents_end_with_the_file_system() {
        let file = tempfile::tempfile().unwrap();
        let kind = ExtentKind::Data;
        let extent = |length| Extent { logical: 0, physical: 0, length, kind };
        for (blocks, length, holds) in
            [(1 << 20, 4096, true), (4096, 1, false), (1 << 20, 1 << 20, false)]
        {
            let mut bounds = Bounds { most: Some((blocks, blocks * 4096)), ..Bounds::default() };
            let held = (0..2 * MANY).try_for_each(|_| bounds.hold(file.as_fd(), &extent(length)));
            assert_eq!(held.is_ok(), holds, "{blocks} {length} {held:?}");
        }
        // What is shared may be there any number of times.
        let mut bounds = Bounds { most: Some((1 << 20, 1 << 20)), ..Bounds::default() };
        let shared = Extent { kind: ExtentKind::Shared, ..extent(1 << 20) };
        (0..2 * MANY).try_for_each(|_| bounds.hold(file.as_fd(), &shared)).unwrap();
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
