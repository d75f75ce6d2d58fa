//! Runs a load on a drive.

use super::{Grow, Order, Phase, Precondition, Replay, Step, Touch, Workload, requests};
use crate::described::BadFile;
use crate::file::{Allocator, FileOnDrive};
use crate::plot::Plot;
use crate::random::Random;
use crate::row::Row;
use crate::scan::Placed;
use crate::trace::replay::{Replayed, replay};
use fragmend_flash::command::{Command, Hint, Refused, Units};
use fragmend_flash::counters::Counters;
use fragmend_flash::device::Device;
use fragmend_flash::drive::{Drive, Placement};
use fragmend_flash::host::Host;
use fragmend_flash::ssd::Ssd;
use std::collections::BTreeMap;

/// Rows and pictures of a load.
///
/// # Errors
/// A trace cannot be replayed.
pub fn play(load: &Workload, seed: u64) -> Result<(Vec<Row>, Vec<Plot>), BadFile> {
    let Some(flash) = load.setup.drive.flash() else {
        let mut drive = load.setup.device();
        let measured = Player::new(load, seed).phases(&mut *drive, false)?;
        let rows = measured.iter().flat_map(|(phase, measured)| measured.rows(&phase.name));
        return Ok((layout_rows(load).into_iter().chain(rows).collect(), Vec::new()));
    };
    let placements = match &load.spec.placements {
        Some(placements) => placements.get_ref().clone(),
        None => vec![flash.firmware.placement],
    };
    let (mut rows, mut groups) = (layout_rows(load), BTreeMap::<usize, (String, Vec<f64>)>::new());
    for placement in &placements {
        let mut ssd = preconditioned(load, flash, *placement, seed);
        let measured = Player::new(load, seed).phases(&mut ssd, true)?;
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
    Ok((rows, vec![plot]))
}

/// What of a scan is on the drive.
fn layout_rows(load: &Workload) -> Vec<Row> {
    let Some(placed) = &load.placed else { return Vec::new() };
    let extents: usize = placed.files.values().map(FileOnDrive::extents).sum();
    vec![
        Row::ours("layout: files with data", "", placed.files.len() as f64),
        Row::ours("layout: extents", "", extents as f64),
        Row::ours("layout: gaps between data that are left", "%", placed.gaps_ppm as f64 / 1e4),
    ]
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
    let none = Precondition { fill_percent: 0, overwrite_percent: 0 };
    let precondition = load.spec.precondition.as_ref().map_or(none, |spanned| *spanned.get_ref());
    let Precondition { fill_percent, overwrite_percent } = precondition;
    let share = |units: u32, percent: u32| (u64::from(units) * u64::from(percent) / 100) as u32;
    let filled = share(ssd.units(), fill_percent);
    if filled > 0 {
        ssd.precondition(Units::new(0, filled)).expect("room");
    }
    let mut random = Random::new(seed, "precondition");
    if filled > 0 {
        for _ in 0..share(filled, overwrite_percent) {
            ssd.precondition(Units::new(random.below(filled), 1)).expect("room");
        }
    }
    // The data of a scan is there, too: in the order of the drive, as far as the history of it is not known.
    for units in load.placed.iter().flat_map(|placed| &placed.used) {
        let start = units.start.max(filled);
        if start < units.end() {
            ssd.precondition(Units::new(start, units.end() - start)).expect("room");
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
    /// What was replayed of traces.
    replayed: Replayed,
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
        if self.replayed.requests > 0 {
            let Replayed { requests, folded, response_ns, .. } = self.replayed;
            row("requests of traces", "", requests as f64);
            row("of these, folded onto the smaller drive", "", folded as f64);
            row("their mean response", "us", response_ns as f64 / requests as f64 / 1e3);
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
    /// Bytes, and requests, of traces.
    replayed: Replayed,
}

/// Why a step failed.
enum Failed {
    /// The drive refused what was checked before.
    Refused(Refused),
    /// A trace could not be replayed.
    Trace(BadFile),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl Failed {
    /// The error of a trace.
    ///
    /// # Panics
    /// It is another one, which a checked load does not have.
    fn of_trace(self) -> BadFile {
        match self {
            Self::Trace(bad) => bad,
            Self::Refused(refused) => panic!("a checked load, but the drive refuses: {refused}"),
        }
    }
}

impl<'a> Player<'a> {
    fn new(load: &'a Workload, seed: u64) -> Self {
        Self {
            load,
            random: Random::new(seed, "load"),
            space: Allocator::from(load.placed.as_ref().map_or(0, Placed::end)),
            files: load.placed.as_ref().map_or_else(BTreeMap::new, |placed| placed.files.clone()),
            cursors: BTreeMap::new(),
        }
    }

    /// Runs all phases, each once the drive is idle. The drive's counters are among the figures if `counts`.
    fn phases<D: Device + ?Sized>(
        mut self,
        device: &mut D,
        counts: bool,
    ) -> Result<Vec<(&'a Phase, Measured)>, BadFile> {
        let (mut now, mut all) = (0, Vec::new());
        for phase in &self.load.spec.phase {
            now = device.idle_at().max(now);
            let before = device.counters();
            let (end, mut measured) = self.phase(device, phase, now).map_err(Failed::of_trace)?;
            measured.counters = counts.then(|| device.counters().since(&before));
            now = end;
            all.push((phase, measured));
        }
        Ok(all)
    }

    /// Runs a phase; returns when it ends, and its figures.
    fn phase<D: Device + ?Sized>(
        &mut self,
        device: &mut D,
        phase: &Phase,
        start: u64,
    ) -> Result<(u64, Measured), Failed> {
        self.cursors.clear();
        let unit_bytes = u64::from(device.unit_bytes());
        let mut host = Host::new(&self.load.setup.host, device, start);
        let mut transferred = Transferred::default();
        for _ in 0..phase.repeat {
            for (number, step) in phase.steps.iter().enumerate() {
                self.step(&mut host, number, step, &mut transferred)?;
            }
        }
        // Those of a scan's files are summed up before.
        let named = self.files.iter().filter(|(name, file)| self.was_placed(name) != Some(*file));
        let extents = named.map(|(name, file)| (name.clone(), file.extents()));
        let measured = Measured {
            ns: host.now - start,
            read_bytes: transferred.read * unit_bytes + transferred.replayed.read_bytes,
            written_bytes: transferred.written * unit_bytes + transferred.replayed.written_bytes,
            requests: host.requests,
            extents: extents.collect(),
            replayed: transferred.replayed,
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
    ) -> Result<(), Failed> {
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
            Step::ReadAll(calls) => {
                for file in self.files.values() {
                    file.read(host, units(calls.get_ref().bytes))?;
                    transferred.read += u64::from(file.units());
                }
            }
            Step::Trace(step) => {
                let replayed = self.replay(host, step.get_ref()).map_err(Failed::Trace)?;
                transferred.replayed = transferred.replayed + replayed;
            }
            Step::Delete(name) => {
                let deleted = self.files.remove(&name.get_ref().file).unwrap_or_default();
                for extent in deleted.within(0, deleted.units()) {
                    host.device.submit(host.now, &Command::Trim(extent))?;
                }
            }
            Step::Flush => host.flush()?,
            Step::WaitUs(us) => host.now += us.get_ref() * 1000,
        }
        Ok(())
    }

    /// Replays a trace from now on, and waits until its last request is done.
    fn replay<D: Device + ?Sized>(
        &self,
        host: &mut Host<D>,
        step: &Replay,
    ) -> Result<Replayed, BadFile> {
        let trace = requests(&self.load.directory, step).map_err(|e| BadFile {
            file: step.file.clone(),
            line: 1,
            why: e.to_string(),
        })?;
        let played = replay(trace, host.device, host.now, &self.load.setup.host, step.speed)?;
        host.now = played.end_ns;
        host.requests += played.commands;
        Ok(played)
    }

    /// The file of this name as the scan has it.
    fn was_placed(&self, name: &str) -> Option<&FileOnDrive> {
        self.load.placed.as_ref()?.files.get(name)
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
