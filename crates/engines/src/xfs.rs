//! XFS: exchanges ranges where the file system has the feature, shares them where it has reflink, and swaps
//! whole files where it has neither. The mounted file system is asked what it can do; nothing is inferred from
//! a version.

use super::copying::{Copying, TakeOver, Wants};
use super::donor::{Space, directory, unnamed};
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::swap::{Swapped, WholeFile};
use super::turns::allocate_delayed;
use super::{Engine, Moves};
use fragmend_layout::{ByteRange, Skip, SkipReason};
use fragmend_sys::root::Root;
use fragmend_sys::xfs;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The engine of one XFS.
pub(super) struct Xfs {
    how: How,
}

/// What one XFS can do.
enum How {
    /// Move any range.
    Ranges(TakeOver),
    /// Swap whole files.
    Files(Swapped),
}

impl Xfs {
    /// Asks the file system what it can do; `force` accepts moves after which a power cut may make it
    /// unmountable.
    ///
    /// # Errors
    /// The file system does not report its features.
    pub fn new(root: &Root, force: bool) -> Result<Self, String> {
        let features = xfs::features(root);
        let features = features.map_err(|e| format!("cannot tell what it can do: {e}"))?;
        let how = match features {
            _ if features.exchange => {
                How::Ranges(TakeOver::Exchange { or_share: features.reflink })
            }
            _ if features.reflink => How::Ranges(TakeOver::Share { whole: false, instead: None }),
            _ if force => How::Files(Swapped::All),
            _ if features.rmap || !features.checksums => How::Files(Swapped::All),
            _ => How::Files(Swapped::Short),
        };
        Ok(Self { how })
    }
}

impl Engine for Xfs {
    /// The owner and root need no such descriptor for sharing.
    fn writes(&self) -> bool {
        !matches!(self.how, How::Ranges(TakeOver::Share { .. }))
    }

    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip> {
        let mut how = match &self.how {
            How::Ranges(how) => how.clone(),
            How::Files(which) => return Ok(Box::new(WholeFile::new(*which))),
        };
        if let TakeOver::Exchange { or_share } = how
            && file.to_move
        {
            match open_for_exchange(file) {
                Ok(fd) => file.fd = fd,
                Err(e) if or_share => {
                    let why = format!("it cannot be opened for an exchange: {e}");
                    how = TakeOver::Share { whole: false, instead: Some(why) };
                }
                Err(e) => return Err(skip_of(e)),
            }
        }
        let space = Space::Choice { beside: 0 };
        let wants = Wants { space, prepare: |_, _| Ok(()), flush, commit, drops_pages: true };
        Ok(Box::new(Copying::new(file, how, wants)))
    }
}

/// Writes out what is delayed of the ranges, and makes freed space free.
fn flush(file: &OpenFile, ranges: &[ByteRange]) -> io::Result<()> {
    allocate_delayed(file, ranges)?;
    free_space(file);
    Ok(())
}

/// Makes free what was freed so far, best effort: forces the log up to the creation of a new inode.
pub(super) fn free_space(file: &OpenFile) {
    if let Ok(newest) = unnamed(file) {
        let _ = rustix::fs::fsync(newest);
    }
}

/// Makes durable what was done to any file so far: forces the log, which goes to the device in order, behind a
/// flush, up to a change that is made here to the donor, and then closes the donor. `fsync` of the file itself
/// would wait for all that others have left dirty of it, and consume their errors.
pub(super) fn commit(_: &OpenFile, donor: OwnedFd) -> io::Result<()> {
    rustix::fs::fchmod(&donor, Mode::RUSR)?;
    // The error of a copy that the device refused is reported first, before anything is forced, and only once.
    Ok(rustix::fs::fsync(&donor).or_else(|_| rustix::fs::fsync(&donor))?)
}

/// Exchanging counts as writing, unless the file was opened by its handle. It is opened in the mount in which
/// the donor will be: see [`directory`].
fn open_for_exchange(file: &OpenFile) -> io::Result<OwnedFd> {
    let how = OFlags::RDWR | OFlags::NONBLOCK;
    xfs::open_without_times(directory(file)?, &file.fd, how)
}

/// See [`super::may_move`].
pub(super) fn may_move(file: impl AsFd) -> Result<(), Skip> {
    let attributes = xfs::attributes(file).map_err(skip_of)?;
    if attributes.no_defrag {
        return Err(Skip::new(SkipReason::NoDefrag, ""));
    }
    if attributes.realtime {
        return Err(Skip::new(SkipReason::Unsupported, "its data is on the realtime device"));
    }
    Ok(())
}
