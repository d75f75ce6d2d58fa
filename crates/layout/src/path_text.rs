//! A path in JSON: text for people, and the exact bytes where text cannot hold them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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

impl From<&Path> for PathText {
    fn from(path: &Path) -> Self {
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
    fn damaged_hex_is_refused() {
        for hex in ["f", "zz", "f\u{e9}"] {
            let text = PathText { path: "x".into(), path_bytes: Some(hex.into()) };
            assert_eq!(text.to_path(), None);
        }
    }
}
