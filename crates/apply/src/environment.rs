//! The world around a run, beside its volumes: the clock, who else uses the device, and what this
//! process has read and written itself. The kernel's is `fragmend_engines::Kernel`; a simulation has
//! its own, with a virtual clock.

use std::time::Duration;

/// Where a run takes place. One is shared by all of a run, so that it changes by itself.
pub trait Environment {
    /// The time since an instant that does not change. It never goes back.
    fn now(&self) -> Duration;

    /// Lets time pass: so much of it, or a little more.
    fn wait(&self, time: Duration);

    /// Bytes that anybody has read so far, this process among them, from the device of the volume with this
    /// device number, which is that of its files' identities; `None` where that cannot be told.
    fn read_from(&self, device: u64) -> Option<u64>;

    /// What this process has read and written so far.
    fn own_io(&self) -> OwnIo;

    /// From now on the device serves everybody else first, where it knows priorities.
    fn give_way(&self);
}

/// Input and output of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnIo {
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes sent to storage, or about to be.
    pub written_bytes: u64,
}
