//! The elements of a BPF hash table, many at once (`BPF_MAP_LOOKUP_BATCH` of `bpf(2)`, since Linux 5.6).
//!
//! The kernel returns whole buckets, so a batch may be shorter than asked for before the last one. The iterator of
//! libbpf-rs 0.27 takes such a batch for the last.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const BPF_MAP_TYPE_HASH: usize = 1;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
/// Elements that are asked for at first.
const AT_ONCE: usize = 16 * 1024;

/// The part of `union bpf_attr` for batches (linux/bpf.h).
#[repr(C)]
struct Batch {
    /// Where to go on, 0 at first; and where the kernel puts the next such place.
    from: u64,
    next: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Calls `each` with key and value of every element of a hash table that does not change meanwhile.
///
/// # Errors
/// `Unsupported` for anything but a hash table, `EINVAL` before Linux 5.6; else those of `bpf(2)`. `each` may have
/// been called before.
pub fn elements(table: impl AsFd, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let table = table.as_fd();
    let (key, value) = sizes(table)?;
    let mut room = AT_ONCE;
    let (mut keys, mut values) = (vec![0u8; room * key], vec![0u8; room * value]);
    let (mut place, mut next, mut begun) = (0u64, 0u64, false);
    loop {
        let mut batch = Batch {
            from: if begun { (&raw mut place) as u64 } else { 0 },
            next: (&raw mut next) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: room as u32,
            map: table.as_raw_fd() as u32,
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: the kernel reads and writes `batch`. It writes at most `count` keys and values, whose sizes in a
        // hash table are those it has reported, and reads and writes a place of four bytes.
        let failed = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, &raw mut batch, size_of::<Batch>())
                < 0
        };
        let error = io::Error::last_os_error();
        let code = if failed { error.raw_os_error().unwrap_or(0) } else { 0 };
        match code {
            0 | libc::ENOENT => {}
            libc::EINTR | libc::EAGAIN => continue,
            // A bucket does not fit.
            libc::ENOSPC if room < AT_ONCE << 8 => {
                room *= 2;
                keys.resize(room * key, 0);
                values.resize(room * value, 0);
                continue;
            }
            _ => return Err(error),
        }
        let found = keys.chunks_exact(key).zip(values.chunks_exact(value));
        found.take(batch.count as usize).for_each(|(key, value)| each(key, value));
        if code == libc::ENOENT {
            return Ok(());
        }
        (place, begun) = (next, true);
    }
}

/// The bytes of a key and a value of a hash table (`/proc/PID/fdinfo` of it).
fn sizes(table: BorrowedFd) -> io::Result<(usize, usize)> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", table.as_raw_fd()))?;
    let field = |name: &str| -> Option<usize> {
        info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    match (field("map_type:"), field("key_size:"), field("value_size:")) {
        (Some(BPF_MAP_TYPE_HASH), Some(key @ 1..), Some(value @ 1..)) => Ok((key, value)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_table_is_refused() {
        let file = std::fs::File::open("/proc/version").unwrap();
        let found = elements(&file, |_, _| panic!("it has no elements"));
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
