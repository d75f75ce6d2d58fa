//! The file systems that can be mended: which engine serves a mount, or why none does.

mod btrfs;
mod compressed;
mod copying;
mod donor;
mod errno;
mod exchange;
mod ext4;
mod f2fs;
mod hold;
mod mounted;
pub(crate) mod ordering;
mod pages;
pub mod primitive;
mod rewrite;
mod sample;
mod swap;
mod turns;
mod warm;
mod xfs;

use errno::skip_of;
use fragmend_layout::{
    ByteRange, Extent, ExtentKind, FsKind, Moves, Relocated, Skip, SkipReason, Volume,
};
use fragmend_sys::block::BlockDevice;
use fragmend_sys::inode::{self, flags};
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use mounted::{Mounted, OpenFile};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// One way to move data on one kind of file system.
trait Engine {
    /// Whether moving takes a descriptor that may write. Nobody can start the file as a program while
    /// there is one.
    fn writes(&self) -> bool {
        true
    }

    /// What looks at this file and moves it. Where something is to move (`file.to_move`), it may open the
    /// file in another way.
    ///
    /// # Errors
    /// Why nothing here can.
    fn mover(&self, file: &mut OpenFile) -> Result<Box<dyn Mover>, Skip>;
}

/// Moves ranges of one file; see [`fragmend_layout::Movable`], whose calls these are.
trait Mover {
    fn moves(&self) -> Moves;
    fn need(&mut self, _: &OpenFile, ranges: &[ByteRange]) -> Result<u64, Skip> {
        Ok(ranges.iter().map(|r| r.len()).sum())
    }
    /// Plain data of this file alone, unless an engine can more.
    fn takes(&self, parts: &[Extent]) -> Result<(), Skip> {
        match parts.iter().find_map(|e| refusal(e.kind)) {
            Some(reason) => Err(Skip::new(reason, "")),
            None => Ok(()),
        }
    }
    fn stage(&mut self, file: &OpenFile, ranges: &[ByteRange]) -> Result<Vec<u64>, Skip>;
    fn prepare(&mut self, _: &OpenFile, _index: usize, _: ByteRange) -> Result<(), Skip> {
        Ok(())
    }
    fn announce(&mut self, _indices: &[usize]) {}
    fn relocate(&mut self, file: &OpenFile, index: usize, part: ByteRange) -> Relocated;
    fn relocate_until(
        &mut self,
        file: &OpenFile,
        index: usize,
        part: ByteRange,
        _stop: &AtomicBool,
    ) -> Relocated {
        self.relocate(file, index, part)
    }
    fn let_others_in(&mut self, _: &OpenFile) -> Result<(), Skip> {
        Ok(())
    }
    fn keep_nobody_out(&mut self, file: &OpenFile) -> Result<(), Skip> {
        self.let_others_in(file)
    }
    fn settle(&mut self, file: &OpenFile) -> Result<(), Skip>;
    fn kept_out(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// What keeps data that is stored like this from being moved, where an engine cannot do better.
fn refusal(kind: ExtentKind) -> Option<SkipReason> {
    match kind {
        _ if kind.is_shared() => Some(SkipReason::Shared),
        _ if kind.is_encoded() => Some(SkipReason::Encoded),
        _ => None,
    }
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

/// Which engine is to serve.
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
/// With `force`, a file system that cannot promise order after a crash is taken all the same.
///
/// # Errors
/// [`Refused`] for a read-only mount, an unsupported file system, or a missing promise.
pub fn volume_for(mount: &Mount, choice: &Choice, force: bool) -> Result<Box<dyn Volume>, Refused> {
    let refuse = |why: String| Err(Refused { mount: mount.point.display().to_string(), why });
    if mount.has_option("ro") {
        return refuse("mounted read-only; remount it read-write to mend it".into());
    }
    // Rewriting in place refuses such mounts whatever is forced.
    let native = *choice == Choice::Native;
    if native
        && !force
        && let Err(why) = ordering::flushes(mount)
    {
        return refuse(why);
    }
    let root = match Root::open(&mount.point, mount.dev) {
        Ok(root) => root,
        Err(e) => return refuse(format!("its directory cannot be opened: {e}")),
    };
    let engine: Result<Box<dyn Engine>, String> = match (choice, FsKind::from_name(&mount.fs_type))
    {
        (Choice::Rewrite { journal }, _) => {
            rewrite::Rewrite::new(mount, journal.as_deref()).map(|e| Box::new(e) as Box<dyn Engine>)
        }
        (_, FsKind::Ext4) => {
            ext4::Ext4::new(mount, &root, force).map(|e| Box::new(e) as Box<dyn Engine>)
        }
        (_, FsKind::Xfs) => xfs::Xfs::new(&root, force).map(|e| Box::new(e) as Box<dyn Engine>),
        (_, FsKind::Btrfs) => Ok(Box::new(btrfs::Btrfs::new(mount))),
        (_, FsKind::F2fs) => f2fs::F2fs::new(mount, force).map(|e| Box::new(e) as Box<dyn Engine>),
        (_, FsKind::Other) => Err(no_engine(mount)),
    };
    let volume = engine.and_then(|e| Mounted::new(mount, root, e).map_err(|e| e.to_string()));
    match volume {
        Ok(volume) => Ok(Box::new(volume)),
        Err(why) => refuse(why),
    }
}

/// Whether the file system has an engine of its own.
pub fn is_native(kind: FsKind) -> bool {
    matches!(kind, FsKind::Ext4 | FsKind::Xfs | FsKind::Btrfs | FsKind::F2fs)
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
        "tmpfs" | "ramfs" | "hugetlbfs" => "its files lie in memory",
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "afs" | "ceph" | "virtiofs" | "coda" => {
            "its files lie on a server; mend them there"
        }
        "gfs2" | "ocfs2" | "lustre" => "other machines may have its files open",
        _ if kind.starts_with("fuse") => "a program serves its files; mend them where they lie",
        _ if is_on_a_disk(mount) => return Ok(()),
        _ => "it lies on no block device",
    };
    Err(format!("{kind}: {why}"))
}

/// By number, or by the node that was mounted where the number is nobody's, as on Btrfs.
fn is_on_a_disk(mount: &Mount) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let node = |m: std::fs::Metadata| m.file_type().is_block_device();
    BlockDevice::from_dev(mount.dev).is_ok() || std::fs::metadata(&mount.source).is_ok_and(node)
}

/// Whether a file's attributes allow it to be moved on this kind of file system.
///
/// # Errors
/// The attribute that forbids it, or that they cannot be read.
pub fn may_move(kind: FsKind, file: impl AsFd) -> Result<(), Skip> {
    let set = match inode::attributes(&file) {
        // A file system without such attributes.
        Err(e) if kind == FsKind::Other && is_unknown_request(&e) => 0,
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
    match kind {
        FsKind::Ext4 => ext4::may_move(set),
        FsKind::Xfs => xfs::may_move(file),
        FsKind::F2fs => f2fs::may_move(set),
        FsKind::Btrfs => btrfs::may_move(file),
        FsKind::Other => Ok(()),
    }
}

/// Whether an ioctl failed because the file system has no such thing.
fn is_unknown_request(error: &std::io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS))
}
