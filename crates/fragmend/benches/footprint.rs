//! What the daemon and the terminal view cost beside a steady load: memory, processor time, and the run time of the recorder's
//! programs in the kernel.
//!
//! ```sh
//! cargo bench -p fragmend --bench footprint
//! ```
//!
//! fio reads 50,000 blocks a second from the page cache. Beside it the daemon records for half of the time (by default it does
//! for a fifteenth), plans, serves its metrics to a scrape every second and writes them to a file; then the view is open in a terminal of
//! 80 by 24. Counted is all that a process uses from its start on, the loading of the recorder included. While it runs, the
//! kernel counts the run time of BPF programs, which makes each run longer by two looks at the clock: so that figure is an upper bound.
//! It is limited by `recording.overhead_percent`, and measured otherwise by `cargo bench -p fragmend-trace`.
//!
//! Fails if the load is not reached, or a limit is not kept.

use fragmend_sys::bpf_stats;
use fragmend_testbed::fio;
use fragmend_testbed::image::Image;
use fragmend_testbed::process::{Running, free_address};
use fragmend_testbed::terminal::Terminal;
use fragmend_testbed::usage::Process;
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Reads a second of the load.
const READS: f64 = 50_000.0;
/// The least of it that counts as the load.
const LEAST_READS: f64 = 0.95 * READS;
/// How long the daemon is watched, a whole number of its periods; and the view.
const OF_WATCH: Duration = Duration::from_secs(120);
const OF_TOP: Duration = Duration::from_secs(40);

/// What a program may use at most.
struct Limits {
    program: &'static str,
    /// Resident memory at any time, in MiB, if it is limited.
    mib: Option<f64>,
    /// Processor time, in per cent of one processor.
    percent: f64,
}

const WATCH: Limits = Limits { program: "watch", mib: Some(30.0), percent: 0.5 };
const TOP: Limits = Limits { program: "top", mib: None, percent: 2.0 };

/// What it has used.
struct Used {
    mib: f64,
    percent: f64,
    kernel_percent: f64,
    reads: f64,
}

fn main() -> ExitCode {
    let image = Image::ext4(600 << 20);
    fio::run(&image.path().join("file"), &["rw=write", "bs=1M", "size=256M"]);
    println!(
        "| program | reads a second | resident, at most (MiB) | processor (% of one) | programs in the kernel, at most (% of one) |"
    );
    println!("|---|---:|---:|---:|---:|");
    let rows = [(WATCH, watched(&image)), (TOP, viewed(&image))];
    let mut failed = false;
    for (limits, used) in rows {
        let Used { mib, percent, kernel_percent, reads } = used;
        println!(
            "| {} | {reads:.0} | {mib:.1} | {percent:.2} | {kernel_percent:.2} |",
            limits.program
        );
        failed |= reads < LEAST_READS
            || limits.mib.is_some_and(|most| mib > most)
            || percent > limits.percent;
    }
    if failed {
        eprintln!(
            "footprint: limits are 30 MiB and 0.5 % for watch, 2 % for top, beside {LEAST_READS} reads a second"
        );
    }
    ExitCode::from(u8::from(failed))
}

/// The load, for so long.
fn load(image: &Image, time: Duration) -> Running {
    let rate = format!("rate_iops={READS}");
    let runtime = format!("runtime={}", time.as_secs() + 5);
    let load = ["rw=randread", "bs=4k", "size=256M", "invalidate=0", "time_based", &rate, &runtime];
    let mut command = fio::command(&image.path().join("file"), &load);
    Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))
}

/// What a process has used since `began`, beside this load.
fn used(pid: u32, began: Instant, load: Running) -> Used {
    let (process, seconds) = (Process::Id(pid), began.elapsed().as_secs_f64());
    let percent = 100.0 * process.processor_time().expect("it runs").as_secs_f64() / seconds;
    let kernel_percent = 100.0 * program_seconds(pid) / seconds;
    let mib = process.peak_bytes().expect("it runs") as f64 / (1 << 20) as f64;
    let reads = fio::parse(&load.wait().expect(&[0])).read.iops;
    Used { mib, percent, kernel_percent, reads }
}

/// The daemon, which advises and moves nothing.
fn watched(image: &Image) -> Used {
    let load = load(image, OF_WATCH);
    let _counting = bpf_stats::enable().expect("the kernel counts run time");
    let at = free_address();
    let policy = image.scratch().join("watch.toml");
    let text = format!(
        "paths = [\"{}\"]\nmetrics.listen = \"{at}\"\nmetrics.textfile = \"{}\"\nrecording.window = \"60s\"\nrecording.every = \"120s\"\nplanning.every = \"120s\"\n",
        image.path().display(),
        image.scratch().join("fragmend.prom").display(),
    );
    fs::write(&policy, text).expect("the policy is written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fragmend"));
    command.args(["watch", "--quiet", "--policy"]).arg(policy);
    command.arg("--store").arg(image.scratch().join("store/watch.db"));
    let began = Instant::now();
    let mut daemon = Running::start(command.stdout(Stdio::null()).stderr(Stdio::inherit()));
    let (mut metrics, mut kernel_s) = (String::new(), 0f64);
    while began.elapsed() < OF_WATCH {
        std::thread::sleep(Duration::from_secs(1));
        metrics = scrape(at).unwrap_or(metrics);
        // The programs are unloaded when a recording ends.
        kernel_s = kernel_s.max(program_seconds(daemon.id()));
    }
    let elapsed = began.elapsed().as_secs_f64();
    let used = used(daemon.id(), began, load);
    daemon.signal(Signal::TERM);
    let ended = daemon.child().wait().expect("it can be waited for");
    assert!(ended.success(), "the daemon failed: {ended}");
    let accesses = metrics.lines().find_map(|l| l.strip_prefix("fragmend_accesses_total "));
    let recorded: f64 = accesses.and_then(|n| n.parse().ok()).expect("it has served its metrics");
    assert!(recorded > 0.0, "it has recorded nothing: {metrics}");
    Used { kernel_percent: 100.0 * kernel_s / elapsed, ..used }
}

/// The view, in a terminal.
fn viewed(image: &Image) -> Used {
    let load = load(image, OF_TOP);
    let _counting = bpf_stats::enable().expect("the kernel counts run time");
    let terminal = Terminal::open(80, 24);
    let pid = image.scratch().join("pid");
    let began = Instant::now();
    terminal.line(&format!(
        "echo $$ > {}; exec {} top {}",
        pid.display(),
        env!("CARGO_BIN_EXE_fragmend"),
        image.path().display()
    ));
    terminal.wait_for("what is read", |shown| shown.contains(" r/s"));
    std::thread::sleep(OF_TOP.saturating_sub(began.elapsed()));
    let pid = fs::read_to_string(pid).expect("its number").trim().parse().expect("a number");
    let used = used(pid, began, load);
    terminal.press("q");
    used
}

fn scrape(at: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The run time of the BPF programs that a process has loaded, while it is counted (`/proc/PID/fdinfo`).
fn program_seconds(pid: u32) -> f64 {
    let all = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("it runs").flatten();
    let ns = all.filter_map(|fd| {
        let info = fs::read_to_string(fd.path()).ok()?;
        let line = info.lines().find_map(|line| line.strip_prefix("run_time_ns:"))?;
        line.trim().parse::<f64>().ok()
    });
    ns.sum::<f64>() / 1e9
}
