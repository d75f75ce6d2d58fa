//! The interface of every simulated drive: it carries out commands at instants of virtual time, counts its
//! operations, may keep content, and can be cut from power. [`crate::ssd`], [`crate::zones`] and
//! [`crate::inplace`] are drives.

use crate::command::{Command, Completion, Refused, Units};
use crate::counters::Counters;

/// The bytes of a mapping unit, where a drive keeps content; `None` is zeroes.
pub type Bytes = Option<Box<[u8]>>;

/// The content of a write: returns the bytes of a unit by its number. A drive calls it once for each unit, in
/// order.
pub type Contents<'a> = &'a mut dyn FnMut(u32) -> Bytes;

/// A simulated drive. Times are nanoseconds since the drive was made.
pub trait Device {
    /// Carries out a command that arrives at this time, or at that of the last command if that was later.
    /// `contents` returns the data of a write.
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

    /// When the drive is idle, if no further command arrives.
    fn idle_at(&self) -> u64;

    /// The counts since the drive was made; those that do not apply to the drive are 0.
    fn counters(&self) -> Counters;

    /// The content of these units; zeroes where nothing was written, and everywhere if the drive keeps no
    /// content.
    fn bytes(&self, units: Units) -> Vec<u8>;

    /// Brings the drive into the state after these units were written in order, without advancing the clock. Nothing
    /// for a drive whose times do not depend on what was written.
    ///
    /// # Errors
    /// As for a write.
    fn precondition(&mut self, units: Units) -> Result<(), Refused> {
        let _ = units;
        Ok(())
    }

    /// Cuts the power at this time, which is no earlier than the last command, and recovers. Durable data is
    /// there afterwards.
    fn power_cut(&mut self, at: u64) -> Recovery;
}

/// The cost of a drive's recovery from a power cut; nothing for drives other than flash SSDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Flash pages whose out-of-band areas were read.
    pub pages: u64,
    /// How long the reads lasted, on all dies in parallel.
    pub elapsed_ns: u64,
}

/// The bytes of units, one after the other, with zeroes for `None`.
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
