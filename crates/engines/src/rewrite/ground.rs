//! What the file systems under a rewrite must promise: the one that holds the files, and the one that holds the
//! records.
//!
//! A record is only as durable as its file system's `fsync` makes it. So a journal may be only where that is
//! known: on a local disk, with write barriers and with a journal that keeps names and sizes. Rewriting a file
//! in place leaves a hole in it for some milliseconds. Where the file system itself can take a snapshot in just
//! that moment, the snapshot keeps the hole permanently, and no lease prevents a snapshot.

use super::below;
use crate::engine::local;
use crate::ordering::ext4_options;
use fragmend_sys::mounts::Mount;
use std::path::Path;

/// File systems that take snapshots of their own.
const WITH_SNAPSHOTS: [&str; 6] = ["btrfs", "bcachefs", "nilfs2", "zfs", "next3", "apfs"];

/// File systems whose `fsync` is known to make a file and its name durable. Not F2FS: its `fsync` may return while a
/// checkpoint that includes the file is not complete.
const KNOWN: [&str; 4] = ["ext4", "ext3", "xfs", "btrfs"];

/// Options under which nothing orders what reaches the device (ext4(5), btrfs(5), the kernel's
/// filesystems/f2fs.rst).
const UNORDERED: [(&str, &str); 5] = [
    ("nobarrier", "without write barriers"),
    ("barrier=0", "without write barriers"),
    ("fsync_mode=nobarrier", "without write barriers"),
    ("data=writeback", "with data=writeback"),
    ("journal_async_commit", "with journal_async_commit"),
];

/// Whether files of a mount may be rewritten in place.
///
/// # Errors
/// Why they may not, whatever the options.
pub(crate) fn for_files(mount: &Mount) -> Result<(), String> {
    local(mount)?;
    if snapshots(mount) {
        return Err(format!(
            "{}: it takes snapshots, and one that is taken while a range is a hole keeps the hole permanently; --engine rewrite is not for it, not even with --force",
            mount.fs_type
        ));
    }
    // It is not known there what the disk has, nor which pages a device writes to.
    if ext4_options(mount.dev).is_ok_and(|listed| listed.lines().any(|l| l == "data=journal")) {
        return Err("mounted with data=journal, where files cannot be read past the page cache; mount it with data=ordered".into());
    }
    ordered(mount).map_err(|why| {
        format!(
            "{why}, so a power cut could take away what was synced; --engine rewrite is not for it"
        )
    })
}

/// Whether a file system takes snapshots, so that more than one state of a file may exist.
pub(crate) fn snapshots(mount: &Mount) -> bool {
    WITH_SNAPSHOTS.contains(&mount.fs_type.as_str())
}

/// Whether records on a mount survive a power cut.
///
/// # Errors
/// Why they do not, and what to do.
pub(crate) fn for_records(mount: &Mount) -> Result<(), String> {
    let refuse = |why: String| {
        let what = "records of a rewrite must outlast a power cut";
        Err(format!(
            "{what}, and {} is {why}; keep them elsewhere (--journal DIR)",
            mount.point.display()
        ))
    };
    if let Err(why) = local(mount) {
        return refuse(format!("no place for them: {why}"));
    }
    if mount.has_option("ro") {
        return refuse("mounted read-only".into());
    }
    let kind = mount.fs_type.as_str();
    if !KNOWN.contains(&kind) {
        return refuse(format!("of a kind ({kind}) that is not known to keep what was synced"));
    }
    ordered(mount).or_else(refuse)
}

/// Whether the top of a mount is that of its file system: there `recover` looks, whatever is mounted by then.
///
/// # Errors
/// That it is not, and what to do.
pub(crate) fn is_top(mount: &Mount) -> Result<(), String> {
    if mount.root == Path::new("/") {
        return Ok(());
    }
    Err(format!(
        "records of a rewrite are kept at the top of their file system, and of this one {} alone is mounted here; keep them elsewhere (--journal DIR), or rewrite where all of it is mounted",
        mount.root.display()
    ))
}

/// Whether records on a mount survive a power cut. They need not where the files are in memory as well, and are
/// lost together with them.
///
/// # Errors
/// The disk or file system in memory.
pub(crate) fn for_records_of(mount: &Mount, files: &Mount) -> Result<(), String> {
    for_records(mount)?;
    match below::in_memory(mount) {
        Some(what) if below::in_memory(files).is_none() => Err(format!(
            "records of a rewrite must outlast a power cut, and {} is on a disk in memory ({what}); keep them elsewhere (--journal DIR)",
            mount.point.display()
        )),
        _ => Ok(()),
    }
}

/// Whether a mount keeps what was synced, as far as its options show.
///
/// # Errors
/// The option that it is mounted with, or what it lacks.
fn ordered(mount: &Mount) -> Result<(), String> {
    let is_ext = ["ext4", "ext3", "ext2"].contains(&mount.fs_type.as_str());
    let listed = if is_ext {
        ext4_options(mount.dev).map_err(|e| format!("silent about its journal ({e})"))?
    } else {
        String::new()
    };
    let set = |option: &str| mount.has_option(option) || listed.lines().any(|l| l == option);
    if let Some((_, how)) = UNORDERED.iter().find(|(option, _)| set(option)) {
        return Err(format!("mounted {how}"));
    }
    if is_ext && !listed.lines().any(|l| l.starts_with("data=")) {
        Err("without a journal".into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, options: &str) -> Mount {
        Mount {
            id: 1,
            parent: 0,
            dev: 0,
            root: "/".into(),
            point: "/mnt".into(),
            fs_type: kind.into(),
            source: "none".into(),
            options: options.split(',').map(str::to_owned).collect(),
            upper: None,
        }
    }

    #[test]
    fn what_takes_snapshots_is_known_by_name() {
        for kind in ["btrfs", "bcachefs", "nilfs2", "zfs"] {
            assert!(snapshots(&mount(kind, "rw")), "{kind}");
            assert!(for_files(&mount(kind, "rw")).is_err(), "{kind}");
        }
        assert!(!snapshots(&mount("xfs", "rw")));
    }

    #[test]
    fn memory_servers_programs_and_overlays_keep_no_records() {
        let kinds = ["tmpfs", "ramfs", "nfs4", "cifs", "9p", "fuse.sshfs", "fuseblk", "overlay"];
        for kind in kinds {
            let why = for_records(&mount(kind, "rw")).unwrap_err();
            assert!(why.contains("--journal"), "{kind}: {why}");
        }
    }
}
