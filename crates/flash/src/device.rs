//! The interface of every simulated drive: it carries out commands at instants of virtual time, counts its
//! operations, may keep content, and can be cut from power. [`crate::ssd`], [`crate::zones`] and
//! [`crate::inplace`] are drives.

use crate::command::{Command, Completion, Refused, Units};
use crate::counters::Counters;
use crate::zones::ZoneReport;

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

    /// Dies that can work at the same time; 1 for drives that have none.
    fn dies(&self) -> u32 {
        1
    }

    /// The die that a unit is on, or is to be programmed to; `None` if it is not mapped, and for drives without
    /// dies. In a zone it follows from the place, whether the unit is written or not.
    fn die_of(&self, unit: u32) -> Option<u32> {
        let _ = unit;
        None
    }

    /// The degree of physical fragmentation of these units, in thousandths (janusd, section 3.1): 1 less the
    /// flash pages that are read at the same time on average over the most that could be: one on each die, or
    /// all pages that the units need, if these are fewer. 0 where units have no dies.
    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        let _ = units;
        0
    }

    /// For how long each die (or plane, where planes sense independently) was busy, in nanoseconds; none for
    /// drives without dies.
    fn busy_ns(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The zones; none for drives without.
    fn zones(&self) -> Vec<ZoneReport> {
        Vec::new()
    }

    /// Units of a zone; 0 for drives without zones.
    fn zone_units(&self) -> u32 {
        0
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
