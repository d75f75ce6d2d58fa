//! The seam between the daemon and where it works: this machine ([`Live`](crate::live::Live)), or a simulated one whose
//! clock advances as fast as a test likes.

use crate::activity::Activity;
use crate::daemon::Control;
use crate::{Policy, Time};
use fragmend_layout::ByteRange;
use fragmend_plan::{Plan, Survey};

/// A recording that has ended.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Accesses that were seen, lost ones included.
    pub accesses: u64,
    /// Accesses that were lost.
    pub lost: u64,
    /// Which programs use which files.
    pub activity: Activity,
    /// Paths of the policy that were not watched, and why.
    pub left_out: Vec<String>,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes that this process was charged for, each once however often the file system keeps it. Metadata is mostly not among them.
    pub written_bytes: u64,
    /// Data has changed its place, if only for a time.
    pub has_moved_data: bool,
    /// The ranges that have moved.
    pub moved: Vec<ByteRange>,
    /// The first reason why a range was left alone.
    pub left_alone: Option<String>,
    /// It was stopped before its end.
    pub stopped: bool,
    /// Something that should work failed.
    pub failed: bool,
}

/// Where the daemon works.
pub trait World {
    /// Why something did not work here.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The present time.
    fn now(&self) -> Time;

    /// Waits until a time, or until the daemon is to end or to read its policy again.
    fn wait(&mut self, until: Time, control: &Control);

    /// Records what programs do, for as long as the policy says; keeps the trace for [`survey`](World::survey).
    ///
    /// # Errors
    /// Nothing was recorded.
    fn record(&mut self, policy: &Policy, control: &Control) -> Result<Recorded, Self::Error>;

    /// The files of the latest recording, with their present layouts, and what the drives report of their wear.
    ///
    /// # Errors
    /// There is no recording, or its files cannot be found.
    fn survey(&mut self, policy: &Policy) -> Result<Survey, Self::Error>;

    /// A name of the file system with this device number that lasts: the same after a reboot. `None` if there is none.
    fn volume(&self, device: u64) -> Option<String>;

    /// How many bytes the device is written at most for each byte of a file on the file system with this device number, as it is now:
    /// data may be converted at any time.
    fn copies(&self, device: u64) -> u64;

    /// Moves the ranges of a plan. No more is written than the batch was debited for. Stops at the next safe point when
    /// `control` asks for something, or the hours of the policy are over.
    ///
    /// # Errors
    /// Before anything was written.
    fn apply(
        &mut self,
        plan: &Plan,
        policy: &Policy,
        control: &Control,
    ) -> Result<Applied, Self::Error>;

    /// The share of the last ten seconds in which programs waited for I/O, in per cent; `None` where that is not reported.
    fn io_pressure_percent(&self) -> Option<f64>;
}
