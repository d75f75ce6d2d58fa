//! The interface of every simulated drive: it carries out commands at instants of virtual time,
//! counts its operations, may keep content, and loses its power when a test says so. [`crate::ssd`],
//! [`crate::zones`] and [`crate::inplace`] are drives.

use crate::command::{Command, Completion, Refused, Units};
use crate::counters::Counters;

/// Bytes of a mapping unit, where a drive keeps content; `None` reads as zeroes.
pub type Bytes = Option<Box<[u8]>>;

/// The content of a write: the bytes of each unit, by the unit's number. A drive asks for each unit
/// once, in order.
pub type Contents<'a> = &'a mut dyn FnMut(u32) -> Bytes;

/// A simulated drive. Times are nanoseconds since it was made.
pub trait Device {
    /// Carries out a command that arrives at this time, or at that of the last command if that was
    /// later. A drive that keeps content asks `contents` for what a write brings.
    ///
    /// # Errors
    /// Why the drive refused the command; it has done nothing then.
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused>;

    /// The same with zeroes as the content of a write.
    ///
    /// # Errors
    /// Why the drive refused the command; it has done nothing then.
    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.submit_with(at, command, &mut |_| None)
    }

    /// Bytes of a unit, in which commands count.
    fn unit_bytes(&self) -> u32;

    /// Units that the host sees.
    fn units(&self) -> u32;

    /// When all that was asked for is done and the drive is idle, if nothing else arrives.
    fn idle_at(&self) -> u64;

    /// Counts since the drive was made. A drive leaves counts at 0 that do not apply to it.
    fn counters(&self) -> Counters;

    /// What these units hold now; zeroes where nothing was written, and throughout if the drive
    /// keeps no content.
    fn bytes(&self, units: Units) -> Vec<u8>;

    /// The power fails at this time, which is no earlier than the last command, and comes back. What
    /// the drive had promised to keep is there afterwards.
    fn power_cut(&mut self, at: u64) -> Recovery;
}

/// What it took a drive to find everything again after a power cut; nothing, for most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Flash pages whose out-of-band areas were read.
    pub pages: u64,
    /// How long that took, on all dies at once.
    pub elapsed_ns: u64,
}

/// The bytes of units one after the other, with zeroes for `None`.
pub(crate) fn joined(units: impl Iterator<Item = Bytes>, unit_bytes: u32) -> Vec<u8> {
    let mut all = Vec::new();
    for bytes in units {
        match bytes {
            Some(bytes) => all.extend_from_slice(&bytes),
            None => all.resize(all.len() + unit_bytes as usize, 0),
        }
    }
    all
}
