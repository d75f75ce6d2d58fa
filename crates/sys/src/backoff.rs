//! Exponential backoff: waits that double, and a bounded number of attempts with one such wait between two of
//! them.

use std::io;
use std::time::Duration;

/// A wait that doubles each time, up to a longest one.
#[derive(Clone, Copy, Debug)]
pub struct DoublingWait {
    next: Duration,
    longest: Duration,
}

impl DoublingWait {
    /// The first wait is `first`; none is longer than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Sleeps for the next wait.
    pub fn sleep(&mut self) {
        std::thread::sleep(self.next);
        self.next = self.next.saturating_mul(2).min(self.longest);
    }
}

/// The wait after so many failed attempts in a row: `first` after one, twice as long after each further one.
pub fn wait_after(first: Duration, failed: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX))
}

/// The attempts that are left, and the wait before the next one.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    wait: DoublingWait,
    left: u32,
}

impl Backoff {
    /// For `attempts` attempts, the one under way included; the first wait is `first`.
    pub const fn new(first: Duration, attempts: u32) -> Self {
        let wait = DoublingWait::new(first, Duration::MAX);
        Self { wait, left: attempts.saturating_sub(1) }
    }

    /// Whether the attempt under way is the last.
    pub fn is_last(&self) -> bool {
        self.left == 0
    }

    /// Sleeps until the next attempt.
    pub fn wait(&mut self) {
        self.wait.sleep();
        self.left = self.left.saturating_sub(1);
    }

    /// Makes attempts until one succeeds, fails with an error that does not pass, or is the last.
    ///
    /// # Errors
    /// That of the last attempt.
    pub fn retry<T>(
        mut self,
        passes: impl Fn(&io::Error) -> bool,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match attempt() {
                Err(e) if passes(&e) && !self.is_last() => self.wait(),
                ended => return ended,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn waits_double() {
        let waits = [0, 1, 2, 5, 100].map(|failed| wait_after(Duration::from_millis(2), failed));
        assert_eq!(waits[..4], [2, 2, 4, 32].map(Duration::from_millis));
        assert!(waits[4] > Duration::from_secs(60));
    }

    #[test]
    fn attempts_end_with_success_another_error_or_their_number() {
        let first = Duration::from_millis(1);
        let busy = || io::Error::from(io::ErrorKind::ResourceBusy);
        let passes = |e: &io::Error| e.kind() == io::ErrorKind::ResourceBusy;
        for (succeeds_at, made, succeeds) in [(1, 1, true), (3, 3, true), (9, 5, false)] {
            let (mut count, started) = (0, Instant::now());
            let ended = Backoff::new(first, 5).retry(passes, || {
                count += 1;
                if count == succeeds_at { Ok(count) } else { Err(busy()) }
            });
            assert_eq!((count, ended.is_ok()), (made, succeeds));
            // 1, 2, 4 and 8 ms: one less than a power of two after each attempt.
            assert!(started.elapsed() >= first * ((1 << (made - 1)) - 1));
        }
        let mut count = 0;
        let ended = Backoff::new(first, 5).retry(passes, || {
            count += 1;
            Err::<(), _>(io::Error::from(io::ErrorKind::NotFound))
        });
        assert_eq!((count, ended.unwrap_err().kind()), (1, io::ErrorKind::NotFound));
    }
}
