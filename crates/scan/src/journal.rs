//! The names of directories in which a rewrite keeps its records (`engines/src/rewrite/journal.rs`). A walk leaves
//! them out: while a file lacks bytes they are nowhere else, so nothing may move them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name at the top of a file system.
pub const DIRECTORY: &str = ".fragmend-rewrite";

/// How the name begins anywhere else; the file system's UUID, or its `f_fsid`, follows in hexadecimal.
pub const ELSEWHERE: &str = "fragmend-rewrite-";

/// Whether a path leads to one, or to what is in it; links are followed.
pub(crate) fn is_in_one(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.components().any(|name| is_name_of_one(name.as_os_str().as_bytes()))
}

/// Whether a directory of this name is one of records.
pub(crate) fn is_name_of_one(name: &[u8]) -> bool {
    let id = name.strip_prefix(ELSEWHERE.as_bytes());
    let is_id = |id: &[u8]| matches!(id.len(), 16 | 32) && id.iter().all(u8::is_ascii_hexdigit);
    name == DIRECTORY.as_bytes() || id.is_some_and(is_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_only_resembles_one_is_another() {
        let uuid = "0123456789abcdef".repeat(2);
        for id in [&uuid, &uuid[..16]] {
            assert!(is_name_of_one(format!("{ELSEWHERE}{id}").as_bytes()), "{id}");
        }
        for name in ["", ".fragmend", ".fragmend-rewrite-old", ELSEWHERE, "fragmend-rewrite-notes"]
        {
            assert!(!is_name_of_one(name.as_bytes()), "{name}");
        }
        assert!(is_name_of_one(DIRECTORY.as_bytes()));
    }
}
