//! What a run depends on besides its volumes: the clock, the load of other programs on the device, and what
//! this process has read and written itself. The kernel's is `fragmend_engines::Kernel`; a simulation has its
//! own, with a virtual clock.

use std::time::Duration;

/// Where a run takes place. All parts of a run share one, so it is used through `&self`.
pub trait Environment {
    /// The time since a fixed instant. It never goes back.
    fn now(&self) -> Duration;

    /// Waits for `time`, or a little longer.
    fn wait(&self, time: Duration);

    /// Bytes that all programs, this process among them, have read so far from the device of the volume with
    /// this device number, which is that of its files' identities; `None` where that cannot be found out.
    fn read_from(&self, device: u64) -> Option<u64>;

    /// What this process has read and written so far.
    fn own_io(&self) -> OwnIo;

    /// From now on the device serves all other programs first, where it knows priorities.
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
