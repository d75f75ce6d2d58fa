//! Btrfs: plain ranges share the blocks of a contiguous donor; compressed ranges are compressed anew.
//!
//! Donor and file must agree on checksums, so the donor of a NOCOW file is NOCOW, too. `fallocate` allocates
//! the new space, and data written into it stays there, also on a file system that compresses, as long as none
//! of the extent is shared yet. An extent is freed only when no part of it is used any more: so each range gets
//! an extent of its own.
//!
//! Data written into allocated space is never compressed, so compressed ranges are moved in another way:
//! [`super::compressed`]. A range of which a good part is compressed and another is not is moved in neither
//! way.

use super::compressed::Compressing;
use super::copying::{Copying, TakeOver, Wants};
use super::donor::Space;
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::turns::allocate_delayed;
use super::{Engine, Mover, Moves};
use fragmend_apply::drive::{ByPart, Job, Step, by_part};
use fragmend_layout::{ByteRange, Extent, Pace, Skip, SkipReason, stored_alike};
use fragmend_scan::fiemap;
use fragmend_sys::btrfs;
use fragmend_sys::fiemap::Fiemap;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::mounts::Mount;
use rustix::fs::Access;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;

/// The engine of one Btrfs.
pub(super) struct Btrfs {
    /// Its mount options, which say how hard it compresses.
    options: Vec<String>,
}

impl Btrfs {
    /// The engine of this mount.
    pub fn new(mount: &Mount) -> Self {
        Self { options: mount.options.clone() }
    }
}

impl Engine for Btrfs {
    /// The owner and root need no such descriptor for sharing and compressing.
    fn writes(&self) -> bool {
        false
    }

    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip> {
        let wants = Wants {
            space: Space::Exact,
            prepare: like_the_file,
            flush: allocate_delayed,
            commit: end,
            drops_pages: false,
        };
        let how = TakeOver::Share { whole: true, instead: None };
        Ok(Box::new(Both {
            plain: Copying::new(file, how, wants),
            compressed: Compressing::new(file, &self.options),
            staged: Vec::new(),
        }))
    }
}

/// Drops the donor before the commit: the space that it frees is free once the moved data is durable.
fn end(file: &OpenFile, donor: OwnedFd) -> io::Result<()> {
    drop(donor);
    commit(file)
}

/// Commits the transaction; no file is locked for that.
pub(super) fn commit(file: &OpenFile) -> io::Result<()> {
    btrfs::commit(&file.fd)
}

/// See [`super::may_move`].
pub(super) fn may_move(file: impl AsFd) -> Result<(), Skip> {
    let itself = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    match rustix::fs::access(itself, Access::WRITE_OK) {
        Err(Errno::ROFS) => Err(Skip::new(SkipReason::ReadOnly, "a read-only subvolume")),
        _ => Ok(()),
    }
}

/// Makes the donor NOCOW if and only if the file is: a NOCOW file has no checksums.
fn like_the_file(file: &OpenFile, donor: &OwnedFd) -> Result<(), Skip> {
    let of_file = inode::attributes(&file.fd).map_err(skip_of)? & flags::NOCOW;
    let of_donor = inode::attributes(donor).map_err(skip_of)?;
    if of_file == of_donor & flags::NOCOW {
        return Ok(());
    }
    inode::set_attributes(donor, of_donor & !flags::NOCOW | of_file).map_err(skip_of)
}

/// Moves plain ranges in one way and compressed ranges in the other.
struct Both {
    plain: Copying,
    compressed: Compressing,
    /// Which of the two has each staged range, and its number there.
    staged: Vec<(Way, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Compressed,
}

impl Both {
    /// The mover that has the staged range `index`, and the number of the range there.
    fn of(&mut self, index: usize) -> Result<(&mut dyn ByPart<File = OpenFile>, usize), Skip> {
        match self.staged.get(index) {
            Some((Way::Plain, index)) => Ok((&mut self.plain, *index)),
            Some((Way::Compressed, index)) => Ok((&mut self.compressed, *index)),
            None => Err(Skip::new(SkipReason::Failed, "nothing is staged")),
        }
    }
}

impl Mover for Both {
    type File = OpenFile;

    fn accepts(&self, parts: &[Extent]) -> Result<(), Skip> {
        let alike = stored_alike(parts);
        match alike.iter().filter(|part| part.encoded).count() {
            0 => self.plain.accepts(parts),
            all if all == alike.len() => self.compressed.accepts(parts),
            _ => Err(Skip::new(SkipReason::Encoded, "compressed in part")),
        }
    }

    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip> {
        let mut maps = Fiemap::default();
        let (mut plain, mut compressed) = (Vec::new(), Vec::new());
        self.staged.clear();
        // `FIEMAP_FLAG_SYNC` is not used for this: the kernel would write out all of the file, with writers
        // kept out.
        allocate_delayed(file, ranges).map_err(skip_of)?;
        for range in ranges {
            let layout =
                fiemap::layout_within(&mut maps, &file.fd, *range, false).map_err(skip_of)?;
            let mut data = layout.extents().iter().filter(|e| e.kind.is_addressed()).peekable();
            // Data that has no blocks yet will be stored as new writes are.
            let encoded = match data.peek() {
                Some(_) => data.any(|e| e.kind.is_encoded()),
                None => self.compressed.goes_on(),
            };
            let (way, of_way) =
                if encoded { (Way::Compressed, &mut compressed) } else { (Way::Plain, &mut plain) };
            self.staged.push((way, of_way.len()));
            of_way.push(*range);
        }
        let stage = |mover: &mut dyn Mover<File = OpenFile>, ranges: &[ByteRange]| match ranges {
            [] => Ok(Vec::new()),
            ranges => mover.stage(file, ranges),
        };
        let plain = stage(&mut self.plain, &plain)?;
        let compressed = stage(&mut self.compressed, &compressed)?;
        let fragments = |(way, index): &(Way, usize)| match way {
            Way::Plain => plain[*index],
            Way::Compressed => compressed[*index],
        };
        Ok(self.staged.iter().map(fragments).collect())
    }

    fn drive(&mut self, job: &Job<'_, OpenFile>, pace: &mut dyn Pace) -> Result<(), Skip> {
        by_part(self, job, pace)
    }

    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip> {
        let plain = self.plain.settle(file);
        self.compressed.settle(file).and(plain)
    }
}

/// Steps have the length of those for plain ranges: compressed ranges have nothing to prepare.
impl ByPart for Both {
    fn prepares(&self, index: usize) -> bool {
        matches!(self.staged.get(index), Some((Way::Plain, index)) if self.plain.prepares(*index))
    }

    fn shortest(&self) -> u64 {
        self.plain.shortest()
    }

    fn prepare(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<(), Skip> {
        let (mover, index) = self.of(index)?;
        mover.prepare(file, index, part, stop)
    }

    fn relocate(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Step {
        match self.of(index) {
            Ok((mover, index)) => mover.relocate(file, index, part, stop),
            Err(skip) => Step::none(skip),
        }
    }
}
