//! The file systems on which data can be moved: which engine serves a mount, or why none does.

use crate::errno::skip_of;
use crate::mounted::{Mounted, OpenFile};
use crate::rewrite::engine::Rewrite;
use crate::{native, ordering};
use fragmend_apply::drive::Mover;
use fragmend_layout::{FsKind, Skip, SkipReason, Volume};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What moves the data of one file.
pub(crate) type Moves = Box<dyn Mover<File = OpenFile>>;

/// One way to move data on one kind of file system.
pub(crate) trait Engine {
    /// Whether moving needs a descriptor that is open for writing. While there is one, the kernel does not
    /// execute the file as a program.
    fn writes(&self) -> bool {
        true
    }

    /// The mover of this file. Where something is to move (`file.to_move`), it may open the file in another
    /// way.
    ///
    /// # Errors
    /// Why this engine cannot move the file.
    fn mover(&self, file: &mut OpenFile) -> Result<Moves, Skip>;
}

/// Why a whole file system is left alone; one line, with what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{mount}: {why}")]
pub struct Refused {
    /// Where it is mounted.
    pub mount: String,
    /// Why, and what to do.
    pub why: String,
}

/// Which engine moves the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The file system's own.
    #[default]
    Native,
    /// Rewriting in place.
    Rewrite {
        /// Where records are kept instead of at the top of the file system.
        journal: Option<PathBuf>,
    },
}

/// The engine for a mounted file system.
///
/// With `force`, a file system that cannot promise order after a crash is accepted all the same.
///
/// # Errors
/// [`Refused`] for a read-only mount, an unsupported file system, or a missing promise.
pub fn volume_for(mount: &Mount, choice: &Choice, force: bool) -> Result<Box<dyn Volume>, Refused> {
    Ok(Box::new(mounted(mount, choice, force)?))
}

/// The same, as its concrete type.
pub(crate) fn mounted(mount: &Mount, choice: &Choice, force: bool) -> Result<Mounted, Refused> {
    let refuse = |why: String| Err(Refused { mount: mount.point.display().to_string(), why });
    if mount.has_option("ro") {
        return refuse("mounted read-only; remount it read-write to mend it, or for a service of systemd name it in ReadWritePaths=".into());
    }
    // Rewriting in place refuses such mounts whatever is forced.
    let native = *choice == Choice::Native;
    if native
        && !force
        && let Err(why) = ordering::flushes(mount)
    {
        return refuse(why);
    }
    let root = match Root::of(mount) {
        Ok(root) => root,
        Err(e) => return refuse(format!("its directory cannot be opened: {e}")),
    };
    let engine = match (choice, native::row(FsKind::from_name(&mount.fs_type))) {
        (Choice::Rewrite { journal }, _) => {
            native::boxed(Rewrite::new(mount, &root, journal.as_deref()))
        }
        (Choice::Native, Some(row)) => (row.engine)(mount, &root, force),
        (Choice::Native, None) => Err(no_engine(mount)),
    };
    let volume = engine.and_then(|e| Mounted::new(mount, root, e).map_err(|e| e.to_string()));
    volume.or_else(refuse)
}

/// Whether the file system has an engine of its own.
pub fn is_native(kind: FsKind) -> bool {
    native::row(kind).is_some()
}

fn no_engine(mount: &Mount) -> String {
    match local(mount) {
        Err(why) => why,
        Ok(()) => format!(
            "{} has no safe way of its own to move data; --engine rewrite copies, punches and writes again, see fragmend-apply(1)",
            mount.fs_type
        ),
    }
}

/// Whether the blocks of a file system are this machine's alone, so that it makes sense to move
/// data on it.
///
/// # Errors
/// Why not, and what to do.
pub fn local(mount: &Mount) -> Result<(), String> {
    if let Some(layers) = mount.overlay_layers() {
        return Err(format!("an overlay; name the directories that hold its files: {layers}"));
    }
    let kind = mount.fs_type.as_str();
    let why = match kind {
        "tmpfs" | "ramfs" | "hugetlbfs" => "its files are in memory",
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "afs" | "ceph" | "virtiofs" | "coda" => {
            "its files are on a server; mend them there"
        }
        "gfs2" | "ocfs2" | "lustre" => "other machines may have its files open",
        _ if kind.starts_with("fuse") => "a program serves its files; mend them there",
        _ if is_on_a_disk(mount) => return Ok(()),
        _ => "it is on no block device",
    };
    Err(format!("{kind}: {why}"))
}

/// Whether the file system is on a block device: by its device number, or, where no device has that number, as
/// on Btrfs, by the node that was mounted.
fn is_on_a_disk(mount: &Mount) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let node = |m: std::fs::Metadata| m.file_type().is_block_device();
    // Of a file system of the kernel's own it is a word ("proc"), not a name in the working directory.
    let source = Path::new(&mount.source);
    BlockDevice::from_dev(mount.dev).is_ok()
        || (source.is_absolute() && std::fs::metadata(source).is_ok_and(node))
}

/// Whether a file's attributes allow it to be moved on this kind of file system.
///
/// # Errors
/// The attribute that forbids it, or the error of reading the attributes.
pub fn may_move(kind: FsKind, file: impl AsFd) -> Result<(), Skip> {
    let set = match inode::attributes(&file) {
        // A file system without such attributes.
        Err(e) if kind == FsKind::Other && inode::is_unknown_request(&e) => 0,
        read => read.map_err(skip_of)?,
    };
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
    // Nothing of it is in the page cache, so no page shows that a device writes to it (`turns::vacate`).
    if inode::is_dax(&file).map_err(skip_of)? {
        return Err(Skip::new(SkipReason::Dax, ""));
    }
    native::row(kind).map_or(Ok(()), |row| (row.may_move)(set, file.as_fd()))
}
