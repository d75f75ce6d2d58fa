//! A drive that keeps no promise which it has not made: of what it has acknowledged and not flushed, any part may survive a power
//! cut, unit by unit, in any order. Writes of one unit are in order, and each of them is whole or missing.

use super::Random;
use fragmend_flash::command::{Command, Completion, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::{Bytes, Contents, Device, Recovery};
use std::collections::BTreeMap;

/// How long a command lasts, in nanoseconds.
const COMMAND_NS: u64 = 20_000;

/// Such a drive. Its seed decides what survives.
pub struct Lossy {
    unit_bytes: u32,
    units: u32,
    durable: BTreeMap<u32, Bytes>,
    /// The writes of each unit since it was last made durable, the first one first, with the number of their command.
    volatile: BTreeMap<u32, Vec<(u64, Bytes)>>,
    random: Random,
    now: u64,
    counters: Counters,
}

impl Lossy {
    pub fn new(unit_bytes: u32, units: u32, seed: u64) -> Self {
        let (durable, volatile) = (BTreeMap::new(), BTreeMap::new());
        let (random, counters) = (Random(seed), Counters::default());
        Self { unit_bytes, units, durable, volatile, random, now: 0, counters }
    }

    fn keep(&mut self, units: Units, contents: Contents<'_>) {
        for unit in units.each() {
            let write = (self.counters.commands, contents(unit));
            self.volatile.entry(unit).or_default().push(write);
        }
    }

    /// Makes the last write of a unit durable.
    fn force(&mut self, unit: u32) {
        if let Some((_, bytes)) = self.volatile.remove(&unit).and_then(|mut writes| writes.pop()) {
            self.durable.insert(unit, bytes);
        }
    }

    fn check(&self, units: Units) -> Result<(), Refused> {
        let end = u64::from(units.start) + u64::from(units.count);
        match units.count {
            0 => Err(Refused::Length),
            _ if end > u64::from(self.units) => Err(Refused::OutOfRange),
            _ => Ok(()),
        }
    }

    fn unit(&self, unit: u32) -> Option<&[u8]> {
        match self.volatile.get(&unit).and_then(|writes| writes.last()) {
            Some((_, bytes)) => bytes.as_deref(),
            None => self.durable.get(&unit)?.as_deref(),
        }
    }
}

impl Device for Lossy {
    fn submit_with(
        &mut self,
        at: u64,
        command: &Command,
        contents: Contents<'_>,
    ) -> Result<Completion, Refused> {
        match command {
            Command::Read(units) => self.check(*units)?,
            Command::Write { units, fua, .. } => {
                self.check(*units)?;
                self.keep(*units, contents);
                if *fua {
                    units.each().for_each(|unit| self.force(unit));
                }
            }
            Command::Trim(units) | Command::WriteZeroes(units) => {
                self.check(*units)?;
                self.keep(*units, &mut |_| None);
            }
            Command::Flush => {
                let units: Vec<u32> = self.volatile.keys().copied().collect();
                units.into_iter().for_each(|unit| self.force(unit));
            }
            _ => return Err(Refused::Unsupported),
        }
        self.counters.commands += 1;
        self.now = self.now.max(at) + COMMAND_NS;
        Ok(Completion { done_ns: self.now, ..Completion::default() })
    }

    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }

    fn units(&self) -> u32 {
        self.units
    }

    fn idle_at(&self) -> u64 {
        self.now
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn bytes(&self, units: Units) -> Vec<u8> {
        let mut all = vec![0; (units.count * self.unit_bytes) as usize];
        let places = all.chunks_exact_mut(self.unit_bytes as usize);
        for (unit, place) in units.each().zip(places) {
            if let Some(bytes) = self.unit(unit) {
                place.copy_from_slice(bytes);
            }
        }
        all
    }

    fn power_cut(&mut self, at: u64) -> Recovery {
        self.now = self.now.max(at);
        // Nothing survives, or everything, or only the last command, or of each unit what the seed says.
        let (how, last) = (self.random.below(6), self.counters.commands.saturating_sub(1));
        for (unit, writes) in std::mem::take(&mut self.volatile) {
            let survivors = match how {
                0 => 0,
                1 => writes.len(),
                2 if writes.last().is_some_and(|(command, _)| *command == last) => writes.len(),
                2 => 0,
                _ => self.random.below(writes.len() as u64 + 1) as usize,
            };
            if let Some((_, bytes)) = writes.into_iter().take(survivors).next_back() {
                self.durable.insert(unit, bytes);
            }
        }
        Recovery::default()
    }
}
