//! How much memory this process can still allocate. An input may claim any size, and a process that allocates
//! more than there is gets no error, but is killed.

use rustix::process::{Resource, getrlimit};
use std::fs::read_to_string;
use std::path::Path;

/// Bytes that can still be allocated: of the machine's memory, of the process's limits (`ulimit -v`,
/// `-d`), and of the cgroups (v2) that it is in; `u64::MAX` where nothing is known.
pub fn room() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let limited = |limit, used: &str| {
        let most = getrlimit(limit).current.unwrap_or(u64::MAX);
        most.saturating_sub(kib(&status, used).unwrap_or(0))
    };
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| kib(&text, "MemAvailable:"));
    let group = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    [
        limited(Resource::As, "VmSize:"),
        limited(Resource::Data, "VmData:"),
        machine.unwrap_or(u64::MAX),
        of_cgroups(Path::new("/sys/fs/cgroup"), group),
    ]
    .into_iter()
    .min()
    .unwrap_or(u64::MAX)
}

/// From now on large allocations that are freed stay with this process: one that makes and drops the same large
/// tables hundreds of times otherwise spends most of its time on the kernel's clearing of their pages
/// (mallopt(3)). Without effect under another C library than glibc.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it changes the allocator's settings only, and may be called at any time.
    unsafe {
        if libc::mallopt(libc::M_MMAP_THRESHOLD, i32::MAX) == 0 {
            // The most that glibc before 2.35 accepts (HEAP_MAX_SIZE / 2, malloc/malloc.c).
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        }
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

/// A figure of a file in `/proc`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let figure = text.lines().find_map(|line| line.strip_prefix(name))?;
    figure.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The memory that is left in the cgroup at `path` and those above it.
fn of_cgroups(top: &Path, path: &str) -> u64 {
    let figure = |dir: &Path, name: &str| -> Option<u64> {
        read_to_string(dir.join(name)).ok()?.trim().parse().ok()
    };
    let left = |dir: &Path| {
        // Either may be "max", which is no number; above `memory.high` a process is throttled to a
        // standstill.
        let limits = ["memory.max", "memory.high"].map(|name| figure(dir, name));
        let most = limits.into_iter().flatten().min()?;
        // The page cache can be reclaimed, except for tmpfs files.
        let stat = read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let field = |name| {
            let bytes = stat.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
            bytes.unwrap_or(0)
        };
        let cached = field("file ").saturating_sub(field("shmem "));
        let used = figure(dir, "memory.current")?.saturating_sub(cached);
        Some(most.saturating_sub(used))
    };
    let dir = top.join(path);
    let up = dir.ancestors().take_while(|dir| dir.starts_with(top));
    up.filter_map(left).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn the_narrowest_limit_counts() {
        let dir = std::env::temp_dir().join(format!("fragmend-memory-{}", std::process::id()));
        create_dir_all(dir.join("a/b")).unwrap();
        assert_eq!(of_cgroups(&dir, "a/b"), u64::MAX);
        for (group, most, used) in [("a", "5000", "1000"), ("a/b", "max", "900")] {
            write(dir.join(group).join("memory.max"), most).unwrap();
            write(dir.join(group).join("memory.current"), used).unwrap();
        }
        assert_eq!(of_cgroups(&dir, "a/b"), 4000);
        write(dir.join("a/memory.stat"), "anon 400\nfile 600\nfile_mapped 7\n").unwrap();
        assert_eq!(of_cgroups(&dir, "a/b"), 4600);
        // tmpfs files cannot be reclaimed, and above `memory.high` a process is throttled to a standstill.
        write(dir.join("a/memory.stat"), "anon 400\nfile 600\nshmem 500\n").unwrap();
        assert_eq!(of_cgroups(&dir, "a/b"), 4100);
        write(dir.join("a/b/memory.high"), "2000").unwrap();
        assert_eq!(of_cgroups(&dir, "a/b"), 1100);
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!(kib("VmSize:\t  12 kB\n", "VmSize:"), Some(12 << 10));
        assert!(room() > 0 && room() < u64::MAX);
    }
}
