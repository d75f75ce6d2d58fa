//! The text in a file, for the textfile collector of the node exporter.
//!
//! The file appears whole, under its name, by a rename: a collector never reads half of it. A power cut leaves the old
//! one, or the new one.

use crate::Text;
use fragmend_sys::output::{self, Audience};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Every user may create and rename files in the directory.
const WRITABLE_BY_ALL: u32 = 0o002;

/// Writes the text to `path`, which every user may read: there is nothing of a user's in it.
///
/// # Errors
/// What the file system refuses; `PermissionDenied` for a directory that every user may write, who could put other figures in
/// the file's place. The file is then as it was.
pub fn write(path: &Path, text: &Text) -> io::Result<()> {
    check(path)?;
    output::write(path, Audience::Everybody, text.plain.as_bytes())
}

/// Checks that there is a directory for it, on a file system that is not mounted read-only, and nothing in its place that is no file.
///
/// # Errors
/// As [`write`], as far as every user can see it.
pub fn check(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if directory.metadata()?.permissions().mode() & WRITABLE_BY_ALL != 0 {
        let why = "every user may write its directory, and could replace it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    output::is_mounted_writable(directory)?;
    output::replaces(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    #[test]
    fn everybody_may_read_the_file_and_nobody_else_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fragmend.prom");
        let text = |plain: &str| Text { open: String::new(), plain: plain.into() };
        write(&path, &text("a 1\n")).unwrap();
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
        let before = inode(&path);
        write(&path, &text("a 2\n")).unwrap();
        assert_ne!(inode(&path), before, "it is another file, under its name");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 2\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");

        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        let refused = write(&path, &text("a 3\n")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a 2\n");
    }
}
