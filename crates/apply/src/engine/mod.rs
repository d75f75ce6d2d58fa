//! The file systems that can be mended: which engine serves a mount, or why none does.

pub mod ext4;

use fragmend_layout::{FsKind, Volume};
use fragmend_sys::mounts::Mount;

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
        _ => refuse(unsupported(&mount.fs_type)),
    }
}

/// What to say of a file system without an engine.
pub fn unsupported(fs_type: &str) -> String {
    format!(
        "moving data on {fs_type} is not supported yet, only on ext4; `fragmend scan` works on it"
    )
}
