//! How fast to go, and when to let others go first.
//!
//! At the default pace the mending watches its device: bytes that were read there and not by
//! this process are somebody else's. While others read, steps are short, so that whoever comes
//! in between waits for little, and each is followed by a pause many times its length, so that
//! at any instant the device is most likely free of us. While nobody reads, there are no pauses.

use fragmend_layout::ByteRange;
use fragmend_sys::block::BlockDevice;
use fragmend_sys::process;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How fast data may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rate {
    /// As fast as it goes while nobody else reads from the device, and yielding when they do.
    #[default]
    Yielding,
    /// At most so many bytes per second, whatever others do.
    BytesPerSecond(u64),
    /// As fast as it goes.
    Unlimited,
}

/// While others read, a step is followed by a pause of so many times its length.
const YIELD: u32 = 8;
/// However slow the device has become under others: never pause longer than this for them. Nobody
/// who waits for a file notices so short a pause.
pub(crate) const SHORT: Duration = Duration::from_millis(10);
/// While others read, a step moves no more than this.
const SHORT_STEP_BYTES: u64 = 16 * 1024;
/// How long after somebody else's last read the mending stays on its toes.
const WARY: Duration = Duration::from_millis(500);
/// How much of other people's reading is noise: metadata, a stray page.
const NOISE_BYTES: u64 = 16 * 1024;
/// So much of the time in which nothing moved may be made up for; a stop, a suspended machine or a long
/// row of files left alone are not followed by a burst.
const CREDIT: Duration = Duration::from_millis(250);
/// The longest pause without a look at Ctrl-C.
const NAP: Duration = Duration::from_millis(50);

/// Keeps the pace of one run on one device.
pub struct Pacer {
    rate: Rate,
    device: Option<BlockDevice>,
    /// When the next byte may go, where a rate was given.
    next: Instant,
    /// Bytes read on the device by others, as last seen.
    foreign: u64,
    pressed: Option<Instant>,
    /// Time spent in pauses.
    pub paused: Duration,
}

impl Pacer {
    /// A pacer for the device under the directory `root`, whose `st_dev` is `dev`.
    pub fn new(rate: Rate, root: &Path, dev: u64) -> Self {
        let device = BlockDevice::under(root, dev).ok();
        let mut pacer = Self {
            rate,
            device,
            next: Instant::now(),
            foreign: 0,
            pressed: None,
            paused: Duration::ZERO,
        };
        pacer.foreign = pacer.read_by_others();
        pacer
    }

    /// How long to wait after a step of `bytes` that took `busy`.
    pub fn due(&mut self, bytes: u64, busy: Duration) -> Duration {
        match self.rate {
            Rate::Unlimited => Duration::ZERO,
            Rate::BytesPerSecond(rate) => {
                let now = Instant::now();
                let from = now.checked_sub(CREDIT).map_or(self.next, |at| self.next.max(at));
                self.next = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                self.next.saturating_duration_since(now)
            }
            Rate::Yielding => match self.others_read() {
                true => (busy * YIELD).min(SHORT),
                false => Duration::ZERO,
            },
        }
    }

    /// What to move in the next step: from `at` on, at most `full` bytes, at least `least`.
    pub fn part(&self, at: u64, full: u64, least: u64) -> ByteRange {
        let bytes = if self.is_pressed() { full.min(SHORT_STEP_BYTES) } else { full };
        ByteRange::at(at, bytes.max(least))
    }

    /// Waits so long, or until `stop`.
    pub fn pause(&mut self, pause: Duration, stop: &AtomicBool) {
        let since = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let left = pause.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(NAP));
        }
        self.paused += since.elapsed();
    }

    /// Whether somebody else read from the device a moment ago.
    fn others_read(&mut self) -> bool {
        let foreign = self.read_by_others();
        if foreign > self.foreign + NOISE_BYTES {
            self.pressed = Some(Instant::now());
        }
        self.foreign = self.foreign.max(foreign);
        self.is_pressed()
    }

    fn is_pressed(&self) -> bool {
        self.rate == Rate::Yielding && self.pressed.is_some_and(|at| at.elapsed() < WARY)
    }

    /// Bytes that the device has read so far and this process has not asked for.
    fn read_by_others(&self) -> u64 {
        let device = self.device.as_ref().and_then(|d| d.counters().ok()).unwrap_or_default();
        let own = process::io_account().unwrap_or_default();
        device.read_bytes.saturating_sub(own.read_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_not_followed_by_a_burst() {
        const RATE: u64 = 1 << 20;
        let mut pacer = Pacer::new(Rate::BytesPerSecond(RATE), Path::new("/"), 0);
        let first = pacer.due(RATE, Duration::ZERO);
        assert!(first > Duration::from_millis(900) && first <= Duration::from_secs(1));
        // As if the process had been stopped for so long.
        pacer.next = Instant::now().checked_sub(Duration::from_secs(16)).unwrap_or(pacer.next);
        let due = pacer.due(RATE, Duration::ZERO);
        assert!(due > Duration::from_secs(1) - CREDIT - Duration::from_millis(100), "{due:?}");
        // A short delay is made up for.
        pacer.next = Instant::now();
        assert!(pacer.due(RATE / 100, Duration::ZERO) <= Duration::from_millis(10));
    }
}
