//! Runs a load on a drive.

use super::{Grow, Order, Phase, Precondition, Step, Touch, Workload};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::random::Random;
use crate::row::Row;
use fragmend_flash::command::{Command, Hint, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;
use std::collections::BTreeMap;

/// Rows and pictures of a load.
pub fn play(load: &Workload, seed: u64) -> (Vec<Row>, Vec<Plot>) {
    let Some(flash) = load.setup.drive.flash() else {
        let mut drive = load.setup.device();
        let measured = Player::new(load, seed).phases(&mut *drive, false);
        let rows = |(phase, measured): &(&Phase, Measured)| measured.rows(&phase.name);
        return (measured.iter().flat_map(rows).collect(), Vec::new());
    };
    let placements = match &load.spec.placements {
        Some(placements) => placements.get_ref().clone(),
        None => vec![flash.firmware.placement],
    };
    let (mut rows, mut groups) = (Vec::new(), BTreeMap::<usize, (String, Vec<f64>)>::new());
    for placement in &placements {
        let mut ssd = preconditioned(load, flash, *placement, seed);
        let measured = Player::new(load, seed).phases(&mut ssd, true);
        for (n, (phase, measured)) in measured.iter().enumerate() {
            let name = format!("{}, {}", name_of(*placement), phase.name);
            rows.extend(measured.rows(&name));
            let bars = groups.entry(n).or_insert_with(|| (phase.name.clone(), Vec::new()));
            let bytes = measured.read_bytes + measured.written_bytes;
            bars.1.push(measured.mib_per_second(bytes));
        }
    }
    let plot = Plot::Bars {
        name: load.name.clone(),
        title: load.spec.about.clone(),
        axis: "MiB/s read and written".into(),
        series: placements.iter().map(|placement| name_of(*placement).to_owned()).collect(),
        groups: groups.into_values().collect(),
    };
    (rows, vec![plot])
}

/// The name of a placement in a file.
fn name_of(placement: Placement) -> &'static str {
    match placement {
        Placement::RoundRobin => "round-robin",
        Placement::ByAddress => "by-address",
        Placement::DieAffine => "die-affine",
        Placement::FileAffine => "file-affine",
    }
}

/// A flash drive with its content before the first phase.
fn preconditioned(load: &Workload, flash: &Drive, placement: Placement, seed: u64) -> Ssd {
    let mut drive = flash.clone();
    drive.firmware.placement = placement;
    let mut ssd = Ssd::new(&drive).expect("a parsed drive");
    let Some(precondition) = &load.spec.precondition else { return ssd };
    let Precondition { fill_percent, overwrite_percent } = *precondition.get_ref();
    let share = |units: u32, percent: u32| (u64::from(units) * u64::from(percent) / 100) as u32;
    let filled = share(ssd.units(), fill_percent);
    ssd.precondition(Units::new(0, filled)).expect("room");
    let mut random = Random::new(seed, "precondition");
    if filled > 0 {
        for _ in 0..share(filled, overwrite_percent) {
            ssd.precondition(Units::new(random.below(filled), 1)).expect("room");
        }
    }
    ssd
}

/// The measured figures of a phase.
struct Measured {
    ns: u64,
    read_bytes: u64,
    written_bytes: u64,
    requests: u64,
    extents: BTreeMap<String, usize>,
    /// The counts of a flash drive.
    counters: Option<Counters>,
}

impl Measured {
    fn mib_per_second(&self, bytes: u64) -> f64 {
        bytes as f64 / (1 << 20) as f64 / (self.ns.max(1) as f64 / 1e9)
    }

    fn rows(&self, name: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut row = |what: &str, unit: &str, ours: f64| {
            rows.push(Row::ours(format!("{name}: {what}"), unit, ours));
        };
        row("time", "ms", self.ns as f64 / 1e6);
        if self.read_bytes > 0 {
            row("read", "MiB/s", self.mib_per_second(self.read_bytes));
        }
        if self.written_bytes > 0 {
            row("written", "MiB/s", self.mib_per_second(self.written_bytes));
        }
        row("requests", "", self.requests as f64);
        for (file, extents) in &self.extents {
            row(&format!("extents of {file}"), "", *extents as f64);
        }
        let Some(counters) = &self.counters else { return rows };
        if counters.pages_read > 0 {
            row("busiest die over an even share", "%", counters.collision_percent() as f64);
        }
        if counters.host_written > 0 {
            row("write amplification", "times", counters.waf_per_mille() as f64 / 1000.0);
        }
        if counters.hints_taken + counters.hints_lost > 0 {
            row("hints taken", "", counters.hints_taken as f64);
            row("hints lost", "", counters.hints_lost as f64);
        }
        if counters.erases > 0 {
            row("blocks erased", "", counters.erases as f64);
        }
        rows
    }
}

/// A load that is being run.
struct Player<'a> {
    load: &'a Workload,
    random: Random,
    space: Allocator,
    files: BTreeMap<String, FileOnDrive>,
    /// Where each step of the phase continues in its file, in units.
    cursors: BTreeMap<usize, u32>,
}

/// Units that were read and written.
#[derive(Clone, Copy, Default)]
struct Transferred {
    read: u64,
    written: u64,
}

impl<'a> Player<'a> {
    fn new(load: &'a Workload, seed: u64) -> Self {
        Self {
            load,
            random: Random::new(seed, "load"),
            space: Allocator::from(0),
            files: BTreeMap::new(),
            cursors: BTreeMap::new(),
        }
    }

    /// Runs all phases, each once the drive is idle. The drive's counters are among the figures if `counts`.
    fn phases<D: Device + ?Sized>(
        mut self,
        device: &mut D,
        counts: bool,
    ) -> Vec<(&'a Phase, Measured)> {
        let (mut now, mut all) = (0, Vec::new());
        for phase in &self.load.spec.phase {
            now = device.idle_at().max(now);
            let before = device.counters();
            let (end, mut measured) = self.phase(device, phase, now).expect("a checked load");
            measured.counters = counts.then(|| device.counters().since(&before));
            now = end;
            all.push((phase, measured));
        }
        all
    }

    /// Runs a phase; returns when it ends, and its figures.
    fn phase<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        phase: &Phase,
        start: u64,
    ) -> Result<(u64, Measured), Refused> {
        self.cursors.clear();
        let unit_bytes = u64::from(device.unit_bytes());
        let mut host = Host::new(&self.load.setup.host, device, start);
        let mut transferred = Transferred::default();
        for _ in 0..phase.repeat {
            for (number, step) in phase.steps.iter().enumerate() {
                self.step(&mut host, number, step, &mut transferred)?;
            }
        }
        let extents = self.files.iter().map(|(name, file)| (name.clone(), file.extents()));
        let measured = Measured {
            ns: host.now - start,
            read_bytes: transferred.read * unit_bytes,
            written_bytes: transferred.written * unit_bytes,
            requests: host.requests,
            extents: extents.collect(),
            counters: None,
        };
        Ok((host.now, measured))
    }

    /// Runs the step of this number of a phase.
    fn step<D: Device + ?Sized>(
        &mut self,
        host: &mut Host<D>,
        number: usize,
        step: &Step,
        transferred: &mut Transferred,
    ) -> Result<(), Refused> {
        let unit_bytes = u64::from(host.device.unit_bytes());
        let units = |bytes: u64| (bytes / unit_bytes) as u32;
        match step {
            Step::Append(grow) => {
                let Grow { file, bytes, up_to } = grow.get_ref();
                let most = up_to.unwrap_or(*bytes);
                let count = self.random.within(units(*bytes), units(most));
                let file = self.files.entry(file.clone()).or_default();
                file.append(host, &mut self.space, count)?;
                transferred.written += u64::from(count);
            }
            Step::Overwrite(touch) => {
                for _ in 0..self.calls(touch.get_ref(), unit_bytes) {
                    let extents = self.next_call(number, touch.get_ref(), unit_bytes);
                    host.write(&extents, Hint::Overwrite)?;
                    transferred.written += total(&extents);
                }
            }
            Step::Read(touch) => {
                for _ in 0..self.calls(touch.get_ref(), unit_bytes) {
                    let extents = self.next_call(number, touch.get_ref(), unit_bytes);
                    host.read(&extents)?;
                    transferred.read += total(&extents);
                }
            }
            Step::Delete(name) => {
                let deleted = self.files.remove(&name.get_ref().file).unwrap_or_default();
                for extent in deleted.within(0, deleted.units()) {
                    host.device.submit(host.now, &Command::Trim(extent))?;
                }
            }
            Step::Flush => host.flush()?,
            Step::WaitUs(us) => host.now += us * 1000,
        }
        Ok(())
    }

    /// The number of calls of a step that reads or overwrites a file.
    fn calls(&self, touch: &Touch, unit_bytes: u64) -> u32 {
        let Some(file) = self.files.get(&touch.file) else { return 0 };
        let whole_file = file.units().div_ceil((touch.bytes / unit_bytes) as u32);
        touch.calls.unwrap_or(whole_file)
    }

    /// The extents of the next call of a step of this number.
    fn next_call(&mut self, number: usize, touch: &Touch, unit_bytes: u64) -> Vec<Units> {
        let Some(file) = self.files.get(&touch.file) else { return Vec::new() };
        let units = (touch.bytes / unit_bytes) as u32;
        let places = file.units() / units;
        let cursor = self.cursors.entry(number).or_default();
        let from = match touch.order {
            Order::Random => self.random.below(places.max(1)) * units,
            Order::Sequential => *cursor % file.units(),
        };
        let count = units.min(file.units() - from);
        *cursor = from + count;
        file.within(from, count)
    }
}

/// The units of all extents together.
fn total(extents: &[Units]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.count)).sum()
}
