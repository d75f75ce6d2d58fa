//! Where a process is: its cgroup, by `/proc/PID/cgroup`, which every user may read.

use fragmend_sys::input;
use std::path::Path;

/// The longest list of cgroups that is read, in bytes: one name for each hierarchy, of at most 4096 bytes.
const LONGEST: u64 = 64 << 10;

/// The cgroup of a process, without the leading slash; `None` once it has ended, and where there is no cgroup v2.
pub fn cgroup_of(pid: u32) -> Option<String> {
    let text = input::read_text(Path::new(&format!("/proc/{pid}/cgroup")), LONGEST).ok()?;
    parse(&text).map(str::to_owned)
}

/// The entry of the unified hierarchy (cgroups(7)): `0::/path`.
fn parse(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // The process has left a cgroup that was removed.
    Some(path.strip_suffix(" (deleted)").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_counts() {
        assert_eq!(
            parse("1:cpu:/a\n0::/system.slice/db.service\n"),
            Some("system.slice/db.service")
        );
        assert_eq!(parse("0::/\n"), Some(""));
        assert_eq!(parse("0::/gone (deleted)\n"), Some("gone"));
        assert_eq!(parse("1:cpu:/a\n"), None);
        assert_eq!(cgroup_of(std::process::id()), cgroup_of(std::process::id()));
        assert_eq!(cgroup_of(u32::MAX), None);
    }
}
