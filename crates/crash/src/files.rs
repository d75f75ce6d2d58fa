//! The files of one run: what each is for, and what is promised of it after any cut.

use crate::content::fill;
use fragmend_testbed::fragment::{alternating, interleaved_with};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What happens to a file while others move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Not written: after any cut it is as it was, with size, mode and modification time.
    #[serde(alias = "Still")]
    Untouched,
    /// Overwritten through the page cache: each byte has a version not older than the last synced
    /// one.
    Buffered,
    /// The same with `O_DIRECT`.
    Direct,
    /// The same through a shared mapping.
    Mapped,
    /// Grows: what was synced is there. What comes after may be missing or zero.
    Appended,
    /// Changed after a range of it has moved, and synced by any of the calls, in [`crate::later_use`]: what
    /// was synced is there. Behind its last durable end are zeroes or bytes of its own, if anything: Btrfs
    /// shows old ones there, also without a mover.
    #[serde(alias = "Living")]
    UsedLater,
    /// Truncated, down to its floor, and extended again: below the floor it is as it was; above it
    /// are zeroes or its own bytes.
    Truncated,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestFile {
    /// Its name in [`MENDED`].
    pub name: String,
    /// Its tag in the content; see [`crate::content`].
    pub tag: u32,
    /// What happens to it.
    pub role: Role,
    /// Initial size in bytes.
    pub bytes: u64,
    /// Initial mode.
    pub mode: u32,
    /// Initial modification time: seconds, nanoseconds.
    pub modified: (i64, i64),
    /// Extents when recording began.
    #[serde(alias = "pieces")]
    pub extents: u64,
    /// Extents when recording ended.
    #[serde(alias = "pieces_after")]
    pub extents_after: u64,
}

/// The directory in which other files are made, renamed and deleted; their names are their tags.
pub const CHURN: &str = "churn";

/// The first tag of files there.
pub const CHURN_TAGS: u32 = 1000;

/// The directory of the files that are moved.
pub const MENDED: &str = "mended";

/// The size below which a file of `bytes` bytes is never truncated.
pub fn floor(bytes: u64) -> u64 {
    bytes / 2 / 4096 * 4096
}

/// How many extents a file is in.
///
/// # Panics
/// When it cannot be read.
pub fn extent_count(path: &Path) -> u64 {
    let file = std::fs::File::open(path).expect("a file of the run");
    let layout = fragmend_scan::layout_of(&file).expect("its layout");
    layout.extents().len() as u64
}

/// Fills the file system until `bytes` are free, so that freed space is reused soon.
///
/// # Panics
/// When the disk refuses.
pub fn leave_free(root: &Path, bytes: u64) {
    let stat = rustix::fs::statvfs(root).expect("the file system's size");
    let surplus = (stat.f_bavail * stat.f_frsize).saturating_sub(bytes);
    fragmend_testbed::aging::reserve(&root.join("filler"), surplus);
}

/// Makes a file in extents of [`EXTENT`] bytes, with the space between them used by another file.
fn fragmented(path: &Path, tag: u32, bytes: u64) {
    // While an allocation group is busy, XFS puts one of the two into another.
    for _ in 0..TRIES {
        let _ = (std::fs::remove_file(path), std::fs::remove_file(beside(path)));
        let content = |at: u64, buffer: &mut [u8]| fill(tag, at, 0, buffer);
        interleaved_with(path, bytes, &[EXTENT], true, content).expect("a fragmented file");
        if extent_count(path) > bytes / EXTENT / 2 {
            break;
        }
    }
}

/// The file whose extents are between those of this one.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("dummy")
}

/// Bytes of an extent.
const EXTENT: u64 = 8192;
/// Attempts to make a file fragmented.
const TRIES: u32 = 20;

/// Bytes of an extent of a compressed file.
const COMPRESSED_EXTENT: u64 = 16 << 10;

/// Makes the files of a run below `root`, each in many extents. Where the file system compresses, half of the
/// untouched ones are compressed.
///
/// # Panics
/// When the disk refuses.
pub fn make(root: &Path, untouched: u32, used_later: u32, bytes: u64) -> Vec<TestFile> {
    let mount = fragmend_sys::mounts::of_path(root).expect("its mount");
    let compresses = mount.options.iter().any(|o| o.starts_with("compress"));
    let dir = root.join(MENDED);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::create_dir_all(root.join(CHURN)).expect("a directory");
    let written = [Role::Buffered, Role::Direct, Role::Mapped, Role::Appended, Role::Truncated];
    let used_later = (0..used_later).map(|_| Role::UsedLater);
    let untouched = (0..untouched).map(|_| Role::Untouched);
    let roles = written.into_iter().chain(used_later).chain(untouched);
    let mut files = Vec::new();
    for (tag, role) in (1u32..).zip(roles) {
        // Some end inside a block, and inside a sector.
        let bytes = if role == Role::Untouched { bytes - u64::from(tag % 3) * 1001 } else { bytes };
        let name = format!("{tag:03}-{role:?}").to_lowercase();
        let path = dir.join(&name);
        if role == Role::Untouched && tag.is_multiple_of(2) && compresses {
            let content = |at: u64, buffer: &mut [u8]| fill(tag, at, 0, buffer);
            alternating(&path, bytes, COMPRESSED_EXTENT, content).expect("a fragmented file");
        } else {
            fragmented(&path, tag, bytes);
        }
        let mode = 0o600 | (tag % 8);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        let meta = path.metadata().expect("a file just made");
        files.push(TestFile {
            name,
            tag,
            role,
            bytes,
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            extents: extent_count(&path),
            extents_after: 0,
        });
    }
    // Only after all files are made, or later ones would use the space that is freed here. Beside every
    // second file the space stays in use, by a file outside the directory that is moved.
    for file in &files {
        let path = beside(&dir.join(&file.name));
        if !path.exists() {
            continue; // a compressed one has none
        }
        let kept = root.join(path.file_name().expect("a name"));
        let done = if file.tag.is_multiple_of(2) {
            std::fs::rename(&path, kept)
        } else {
            std::fs::remove_file(&path)
        };
        done.expect("its neighbour out of the way");
    }
    files
}
