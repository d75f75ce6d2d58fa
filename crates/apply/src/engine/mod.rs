//! The file systems that can be mended: which engine serves a mount, or why none does.

pub mod ext4;

use fragmend_layout::{FsKind, Skip, Volume};
use fragmend_sys::mounts::Mount;
use std::os::fd::AsFd;

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
    match FsKind::from_name(&mount.fs_type) {
        FsKind::Ext4 => match ext4::Ext4::new(mount, force) {
            Ok(volume) => Ok(Box::new(volume)),
            Err(why) => refuse(why),
        },
        _ => refuse(unsupported(mount)),
    }
}

/// What to say of a file system without an engine.
pub fn unsupported(mount: &Mount) -> String {
    match mount.overlay_layers() {
        Some(layers) => format!("an overlay; name the directories that hold its files: {layers}"),
        None => format!(
            "moving data on {} is not supported yet, only on ext4; `fragmend scan` works on it",
            mount.fs_type
        ),
    }
}

/// Whether a file's attributes allow it to be moved on this kind of file system.
///
/// # Errors
/// The attribute that forbids it, or that they cannot be read.
pub fn may_move(kind: FsKind, file: impl AsFd) -> Result<(), Skip> {
    match kind {
        FsKind::Ext4 => ext4::may_move(file),
        _ => Ok(()),
    }
}
