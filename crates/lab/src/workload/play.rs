//! A load, done.

use super::{Grow, Order, Phase, Precondition, Step, Touch, Workload};
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::random::Random;
use crate::row::Row;
use fragmend_flash::command::{Command, Hint, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::{Device, Host, HostPath};
use fragmend_flash::inplace::InPlace;
use fragmend_flash::ssd::Ssd;
use std::collections::BTreeMap;

/// Figures and pictures of a load.
pub fn play(load: &Workload, seed: u64) -> (Vec<Row>, Vec<Plot>) {
    let Some(flash) = &load.setup.flash else {
        let drive = load.setup.in_place.as_ref().expect("a drive of one kind or the other");
        let mut drive = InPlace::new(drive);
        let idle = |_: &InPlace| 0;
        let done = Player::new(load, seed, &mut drive).phases(idle, |_| None);
        let rows = done.iter().flat_map(|(phase, done)| done.rows(&phase.name)).collect();
        return (rows, Vec::new());
    };
    let placements = match &load.spec.placements {
        Some(placements) => placements.get_ref().clone(),
        None => vec![flash.firmware.placement],
    };
    let (mut rows, mut groups) = (Vec::new(), BTreeMap::<usize, (String, Vec<f64>)>::new());
    for placement in &placements {
        let mut ssd = prepared(load, flash, *placement, seed);
        let player = Player::new(load, seed, &mut ssd);
        let done = player.phases(Ssd::idle_at, |ssd| Some(*ssd.counters()));
        for (n, (phase, done)) in done.iter().enumerate() {
            let name = format!("{}, {}", name_of(*placement), phase.name);
            rows.extend(done.rows(&name));
            let bars = groups.entry(n).or_insert_with(|| (phase.name.clone(), Vec::new()));
            bars.1.push(done.mib_per_second(done.read_bytes + done.written_bytes));
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

/// As in a file.
fn name_of(placement: Placement) -> &'static str {
    match placement {
        Placement::RoundRobin => "round-robin",
        Placement::DieAffine => "die-affine",
        Placement::FileAffine => "file-affine",
    }
}

/// A flash drive with what it holds before.
fn prepared(load: &Workload, flash: &Drive, placement: Placement, seed: u64) -> Ssd {
    let mut drive = flash.clone();
    drive.firmware.placement = placement;
    let mut ssd = Ssd::new(&drive).expect("a parsed drive");
    let Some(precondition) = &load.spec.precondition else { return ssd };
    let Precondition { fill_percent, overwrite_percent } = *precondition.get_ref();
    let of_all = |units: u32, percent: u32| (u64::from(units) * u64::from(percent) / 100) as u32;
    let filled = of_all(ssd.shape().logical_units, fill_percent);
    ssd.precondition(Units::new(0, filled)).expect("room");
    let mut random = Random::new(seed, "precondition");
    if filled > 0 {
        for _ in 0..of_all(filled, overwrite_percent) {
            ssd.precondition(Units::new(random.below(filled), 1)).expect("room");
        }
    }
    ssd
}

/// What a phase came to.
struct Done {
    ns: u64,
    read_bytes: u64,
    written_bytes: u64,
    requests: u64,
    extents: BTreeMap<String, usize>,
    counters: Option<Counters>,
}

impl Done {
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

struct Player<'a, D> {
    load: &'a Workload,
    path: &'a HostPath,
    device: &'a mut D,
    random: Random,
    space: Allocator,
    files: BTreeMap<String, FileOnDrive>,
    /// Where each step of the phase goes on, in units.
    cursors: BTreeMap<usize, u32>,
}

impl<'a, D: Device> Player<'a, D> {
    fn new(load: &'a Workload, seed: u64, device: &'a mut D) -> Self {
        Self {
            load,
            path: &load.setup.host,
            device,
            random: Random::new(seed, "load"),
            space: Allocator::from(0),
            files: BTreeMap::new(),
            cursors: BTreeMap::new(),
        }
    }

    /// All of them; each begins when the drive is idle.
    fn phases(
        mut self,
        idle_at: impl Fn(&D) -> u64,
        counters: impl Fn(&D) -> Option<Counters>,
    ) -> Vec<(&'a Phase, Done)> {
        let (mut now, mut done) = (0, Vec::new());
        for phase in &self.load.spec.phase {
            now = idle_at(self.device).max(now);
            let before = counters(self.device);
            let (end, mut of_phase) = self.phase(phase, now).expect("a load that was checked");
            let after = counters(self.device);
            of_phase.counters = after.zip(before).map(|(after, before)| after.since(&before));
            now = end;
            done.push((phase, of_phase));
        }
        done
    }

    fn phase(&mut self, phase: &Phase, start: u64) -> Result<(u64, Done), Refused> {
        self.cursors.clear();
        let unit = self.device.unit_bytes();
        let units = |bytes: u64| (bytes / u64::from(unit)) as u32;
        let mut host = Host::new(self.path, &mut *self.device, start);
        let (mut read, mut written) = (0, 0);
        for _ in 0..phase.repeat {
            for (number, step) in phase.steps.iter().enumerate() {
                match step {
                    Step::Append(grow) => {
                        let Grow { file, bytes, up_to } = grow.get_ref();
                        let most = up_to.unwrap_or(*bytes);
                        let count = self.random.within(units(*bytes), units(most));
                        let file = self.files.entry(file.clone()).or_default();
                        file.append(&mut host, &mut self.space, count)?;
                        written += u64::from(count);
                    }
                    Step::Overwrite(touch) | Step::Read(touch) => {
                        let Touch { file, bytes, calls, order } = touch.get_ref();
                        let Some(file) = self.files.get(file) else { continue };
                        let step_units = units(*bytes);
                        let calls = calls.unwrap_or(file.units().div_ceil(step_units));
                        let places = file.units() / step_units;
                        let cursor = self.cursors.entry(number).or_default();
                        for _ in 0..calls {
                            let from = match order {
                                Order::Random => self.random.below(places.max(1)) * step_units,
                                Order::Sequential => *cursor % file.units(),
                            };
                            let count = step_units.min(file.units() - from);
                            *cursor = from + count;
                            let stretches = file.within(from, count);
                            match step {
                                Step::Read(_) => {
                                    host.read(&stretches)?;
                                    read += u64::from(count);
                                }
                                _ => {
                                    host.write(&stretches, Hint::Overwrite)?;
                                    written += u64::from(count);
                                }
                            }
                        }
                    }
                    Step::Delete(name) => {
                        let gone = self.files.remove(&name.get_ref().file).unwrap_or_default();
                        for stretch in gone.within(0, gone.units()) {
                            host.device.submit(host.now, &Command::Trim(stretch))?;
                        }
                    }
                    Step::Flush => host.flush()?,
                    Step::WaitUs(us) => host.now += us * 1000,
                }
            }
        }
        let extents = self.files.iter().map(|(name, file)| (name.clone(), file.extents()));
        let done = Done {
            ns: host.now - start,
            read_bytes: read * u64::from(unit),
            written_bytes: written * u64::from(unit),
            requests: host.requests,
            extents: extents.collect(),
            counters: None,
        };
        Ok((host.now, done))
    }
}
