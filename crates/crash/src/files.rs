//! The files of one run: what each is for, and what is promised of it after any cut.

use crate::content::fill;
use fragmend_testbed::fragment::{alternating, interleaved_with};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What happens to a file while others move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Nobody writes it: after any cut it is as it was, with size, mode and modification time.
    Still,
    /// Overwritten through the page cache: each byte has a version not older than what was
    /// last synced, and never anything else.
    Buffered,
    /// The same with `O_DIRECT`.
    Direct,
    /// The same through a shared mapping.
    Mapped,
    /// Grows: what was synced is there. What lies behind may be missing or zero.
    Appended,
    /// Opened, changed in every way and synced in every way after something of it has moved, by
    /// [`crate::life`]: what was synced is there. Behind its last durable end lie zeroes or bytes of its
    /// own, if anything: Btrfs shows old ones there, without a move, too.
    Living,
    /// Cut down to its floor, and written anew above it: below the floor it is as it was, above
    /// may be zeroes, and nothing but its own bytes.
    Truncated,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOf {
    /// Its name in the directory of all.
    pub name: String,
    /// What its bytes say; see [`crate::content`].
    pub tag: u32,
    /// What happens to it.
    pub role: Role,
    /// Size at first, in bytes.
    pub bytes: u64,
    /// Mode at first.
    pub mode: u32,
    /// Modification time at first: seconds, nanoseconds.
    pub modified: (i64, i64),
    /// Pieces that it lay in at first.
    pub pieces: u64,
    /// Pieces that it lay in when recording ended.
    pub pieces_after: u64,
}

/// The directory in which other files come, are renamed, and go; their tags are in their names.
pub const CHURN: &str = "churn";

/// The first tag of files there.
pub const CHURN_TAGS: u32 = 1000;

/// The directory that `fragmend` is told to mend.
pub const MENDED: &str = "mended";

/// Below this, a file of so many bytes is never cut off.
pub fn floor(bytes: u64) -> u64 {
    bytes / 2 / 4096 * 4096
}

/// How many pieces a file lies in.
///
/// # Panics
/// When it cannot be read.
pub fn pieces(path: &Path) -> u64 {
    let file = std::fs::File::open(path).expect("a file of the run");
    let layout = fragmend_scan::layout_of(&file).expect("its layout");
    layout.extents().len() as u64
}

/// Takes space until so many bytes are free: what is freed is then taken again soon.
///
/// # Panics
/// When the disk refuses.
pub fn leave_free(root: &Path, bytes: u64) {
    let stat = rustix::fs::statvfs(root).expect("the file system's size");
    let take = (stat.f_bavail * stat.f_frsize).saturating_sub(bytes);
    fragmend_testbed::aging::reserve(&root.join("filler"), take);
}

/// Makes one in pieces of [`PIECE`], with the space between them taken by another beside it.
fn fragmented(path: &Path, tag: u32, bytes: u64) {
    // While an allocation group is busy, XFS puts one of the two into another.
    for _ in 0..TRIES {
        let _ = (std::fs::remove_file(path), std::fs::remove_file(beside(path)));
        let content = |at: u64, buffer: &mut [u8]| fill(tag, at, 0, buffer);
        interleaved_with(path, bytes, &[PIECE], true, content).expect("a fragmented file");
        if pieces(path) > bytes / PIECE / 2 {
            break;
        }
    }
}

/// What lies between the pieces of a file.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("dummy")
}

/// Bytes of a piece.
const PIECE: u64 = 8192;
/// How often a file is made at most until it lies in pieces.
const TRIES: u32 = 20;

/// Pieces of a file that is written so that it is compressed, in bytes.
const COMPRESSED_PIECE: u64 = 16 << 10;

/// Makes the files of a run below `root`, each in many pieces. Where the file system compresses,
/// half of those that nobody writes are compressed.
///
/// # Panics
/// When the disk refuses.
pub fn make(root: &Path, still: u32, living: u32, bytes: u64) -> Vec<FileOf> {
    let mount = fragmend_sys::mounts::of_path(root).expect("its mount");
    let compresses = mount.options.iter().any(|o| o.starts_with("compress"));
    let dir = root.join(MENDED);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::create_dir_all(root.join(CHURN)).expect("a directory");
    let written = [Role::Buffered, Role::Direct, Role::Mapped, Role::Appended, Role::Truncated];
    let living = (0..living).map(|_| Role::Living);
    let roles = written.into_iter().chain(living).chain((0..still).map(|_| Role::Still));
    let mut files = Vec::new();
    for (tag, role) in (1u32..).zip(roles) {
        // Some end inside a block, and inside a sector.
        let bytes = if role == Role::Still { bytes - u64::from(tag % 3) * 1001 } else { bytes };
        let name = format!("{tag:03}-{role:?}").to_lowercase();
        let path = dir.join(&name);
        match role == Role::Still && tag.is_multiple_of(2) && compresses {
            true => alternating(&path, bytes, COMPRESSED_PIECE, |at, buffer| {
                fill(tag, at, 0, buffer);
            })
            .expect("a fragmented file"),
            false => fragmented(&path, tag, bytes),
        }
        let mode = 0o600 | (tag % 8);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        let meta = path.metadata().expect("a file just made");
        files.push(FileOf {
            name,
            tag,
            role,
            bytes,
            mode: meta.mode(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            pieces: pieces(&path),
            pieces_after: 0,
        });
    }
    // Only now: others would lie in the space that goes free. It stays taken beside every other
    // file, where nobody mends what takes it.
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
