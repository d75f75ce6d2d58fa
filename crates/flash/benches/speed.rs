//! How fast the simulator is, on one core, with a drive of 64 GiB in units of 4 KiB: random reads,
//! random writes in the steady state, filling, memory.
//!
//! `cargo bench -p fragmend-flash --bench speed`. Prints limits and medians; exits with 1 when one
//! is missed. Page programs are collection's and padding's, too. They are counted twice: in units of
//! 4 KiB, and in flash pages of 16 KiB on a drive that has those.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use fragmend_flash::command::{Command, Hint, Units};
use fragmend_flash::drive::{BufferSpec, Drive, Firmware, Timing};
use fragmend_flash::geometry::Geometry;
use fragmend_flash::ssd::Ssd;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Commands at once.
const DEPTH: usize = 64;
/// Commands of one measurement.
const BATCH: u64 = 100_000;

/// As `nvmevirt-fast24`, but of 64 GiB, with flash pages of that size.
fn drive(page_kib: u32) -> Drive {
    Drive {
        geometry: Geometry {
            channels: 4,
            dies_per_channel: 2,
            planes_per_die: 1,
            planes_together: false,
            planes_read_alone: false,
            blocks_per_plane: 8_768,
            pages_per_block: 1024 / page_kib,
            flash_page_bytes: page_kib << 10,
            one_shot_bytes: page_kib << 10,
            mapping_unit_bytes: 4 << 10,
            die_granularity_bytes: 32 << 10,
            over_provisioning_per_mille: 70,
        },
        timing: Timing {
            read_ns: vec![30_013, 42_013],
            small_read_ns: vec![29_760, 41_760],
            small_read_bytes: 4 << 10,
            page_stays: false,
            program_ns: 185_000,
            erase_ns: 2_000_000,
            channel_bytes_per_second: 800 << 20,
            channel_chunk_bytes: 16 << 10,
            channel_command_ns: 0,
            link_bytes_per_second: 3360 << 20,
            firmware_read_ns: 30_490,
            firmware_small_read_ns: 21_500,
            small_command_bytes: 4 << 10,
            firmware_busy_ns: 0,
            suspend: None,
        },
        buffer: BufferSpec {
            bytes: 4 << 20,
            command_ns: 4_000,
            unit_ns: 460,
            protected: true,
            open_shots: 32,
        },
        firmware: Firmware::default(),
    }
}

/// A drive and a host that keeps [`DEPTH`] commands going.
struct Bed {
    ssd: Ssd,
    now: u64,
    ends: VecDeque<u64>,
    random: u64,
}

impl Bed {
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

fn filled(page_kib: u32) -> (Ssd, Duration) {
    let mut ssd = Ssd::new(&drive(page_kib)).expect("a drive");
    let start = Instant::now();
    ssd.precondition(Units::new(0, ssd.shape().logical_units)).expect("room");
    (ssd, start.elapsed())
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// Peak memory of this process.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<usize>().ok()? * 1024)
}

/// A drive in the steady state, what it programs a second in units while it is written to, and its
/// write amplification meanwhile.
fn written(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, bed: &mut Bed) -> (f64, f64) {
    // Each unit is written more than once again.
    for _ in 0..3 * u64::from(bed.ssd.shape().logical_units) / 2 {
        let unit = bed.unit();
        bed.ssd.precondition(unit).expect("room");
    }
    let steady = *bed.ssd.counters();
    let mut rates = Vec::new();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let before = *bed.ssd.counters();
            let start = Instant::now();
            for _ in 0..rounds * BATCH {
                bed.write();
            }
            let took = start.elapsed();
            let programs = bed.ssd.counters().since(&before).flash_written();
            rates.push(programs as f64 / took.as_secs_f64());
            took
        });
    });
    let waf = bed.ssd.counters().since(&steady).waf_per_mille();
    (if rates.is_empty() { 0.0 } else { median(rates) }, waf as f64 / 1000.0)
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let mut group = criterion.benchmark_group("speed");
    group.sample_size(10).sampling_mode(SamplingMode::Flat);

    let (mut fills, mut reads) = (vec![], vec![]);
    // Alone first: two drives at once would be two drives' memory.
    let (ssd, first) = filled(32);
    fills.push(first.as_secs_f64());
    let (tables, peak) = (ssd.memory_bytes(), peak_bytes());
    let mapped = ssd.shape().logical_units as usize;
    let mut bed = Bed::new(ssd);

    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("random reads", |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            for _ in 0..rounds * BATCH {
                bed.read();
            }
            let took = start.elapsed();
            reads.push((rounds * BATCH) as f64 / took.as_secs_f64());
            took
        });
    });
    let (units, waf) = written(&mut group, "random writes", &mut bed);
    drop(bed);
    let mut small = Bed::new(filled(16).0);
    let (of_small, _) = written(&mut group, "random writes, pages of 16 KiB", &mut small);
    drop(small);

    group.throughput(Throughput::Elements(mapped as u64));
    group.bench_function("filling", |bencher| {
        bencher.iter_custom(|rounds| {
            (0..rounds)
                .map(|_| {
                    let (ssd, took) = filled(32);
                    black_box(ssd);
                    fills.push(took.as_secs_f64());
                    took
                })
                .sum()
        });
    });
    group.finish();
    if reads.is_empty() || units == 0.0 || of_small == 0.0 {
        return; // only listed, or filtered
    }

    let (reads, units, pages) = (median(reads) / 1e6, units / 1e6, of_small / 4.0 / 1e6);
    let fill = median(fills);
    let per_unit = |bytes: usize| bytes as f64 / mapped as f64;
    let peak = peak.map_or(0.0, per_unit);
    let rows = [
        ("random reads, M/s", reads, 2.0, reads >= 2.0),
        ("programs of 4 KiB, M/s", units, 1.5, units >= 1.5),
        ("programs of pages of 16 KiB, M/s", pages, 1.5, pages >= 1.5),
        ("filling 64 GiB, s", fill, 5.0, fill <= 5.0),
        ("tables, bytes a mapped page", per_unit(tables), 12.0, per_unit(tables) <= 12.0),
        ("peak memory, bytes a mapped page", peak, 12.0, peak <= 12.0),
    ];
    println!("| figure | limit | measured | |");
    println!("|---|---:|---:|---|");
    for (name, measured, limit, reached) in rows {
        println!("| {name} | {limit} | {measured:.2} | {} |", if reached { "" } else { "MISSED" });
    }
    println!("| programs of pages of 32 KiB, M/s | - | {:.2} | |", units / 8.0);
    println!("| write amplification | - | {waf:.2} | |");
    let missed = rows.iter().any(|(_, _, _, reached)| !reached);
    println!("\nlimits {}", if missed { "NOT reached" } else { "reached" });
    std::process::exit(i32::from(missed));
}
