//! The drive of a [machine](crate::machine), to which commands are passed on as long as the power is on, and the same drive as the
//! host's path sees it during a write.

use crate::machine::PowerCut;
use fragmend_flash::command::{Command, Completion, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::{Contents, Device, Recovery};
use fragmend_flash::host::Slots;
use fragmend_flash::zones::ZoneReport;

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
    /// Its queue, which the programs share: what one has begun and does not wait for is in it while it goes on.
    pub slots: Slots,
    pub commands: u64,
    /// When the last command arrived.
    pub arrived: u64,
    pub cut: Option<PowerCut>,
    pub is_on: bool,
    /// The commands that were sent, if they are recorded.
    pub records: Option<Vec<Recorded>>,
}

impl Wired {
    /// A drive that is on, with a queue for so many commands, to which none was sent.
    pub fn new(device: Box<dyn Device>, queue_depth: u32) -> Self {
        let slots = Slots::new(queue_depth);
        Self { device, slots, commands: 0, arrived: 0, cut: None, is_on: true, records: None }
    }

    /// Passes on a command once the queue has a slot for it, unless the power is cut before that.
    fn submit(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        let at = self.slots.free_at(at);
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
        self.slots.occupy(at, done.done_ns);
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

    fn precondition(&mut self, units: Units) -> Result<(), Refused> {
        self.drive.device.precondition(units)
    }

    fn dies(&self) -> u32 {
        self.drive.device.dies()
    }

    fn die_of(&self, unit: u32) -> Option<u32> {
        self.drive.device.die_of(unit)
    }

    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        self.drive.device.dof_p_per_mille(units)
    }

    fn busy_ns(&self) -> Vec<u64> {
        self.drive.device.busy_ns()
    }

    fn zones(&self) -> Vec<ZoneReport> {
        self.drive.device.zones()
    }

    fn zone_units(&self) -> u32 {
        self.drive.device.zone_units()
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.drive.device.power_cut(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuts::drives::flash;
    use fragmend_flash::command::Hint;
    use fragmend_flash::drive::Drive;
    use fragmend_flash::ssd::Ssd;
    use fragmend_flash::zones::Zoned;

    /// A drive of four dies that can have zones.
    fn drive() -> Drive {
        let mut drive = flash(512, 16, 8);
        drive.buffer.protected = true;
        drive
    }

    /// What a drive reports, other than what every drive must.
    fn reported(device: &dyn Device) -> (u32, Option<u32>, u32, Vec<u64>, usize, u32) {
        let dof_p = device.dof_p_per_mille(&[Units::new(0, 4), Units::new(16, 4)]);
        let (busy, zones) = (device.busy_ns(), device.zones().len());
        (device.dies(), device.die_of(20), dof_p, busy, zones, device.zone_units())
    }

    #[test]
    fn the_host_sees_what_the_drive_reports() {
        let ssd = Box::new(Ssd::new(&drive()).expect("a drive"));
        let zoned = Box::new(Zoned::new(&drive(), 4, false).expect("a zoned drive"));
        for (device, zones) in [(ssd as Box<dyn Device>, 0), (zoned, 10)] {
            let mut wired = Wired::new(device, 32);
            let contents = &mut |_| None;
            let mut seen = WithContents { drive: &mut wired, contents };
            let write = Command::Write { units: Units::new(0, 64), hint: Hint::None, fua: false };
            seen.submit(0, &write).expect("a write");
            let by_wrapper = reported(&seen);
            assert_eq!(by_wrapper, reported(&*wired.device));
            let (dies, die, dof_p, busy, count, units) = by_wrapper;
            assert_eq!((dies, die, dof_p, count), (4, Some(1), 500, zones));
            assert!(busy.iter().any(|ns| *ns > 0) && (units > 0) == (zones > 0));
        }
    }

    #[test]
    fn a_drive_is_preconditioned_through_the_wrapper() {
        let mut wired = Wired::new(Box::new(Ssd::new(&drive()).expect("a drive")), 32);
        let contents = &mut |_| None;
        WithContents { drive: &mut wired, contents }
            .precondition(Units::new(0, 64))
            .expect("space");
        assert_eq!(wired.device.die_of(20), Some(1));
        assert_eq!(wired.device.idle_at(), 0);
    }
    #[test]
    fn a_command_waits_until_the_queue_has_a_slot() {
        let ends = |depth: u32| {
            let mut drive = drive();
            drive.timing.link_latency_ns = 1_000_000;
            let mut wired = Wired::new(Box::new(Ssd::new(&drive).expect("a drive")), depth);
            wired.device.precondition(Units::new(0, 64)).expect("space");
            let read = |unit: u32| Command::Read(Units::new(unit, 1));
            [0, 8, 16]
                .map(|unit| wired.submit(0, &read(unit), &mut |_| None).expect("a read").done_ns)
        };
        let ([first, ..], waiting, together) = (ends(1), ends(1), ends(3));
        assert_eq!(waiting.map(|end| end / 1_000_000), [1, 2, 3]);
        assert_eq!(together.map(|end| end / 1_000_000), [1; 3]);
        assert_eq!(ends(2).map(|end| end / 1_000_000), [1, 1, 2]);
        assert_eq!(first, together[0]);
    }
}
