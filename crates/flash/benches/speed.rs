//! How fast the simulator is, on one core, with a drive of 64 GiB in units of 4 KiB: random reads,
//! random writes in the steady state, filling, memory.
//!
//! `cargo bench -p fragmend-flash --bench speed` prints limits and medians, and exits with 1 if a limit is
//! missed. Programs include those of garbage collection and of padding. There are two figures of them: in
//! units of 4 KiB, and in flash pages of 16 KiB on a drive that has those.
//!
//! Limits of speed are ratios: how many steps of a reference loop ([`Reference`]) the same processor does in
//! that time, measured next to each sample. Both are processor time, which does not pass while other
//! processes run. So a slow or a busy machine does not miss the limits.

use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::device::Device;
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::ssd::Ssd;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Commands in flight.
const DEPTH: usize = 64;
/// Commands of one sample.
const BATCH: u64 = 1_000_000;
/// How long samples are taken before they count.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long they are taken then, and how many at least.
const MEASURED: Duration = Duration::from_secs(5);
const FEWEST: usize = 10;
/// The most steps of the reference loop for a random read, a program of a unit, a program of a flash page of
/// 16 KiB, and a unit of filling.
const READ: f64 = 6.0;
const PROGRAM: f64 = 6.0;
const PROGRAM_16: f64 = 15.0;
const FILL: f64 = 2.0;

/// Like `nvmevirt-fast24`, but of 64 GiB, and with flash pages of `page_kib`.
fn drive(page_kib: u32) -> Drive {
    Drive {
        geometry: Geometry {
            channels: 4,
            dies_per_channel: 2,
            planes_per_die: 1,
            planes_together: false,
            planes_read_alone: false,
            ways_first: false,
            blocks_per_plane: 8_768,
            pages_per_block: 1024 / page_kib,
            flash_page_bytes: page_kib << 10,
            program_unit_bytes: page_kib << 10,
            mapping_unit_bytes: 4 << 10,
            stripe_unit_bytes: 32 << 10,
            over_provisioning_per_mille: 70,
        },
        timing: Timing {
            read_ns: vec![30_013, 42_013],
            small_read_ns: vec![29_760, 41_760],
            small_read_bytes: 4 << 10,
            program_ns: 185_000,
            link_bytes_per_second: 3360 << 20,
            firmware_read_ns: 30_490,
            firmware_small_read_ns: 21_500,
            small_command_bytes: 4 << 10,
            ..Timing::round(16 << 10)
        },
        buffer: BufferSpec {
            bytes: 4 << 20,
            command_ns: 4_000,
            unit_ns: 460,
            protected: true,
            open_program_units: 32,
        },
        firmware: Firmware::default(),
    }
}

/// Processor time of this process so far, in nanoseconds.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// A loop of what the simulator does most: look-ups in a table as large as the mapping of the drive, in
/// random order, each of which needs the result of the one before.
struct Reference {
    next: Vec<u32>,
    at: u32,
}

/// Steps of the reference loop that are timed next to each sample.
const REFERENCE_STEPS: u32 = 200_000;

impl Reference {
    /// Entries of the table: units of 4 KiB of 64 GiB.
    const ENTRIES: u32 = 1 << 24;

    fn new() -> Self {
        // A full-period linear congruential generator visits each entry once.
        let next = |n: u32| n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % Self::ENTRIES;
        Self { next: (0..Self::ENTRIES).map(next).collect(), at: 0 }
    }

    /// The present time of a step, in nanoseconds.
    fn step_ns(&mut self) -> f64 {
        let start = cpu_ns();
        for _ in 0..REFERENCE_STEPS {
            self.at = black_box(self.next[self.at as usize]);
        }
        (cpu_ns() - start) / f64::from(REFERENCE_STEPS)
    }
}

/// Samples of a duration, each with the reference loop before and after it.
#[derive(Default)]
struct Samples {
    ns: Vec<f64>,
    /// The same in steps of the reference loop.
    steps: Vec<f64>,
}

impl Samples {
    /// Times an action, which returns how many things it has done.
    fn time(&mut self, reference: &mut Reference, action: impl FnOnce() -> u64) {
        let before = reference.step_ns();
        let start_ns = cpu_ns();
        let count = action();
        let took_ns = cpu_ns() - start_ns;
        let step_ns = (before + reference.step_ns()) / 2.0;
        let ns = took_ns / count as f64;
        self.ns.push(ns);
        self.steps.push(ns / step_ns);
    }

    /// Takes samples for [`MEASURED`], after [`WARM_UP`].
    fn take(name: &str, mut sample: impl FnMut(&mut Self)) -> Self {
        eprintln!("{name}...");
        let mut warm = Self::default();
        let start = Instant::now();
        while start.elapsed() < WARM_UP {
            sample(&mut warm);
        }
        let mut samples = Self::default();
        let start = Instant::now();
        while start.elapsed() < MEASURED || samples.ns.len() < FEWEST {
            sample(&mut samples);
        }
        samples
    }

    /// Millions a second.
    fn millions_per_second(&self) -> f64 {
        1e3 / median(self.ns.clone())
    }

    fn median_steps(&self) -> f64 {
        median(self.steps.clone())
    }
}

/// A drive and a host that keeps [`DEPTH`] commands in flight.
struct Player {
    ssd: Ssd,
    now: u64,
    ends: VecDeque<u64>,
    random: u64,
}

impl Player {
    fn new(ssd: Ssd) -> Self {
        Self { ssd, now: 0, ends: VecDeque::new(), random: 0x9E37_79B9_7F4A_7C15 }
    }

    fn unit(&mut self) -> Units {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let all = u64::from(self.ssd.shape().logical_units);
        Units::new((((self.random >> 32) * all) >> 32) as u32, 1)
    }

    fn submit(&mut self, command: &Command) {
        let done = self.ssd.submit(self.now, command).expect("a command that fits");
        self.ends.push_back(done.done_ns);
        if self.ends.len() > DEPTH {
            self.now = self.now.max(self.ends.pop_front().unwrap_or(0));
        }
    }

    fn read(&mut self) {
        let command = Command::Read(self.unit());
        self.submit(&command);
    }

    fn write(&mut self) {
        let command = Command::Write { units: self.unit(), hint: Hint::None, fua: false };
        self.submit(&command);
    }
}

/// A drive whose units are all written; each unit is one thing of a sample.
fn filled(page_kib: u32, reference: &mut Reference, samples: &mut Samples) -> Ssd {
    let mut ssd = Ssd::new(&drive(page_kib)).expect("a drive");
    samples.time(reference, || {
        let units = ssd.units();
        ssd.precondition(Units::new(0, units)).expect("room");
        units.into()
    });
    ssd
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The peak memory of this process.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1024)
}

/// Random writes to a drive in the steady state: samples of the time for each unit that is programmed, and
/// the write amplification.
fn written(name: &str, player: &mut Player, reference: &mut Reference) -> (Samples, f64) {
    // Each unit is overwritten more than once.
    for _ in 0..3 * u64::from(player.ssd.units()) / 2 {
        let unit = player.unit();
        player.ssd.precondition(unit).expect("room");
    }
    let steady = player.ssd.counters();
    let samples = Samples::take(name, |samples| {
        samples.time(reference, || {
            let before = player.ssd.counters();
            (0..BATCH).for_each(|_| player.write());
            player.ssd.counters().since(&before).flash_written()
        });
    });
    let waf = player.ssd.counters().since(&steady).waf_per_mille();
    (samples, waf as f64 / 1000.0)
}

/// A figure and its limit.
struct Limit {
    name: &'static str,
    limit: f64,
    measured: f64,
}

fn main() {
    let before = peak_bytes();
    let mut reference = Reference::new();
    let reference_bytes = Reference::ENTRIES as usize * size_of::<u32>();
    // Before the other drive is made, because the peak is to be that of one drive.
    let ssd = filled(32, &mut reference, &mut Samples::default());
    let peak = before.and(peak_bytes()).map(|peak| peak - reference_bytes);
    let (tables, mapped) = (ssd.memory_bytes(), ssd.units() as usize);
    let mut player = Player::new(ssd);

    let reads = Samples::take("random reads", |samples| {
        samples.time(&mut reference, || {
            (0..BATCH).for_each(|_| player.read());
            BATCH
        });
    });
    let (units, waf) = written("random writes", &mut player, &mut reference);
    drop(player);
    let mut small = Player::new(filled(16, &mut reference, &mut Samples::default()));
    let name = "random writes, pages of 16 KiB";
    let (small_units, _) = written(name, &mut small, &mut reference);
    drop(small);
    let fills = Samples::take("filling", |samples| {
        black_box(filled(32, &mut reference, samples));
    });
    let per_unit = |bytes: usize| bytes as f64 / mapped as f64;
    let missed = judge(&[
        Limit { name: "random read, in steps", limit: READ, measured: reads.median_steps() },
        Limit {
            name: "program of 4 KiB, in steps",
            limit: PROGRAM,
            measured: units.median_steps(),
        },
        Limit {
            name: "program of a page of 16 KiB, in steps",
            limit: PROGRAM_16,
            measured: small_units.median_steps() * 4.0,
        },
        Limit { name: "filling, in steps a unit", limit: FILL, measured: fills.median_steps() },
        Limit { name: "tables, bytes a mapped unit", limit: 12.0, measured: per_unit(tables) },
        Limit {
            name: "peak memory, bytes a mapped unit",
            limit: 12.0,
            measured: peak.map_or(0.0, per_unit),
        },
    ]);
    let (reads, units) = (reads.millions_per_second(), units.millions_per_second());
    let pages = small_units.millions_per_second() / 4.0;
    let fill = median(fills.ns) * mapped as f64 / 1e9;
    println!("| random reads, M/s | - | {reads:.2} | |");
    println!("| programs of 4 KiB, M/s | - | {units:.2} | |");
    println!("| programs of pages of 16 KiB, M/s | - | {pages:.2} | |");
    println!("| programs of pages of 32 KiB, M/s | - | {:.2} | |", units / 8.0);
    println!("| filling 64 GiB, s | - | {fill:.2} | |");
    println!("| step of the reference loop, ns | - | {:.1} | |", reference.step_ns());
    println!("| write amplification | - | {waf:.2} | |");
    println!("\nlimits {}", if missed { "NOT reached" } else { "reached" });
    std::process::exit(i32::from(missed));
}

/// Prints figures and their limits; returns whether one is missed.
fn judge(limits: &[Limit]) -> bool {
    println!("| figure | at most | measured | |");
    println!("|---|---:|---:|---|");
    for Limit { name, limit, measured } in limits {
        let missed = if measured > limit { "MISSED" } else { "" };
        println!("| {name} | {limit} | {measured:.2} | {missed} |");
    }
    limits.iter().any(|Limit { limit, measured, .. }| measured > limit)
}
