//! Drives that write in place, so that data never moves in them: disks, memory cards, Optane, and memory
//! itself (FragPicker's table 2, FAST'24's figure 4).
//!
//! **What survives a power cut.** Nothing is buffered: a write that was acknowledged by then is on the media,
//! and one that was not has changed nothing. Memory loses everything.

mod description;
mod mechanism;
#[cfg(test)]
mod tests;

pub use description::{InPlaceDrive, Media};

use crate::command::{Command, Completion, Refused, Units, cut_units};
use crate::counters::Counters;
use crate::device::{Bytes, Contents, Device, Recovery, joined};
use crate::timeline::{Timeline, transfer_ns};
use mechanism::Mechanism;
use std::collections::{BTreeMap, BTreeSet};

/// A drive that writes in place.
#[derive(Clone, Debug)]
pub struct InPlace {
    drive: InPlaceDrive,
    now: u64,
    link: Timeline,
    mechanism: Mechanism,
    /// When all commands so far are done.
    done_at: u64,
    counters: Counters,
    content: Option<Content>,
}

/// The content of the units, and their content before writes that may not be done.
#[derive(Clone, Debug, Default)]
struct Content {
    units: BTreeMap<u32, Box<[u8]>>,
    in_flight: Vec<Written>,
}

/// A write of a unit that may not be done yet.
#[derive(Clone, Debug)]
struct Written {
    done_at: u64,
    unit: u32,
    before: Bytes,
}

impl Content {
    fn put(&mut self, unit: u32, bytes: Bytes, done_at: u64) {
        let before = match bytes {
            Some(bytes) => self.units.insert(unit, bytes),
            None => self.units.remove(&unit),
        };
        self.in_flight.push(Written { done_at, unit, before });
    }

    fn forget_done(&mut self, now: u64) {
        self.in_flight.retain(|written| written.done_at > now);
    }

    /// Undoes the writes that are not done at this time, unless a later write of the same unit is done.
    fn undo_unfinished(&mut self, at: u64) {
        let mut done = BTreeSet::new();
        for Written { done_at, unit, before } in
            std::mem::take(&mut self.in_flight).into_iter().rev()
        {
            if done_at <= at {
                done.insert(unit);
            } else if !done.contains(&unit) {
                match before {
                    Some(bytes) => self.units.insert(unit, bytes),
                    None => self.units.remove(&unit),
                };
            }
        }
    }
}

impl InPlace {
    /// An idle drive that keeps no content: its results are times and counters. A disk has its head
    /// over the first byte.
    pub fn new(drive: &InPlaceDrive) -> Self {
        Self {
            drive: drive.clone(),
            now: 0,
            link: Timeline::default(),
            mechanism: Mechanism::new(drive),
            done_at: 0,
            counters: Counters::default(),
            content: None,
        }
    }

    /// An idle drive that keeps content.
    pub fn with_content(drive: &InPlaceDrive) -> Self {
        Self { content: Some(Content::default()), ..Self::new(drive) }
    }

    fn check(&self, units: Units) -> Result<(), Refused> {
        let end = units.start.checked_add(units.count);
        if end.is_none_or(|end| end > self.drive.units()) {
            return Err(Refused::OutOfRange);
        }
        if units.count == 0 {
            return Err(Refused::Length);
        }
        Ok(())
    }

    /// Reads or writes units; returns when the media and the link are done.
    fn access(&mut self, units: Units, writes: bool) -> u64 {
        let unit = u64::from(self.drive.unit_bytes);
        let (start, bytes) = (u64::from(units.start) * unit, u64::from(units.count) * unit);
        let ready = self.now + self.drive.command_ns;
        let done = self.mechanism.access(ready, start, bytes, writes);
        let len = transfer_ns(bytes, self.drive.link_bytes_per_second);
        // The link transfers data as the media deliver it.
        let from = done.saturating_sub(len).max(ready);
        self.link.reserve(self.now, from, len) + len
    }

    fn keep(&mut self, units: Units, done_at: u64, contents: Contents<'_>) {
        if let Some(content) = &mut self.content {
            content.forget_done(self.now);
            units.each().for_each(|unit| content.put(unit, contents(unit), done_at));
        }
    }
}

impl Device for InPlace {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        self.now = self.now.max(at);
        let done_ns = match command {
            Command::Read(units) => {
                self.check(*units)?;
                self.counters.host_read += u64::from(units.count);
                self.access(*units, false)
            }
            Command::Write { units, .. } => {
                self.check(*units)?;
                self.counters.host_written += u64::from(units.count);
                let done = self.access(*units, true);
                self.keep(*units, done, contents);
                done
            }
            Command::WritePart { units, bytes, offset, .. } => {
                self.check(*units)?;
                let unit = self.drive.unit_bytes;
                let length = u64::from(units.count) * u64::from(unit);
                if *bytes == 0 || u64::from(*offset) + u64::from(*bytes) > length {
                    return Err(Refused::Length);
                }
                self.counters.merged_writes += u64::from(u64::from(*bytes) != length);
                self.counters.host_written += u64::from(units.count);
                // The media do what comes first before the rest, if it is in the same place.
                for cut in cut_units(*units, *bytes, *offset, unit) {
                    self.access(cut, false);
                }
                let done = self.access(*units, true);
                self.keep(*units, done, contents);
                done
            }
            Command::Flush => self.mechanism.idle_at().max(self.now),
            Command::Trim(units) | Command::WriteZeroes(units) => {
                self.check(*units)?;
                let done = self.now + self.drive.command_ns;
                self.keep(*units, done, &mut |_| None);
                done
            }
            _ => return Err(Refused::Unsupported),
        };
        self.counters.commands += 1;
        self.done_at = self.done_at.max(done_ns);
        Ok(Completion { done_ns, ..Completion::default() })
    }

    fn unit_bytes(&self) -> u32 {
        self.drive.unit_bytes
    }

    fn units(&self) -> u32 {
        self.drive.units()
    }

    fn idle_at(&self) -> u64 {
        self.done_at.max(self.now)
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        let content = self.content.as_ref();
        let bytes = |unit| content.and_then(|content| content.units.get(&unit).cloned());
        joined(units.each().map(bytes), self.drive.unit_bytes)
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.now = self.now.max(at);
        if let Some(content) = &mut self.content {
            content.undo_unfinished(self.now);
            if self.drive.media == (Media::Memory {}) {
                content.units.clear();
            }
        }
        self.link = self.link.idle();
        self.mechanism = Mechanism::new(&self.drive);
        self.done_at = self.now;
        Recovery::default()
    }
}
