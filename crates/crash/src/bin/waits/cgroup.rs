//! A memory cgroup, and programs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::time::{Duration, Instant};

/// A memory cgroup, of either version; removed when dropped.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates one with this limit.
    pub fn new(bytes: u64) -> Self {
        let name = format!("fragmend-waits-{}", id());
        let (root, limit) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let dir = Path::new(root).join(name);
        fs::create_dir(&dir).expect("a memory cgroup: run it where one may be made");
        let cgroup = Self(dir);
        fs::write(cgroup.0.join(limit), bytes.to_string()).expect("a limit");
        cgroup
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A program, in the cgroup if there is one.
pub fn inside(cgroup: Option<&Cgroup>, program: &Path) -> Command {
    let Some(cgroup) = cgroup else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
    command.arg(cgroup.0.join("cgroup.procs")).arg(program);
    command
}
