//! Counts allocated memory: the system's allocator with a counter. All threads share the counter, so
//! only one measurement can run at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes, Relaxed) + bytes;
    if now > MOST.load(Relaxed) {
        MOST.fetch_max(now, Relaxed);
    }
}

// SAFETY: everything is done by the system's allocator; the counts touch no memory of others.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        more(size);
        // SAFETY: as the caller promises.
        let new = unsafe { System.realloc(old, layout, size) };
        NOW.fetch_sub(layout.size(), Relaxed);
        new
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

/// The most bytes that were allocated at any time of `run`, beyond those before it.
pub fn most<R>(run: impl FnOnce() -> R) -> (R, usize) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    let result = run();
    (result, MOST.load(Relaxed).saturating_sub(before))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_given_back_counts() {
        let (_, most) = super::most(|| drop(vec![0u8; 32 << 20]));
        // The harness's own thread frees a little meanwhile, and the count is of all threads.
        assert!(most >= 31 << 20, "{most}");
    }
}
