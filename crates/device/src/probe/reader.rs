//! What is measured with: something that carries out reads and says how long they lasted.

use std::io;

/// A read of a device. Figures are bytes; both are multiples of [`Reader::unit_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Offset of its first byte.
    pub at: u64,
    /// Its length.
    pub bytes: u32,
}

/// Why measuring ended.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The device does not answer any more.
    #[error("the device vanished while it was probed")]
    Gone,
    /// A limit of bytes, requests or time is reached.
    #[error("the budget is spent")]
    Spent,
    /// The caller asked to stop.
    #[error("interrupted")]
    Stopped,
    /// A read failed, or the clock could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A device that can be read, and the clock that times it.
pub trait Reader {
    /// Bytes that can be read, from offset 0 on.
    fn capacity_bytes(&self) -> u64;

    /// The smallest read, and what offsets and lengths are multiples of.
    fn unit_bytes(&self) -> u32;

    /// The longest read that reaches the device as one request.
    fn max_request_bytes(&self) -> u32;

    /// The most reads that can be in flight.
    fn max_depth(&self) -> u32;

    /// Carries out reads, `depth` of them in flight, the next whenever one is done. Returns the nanoseconds until
    /// the last is done. The device is idle before, as far as this reader is concerned. Once `ended` returns true no read
    /// is issued any more, and those in flight are waited for: reads of a slow device may last longer than a probe.
    ///
    /// # Errors
    /// When a read fails; [`Failed::Stopped`] where reads were left out.
    fn elapsed(
        &mut self,
        reads: &[Read],
        depth: u32,
        ended: &dyn Fn() -> bool,
    ) -> Result<u64, Failed>;

    /// Whether the unit at this offset holds anything but zeroes; `None` where the reader cannot tell. A unit of
    /// zeroes may never have been written, or be trimmed: such reads need not touch the media.
    ///
    /// # Errors
    /// When the read fails.
    fn holds_data(&mut self, at: u64) -> Result<Option<bool>, Failed>;
}
