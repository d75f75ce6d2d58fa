//! Whether other users can rename or replace what is ours in a directory, or a directory above it.
//!
//! A program of root's that uses a path twice must not be led elsewhere in between. A user can do that in a directory
//! that is theirs, or in which everybody may write without the sticky bit.

use crate::root;
use rustix::fs::Stat;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Whether a file or directory is this user's.
pub fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether no other user can rename what is ours in a directory.
pub(crate) fn holds_what_is_ours(stat: &Stat) -> bool {
    const STICKY: u32 = 0o1000;
    (is_ours(stat) || stat.st_uid == 0) && (stat.st_mode & 0o022 == 0 || stat.st_mode & STICKY != 0)
}

/// The first directory in which others can rename what is ours: `dir`, which is at `path`, or one above it up to the
/// top of its mount. What is above its mount is not asked.
///
/// # Errors
/// Those of `fstat(2)` and `open(2)`.
pub fn open_to_others_on_mount(dir: impl AsFd, path: &Path) -> io::Result<Option<PathBuf>> {
    let (mut paths, mut at): (_, Option<OwnedFd>) = (path.ancestors(), None);
    loop {
        let dir = at.as_ref().map_or(dir.as_fd(), AsFd::as_fd);
        let path = paths.next().unwrap_or(Path::new("/"));
        if !holds_what_is_ours(&rustix::fs::fstat(dir)?) {
            return Ok(Some(path.to_owned()));
        }
        match root::above(dir)? {
            Some(above) => at = Some(above),
            None => return Ok(None),
        }
    }
}

/// The first directory, from `/` on, in which others can rename what is ours, on the way to a directory whose
/// absolute path has no links. Each is looked at after those above it are known to be safe, so a path that passes
/// still leads to what was looked at.
///
/// # Errors
/// Those of `lstat(2)`; `NotADirectory` for anything else on the way.
pub fn open_to_others(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    for dir in way {
        let found = rustix::fs::lstat(dir)?;
        let what = rustix::fs::FileType::from_raw_mode(found.st_mode);
        if what != rustix::fs::FileType::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if !holds_what_is_ours(&found) {
            return Ok(Some(dir.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_all_may_write_to_is_open_unless_it_is_sticky() {
        let dir = std::env::temp_dir().join(format!("fragmend-held-{}", std::process::id()));
        let below = dir.join("below");
        fs::create_dir_all(&below).unwrap();
        let mut answers = Vec::new();
        for mode in [0o700, 0o777, 0o1777] {
            fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            let held = fs::File::open(&below).unwrap();
            let canonical = below.canonicalize().unwrap();
            let both = [open_to_others_on_mount(held, &canonical), open_to_others(&canonical)];
            let dir = dir.canonicalize().unwrap();
            answers.push(both.map(|open| open.unwrap().is_some_and(|found| found == dir)));
        }
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(answers, [[false; 2], [true; 2], [false; 2]]);
    }
}
