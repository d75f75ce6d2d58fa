//! The file systems with engines of their own: a row each.

use crate::engine::Engine;
use crate::{btrfs, ext4, f2fs, xfs};
use fragmend_layout::{FsKind, Skip};
use fragmend_sys::mounts::Mount;
use fragmend_sys::root::Root;
use std::os::fd::BorrowedFd;

/// The engine that serves a mount, or why none does.
pub(crate) type Served = Result<Box<dyn Engine>, String>;

/// A file system whose data can be moved.
pub(crate) struct Native {
    kind: FsKind,
    /// The engine of a mount; with `force` also where it cannot promise order after a crash.
    pub engine: fn(mount: &Mount, root: &Root, force: bool) -> Served,
    /// Whether a file may be moved, by its inode flags and by what else this file system knows.
    pub may_move: fn(flags: u32, file: BorrowedFd<'_>) -> Result<(), Skip>,
}

static NATIVE: [Native; 4] = [
    Native {
        kind: FsKind::Ext4,
        engine: |mount, root, force| boxed(ext4::Ext4::new(mount, root, force)),
        may_move: |flags, _| ext4::may_move(flags),
    },
    Native {
        kind: FsKind::Xfs,
        engine: |_, root, force| boxed(xfs::Xfs::new(root, force)),
        may_move: |_, file| xfs::may_move(file),
    },
    Native {
        kind: FsKind::Btrfs,
        engine: |mount, _, _| boxed(Ok(btrfs::Btrfs::new(mount))),
        may_move: |_, file| btrfs::may_move(file),
    },
    Native {
        kind: FsKind::F2fs,
        engine: |mount, _, force| boxed(f2fs::F2fs::new(mount, force)),
        may_move: |flags, _| f2fs::may_move(flags),
    },
];

/// The row of a file system; `None` where it has no engine of its own.
pub(crate) fn row(kind: FsKind) -> Option<&'static Native> {
    NATIVE.iter().find(|row| row.kind == kind)
}

/// An engine of any kind, if it serves the mount.
pub(crate) fn boxed<E: Engine + 'static>(engine: Result<E, String>) -> Served {
    engine.map(|engine| Box::new(engine) as Box<dyn Engine>)
}
