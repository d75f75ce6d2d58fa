//! The elements of a BPF table, many at once (`BPF_MAP_LOOKUP_BATCH` of `bpf(2)`): of a hash table since Linux 5.6, of an
//! array with a value for each processor since Linux 5.13.
//!
//! Of a hash table the kernel returns whole buckets, so a batch may be shorter than asked for before the last one. The
//! iterator of libbpf-rs 0.27 takes such a batch for the last.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const BPF_MAP_TYPE_HASH: usize = 1;
const BPF_MAP_TYPE_PERCPU_ARRAY: usize = 6;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;
/// Elements that are asked for at first, of a larger table.
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

/// Calls `each` with key and value of every element of a hash table that does not change meanwhile, or of an array with a
/// value for each processor: there, the values of all possible processors one after the other, each padded to 8 bytes.
///
/// # Errors
/// `Unsupported` for any other table, `EINVAL` or 524 (`ENOTSUPP`) where the kernel is older; else those of `bpf(2)`. `each`
/// may have been called before.
pub fn elements(table: impl AsFd, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let table = table.as_fd();
    let Sizes { key, value, elements } = sizes(table)?;
    let mut room = AT_ONCE.min(elements);
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

struct Sizes {
    /// Bytes of a key.
    key: usize,
    /// Bytes of what is returned for a key.
    value: usize,
    /// At most.
    elements: usize,
}

/// Those of a table (`/proc/PID/fdinfo` of it).
fn sizes(table: BorrowedFd) -> io::Result<Sizes> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", table.as_raw_fd()))?;
    let field = |name: &str| -> Option<usize> {
        info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    let found = [field("key_size:"), field("value_size:"), field("max_entries:")];
    let (Some(kind), [Some(key @ 1..), Some(value @ 1..), Some(elements @ 1..)]) =
        (field("map_type:"), found)
    else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let value = match kind {
        BPF_MAP_TYPE_HASH => value,
        BPF_MAP_TYPE_PERCPU_ARRAY => value.next_multiple_of(8) * possible_processors()?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok(Sizes { key, value, elements })
}

/// How many processors the kernel can have, as it counts them for such a table: they are numbered from 0, and listed as
/// `0-7` or `0-1,4-5` (Documentation/admin-guide/cputopology.rst).
fn possible_processors() -> io::Result<usize> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    let counted: Option<usize> = listed.trim().split(',').map(range).sum();
    counted.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{FromRawFd, OwnedFd};

    /// An array of such elements, with a value of 12 bytes for each processor.
    fn array(elements: u32) -> OwnedFd {
        const BPF_MAP_CREATE: libc::c_int = 0;
        let attributes: [u32; 5] = [BPF_MAP_TYPE_PERCPU_ARRAY as u32, 4, 12, elements, 0];
        // SAFETY: the kernel reads the attributes, which are in `attributes`.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_CREATE,
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the kernel has just opened it, and nothing else owns it.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    }

    /// Sets an element: the values of all processors.
    fn set(array: &OwnedFd, key: u32, values: &[u8]) {
        const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
        let fd = u64::from(array.as_raw_fd() as u32);
        let attributes = [fd, (&raw const key) as u64, values.as_ptr() as u64, 0];
        // SAFETY: the kernel reads the attributes, a key of four bytes, and a value for each possible processor.
        let failed = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_MAP_UPDATE_ELEM,
                attributes.as_ptr(),
                size_of_val(&attributes),
            )
        };
        assert_eq!(failed, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn an_array_has_the_values_of_each_processor() {
        let processors = possible_processors().unwrap();
        let array = array(5);
        let values = |key: u32| -> Vec<u8> {
            let of = |processor: usize| {
                [key as u8 + 1, processor as u8, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0]
            };
            (0..processors).flat_map(of).collect()
        };
        (0..5).for_each(|key| set(&array, key, &values(key)));
        let mut found = Vec::new();
        elements(&array, |key, values| {
            found.push((u32::from_ne_bytes(key.try_into().unwrap()), values.to_vec()));
        })
        .unwrap();
        assert_eq!(found, (0..5).map(|key| (key, values(key))).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let file = std::fs::File::open("/proc/version").unwrap();
        let found = elements(&file, |_, _| panic!("it has no elements"));
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
