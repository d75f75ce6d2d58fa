//! XFS: exchanging ranges where the file system has the feature, sharing them where it has
//! reflink, swapping whole files where it has neither. What it can do is asked of the mounted file system, never guessed from a version.

use super::copying::{Copying, TakeOver};
use super::donor::Space;
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::swap::{Swapped, WholeFile};
use super::{Engine, Mover};
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::mounts::Mount;
use fragmend_sys::xfs;
use rustix::fs::OFlags;
use std::os::fd::AsFd;

/// The engine of one XFS.
pub(super) struct Xfs {
    how: How,
}

/// What one XFS can do.
#[derive(Clone, Copy)]
enum How {
    /// Move any range.
    Ranges(TakeOver),
    /// Swap whole files.
    Files(Swapped),
}

impl Xfs {
    /// Asks the file system what it can do; `force` takes what a power cut may make unmountable.
    ///
    /// # Errors
    /// When it does not say.
    pub fn new(mount: &Mount, force: bool) -> Result<Self, String> {
        let features = std::fs::File::open(&mount.point).and_then(xfs::features);
        let features = features.map_err(|e| format!("cannot tell what it can do: {e}"))?;
        let how = match features {
            _ if features.exchange => {
                How::Ranges(TakeOver::Exchange { or_share: features.reflink })
            }
            _ if features.reflink => How::Ranges(TakeOver::Share),
            _ if features.rmap || !features.checksums || force => How::Files(Swapped::All),
            _ => How::Files(Swapped::Short),
        };
        Ok(Self { how })
    }
}

impl Engine for Xfs {
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        let mut how = match self.how {
            How::Ranges(how) => how,
            How::Files(which) => return Ok(Box::new(WholeFile::new(which))),
        };
        if let TakeOver::Exchange { or_share } = how {
            // Exchanging counts as writing, unless the file was opened so. Sharing does not.
            match xfs::open_without_times(&file.fd, OFlags::RDWR | OFlags::NONBLOCK) {
                Ok(fd) => file.fd = fd,
                Err(_) if or_share => how = TakeOver::Share,
                Err(e) => return Err(skip_of(e)),
            }
        }
        Ok(Box::new(Copying::new(how, Space::Choice, |_, _| Ok(()))))
    }
}

/// See [`super::may_move`].
pub(super) fn may_move(file: impl AsFd) -> Result<(), Skip> {
    let attributes = xfs::attributes(file).map_err(skip_of)?;
    if attributes.no_defrag {
        return Err(Skip::new(SkipReason::NoDefrag, ""));
    }
    if attributes.realtime {
        return Err(Skip::new(SkipReason::Unsupported, "its data lies on the realtime device"));
    }
    Ok(())
}
