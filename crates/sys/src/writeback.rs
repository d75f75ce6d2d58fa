//! Writes out what is dirty now, and waits for that and for nothing that comes later: a program that writes to
//! a file without end keeps some of it dirty at any instant.
//!
//! As in [`crate::same`], no descriptor's error is consumed where the kernel reports which pages are dirty.

use crate::backoff::DoublingWait;
use crate::cache;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// If no more of it has reached the device for this long, the disk is stalled, or another program has the same
/// pages written again and again.
const STALLED: Duration = Duration::from_millis(500);
/// The first and the longest time between two checks.
const FIRST_WAIT: Duration = Duration::from_micros(100);
const LONGEST_WAIT: Duration = Duration::from_millis(4);

/// Starts writing the dirty pages of `range` (bytes), once, and waits until they are written: at most for the
/// given time, no longer than more of them get written, and only while `go_on`, which is called every few
/// milliseconds, returns true. What is dirtied meanwhile stays dirty. Before Linux 6.5 it waits for the whole
/// range in one call.
///
/// # Errors
/// Those of the system calls.
pub fn write_once(
    file: impl AsFd,
    range: Range<u64>,
    most: Duration,
    go_on: impl Fn() -> bool,
) -> io::Result<()> {
    let started = Instant::now();
    if let Err(e) = cache::written_pages(&file, range.clone()) {
        return match e.raw_os_error() {
            Some(libc::ENOSYS) => cache::write_and_wait(file, range),
            _ => Err(e),
        };
    }
    cache::start_writeback(&file, range.clone())?;
    let (mut fewest, mut came) = (u64::MAX, started);
    let mut wait = DoublingWait::new(FIRST_WAIT, LONGEST_WAIT);
    while go_on() && started.elapsed() < most && came.elapsed() < STALLED {
        match cache::written_pages(&file, range.clone())? {
            0 => break,
            pages if pages < fewest => (fewest, came) = (pages, Instant::now()),
            _ => {}
        }
        wait.sleep();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_dirty_is_written_and_a_request_to_end_does_not_wait() {
        const SIZE: usize = 1 << 20;
        let path = std::env::temp_dir().join(format!("fragmend-writeback-{}", std::process::id()));
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file.write_all_at(&[7; SIZE], 0).unwrap();
        let all = 0..SIZE as u64;
        write_once(&file, all.clone(), Duration::from_secs(60), || true).unwrap();
        assert_eq!(cache::written_pages(&file, all.clone()).unwrap_or(0), 0);
        let started = Instant::now();
        write_once(&file, all, Duration::from_secs(60), || false).unwrap();
        assert!(started.elapsed() < STALLED, "{:?}", started.elapsed());
    }
}
