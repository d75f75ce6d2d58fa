//! The file systems that can be mended: which engine serves a mount, or why none does.

mod btrfs;
mod copying;
mod donor;
mod errno;
mod ext4;
mod f2fs;
mod mounted;
mod warm;
mod xfs;

use errno::skip_of;
use fragmend_layout::{ByteRange, FsKind, Relocated, Skip, SkipReason, Volume};
use fragmend_sys::inode::{self, flags};
use fragmend_sys::mounts::Mount;
use mounted::{Mounted, OpenFile};
use std::os::fd::AsFd;

/// One way to move data on one kind of file system.
trait Engine {
    /// What moves this file, which it may open in another way.
    ///
    /// # Errors
    /// Why nothing here can.
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip>;
}

/// Moves ranges of one file; see [`fragmend_layout::Movable`], whose calls these are.
trait Mover {
    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip>;
    fn moves_whole_ranges(&self) -> bool {
        false
    }
    fn prepares_ahead(&self) -> bool {
        false
    }
    fn prepare(&mut self, _: &OpenFile, _index: usize, _: ByteRange) -> Result<(), Skip> {
        Ok(())
    }
    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated;
    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip>;
}

/// Why a whole file system is left alone; one line that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{mount}: {why}")]
pub struct Refused {
    /// Where it is mounted.
    pub mount: String,
    /// Why, and what to do.
    pub why: String,
}

/// The engine for a mounted file system.
///
/// With `force`, a file system that cannot promise order after a crash is taken all the same.
///
/// # Errors
/// [`Refused`] for a read-only mount, an unsupported file system, or a missing promise.
pub fn volume_for(mount: &Mount, force: bool) -> Result<Box<dyn Volume>, Refused> {
    let refuse = |why: String| Err(Refused { mount: mount.point.display().to_string(), why });
    if mount.has_option("ro") {
        return refuse("mounted read-only; remount it read-write to mend it".into());
    }
    let engine: Result<Box<dyn Engine>, String> = match FsKind::from_name(&mount.fs_type) {
        FsKind::Ext4 => ext4::Ext4::new(mount, force).map(|e| Box::new(e) as Box<dyn Engine>),
        FsKind::Xfs => xfs::Xfs::new(mount).map(|e| Box::new(e) as Box<dyn Engine>),
        FsKind::Btrfs => Ok(Box::new(btrfs::Btrfs)),
        FsKind::F2fs => f2fs::F2fs::new(mount, force).map(|e| Box::new(e) as Box<dyn Engine>),
        FsKind::Other => Err(unsupported(mount)),
    };
    let volume = engine.and_then(|e| Mounted::new(mount, e).map_err(|e| e.to_string()));
    match volume {
        Ok(volume) => Ok(Box::new(volume)),
        Err(why) => refuse(why),
    }
}

/// Whether files on this kind of file system can be moved at all.
///
/// # Errors
/// What to say of a file system without an engine.
pub fn supports(mount: &Mount) -> Result<(), String> {
    match FsKind::from_name(&mount.fs_type) {
        FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs => Ok(()),
        FsKind::Other => Err(unsupported(mount)),
    }
}

fn unsupported(mount: &Mount) -> String {
    match mount.overlay_layers() {
        Some(layers) => format!("an overlay; name the directories that hold its files: {layers}"),
        None => format!(
            "moving data on {} is not supported yet, only on ext4, XFS, Btrfs and F2FS; `fragmend scan` works on it",
            mount.fs_type
        ),
    }
}

/// Whether a file's attributes allow it to be moved on this kind of file system.
///
/// # Errors
/// The attribute that forbids it, or that they cannot be read.
pub fn may_move(kind: FsKind, file: impl AsFd) -> Result<(), Skip> {
    let set = inode::attributes(&file).map_err(skip_of)?;
    let reasons = [
        (flags::IMMUTABLE, SkipReason::Immutable),
        (flags::APPEND, SkipReason::AppendOnly),
        (flags::ENCRYPTED, SkipReason::Encrypted),
        (flags::VERITY, SkipReason::Verity),
        (flags::DAX, SkipReason::Dax),
    ];
    if let Some((_, reason)) = reasons.iter().find(|(flag, _)| set & flag != 0) {
        return Err(Skip::new(*reason, ""));
    }
    match kind {
        FsKind::Ext4 => ext4::may_move(set),
        FsKind::Xfs => xfs::may_move(file),
        FsKind::F2fs => f2fs::may_move(set),
        FsKind::Btrfs | FsKind::Other => Ok(()),
    }
}
