//! XFS: exchanging ranges where the file system has the feature, sharing them where it has
//! reflink. What it can do is asked of the mounted file system, never guessed from a version.

use super::copying::{Copying, TakeOver};
use super::donor::Space;
use super::errno::skip_of;
use super::mounted::OpenFile;
use super::{Engine, Mover};
use fragmend_layout::{Skip, SkipReason};
use fragmend_sys::mounts::Mount;
use fragmend_sys::xfs;
use rustix::fs::OFlags;
use std::os::fd::AsFd;

/// The engine of one XFS.
pub(super) struct Xfs {
    how: TakeOver,
}

impl Xfs {
    /// Asks the file system what it can do.
    ///
    /// # Errors
    /// Why nothing can be moved on it.
    pub fn new(mount: &Mount) -> Result<Self, String> {
        let features = std::fs::File::open(&mount.point).and_then(xfs::features);
        let features = features.map_err(|e| format!("cannot tell what it can do: {e}"))?;
        let how = match features {
            _ if features.exchange => TakeOver::Exchange { or_share: features.reflink },
            _ if features.reflink => TakeOver::Share,
            _ => {
                return Err("made without reflink and without exchange, so that no part of a file can be moved; a new one has reflink by default".into());
            }
        };
        Ok(Self { how })
    }
}

impl Engine for Xfs {
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip> {
        let mut how = self.how;
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
