//! A drive that several programs use.

use crate::command::{Command, Completion, Refused, Units};
use crate::counters::Counters;
use crate::device::{Contents, Device, Recovery};
use crate::zones::ZoneReport;
use std::cell::RefCell;

/// A handle to a drive that several programs use; each has one.
pub struct Shared<'a, D>(pub &'a RefCell<D>);

impl<D: Device> Device for Shared<'_, D> {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.0.borrow_mut().submit_with(at, command, contents)
    }

    fn unit_bytes(&self) -> u32 {
        self.0.borrow().unit_bytes()
    }

    fn units(&self) -> u32 {
        self.0.borrow().units()
    }

    fn idle_at(&self) -> u64 {
        self.0.borrow().idle_at()
    }

    fn counters(&self) -> Counters {
        self.0.borrow().counters()
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        self.0.borrow().bytes(units)
    }

    fn dies(&self) -> u32 {
        self.0.borrow().dies()
    }

    fn die_of(&self, unit: u32) -> Option<u32> {
        self.0.borrow().die_of(unit)
    }

    fn dof_p_per_mille(&self, units: &[Units]) -> u32 {
        self.0.borrow().dof_p_per_mille(units)
    }

    fn busy_ns(&self) -> Vec<u64> {
        self.0.borrow().busy_ns()
    }

    fn zones(&self) -> Vec<ZoneReport> {
        self.0.borrow().zones()
    }

    fn zone_units(&self) -> u32 {
        self.0.borrow().zone_units()
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.0.borrow_mut().power_cut(at)
    }
}
