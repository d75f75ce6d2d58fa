//! Text: sizes, names, mounts.

use fragmend_layout::PathText;
use fragmend_report::size;
use fragmend_sys::mounts;
use fragmend_trace::file::text::{escape, unescape};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many mounts of a table are looked at.
const SOME: usize = 8;

/// `/proc/self/mountinfo`, which contains names that others chose.
pub fn mounts(input: &[u8]) -> bool {
    let mounts = mounts::parse(input);
    assert!(mounts.len() <= input.split(|byte| *byte == b'\n').count());
    // Each is looked for among all others.
    for mount in mounts.iter().step_by(mounts.len() / SOME + 1) {
        let hidden = !mounts::is_visible(&mounts, mount);
        let best = mounts::best(&mounts, mount.dev);
        assert!(
            hidden || best.is_some_and(|best| mount.has_option("ro") || !best.has_option("ro"))
        );
        assert!(best.is_none_or(|best| best.dev == mount.dev));
        let _ = mount.overlay_layers();
    }
    !mounts.is_empty()
}

/// Sizes on the command line, and names in JSON and in traces.
pub fn text(input: &[u8]) -> bool {
    assert_eq!(unescape(escape(input).as_bytes()), input);
    let name = Path::new(OsStr::from_bytes(input));
    assert_eq!(PathText::from(name).to_path().as_deref(), Some(name));
    let Ok(text) = std::str::from_utf8(input) else { return false };
    assert!(unescape(input).len() <= input.len());
    let hex = PathText { path: String::new(), path_bytes: Some(text.to_owned()) };
    if let Some(path) = hex.to_path() {
        assert_eq!(path.as_os_str().len() * 2, text.len());
    }
    match size::bytes(text) {
        Ok(bytes) => {
            assert_eq!(size::bytes(&bytes.to_string()), Ok(bytes));
            true
        }
        Err(why) => {
            assert!(!why.contains('\n') || text.contains('\n'), "{why}");
            false
        }
    }
}
