//! Where more space is to be had while a rewrite writes a range again.

use super::place::Holder;
use crate::donor::Stage;
use fragmend_sys::backoff::DoublingWait;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Writes a range again, for [`put`](super::place::put).
pub(super) struct Rewriter<'a> {
    pub reserve: &'a mut Option<OwnedFd>,
    pub stage: &'a Option<Stage>,
    pub patience: Patience,
}

impl Holder for Rewriter<'_> {
    fn free_space(&mut self) -> bool {
        self.reserve.take().is_some() || self.stage.as_ref().is_some_and(Stage::release_all)
    }

    fn wait_for_space(&mut self) -> bool {
        self.patience.wait()
    }
}

/// How long a rewrite waits for others to free space, once it has none left to release.
const PATIENCE: Duration = Duration::from_secs(5);

/// The waits of a rewrite for space, with the range a hole that no other program can read.
#[derive(Default)]
pub(super) struct Patience(Option<(Instant, DoublingWait)>);

impl Patience {
    /// Sleeps for the next wait; `false` once [`PATIENCE`] is over.
    fn wait(&mut self) -> bool {
        let first = DoublingWait::new(Duration::from_millis(5), Duration::from_millis(100));
        let (began, wait) = self.0.get_or_insert_with(|| (Instant::now(), first));
        if began.elapsed() >= PATIENCE {
            return false;
        }
        wait.sleep();
        true
    }
}
