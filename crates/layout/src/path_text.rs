//! A path in JSON: text for people, and the exact bytes where text cannot hold them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The longest path that the kernel opens, in bytes, with the zero at its end (linux/limits.h). A file that has
/// a longer one is planned for under its number.
pub const PATH_MAX: usize = 4096;

/// The longest path that is put together, shown and written, in bytes. A user may make paths of megabytes: they
/// are [`shortened`].
pub const LONGEST_PATH: usize = 4 * PATH_MAX;

/// So many bytes of either end of a longer path are shown, at most.
const SHOWN: usize = 512;

/// What is shown of a path of `length` bytes that begins with `start` and ends with `end`, of both of which no
/// more than is needed is used: whole components at either end, and between them how many bytes are missing.
pub fn shortened(start: &[u8], end: &[u8], length: usize) -> PathBuf {
    let slash = |bytes: &[u8]| bytes.iter().position(|b| *b == b'/');
    let start = match start.get(..SHOWN) {
        Some(cut) => &cut[..cut.iter().rposition(|b| *b == b'/').unwrap_or(SHOWN)],
        None => start,
    };
    let end = match end.len().checked_sub(SHOWN).map(|from| &end[from..]) {
        Some(cut) => &cut[slash(cut).map_or(0, |at| at + 1)..],
        None => end,
    };
    let left_out = length.saturating_sub(start.len() + end.len());
    let between = format!("/...({left_out} bytes of the path left out).../");
    OsString::from_vec([start, between.as_bytes(), end].concat()).into()
}

/// To be flattened into the structure that has the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PathText {
    /// The path; what is not UTF-8 shows as U+FFFD.
    pub path: String,
    /// The path's bytes in hexadecimal, present only where `path` is not exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

impl PathText {
    /// The exact path; `None` when `path_bytes` is not hexadecimal.
    pub fn to_path(&self) -> Option<PathBuf> {
        let Some(hex) = &self.path_bytes else { return Some(PathBuf::from(&self.path)) };
        let digits = hex.as_bytes().chunks(2).map(|pair| {
            let text = std::str::from_utf8(pair).ok().filter(|t| t.len() == 2)?;
            u8::from_str_radix(text, 16).ok()
        });
        Some(OsString::from_vec(digits.collect::<Option<Vec<u8>>>()?).into())
    }
}

/// No longer than [`LONGEST_PATH`]: a longer one is [`shortened`].
impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
        let whole = path.as_os_str().as_bytes();
        let path = if whole.len() > LONGEST_PATH {
            Cow::Owned(shortened(whole, whole, whole.len()))
        } else {
            Cow::Borrowed(path)
        };
        let bytes = path.as_os_str().as_bytes();
        let exact = std::str::from_utf8(bytes).is_ok();
        let hex = || bytes.iter().map(|b| format!("{b:02x}")).collect();
        Self { path: path.to_string_lossy().into_owned(), path_bytes: (!exact).then(hex) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn every_name_comes_back() {
        for name in [&b"plain"[..], b"new\nline", b"\xff\xfe", "µ".as_bytes()] {
            let path = Path::new(OsStr::from_bytes(name));
            assert_eq!(PathText::from(path).to_path().unwrap(), path);
        }
    }

    #[test]
    fn a_path_without_end_is_shown_by_both_its_ends() {
        let longest = "/x".repeat(LONGEST_PATH / 2);
        assert_eq!(PathText::from(Path::new(&longest)).path, longest);
        let longer = "/home/".to_owned() + &"name/".repeat(1 << 20) + "file";
        let shown = PathText::from(Path::new(&longer));
        let (start, end) = shown.path.split_once("/...(").unwrap();
        assert!(longer.starts_with(start) && start.ends_with("/name"), "{start}");
        let (left_out, end) = end.split_once(" bytes of the path left out).../").unwrap();
        assert!(longer.ends_with(end) && end.starts_with("name/"), "{end}");
        let left_out: usize = left_out.parse().unwrap();
        assert_eq!(start.len() + left_out + end.len(), longer.len());
        assert!(shown.path.len() < 2 * SHOWN + 64);
        // A single name, and one that is no text.
        let name = vec![0xff; 3 * LONGEST_PATH];
        let shown = PathText::from(Path::new(std::ffi::OsStr::from_bytes(&name)));
        assert!(shown.to_path().unwrap().as_os_str().len() < 2 * SHOWN + 64);
    }

    #[test]
    fn damaged_hex_is_refused() {
        for hex in ["f", "zz", "f\u{e9}"] {
            let text = PathText { path: "x".into(), path_bytes: Some(hex.into()) };
            assert_eq!(text.to_path(), None);
        }
    }
}
