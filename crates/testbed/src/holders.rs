//! Unmounting with a limit, and what keeps a mount in use.

use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Unmounting counts as hung after this: what is dirty was not written to the device by then.
pub const HUNG: Duration = Duration::from_secs(120);
/// The most that are named.
const MOST: usize = 8;

/// Unmounts what is at `dir`, in a thread of its own; `None` if that has not ended after `limit`. It goes on then.
pub fn unmount_within(dir: &Path, flags: UnmountFlags, limit: Duration) -> Option<io::Result<()>> {
    let (send, receive) = channel();
    let at = dir.to_owned();
    let unmounts = move || drop(send.send(unmount(&at, flags).map_err(io::Error::from)));
    let thread = std::thread::Builder::new().name("unmount".into()).spawn(unmounts);
    match thread {
        Ok(_) => receive.recv_timeout(limit).ok(),
        Err(e) => Some(Err(e)),
    }
}

/// What uses files below `dir`, in words: open files and directories of processes, and loop devices. Mappings of closed files
/// are not looked for: a process that hangs may hold the lock that they need.
pub fn named(dir: &Path) -> String {
    let mut found = processes(dir);
    found.extend(loop_devices(dir));
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    match (found.is_empty(), more) {
        (true, _) => "no process has a file of it open".into(),
        (false, 0) => format!("in use by {}", found.join(", ")),
        (false, more) => format!("in use by {} and {more} more", found.join(", ")),
    }
}

fn processes(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in entries(Path::new("/proc")) {
        let is_number = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let Some(pid) = process.file_name().and_then(|name| name.to_str()).filter(|n| is_number(n))
        else {
            continue;
        };
        let links = ["cwd", "root", "exe"].map(|name| process.join(name));
        let links = links.into_iter().chain(entries(&process.join("fd")));
        let below = |link: PathBuf| fs::read_link(link).ok().filter(|path| path.starts_with(dir));
        if let Some(path) = links.filter_map(below).next() {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            found.push(format!("{} (process {pid}: {})", name.trim(), path.display()));
        }
    }
    found
}

fn loop_devices(dir: &Path) -> Vec<String> {
    let behind = |disk: PathBuf| {
        let file = fs::read_to_string(disk.join("loop/backing_file")).ok()?;
        let file = Path::new(file.trim_end_matches('\n'));
        let name = disk.file_name()?.to_string_lossy().into_owned();
        file.starts_with(dir).then(|| format!("{name} ({})", file.display()))
    };
    entries(Path::new("/sys/block")).into_iter().filter_map(behind).collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
