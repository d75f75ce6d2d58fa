//! A recursive grep: every file is read from its start to its end, through the page cache. The papers measure sequential reads with
//! it (FragPicker, section 5.4; InDeF, section V): F-fig11, I-fig12. Also what a launch of an app reads of its files.

use super::{Done, Load, read_whole};
use fragmend_layout::FileId;
use fragmend_simfs::error::Error;
use fragmend_simfs::file_system::{Access, FileSystem};
use std::path::{Path, PathBuf};

/// Bytes of a call: the window of the kernel's readahead, so that a call is what reaches the drive at a time.
pub const CALL: u64 = 128 << 10;

/// Reads files whole, one with each operation, in the order of their names.
#[derive(Clone, Debug)]
pub struct Grep {
    left: std::vec::IntoIter<FileId>,
    access: Access,
}

impl Grep {
    /// A reader of every file whose path begins with `prefix`; an empty one is all files.
    ///
    /// # Errors
    /// The files cannot be listed.
    pub fn of(files: &dyn FileSystem, prefix: &str, access: Access) -> Result<Self, Error> {
        let mut found: Vec<(PathBuf, FileId)> = Vec::new();
        let mut failed = None;
        let listed = files.files(&mut |path: &Path, file| match file {
            Ok(file) if path.to_string_lossy().starts_with(prefix) => {
                found.push((path.into(), file))
            }
            Ok(_) => {}
            Err(skip) => failed = Some(skip),
        });
        if let Some(skip) = listed.err().or(failed) {
            return Err(Error::Damaged(skip.to_string()));
        }
        found.sort();
        let files: Vec<FileId> = found.into_iter().map(|(_, file)| file).collect();
        Ok(Self { left: files.into_iter(), access })
    }
}

impl Load for Grep {
    fn next(&mut self, files: &dyn FileSystem) -> Result<Option<Done>, Error> {
        let Some(file) = self.left.next() else { return Ok(None) };
        read_whole(files, file, CALL, self.access).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::double::Double;
    use fragmend_layout::ByteRange;

    #[test]
    fn every_file_is_read_whole_with_calls_of_a_window() {
        let files = Double::new(1000);
        for (name, bytes) in [("a/1", 300 << 10), ("a/2", 5000), ("b", 4096)] {
            let file = files.create(Path::new(name)).unwrap();
            files.write(file, ByteRange::at(0, bytes), Access::Direct).unwrap();
        }
        let read = |prefix| {
            let calls = files.reads();
            let done = Grep::of(&files, prefix, Access::Buffered).unwrap().finish(&files).unwrap();
            (done.read_bytes, files.reads() - calls)
        };
        assert_eq!(read("a/"), ((300 << 10) + 5000, 3 + 1));
        assert_eq!(read(""), ((300 << 10) + 5000 + 4096, 3 + 1 + 1));
    }
}
