//! A drive at the end of a cable: commands are counted and recorded, and the power may be cut before or during any of them.

use crate::machine::PowerCut;
use fragmend_flash::command::{Command, Completion, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::{Contents, Device, Recovery};

/// A command that the drive was sent.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The command.
    pub command: Command,
    /// What the drive did for it, or beside it.
    pub counters: Counters,
}

/// The drive, at the end of a cable that may be cut.
pub(crate) struct Wired {
    pub device: Box<dyn Device>,
    pub commands: u64,
    /// When the last command arrived.
    pub arrived: u64,
    pub cut: Option<PowerCut>,
    pub is_on: bool,
    pub records: Option<Vec<Recorded>>,
}

impl Wired {
    /// Passes on a command, unless the power is cut before it.
    fn submit(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        if let Some(PowerCut { before, after_ns }) = self.cut
            && self.is_on
            && before <= self.commands + 1
        {
            let at = self.arrived.saturating_add(after_ns).min(at.max(self.arrived));
            self.device.power_cut(at);
            self.is_on = false;
        }
        if !self.is_on {
            return Err(Refused::NoPower);
        }
        self.commands += 1;
        self.arrived = self.arrived.max(at);
        let before = self.records.is_some().then(|| self.device.counters());
        let done = self.device.submit_with(at, command, contents);
        if let (Some(records), Some(before)) = (&mut self.records, before) {
            let counters = self.device.counters().since(&before);
            records.push(Recorded { command: command.clone(), counters });
        }
        let done = done?;
        if let Some(PowerCut { before, after_ns }) = self.cut
            && before == self.commands + 1
            && !matches!(command, Command::Read(_) | Command::Write { .. })
            && done.done_ns > self.arrived.saturating_add(after_ns)
        {
            self.device.power_cut(self.arrived + after_ns);
            self.is_on = false;
            return Err(Refused::NoPower);
        }
        Ok(done)
    }
}

/// The drive, with the content of the write that is under way.
pub(crate) struct WithContents<'a, 'c> {
    pub drive: &'a mut Wired,
    pub contents: Contents<'c>,
}

impl Device for WithContents<'_, '_> {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.drive.submit(at, command, contents)
    }

    fn submit(&mut self, at: u64, command: &Command) -> Result<Completion, Refused> {
        self.drive.submit(at, command, self.contents)
    }

    fn unit_bytes(&self) -> u32 {
        self.drive.device.unit_bytes()
    }

    fn units(&self) -> u32 {
        self.drive.device.units()
    }

    fn idle_at(&self) -> u64 {
        self.drive.device.idle_at()
    }

    fn counters(&self) -> Counters {
        self.drive.device.counters()
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        self.drive.device.bytes(units)
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.drive.device.power_cut(at)
    }
}
